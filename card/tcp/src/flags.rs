//! The control bits of a segment (RFC 9293 section 3.1, RFC 3168).

use core::fmt;
use core::ops::BitOr;

/// The control bits of a segment.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u8);

impl Flags {
    /// The sender has sent all its data.
    pub const FIN: Self = Self(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset the connection.
    pub const RST: Self = Self(0x04);
    /// Push.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgment field is significant.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer is significant.
    pub const URG: Self = Self(0x20);
    /// ECN echo (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: Self = Self(0x80);

    /// All bits of `other` are set.
    #[inline]
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The flags that are set here and not in `other`.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// FIN is set.
    #[must_use]
    pub const fn fin(self) -> bool {
        self.contains(Self::FIN)
    }
    /// SYN is set.
    #[must_use]
    pub const fn syn(self) -> bool {
        self.contains(Self::SYN)
    }
    /// RST is set.
    #[must_use]
    pub const fn rst(self) -> bool {
        self.contains(Self::RST)
    }
    /// PSH is set.
    #[must_use]
    pub const fn psh(self) -> bool {
        self.contains(Self::PSH)
    }
    /// ACK is set.
    #[must_use]
    pub const fn ack(self) -> bool {
        self.contains(Self::ACK)
    }
    /// URG is set.
    #[must_use]
    pub const fn urg(self) -> bool {
        self.contains(Self::URG)
    }
}

impl BitOr for Flags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
        let mut first = true;
        f.write_str("[")?;
        for (bit, name) in names.iter().enumerate() {
            if self.0 & (1 << bit) != 0 {
                if !first {
                    f.write_str("|")?;
                }
                f.write_str(name)?;
                first = false;
            }
        }
        f.write_str("]")
    }
}
