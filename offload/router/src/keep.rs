//! Connections in memory that outlives the process that has them: a sealed file of the
//! supervisor's, mapped by whoever forwards.
//!
//! ```text
//! byte 0     magic, number of connections at most, which of the two tables counts
//!      4096  table 0   table 1
//! table      for each number of a connection two copies, of which the newer one that is whole counts
//! copy       hash of the rest 8 · edition of the table 4 · number of the copy 4 · length 2 · the connection (postcard)
//! ```
//!
//! A process that is killed while it writes leaves one copy torn, and the other one as it was. One
//! that takes over reads the table that counts, writes what it has taken into the other one, and
//! only then lets that count: so it may be killed at any moment, too. The table's edition keeps
//! what an earlier process wrote there from being read again.

use std::hash::BuildHasher;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use foldhash::fast::FixedState;
use nicache_bus::Window;
use nicache_forward::Forwarder;
use nicache_forward::conntrack::ConnectionId;
use nicache_forward::saved::Saved;
use nicache_forward::switch::{ANY_SIZE, Lacks};
use nicache_forward::tcp_track::TcpState;
use nicache_forward::tuple::{Endpoint, Protocol, Tuple};
use nicache_tcp::handshake::MSS_MIN;
use nicache_tcp::{Splice, Time};
use serde::{Deserialize, Serialize};

const MAGIC: u64 = u64::from_le_bytes(*b"niconns1");
const COUNT_AT: usize = 8;
/// The edition of the table that counts: an odd one is in table 1.
const EDITION_AT: usize = 16;
const TABLES_AT: u64 = 4096;
const COPY_BYTES: usize = 192;
const SLOT_BYTES: u64 = 2 * COPY_BYTES as u64;
const HEAD_BYTES: usize = 18;
/// No key: nobody else writes here.
const SEED: u64 = 0x6e69_6361_6368_6500;

/// Memory in which connections outlive the process that has them. The [module](self) has its
/// layout.
#[derive(Debug)]
pub struct Keep {
    window: Window,
    count: u32,
}

/// A connection as it is written.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    protocol: u8,
    ends: [SocketAddr; 4],
    /// Its place in [`STATES`], with [`FINS`]; or [`NO_STATE`].
    state: u8,
    interface: u16,
    through: Option<u16>,
    is_mapped: bool,
    begun: u64,
    packets: [u64; 2],
    bytes: [u64; 2],
}

/// What stands behind the record of a connection whose back end was chosen by name. A record
/// without it is that of any other, also one that an earlier version has written.
#[derive(Debug, Serialize, Deserialize)]
struct Moved {
    deltas: [u32; 3],
    scales: [u8; 4],
}

/// What stands behind that, and was once written only if the back end does without something.
#[derive(Debug, Serialize, Deserialize)]
struct Without {
    timestamps: bool,
    sack: bool,
}

/// What stands behind that, and is not there if an earlier version has written it.
#[derive(Debug, Serialize, Deserialize)]
struct Sizes {
    takes: [u16; 2],
}

impl From<Splice> for Moved {
    fn from(splice: Splice) -> Self {
        let Splice {
            out_delta,
            in_delta,
            ts_delta,
            client_scale,
            card_scale,
            host_scale,
            host_peer_scale,
        } = splice;
        Self {
            deltas: [out_delta, in_delta, ts_delta],
            scales: [client_scale, card_scale, host_scale, host_peer_scale],
        }
    }
}

impl From<Moved> for Splice {
    fn from(Moved { deltas, scales }: Moved) -> Self {
        let [out_delta, in_delta, ts_delta] = deltas;
        // No shift is longer (RFC 7323 section 2.3).
        let [client_scale, card_scale, host_scale, host_peer_scale] =
            scales.map(|scale| scale.min(14));
        Self {
            out_delta,
            in_delta,
            ts_delta,
            client_scale,
            card_scale,
            host_scale,
            host_peer_scale,
        }
    }
}

const STATES: [TcpState; 7] = [
    TcpState::SynSent,
    TcpState::SynReceived,
    TcpState::PickedUp,
    TcpState::Established,
    TcpState::Closing,
    TcpState::TimeWait,
    TcpState::Reset,
];
const NO_STATE: u8 = u8::MAX;
/// By direction, whether that end has sent its last byte. Earlier versions have written neither,
/// and do not take a connection with one of them.
const FINS: [u8; 2] = [0x10, 0x20];
const PROTOCOLS: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Query];

impl Keep {
    /// Empty memory for so many connections; of it, what is not used takes no room.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(count: u32) -> io::Result<Self> {
        let bytes = TABLES_AT + 2 * SLOT_BYTES * u64::from(count);
        let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
        let window = Window::create("nicache-connections", bytes)?;
        window.word(COUNT_AT).store(u64::from(count), Ordering::Relaxed);
        window.word(EDITION_AT).store(0, Ordering::Relaxed);
        window.word(0).store(MAGIC, Ordering::Release);
        Ok(Self { window, count })
    }

    /// Memory that another process has made.
    ///
    /// # Errors
    /// It is none, or what the system says.
    pub fn map(file: OwnedFd) -> io::Result<Self> {
        let odd =
            || io::Error::new(io::ErrorKind::InvalidData, "this is not a memory for connections");
        let window = Window::map(file)?;
        if window.bytes() < TABLES_AT || window.word(0).load(Ordering::Acquire) != MAGIC {
            return Err(odd());
        }
        let count =
            u32::try_from(window.word(COUNT_AT).load(Ordering::Relaxed)).map_err(|_| odd())?;
        if window.bytes() < TABLES_AT + 2 * SLOT_BYTES * u64::from(count) {
            return Err(odd());
        }
        Ok(Self { window, count })
    }

    /// Its file, for another process.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.window.file()
    }

    fn edition(&self) -> u32 {
        self.window.word(EDITION_AT).load(Ordering::Acquire) as u32
    }

    fn place(&self, edition: u32, number: u32, copy: u32) -> u64 {
        let slot = u64::from(edition & 1) * u64::from(self.count) + u64::from(number);
        TABLES_AT + slot * SLOT_BYTES + u64::from(copy) * COPY_BYTES as u64
    }

    /// A copy's number and content, if it is whole and of this edition.
    fn copy(&self, edition: u32, number: u32, copy: u32) -> Option<(u32, Vec<u8>)> {
        let mut bytes = [0; COPY_BYTES];
        self.window.read(self.place(edition, number, copy), &mut bytes).ok()?;
        let word =
            |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let len = usize::from(u16::from_le_bytes([bytes[16], bytes[17]]));
        let content = bytes.get(HEAD_BYTES..HEAD_BYTES + len)?;
        let hash = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
        let is_whole = hash == hash_of(&bytes[8..HEAD_BYTES + len]) && word(8) == edition;
        is_whole.then(|| (word(12), content.to_vec()))
    }

    fn put(&self, edition: u32, number: u32, turn: u32, content: &[u8]) {
        let mut bytes = [0; COPY_BYTES];
        let end = HEAD_BYTES + content.len();
        bytes[8..12].copy_from_slice(&edition.to_le_bytes());
        bytes[12..16].copy_from_slice(&turn.to_le_bytes());
        bytes[16..18].copy_from_slice(&(content.len() as u16).to_le_bytes());
        bytes[HEAD_BYTES..end].copy_from_slice(content);
        let hash = hash_of(&bytes[8..end]);
        bytes[..8].copy_from_slice(&hash.to_le_bytes());
        // It lies in the window, which was looked at when it was mapped.
        let _ = self.window.write(self.place(edition, number, turn & 1), &bytes[..end]);
    }

    /// All connections that are kept, each as it was last written whole.
    pub fn connections(&self) -> Vec<Saved> {
        let edition = self.edition();
        let newest = |number: u32| {
            let copies = [0, 1].map(|copy| self.copy(edition, number, copy));
            let (_, content) = copies.into_iter().flatten().max_by_key(|(turn, _)| *turn)?;
            if content.is_empty() { None } else { decode(&content) }
        };
        (0..self.count).filter_map(newest).collect()
    }
}

/// Writes a forwarder's connections into the memory.
#[derive(Debug)]
pub struct Keeper {
    keep: Keep,
    edition: u32,
    /// Of each connection, how often it was written.
    turns: Box<[u32]>,
}

impl Keeper {
    /// Hands a forwarder the connections that the memory has. Returns how many it has taken.
    pub fn take_over(keep: Keep, forwarder: &mut Forwarder, now: Time) -> (Self, u64) {
        let mut waiting = keep.connections();
        forwarder.remember_changes();
        let mut restored = 0;
        // One that goes to a mapping comes behind the one that has opened it.
        loop {
            let before = waiting.len();
            waiting.retain(|saved| !forwarder.restore(saved, now));
            restored += (before - waiting.len()) as u64;
            if waiting.is_empty() || waiting.len() == before {
                break;
            }
        }
        let edition = keep.edition().wrapping_add(1);
        let turns = vec![0; keep.count as usize].into_boxed_slice();
        let mut keeper = Self { edition, turns, keep };
        keeper.write(forwarder, now);
        keeper.keep.window.word(EDITION_AT).store(u64::from(edition), Ordering::Release);
        (keeper, restored)
    }

    /// Writes what has changed.
    pub fn write(&mut self, forwarder: &mut Forwarder, _now: Time) {
        while let Some(id) = forwarder.poll_changed() {
            let ConnectionId(number) = id;
            let Some(turn) = self.turns.get_mut(number as usize) else { continue };
            let content = forwarder.save(id).map(|saved| encode(&saved)).unwrap_or_default();
            if content.is_empty() && *turn == 0 {
                // Never written: one that was not answered.
                continue;
            }
            *turn = turn.wrapping_add(1).max(1);
            self.keep.put(self.edition, number, *turn, &content);
        }
    }
}

fn hash_of(bytes: &[u8]) -> u64 {
    FixedState::with_seed(SEED).hash_one(bytes)
}

/// Empty: it does not fit, which no connection is long enough for.
fn encode(saved: &Saved) -> Vec<u8> {
    let place = |state| STATES.iter().position(|known| *known == state).unwrap_or(0) as u8;
    let fins = FINS.into_iter().zip(saved.fins).filter(|(_, fin)| *fin).map(|(bit, _)| bit);
    let fins: u8 = fins.sum();
    let record = Record {
        protocol: saved.original.protocol as u8,
        ends: saved.ends(),
        state: saved.state.map_or(NO_STATE, |state| place(state) | fins),
        interface: saved.interface as u16,
        through: saved.through.map(|through| through as u16),
        is_mapped: saved.is_mapped,
        begun: saved.begun.0,
        packets: saved.packets,
        bytes: saved.bytes,
    };
    let mut bytes = postcard::to_allocvec(&record).unwrap_or_default();
    if let Some(splice) = saved.splice {
        bytes.extend(postcard::to_allocvec(&Moved::from(splice)).unwrap_or_default());
        let Lacks { timestamps, sack } = saved.lacks;
        bytes.extend(postcard::to_allocvec(&Without { timestamps, sack }).unwrap_or_default());
        bytes.extend(postcard::to_allocvec(&Sizes { takes: saved.takes }).unwrap_or_default());
    }
    if bytes.len() <= COPY_BYTES - HEAD_BYTES { bytes } else { Vec::new() }
}

/// A connection from the bytes that it was written as. `None`: they are none.
pub fn decode(bytes: &[u8]) -> Option<Saved> {
    let (record, rest): (Record, &[u8]) = postcard::take_from_bytes(bytes).ok()?;
    let (splice, rest) = match rest {
        [] => (None, rest),
        moved => {
            let (moved, rest) = postcard::take_from_bytes::<Moved>(moved).ok()?;
            (Some(Splice::from(moved)), rest)
        }
    };
    let (lacks, rest) = match rest {
        [] => (Lacks::default(), rest),
        without => {
            let (Without { timestamps, sack }, rest) = postcard::take_from_bytes(without).ok()?;
            (Lacks { timestamps, sack }, rest)
        }
    };
    let takes = match rest {
        [] => [ANY_SIZE; 2],
        // No segment is shorter, whatever an end says.
        sizes => postcard::from_bytes::<Sizes>(sizes).ok()?.takes.map(|takes| takes.max(MSS_MIN)),
    };
    let protocol = *PROTOCOLS.get(usize::from(record.protocol))?;
    let [a, b, c, d] = record.ends.map(Endpoint::from);
    let (state, fins) = match record.state {
        NO_STATE => (None, [false; 2]),
        state => {
            let place = FINS.into_iter().fold(state, |state, bit| state & !bit);
            (Some(*STATES.get(usize::from(place))?), FINS.map(|bit| state & bit != 0))
        }
    };
    Some(Saved {
        original: Tuple { protocol, source: a, destination: b },
        outgoing: Tuple { protocol, source: c, destination: d },
        state,
        fins,
        interface: record.interface.into(),
        through: record.through.map(usize::from),
        is_mapped: record.is_mapped,
        begun: Time(record.begun),
        packets: record.packets,
        bytes: record.bytes,
        splice,
        lacks,
        takes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(port: u16) -> Saved {
        let end = |text: &str| Endpoint::from(text.parse::<SocketAddr>().unwrap());
        let inside = Endpoint::new([0xffffu16; 8], port);
        Saved {
            original: Tuple {
                protocol: Protocol::Tcp,
                source: inside,
                destination: end("[2001:db8::1]:65535"),
            },
            outgoing: Tuple {
                protocol: Protocol::Tcp,
                source: inside,
                destination: end("[2001:db8::2]:65535"),
            },
            state: Some(TcpState::Established),
            fins: [false; 2],
            interface: 65_535,
            through: Some(65_535),
            is_mapped: true,
            begun: Time(u64::MAX),
            packets: [u64::MAX; 2],
            bytes: [u64::MAX; 2],
            splice: Some(Splice {
                out_delta: u32::MAX,
                in_delta: u32::MAX,
                ts_delta: u32::MAX,
                client_scale: 14,
                card_scale: 14,
                host_scale: 14,
                host_peer_scale: 14,
            }),
            lacks: Lacks { timestamps: true, sack: true },
            takes: [u16::MAX - 1; 2],
        }
    }

    #[test]
    fn the_longest_connection_fits() {
        let bytes = encode(&saved(65_535));
        assert!(!bytes.is_empty());
        assert_eq!(decode(&bytes), Some(saved(65_535)));
        let lacking_nothing = Saved { lacks: Lacks::default(), ..saved(7) };
        let not_spliced = Saved { splice: None, takes: [ANY_SIZE; 2], ..lacking_nothing };
        for other in [lacking_nothing, not_spliced] {
            assert_eq!(decode(&encode(&other)), Some(other));
        }
        // What earlier versions have written ends before: with what it lacks, or before that.
        let sizes = postcard::to_allocvec(&Sizes { takes: saved(7).takes }).unwrap();
        let bytes_before = &bytes[..bytes.len() - sizes.len()];
        let before = Saved { takes: [ANY_SIZE; 2], ..saved(65_535) };
        assert_eq!(decode(bytes_before), Some(before));
        let before = Saved { lacks: Lacks::default(), ..before };
        assert_eq!(decode(&bytes_before[..bytes_before.len() - 2]), Some(before));
        // Half-closed, from either side, and closed.
        for state in STATES {
            for fins in [[false, true], [true, false], [true; 2]] {
                let other = Saved { state: Some(state), fins, ..lacking_nothing };
                assert_eq!(decode(&encode(&other)), Some(other));
            }
        }
        for len in 0..bytes.len() {
            let _ = decode(&bytes[..len]);
        }
    }

    #[test]
    fn a_torn_copy_leaves_the_one_before() {
        let keep = Keep::create(4).unwrap();
        for turn in 1..=3 {
            keep.put(0, 2, turn, &encode(&saved(turn as u16)));
        }
        assert_eq!(keep.connections(), [saved(3)]);
        // Copy 3 is at place 1; a byte of it is not yet written.
        keep.window.write(keep.place(0, 2, 1) + 40, &[0xa5]).unwrap();
        assert_eq!(keep.connections(), [saved(2)]);
        keep.put(0, 2, 5, &[]);
        assert_eq!(keep.connections(), [], "it is gone");
        // What another edition left is not read.
        keep.put(2, 3, 1, &encode(&saved(9)));
        assert_eq!(keep.connections(), []);
        let again = Keep::map(keep.file().try_clone_to_owned().unwrap()).unwrap();
        again.put(0, 1, 1, &encode(&saved(8)));
        assert_eq!(keep.connections(), [saved(8)]);
    }
}
