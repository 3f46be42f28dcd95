//! Whom the server is for.

/// Who may be able to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Programs of this machine.
    Machine,
    /// Everybody who reaches the address: the operator has said so, knowing that nothing is asked
    /// of them.
    Anyone,
}
