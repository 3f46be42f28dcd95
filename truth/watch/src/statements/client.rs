//! Who asks a database.

/// A client of a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Client {
    /// Its process; 0: unknown.
    pub(crate) process: u32,
    /// The server that it asks, by its first process; 0: unknown, which may be any.
    pub(crate) server: u32,
    /// It was none of the server's when it first spoke on its connection. Of a process that has
    /// ended, nobody could tell any longer: a command of a timer, a dump.
    pub(crate) was_outside: bool,
    /// It asks through a network (TCP), from this port (0: unknown): whoever it is has sent
    /// something to a database by one.
    pub(crate) by_network: Option<u16>,
}
