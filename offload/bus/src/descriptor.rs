//! Descriptors: what the host tells the card to do, what the card answers, and where received
//! frames go. Two words each.
//!
//! ```text
//! command, word 0   63..56 opcode | 55..48 flags | 47..44 port (with FIRST) | 43..40 class | 39..0 address in the window
//!                   nic_cache_insert, nic_cache_fetch: 55..40 generation; nic_pkt_append_cache: 15..0 generation
//!          word 1   63..32 length | 31..0 offset in card memory, or segmentation of a packet (with FIRST)
//!
//!          opcode 1  nic_cache_init
//!                 2  nic_cache_insert(address, offset, length, generation)
//!                 3  nic_pkt_append_mm(address, length, flags, port)
//!                 4  nic_pkt_append_cache(offset, length, flags, generation)
//!                 5  nic_cache_fetch(address, offset, length, generation)
//!          flags  1  FIRST: begins a packet      2  LAST: ends it, and it is sent
//!                 4  CHECKSUM: the card completes it      8  UDP: that of UDP; else of TCP
//!          segmentation  31..16 payload bytes of each segment, 0: one packet | 15..8 bytes of all headers | 7..0 where the transport header is
//!
//! completion, word 0  63..56 opcode | 55..0 value
//!             word 1  number of the descriptor that it is about
//!          opcode 1  the cache has `value` bytes      2  refused, `value` is the number of a [`Refusal`]
//!
//! posted receive
//!             word 0  63..56 flags | 55..40 generation | 39..0 address in the window
//!             word 1  63..32 offset in card memory | 31..0 bytes of the buffer
//!          flags  1  SPLIT: headers to the buffer, payload to card memory      2  COPY: the payload to the buffer, too      4  CHAIN: a frame may go on in the next buffer
//!
//! received    word 0  63..56 flags | 55..48 bytes of headers | 47..44 port | 43..40 kind of super-frame | 39..0 address in the window
//!             word 1  63..48 payload bytes of each segment | 47..32 ones'-complement sum of the payload | 31..0 bytes
//!          flags  1  its checksum is right      2  its checksum is partial: the sum of the pseudo-header      4  SPLIT: the payload is in card memory
//!                 8  COPIED: and in the buffer      16  FIRST      32  LAST      64  UNUSED: card memory has nothing of it
//! ```
//!
//! Read first: Kim et al. 2002, Figure 6; Yocum and Chase 2001, section 3. Lengths and offsets are
//! in bytes; a packet may use any part of what was inserted, and straddle blocks.
//!
//! A *generation* says which load of a block of card memory is meant. 0 is none: whatever is there.

use nicache_crossing::BusClass;

use crate::ring::Entry;

const ADDRESS_BITS: u32 = 40;
const ADDRESS_MASK: u64 = (1 << ADDRESS_BITS) - 1;

const CACHE_INIT: u8 = 1;
const CACHE_INSERT: u8 = 2;
const APPEND_MM: u8 = 3;
const APPEND_CACHE: u8 = 4;
const CACHE_SIZE: u8 = 1;
const REFUSED: u8 = 2;
const CACHE_FETCH: u8 = 5;

/// Where a buffer that is posted with SPLIT has its payload: behind the place for headers.
pub const HEADER_PLACE_BYTES: u32 = 256;
/// Bytes of headers that are told at most.
pub const HEADER_BYTES_MAX: usize = 255;
/// Bytes of payload that go with the headers in a frame that uses no card memory at most.
pub const LOOK_AHEAD_BYTES: usize = 128;
/// Bytes of a block of card memory that has a generation.
pub const GENERATION_BLOCK_BYTES: u32 = 4096;

const POST_SPLIT: u64 = 1;
const POST_COPY: u64 = 2;
const POST_CHAIN: u64 = 4;
const CHECKSUM_RIGHT: u64 = 1;
const CHECKSUM_PARTIAL: u64 = 2;
const IS_SPLIT: u64 = 4;
const IS_COPIED: u64 = 8;
const IS_FIRST: u64 = 16;
const IS_LAST: u64 = 32;
const IS_UNUSED: u64 = 64;

/// Flags of the two commands that build packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// The packet begins with these bytes.
    pub const FIRST: Self = Self(1);
    /// The packet ends with these bytes, and is sent.
    pub const LAST: Self = Self(2);
    /// The card completes the transport checksum; given with `FIRST`.
    pub const CHECKSUM: Self = Self(4);
    /// The checksum is that of UDP; given with `CHECKSUM`.
    pub const UDP: Self = Self(8);
    const ALL: u8 = 15;

    /// The flags of both.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` are set.
    pub const fn has(self, other: Self) -> bool {
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

/// What a descriptor has the card do.
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
        /// Of what is inserted; 0: none.
        generation: u16,
    },
    /// Copies a part of the cache into main memory.
    CacheFetch {
        /// Address in the window.
        mmaddr: u64,
        /// Offset in the cache.
        ncoffset: u32,
        /// Bytes.
        len: u32,
        /// What must be there; 0: anything.
        generation: u16,
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
        /// The port that the packet goes out by, with `FIRST`; else 0.
        port: u8,
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
        /// What must be there; 0: anything.
        generation: u16,
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
    /// A packet is to go out by a port, and does not begin here.
    #[error("port {0} is said where no packet begins")]
    Port(u8),
    /// It is about no bytes.
    #[error("command {0} is about no bytes")]
    Empty(u8),
}

impl Command {
    /// The command as the two words of a descriptor that lie in the ring.
    ///
    /// # Panics
    /// If an address has more than 40 bits: windows are smaller.
    pub fn encode(&self) -> Entry {
        let word = |opcode: u8, flags: u8, low: u8, address: u64| {
            assert!(address <= ADDRESS_MASK, "address {address:#x}");
            u64::from(opcode) << 56 | u64::from(flags) << 48 | u64::from(low) << 40 | address
        };
        let generation_of = |generation: u16| u64::from(generation) << 40;
        let pair = |len: u32, low: u32| u64::from(len) << 32 | u64::from(low);
        match *self {
            Self::CacheInit => [word(CACHE_INIT, 0, 0, 0), 0],
            Self::CacheInsert { mmaddr, ncoffset, len, generation } => {
                [word(CACHE_INSERT, 0, 0, mmaddr) | generation_of(generation), pair(len, ncoffset)]
            }
            Self::CacheFetch { mmaddr, ncoffset, len, generation } => {
                [word(CACHE_FETCH, 0, 0, mmaddr) | generation_of(generation), pair(len, ncoffset)]
            }
            Self::AppendMm { mmaddr, len, flags, class, port, segmentation } => {
                assert!(port < PORTS_MAX, "port {port}");
                let Segmentation { size, header_len, transport } = segmentation;
                let low = u32::from(size) << 16 | u32::from(header_len) << 8 | u32::from(transport);
                [word(APPEND_MM, flags.0, port << 4 | class as u8, mmaddr), pair(len, low)]
            }
            Self::AppendCache { ncoffset, len, flags, generation } => {
                [word(APPEND_CACHE, flags.0, 0, u64::from(generation)), pair(len, ncoffset)]
            }
        }
    }

    /// Reads what the host wrote.
    ///
    /// # Errors
    /// See [`DescriptorError`].
    pub fn decode(entry: Entry) -> Result<Self, DescriptorError> {
        let [opcode, flags, low_byte, ..] = entry[0].to_be_bytes();
        let (mmaddr, len, low) =
            (entry[0] & ADDRESS_MASK, (entry[1] >> 32) as u32, entry[1] as u32);
        let generation = (entry[0] >> ADDRESS_BITS) as u16;
        let may_have = match opcode {
            CACHE_INIT => 0,
            // Their generation stands where others have flags.
            CACHE_INSERT | CACHE_FETCH => u8::MAX,
            APPEND_MM => Flags::ALL,
            APPEND_CACHE => Flags::LAST.0,
            _ => return Err(DescriptorError::Opcode(opcode)),
        };
        let has = |flag: Flags| opcode == APPEND_MM && Flags(flags).has(flag);
        let is_odd = flags & !may_have != 0
            || has(Flags::CHECKSUM) && !has(Flags::FIRST)
            || has(Flags::UDP) && !has(Flags::CHECKSUM);
        if is_odd {
            return Err(DescriptorError::Flags { opcode, flags });
        }
        if opcode != CACHE_INIT && len == 0 {
            return Err(DescriptorError::Empty(opcode));
        }
        let flags = Flags(flags);
        Ok(match opcode {
            CACHE_INIT => Self::CacheInit,
            CACHE_INSERT => Self::CacheInsert { mmaddr, ncoffset: low, len, generation },
            CACHE_FETCH => Self::CacheFetch { mmaddr, ncoffset: low, len, generation },
            APPEND_MM => {
                let (port, class) = (low_byte >> 4, low_byte & 15);
                let class = BusClass::from_number(class).ok_or(DescriptorError::Class(class))?;
                if port != 0 && !flags.has(Flags::FIRST) {
                    return Err(DescriptorError::Port(port));
                }
                let [_, _, header_len, transport] = low.to_be_bytes();
                let segmentation = Segmentation { size: (low >> 16) as u16, header_len, transport };
                Self::AppendMm { mmaddr, len, flags, class, port, segmentation }
            }
            _ => Self::AppendCache { ncoffset: low, len, flags, generation: entry[0] as u16 },
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
    /// A packet that does not begin, or is too long, or has no port.
    Packet = 4,
    /// Another generation than the one that is there.
    Stale = 5,
}

impl Refusal {
    /// The refusal with a number.
    pub fn from_number(number: u64) -> Option<Self> {
        [Self::Malformed, Self::Window, Self::Cache, Self::Packet, Self::Stale]
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
        /// Why it was not executed.
        refusal: Refusal,
        /// Its number, counted from the beginning of the attachment.
        descriptor: u64,
    },
}

impl Completion {
    /// The completion as the two words of an entry that lie in the ring.
    pub fn encode(&self) -> Entry {
        match *self {
            Self::CacheSize { bytes } => [u64::from(CACHE_SIZE) << 56 | bytes, 0],
            Self::Refused { refusal, descriptor } => {
                [u64::from(REFUSED) << 56 | refusal as u64, descriptor]
            }
        }
    }

    /// Reads what the card wrote; `None`: what no card writes.
    pub fn decode(entry: Entry) -> Option<Self> {
        let (opcode, value) = ((entry[0] >> 56) as u8, entry[0] & ((1 << 56) - 1));
        match opcode {
            CACHE_SIZE => Some(Self::CacheSize { bytes: value }),
            REFUSED => Refusal::from_number(value)
                .map(|refusal| Self::Refused { refusal, descriptor: entry[1] }),
            _ => None,
        }
    }
}

/// Where payload goes in card memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachePlace {
    /// Offset in the cache, of a block of its own: [`GENERATION_BLOCK_BYTES`].
    pub ncoffset: u32,
    /// The number of this load.
    pub generation: u16,
    /// The payload goes to the buffer, too (PCACHE); else only the headers do (DIRECT).
    pub copy: bool,
}

/// A buffer for what is received.
///
/// With `split` the headers go to its beginning, and payload behind the [`HEADER_PLACE_BYTES`]. A
/// frame that has no headers to split, or not more than [`LOOK_AHEAD_BYTES`] behind them, goes
/// whole to its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Post {
    /// Address in the window.
    pub mmaddr: u64,
    /// Bytes.
    pub len: u32,
    /// Where payload goes, if headers are split from it.
    pub split: Option<CachePlace>,
    /// A frame that does not fit goes on in the next buffer; else it is dropped.
    pub chain: bool,
}

impl Post {
    /// A buffer for whole frames.
    pub fn whole(mmaddr: u64, len: u32) -> Self {
        Self { mmaddr, len, split: None, chain: false }
    }

    /// The buffer's post as the two words of an entry that lie in the ring.
    ///
    /// # Panics
    /// If the address has more than 40 bits.
    pub fn encode(&self) -> Entry {
        assert!(self.mmaddr <= ADDRESS_MASK, "address {:#x}", self.mmaddr);
        let chain = if self.chain { POST_CHAIN } else { 0 };
        let (flags, generation, ncoffset) = match self.split {
            None => (chain, 0, 0),
            Some(CachePlace { ncoffset, generation, copy }) => {
                (chain | POST_SPLIT | if copy { POST_COPY } else { 0 }, generation, ncoffset)
            }
        };
        let word = flags << 56 | u64::from(generation) << ADDRESS_BITS | self.mmaddr;
        [word, u64::from(ncoffset) << 32 | u64::from(self.len)]
    }

    /// Reads an entry; every one means something.
    pub fn decode(entry: Entry) -> Self {
        let flags = entry[0] >> 56;
        let place = CachePlace {
            ncoffset: (entry[1] >> 32) as u32,
            generation: (entry[0] >> ADDRESS_BITS) as u16,
            copy: flags & POST_COPY != 0,
        };
        Self {
            mmaddr: entry[0] & ADDRESS_MASK,
            len: entry[1] as u32,
            split: (flags & POST_SPLIT != 0).then_some(place),
            chain: flags & POST_CHAIN != 0,
        }
    }
}

/// What is known of a received checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReceivedChecksum {
    /// Nothing.
    #[default]
    Unverified,
    /// It is right.
    Valid,
    /// It has the sum of the pseudo-header, and whoever sends the frame on completes it.
    Partial,
}

/// What kind of super-frame was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReceivedGso {
    /// TCP over IPv4.
    Tcp4 = 1,
    /// TCP over IPv6.
    Tcp6 = 2,
    /// UDP.
    Udp = 3,
}

impl ReceivedGso {
    /// The kind with a number.
    pub fn from_number(number: u8) -> Option<Self> {
        use ReceivedGso::{Tcp4, Tcp6, Udp};
        [Tcp4, Tcp6, Udp].into_iter().find(|kind| *kind as u8 == number)
    }
}

/// A received frame, or the part of it that is in one buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// The buffer's address in the window.
    pub mmaddr: u64,
    /// Bytes of the frame in this buffer, and the card memory that goes with it; 0: the buffer
    /// comes back unused.
    pub len: u32,
    /// Bytes of headers at the buffer's beginning, of the first buffer of a frame that was split;
    /// else 0.
    pub header_len: u8,
    /// The port that it came in by.
    pub port: u8,
    /// See [`ReceivedChecksum`].
    pub checksum: ReceivedChecksum,
    /// The kind of super-frame, with the payload bytes of each segment.
    pub gso: Option<(ReceivedGso, u16)>,
    /// Ones'-complement sum of the payload in card memory.
    pub sum: u16,
    /// The payload is in card memory.
    pub is_split: bool,
    /// The payload is in the buffer, behind the place for headers.
    pub is_copied: bool,
    /// The frame begins here.
    pub is_first: bool,
    /// The frame ends here.
    pub is_last: bool,
    /// The card memory that was given has nothing of it.
    pub is_unused: bool,
}

impl Received {
    /// The report of a received frame as the two words of an entry that lie in the ring.
    ///
    /// # Panics
    /// If the address has more than 40 bits, or the port more than 4.
    pub fn encode(&self) -> Entry {
        assert!(self.mmaddr <= ADDRESS_MASK, "address {:#x}", self.mmaddr);
        assert!(self.port < PORTS_MAX, "port {}", self.port);
        let checksum = match self.checksum {
            ReceivedChecksum::Unverified => 0,
            ReceivedChecksum::Valid => CHECKSUM_RIGHT,
            ReceivedChecksum::Partial => CHECKSUM_PARTIAL,
        };
        let flag = |is_set: bool, flag: u64| if is_set { flag } else { 0 };
        let flags = checksum
            | flag(self.is_split, IS_SPLIT)
            | flag(self.is_copied, IS_COPIED)
            | flag(self.is_first, IS_FIRST)
            | flag(self.is_last, IS_LAST)
            | flag(self.is_unused, IS_UNUSED);
        let (kind, size) = self.gso.map_or((0, 0), |(kind, size)| (kind as u8, size));
        let low =
            u64::from(self.header_len) << 48 | u64::from(self.port) << 44 | u64::from(kind) << 40;
        let word = u64::from(size) << 48 | u64::from(self.sum) << 32 | u64::from(self.len);
        [flags << 56 | low | self.mmaddr, word]
    }

    /// Reads an entry; every one means something. Kinds of super-frames that there are not are
    /// none.
    pub fn decode(entry: Entry) -> Self {
        let flags = entry[0] >> 56;
        let checksum = match (flags & CHECKSUM_RIGHT != 0, flags & CHECKSUM_PARTIAL != 0) {
            (_, true) => ReceivedChecksum::Partial,
            (true, false) => ReceivedChecksum::Valid,
            (false, false) => ReceivedChecksum::Unverified,
        };
        let kind = ReceivedGso::from_number((entry[0] >> 40) as u8 & 15);
        Self {
            mmaddr: entry[0] & ADDRESS_MASK,
            len: entry[1] as u32,
            header_len: (entry[0] >> 48) as u8,
            port: (entry[0] >> 44) as u8 & 15,
            checksum,
            gso: kind.map(|kind| (kind, (entry[1] >> 48) as u16)),
            sum: (entry[1] >> 32) as u16,
            is_split: flags & IS_SPLIT != 0,
            is_copied: flags & IS_COPIED != 0,
            is_first: flags & IS_FIRST != 0,
            is_last: flags & IS_LAST != 0,
            is_unused: flags & IS_UNUSED != 0,
        }
    }
}

/// Ports of a card at most.
pub const PORTS_MAX: u8 = 16;

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
            Command::CacheInsert {
                mmaddr: ADDRESS_MASK,
                ncoffset: u32::MAX,
                len: 4096,
                generation: u16::MAX,
            },
            Command::CacheFetch { mmaddr: 7, ncoffset: 4096, len: 1, generation: 3 },
            Command::AppendMm { mmaddr: 4096, len: 66, flags, class, port: 15, segmentation },
            Command::AppendCache {
                ncoffset: 17,
                len: 1448,
                flags: Flags::LAST,
                generation: 65_535,
            },
        ] {
            assert_eq!(Command::decode(command.encode()), Ok(command));
        }
        for completion in [
            Completion::CacheSize { bytes: 16 << 20 },
            Completion::Refused { refusal: Refusal::Cache, descriptor: u64::MAX },
        ] {
            assert_eq!(Completion::decode(completion.encode()), Some(completion));
        }
        let split = Some(CachePlace { ncoffset: u32::MAX, generation: 9, copy: true });
        for post in [
            Post::whole(8192, 2048),
            Post { mmaddr: ADDRESS_MASK, len: u32::MAX, split, chain: true },
        ] {
            assert_eq!(Post::decode(post.encode()), post);
        }
        let received = Received {
            mmaddr: ADDRESS_MASK,
            len: 65_535,
            header_len: 255,
            port: 15,
            checksum: ReceivedChecksum::Partial,
            gso: Some((ReceivedGso::Tcp6, 1448)),
            sum: 0xfffe,
            is_split: true,
            is_copied: true,
            is_first: true,
            is_last: true,
            is_unused: true,
        };
        assert_eq!(Received::decode(received.encode()), received);
        assert_eq!(Received::decode(Received::default().encode()), Received::default());
    }

    #[test]
    fn odd_descriptors_have_names() {
        let odd = |opcode: u8, flags: u8, class: u8, len: u64| {
            Command::decode([
                u64::from(opcode) << 56 | u64::from(flags) << 48 | u64::from(class) << 40,
                len << 32,
            ])
            .unwrap_err()
        };
        assert_eq!(odd(0, 0, 0, 1), DescriptorError::Opcode(0));
        assert_eq!(odd(6, 0, 0, 1), DescriptorError::Opcode(6));
        assert_eq!(odd(CACHE_INIT, 1, 0, 1), DescriptorError::Flags { opcode: 1, flags: 1 });
        assert_eq!(odd(APPEND_MM, 16, 0, 1), DescriptorError::Flags { opcode: 3, flags: 16 });
        assert_eq!(odd(APPEND_MM, 9, 0, 1), DescriptorError::Flags { opcode: 3, flags: 9 });
        assert_eq!(odd(APPEND_MM, 2, 0x30, 1), DescriptorError::Port(3));
        assert_eq!(odd(APPEND_MM, 4, 0, 1), DescriptorError::Flags { opcode: 3, flags: 4 });
        assert_eq!(odd(APPEND_CACHE, 1, 0, 1), DescriptorError::Flags { opcode: 4, flags: 1 });
        assert_eq!(odd(APPEND_MM, 1, 5, 1), DescriptorError::Class(5));
        assert_eq!(odd(APPEND_CACHE, 2, 0, 0), DescriptorError::Empty(4));
    }

    proptest! {
        /// Any two words are a command, which encodes to something that means the same, or a named
        /// error.
        #[test]
        fn any_words(entry: Entry) {
            if let Ok(command) = Command::decode(entry) {
                prop_assert_eq!(Command::decode(command.encode()), Ok(command));
            }
            if let Some(completion) = Completion::decode(entry) {
                prop_assert_eq!(Completion::decode(completion.encode()), Some(completion));
            }
            prop_assert_eq!(
                Received::decode(Received::decode(entry).encode()),
                Received::decode(entry)
            );
            prop_assert_eq!(Post::decode(Post::decode(entry).encode()), Post::decode(entry));
        }
    }
}
