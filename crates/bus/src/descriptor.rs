//! Descriptors: what the host tells the card to do, what the card answers, and where received frames go. Two words each.
//!
//! ```text
//! command, word 0   63..56 opcode | 55..48 flags | 47..40 class | 39..0 address in the window
//!          word 1   63..32 length | 31..0 offset in card memory, or segmentation of a packet (with FIRST)
//!
//!          opcode 1  nic_cache_init
//!                 2  nic_cache_insert(address, offset, length)
//!                 3  nic_pkt_append_mm(address, length, flags)
//!                 4  nic_pkt_append_cache(offset, length, flags)
//!          flags  1  FIRST: begins a packet      2  LAST: ends it, and it is sent      4  CHECKSUM: the card completes it
//!          segmentation  31..16 payload bytes of each segment, 0: one packet | 15..8 bytes of all headers | 7..0 where the transport header is
//!
//! completion, word 0  63..56 opcode | 55..0 value
//!             word 1  number of the descriptor that it is about
//!          opcode 1  the cache has `value` bytes      2  refused, `value` is the number of a [`Refusal`]
//!
//! free buffer, received frame
//!             word 0  63..40 flags (1: its checksums are right) | 39..0 address in the window
//!             word 1  bytes
//! ```
//!
//! Read first: Kim et al. 2002, Figure 6. Lengths and offsets are in bytes; a packet may use any part of what was inserted, and straddle blocks.

use crate::class::BusClass;
use crate::ring::Entry;

const ADDRESS_BITS: u32 = 40;
const ADDRESS_MASK: u64 = (1 << ADDRESS_BITS) - 1;

const CACHE_INIT: u8 = 1;
const CACHE_INSERT: u8 = 2;
const APPEND_MM: u8 = 3;
const APPEND_CACHE: u8 = 4;
const CACHE_SIZE: u8 = 1;
const REFUSED: u8 = 2;
const CHECKSUMS_RIGHT: u64 = 1 << ADDRESS_BITS;

/// Flags of the two commands that build packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// The packet begins with these bytes.
    pub const FIRST: Flags = Flags(1);
    /// The packet ends with these bytes, and is sent.
    pub const LAST: Flags = Flags(2);
    /// The card completes the transport checksum; given with `FIRST`.
    pub const CHECKSUM: Flags = Flags(4);
    const ALL: u8 = 7;

    /// Both.
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Whether all of `other` are set.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// How a packet with `FIRST` is to be cut and summed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segmentation {
    /// Payload bytes of each segment; 0: it is one packet.
    pub size: u16,
    /// Bytes of all headers, which each segment repeats.
    pub header_len: u8,
    /// Where the transport header begins, in bytes from the start of the packet.
    pub transport: u8,
}

/// One command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Empties the cache, and asks how large it is.
    CacheInit,
    /// Copies main memory into the cache.
    CacheInsert {
        /// Address in the window.
        mmaddr: u64,
        /// Offset in the cache.
        ncoffset: u32,
        /// Bytes.
        len: u32,
    },
    /// Copies main memory to the end of the packet.
    AppendMm {
        /// Address in the window.
        mmaddr: u64,
        /// Bytes.
        len: u32,
        /// See [`Flags`].
        flags: Flags,
        /// What the bytes are.
        class: BusClass,
        /// Of the packet, with `FIRST`; else all 0.
        segmentation: Segmentation,
    },
    /// Puts bytes of the cache at the end of the packet.
    AppendCache {
        /// Offset in the cache.
        ncoffset: u32,
        /// Bytes.
        len: u32,
        /// See [`Flags`]; a packet never begins with them.
        flags: Flags,
    },
}

/// A descriptor that says nothing that the card could do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptorError {
    /// There is no such opcode.
    #[error("there is no command {0}")]
    Opcode(u8),
    /// There are no such flags, or not with this command.
    #[error("flags {flags:#x} do not go with command {opcode}")]
    Flags {
        /// The command.
        opcode: u8,
        /// Its flags.
        flags: u8,
    },
    /// There is no such class.
    #[error("there is no class {0}")]
    Class(u8),
    /// It is about no bytes.
    #[error("command {0} is about no bytes")]
    Empty(u8),
}

impl Command {
    /// As it lies in the ring.
    ///
    /// # Panics
    /// If an address has more than 40 bits: windows are smaller.
    pub fn encode(&self) -> Entry {
        let word = |opcode: u8, flags: u8, class: u8, address: u64| {
            assert!(address <= ADDRESS_MASK, "address {address:#x}");
            u64::from(opcode) << 56 | u64::from(flags) << 48 | u64::from(class) << 40 | address
        };
        let pair = |len: u32, low: u32| u64::from(len) << 32 | u64::from(low);
        match *self {
            Command::CacheInit => [word(CACHE_INIT, 0, 0, 0), 0],
            Command::CacheInsert { mmaddr, ncoffset, len } => [word(CACHE_INSERT, 0, 0, mmaddr), pair(len, ncoffset)],
            Command::AppendMm { mmaddr, len, flags, class, segmentation } => {
                let Segmentation { size, header_len, transport } = segmentation;
                let low = u32::from(size) << 16 | u32::from(header_len) << 8 | u32::from(transport);
                [word(APPEND_MM, flags.0, class as u8, mmaddr), pair(len, low)]
            }
            Command::AppendCache { ncoffset, len, flags } => [word(APPEND_CACHE, flags.0, 0, 0), pair(len, ncoffset)],
        }
    }

    /// Reads what the host wrote.
    ///
    /// # Errors
    /// See [`DescriptorError`].
    pub fn decode(entry: Entry) -> Result<Command, DescriptorError> {
        let [opcode, flags, class, ..] = entry[0].to_be_bytes();
        let (mmaddr, len, low) = (entry[0] & ADDRESS_MASK, (entry[1] >> 32) as u32, entry[1] as u32);
        let may_have = match opcode {
            CACHE_INIT | CACHE_INSERT => 0,
            APPEND_MM => Flags::ALL,
            APPEND_CACHE => Flags::LAST.0,
            _ => return Err(DescriptorError::Opcode(opcode)),
        };
        let is_odd = flags & !may_have != 0 || Flags(flags).has(Flags::CHECKSUM) && !Flags(flags).has(Flags::FIRST);
        if is_odd {
            return Err(DescriptorError::Flags { opcode, flags });
        }
        if opcode != CACHE_INIT && len == 0 {
            return Err(DescriptorError::Empty(opcode));
        }
        let flags = Flags(flags);
        Ok(match opcode {
            CACHE_INIT => Command::CacheInit,
            CACHE_INSERT => Command::CacheInsert { mmaddr, ncoffset: low, len },
            APPEND_MM => {
                let class = BusClass::from_number(class).ok_or(DescriptorError::Class(class))?;
                let [_, _, header_len, transport] = low.to_be_bytes();
                let segmentation = Segmentation { size: (low >> 16) as u16, header_len, transport };
                Command::AppendMm { mmaddr, len, flags, class, segmentation }
            }
            _ => Command::AppendCache { ncoffset: low, len, flags },
        })
    }
}

/// Why the card did not do what a descriptor said. The packet that it belongs to is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// See [`DescriptorError`].
    Malformed = 1,
    /// An address outside of the window.
    Window = 2,
    /// An offset outside of the cache.
    Cache = 3,
    /// A packet that does not begin, or is too long.
    Packet = 4,
}

impl Refusal {
    /// The refusal with a number.
    pub fn from_number(number: u64) -> Option<Refusal> {
        [Refusal::Malformed, Refusal::Window, Refusal::Cache, Refusal::Packet]
            .into_iter()
            .find(|refusal| *refusal as u64 == number)
    }
}

/// What the card answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// To [`Command::CacheInit`]: bytes of the cache.
    CacheSize {
        /// Bytes.
        bytes: u64,
    },
    /// A descriptor was not executed.
    Refused {
        /// Why.
        refusal: Refusal,
        /// Its number, counted from the beginning of the attachment.
        descriptor: u64,
    },
}

impl Completion {
    /// As it lies in the ring.
    pub fn encode(&self) -> Entry {
        match *self {
            Completion::CacheSize { bytes } => [u64::from(CACHE_SIZE) << 56 | bytes, 0],
            Completion::Refused { refusal, descriptor } => [u64::from(REFUSED) << 56 | refusal as u64, descriptor],
        }
    }

    /// Reads what the card wrote; `None`: what no card writes.
    pub fn decode(entry: Entry) -> Option<Completion> {
        let (opcode, value) = ((entry[0] >> 56) as u8, entry[0] & ((1 << 56) - 1));
        match opcode {
            CACHE_SIZE => Some(Completion::CacheSize { bytes: value }),
            REFUSED => Refusal::from_number(value).map(|refusal| Completion::Refused { refusal, descriptor: entry[1] }),
            _ => None,
        }
    }
}

/// A place for a received frame, or a frame in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Address in the window.
    pub mmaddr: u64,
    /// Bytes of the place, or of the frame.
    pub len: u64,
    /// The card has verified the checksums, or knows that they need no verification.
    pub checksums_right: bool,
}

impl Received {
    /// As it lies in the ring.
    ///
    /// # Panics
    /// If the address has more than 40 bits.
    pub fn encode(&self) -> Entry {
        assert!(self.mmaddr <= ADDRESS_MASK, "address {:#x}", self.mmaddr);
        [self.mmaddr | if self.checksums_right { CHECKSUMS_RIGHT } else { 0 }, self.len]
    }

    /// Reads an entry; every one means something.
    pub fn decode(entry: Entry) -> Received {
        let checksums_right = entry[0] & CHECKSUMS_RIGHT != 0;
        Received { mmaddr: entry[0] & ADDRESS_MASK, len: entry[1], checksums_right }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn commands_survive_the_ring() {
        let segmentation = Segmentation { size: 1448, header_len: 66, transport: 34 };
        let flags = Flags::FIRST.with(Flags::CHECKSUM);
        let class = BusClass::NetworkHeaders;
        for command in [
            Command::CacheInit,
            Command::CacheInsert { mmaddr: ADDRESS_MASK, ncoffset: u32::MAX, len: 4096 },
            Command::AppendMm { mmaddr: 4096, len: 66, flags, class, segmentation },
            Command::AppendCache { ncoffset: 17, len: 1448, flags: Flags::LAST },
        ] {
            assert_eq!(Command::decode(command.encode()), Ok(command));
        }
        for completion in [
            Completion::CacheSize { bytes: 16 << 20 },
            Completion::Refused { refusal: Refusal::Cache, descriptor: u64::MAX },
        ] {
            assert_eq!(Completion::decode(completion.encode()), Some(completion));
        }
        let received = Received { mmaddr: 8192, len: 1514, checksums_right: true };
        assert_eq!(Received::decode(received.encode()), received);
    }

    #[test]
    fn odd_descriptors_have_names() {
        let odd = |opcode: u8, flags: u8, class: u8, len: u64| {
            Command::decode([u64::from(opcode) << 56 | u64::from(flags) << 48 | u64::from(class) << 40, len << 32])
                .unwrap_err()
        };
        assert_eq!(odd(0, 0, 0, 1), DescriptorError::Opcode(0));
        assert_eq!(odd(5, 0, 0, 1), DescriptorError::Opcode(5));
        assert_eq!(odd(CACHE_INSERT, 1, 0, 1), DescriptorError::Flags { opcode: 2, flags: 1 });
        assert_eq!(odd(APPEND_MM, 8, 0, 1), DescriptorError::Flags { opcode: 3, flags: 8 });
        assert_eq!(odd(APPEND_MM, 4, 0, 1), DescriptorError::Flags { opcode: 3, flags: 4 });
        assert_eq!(odd(APPEND_CACHE, 1, 0, 1), DescriptorError::Flags { opcode: 4, flags: 1 });
        assert_eq!(odd(APPEND_MM, 1, 5, 1), DescriptorError::Class(5));
        assert_eq!(odd(APPEND_CACHE, 2, 0, 0), DescriptorError::Empty(4));
    }

    proptest! {
        /// Any two words are a command, which encodes to something that means the same, or a named error.
        #[test]
        fn any_words(entry: Entry) {
            if let Ok(command) = Command::decode(entry) {
                prop_assert_eq!(Command::decode(command.encode()), Ok(command));
            }
            if let Some(completion) = Completion::decode(entry) {
                prop_assert_eq!(Completion::decode(completion.encode()), Some(completion));
            }
            prop_assert_eq!(Received::decode(Received::decode(entry).encode()), Received::decode(entry));
        }
    }
}
