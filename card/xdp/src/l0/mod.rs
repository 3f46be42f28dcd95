//! L0: a program that answers small hits before the card hears of them (`ebpf/l0.bpf.c`), and the
//! arrays that it works on.
//!
//! ```text
//! mod.rs      the program at its interface; connections lent and taken back, replies published and withdrawn
//! layout.rs   the arrays       hash.rs   where in them       mapping.rs   their memory
//! ```
//!
//! A card of several threads has a value for each of them, its *shards*: each lends its own
//! connections and publishes its own replies, which its connections alone get. The program runs on
//! whichever CPU a frame is on.

mod hash;
mod layout;
mod mapping;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, ObjectBuilder};
use nicache_kernel::verified_instructions;

use self::layout::{BUSY, Desk, FREE, LENT, OBJECTS, Object, PLACES, Place};
use self::mapping::Mapped;
use crate::error::{SteeringError, step};
use crate::link::attach_egress;
use crate::log::with_log;
use crate::maps;
use crate::program::{Aligned, check_capabilities};
use crate::socket::driver;
use crate::steering::{FirstFiles, index_of};

/// Longest request whose reply can be there, in bytes.
pub const HEAD_BYTES_MAX: usize = layout::HEAD_BYTES;
/// Longest reply, in bytes.
pub const REPLY_BYTES_MAX: usize = layout::REPLY_BYTES;
/// Longest reply that a driver is to send.
const SEGMENT_BYTES_MAX: usize = 1472;
/// Replies that each shard can have there at a time.
pub const REPLIES: usize = OBJECTS;
/// Shards at most: the replies of each take 7 MB.
pub const SHARDS_MAX: usize = 8;

/// Names of the programs: the one, and the one for a veth in the driver.
const PROGRAM_NAME: &str = "l0";
const VETH_PROGRAM_NAME: &str = "l0_veth";

static AT_EGRESS: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/l0.bpf.o")));
static AT_DRIVER: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/l0_driver.bpf.o")));

/// Replies that were too long for the driver, after which one is tried again.
const REFUSED_MAX: u32 = 4096;

/// How long the program may have a connection in its hands. It takes microseconds, unless its CPU
/// is taken away.
const HANDS_OFF: Duration = Duration::from_millis(100);

/// A connection on loan. The program answers its next request if nothing is between: what the
/// client sends begins at `rcv_nxt` and acknowledges everything up to `snd_nxt`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Loan {
    /// The client's address; IPv4 mapped (RFC 4291 section 2.5.5.2).
    pub client: [u8; 16],
    /// The server's, likewise.
    pub server: [u8; 16],
    /// The client's TCP port.
    pub client_port: u16,
    /// The server's.
    pub server_port: u16,
    /// Next byte expected from the client.
    pub rcv_nxt: u32,
    /// First byte that the client has not acknowledged.
    pub snd_una: u32,
    /// First byte that it has not been sent.
    pub snd_nxt: u32,
    /// Right edge of the client's window.
    pub edge: u32,
    /// Shift of the client's windows.
    pub client_scale: u8,
    /// The window field of segments to the client, scaled.
    pub window: u16,
    /// Payload of a segment to the client at most, in bytes.
    pub segment_bytes: u16,
    /// Payload that may be sent at once to a client on this machine, whose segments nobody has to
    /// cut, in bytes. The program sets it to 0 when it finds that the client is elsewhere.
    pub burst_bytes: u16,
    /// If timestamps were agreed on.
    pub timestamps: Option<LoanTimestamps>,
    /// When the program last answered or took an acknowledgment, in ns of CLOCK_MONOTONIC; 0: it
    /// has not yet.
    pub used_ns: u64,
    /// Of the reply from `snd_una` to `snd_nxt`: its [`Reply::tag`] and its date in seconds since
    /// 1970.
    pub tag: u64,
    /// Date of the reply from `snd_una` to `snd_nxt`, in seconds since 1970.
    pub date: u64,
}

/// Timestamps of a connection on loan (RFC 7323), in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoanTimestamps {
    /// TS.Recent.
    pub recent: u32,
    /// TSval at 0 ms of CLOCK_MONOTONIC.
    pub stamp: u32,
    /// The last TSval that was sent; later ones are not lower.
    pub sent: u32,
}

/// A reply that is published.
#[derive(Debug, Clone, Copy)]
pub struct Reply<'a> {
    /// The reply's request, byte for byte; at most [`HEAD_BYTES_MAX`].
    pub head: &'a [u8],
    /// Head and body; at most [`L0::reply_bytes_max`].
    pub bytes: &'a [u8],
    /// Ones'-complement sum of `bytes` in 16-bit words of network order.
    pub sum: u16,
    /// The epoch at which its sources were compared.
    pub epoch: u64,
    /// Until when it may be given, in ns of CLOCK_BOOTTIME, the lease's clock.
    pub until_ns: u64,
    /// For the owner.
    pub tag: u64,
    /// `Date` of the head, in seconds since 1970.
    pub date: u64,
}

/// The program at work, for one shard of a card. When the values of all shards are dropped, or
/// their process ends in whatever way, it is gone.
pub struct L0 {
    arrays: Arc<Arrays>,
    shard: usize,
    generation: u64,
    /// Replies refused since they are too long for the driver.
    refused: u32,
}

/// What the shards share.
struct Arrays {
    /// What keeps the program at work: its link at tc egress, or the array of what is behind it,
    /// which is emptied with its last descriptor.
    _held: Option<OwnedFd>,
    desks: Mapped<Desk>,
    places: Mapped<Place>,
    objects: Mapped<Object>,
    seed: u64,
    reply_bytes_max: usize,
}

impl std::fmt::Debug for L0 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("L0")
            .field("shard", &self.shard)
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

impl L0 {
    /// Answers frames that leave the machine's stack by `interface`, a TAP toward the clients.
    ///
    /// `control`: the control page of the kernel's revision table, a BPF array. `seed`: keeps
    /// clients from choosing places. `shards`: how many values are wanted, 1 to [`SHARDS_MAX`].
    ///
    /// # Errors
    /// [`SteeringError`], for example if the kernel has no tcx (before Linux 6.6), or `control` is
    /// not a BPF array. Then nothing is left behind.
    pub fn attach_egress(
        interface: &str,
        control: BorrowedFd<'_>,
        seed: u64,
        shards: usize,
    ) -> Result<Vec<Self>, SteeringError> {
        check_capabilities()?;
        let index = index_of(interface)?;
        let loaded = loaded(AT_EGRESS, PROGRAM_NAME, control, shards)?;
        let link = attach_egress(loaded.program.as_fd(), index)
            .map_err(step("attaching L0 at tc egress"))?;
        Self::over(&loaded, Some(link), REPLY_BYTES_MAX, seed, shards)
            .map_err(step("mapping the arrays of L0"))
    }

    /// Answers frames that come from `interface`, the wire of [`Steering`](crate::Steering), by
    /// XDP; see [`FirstFiles`]. It ends with the card's heartbeat, or when another one takes its
    /// place.
    ///
    /// # Errors
    /// As [`attach_egress`](L0::attach_egress).
    pub fn attach_first(
        files: FirstFiles<'_>,
        interface: &str,
        control: BorrowedFd<'_>,
        seed: u64,
        shards: usize,
    ) -> Result<Vec<Self>, SteeringError> {
        check_capabilities()?;
        let is_veth =
            driver(interface).map_err(step("asking for the interface's driver"))? == "veth";
        let loaded = loaded(
            AT_DRIVER,
            if is_veth { VETH_PROGRAM_NAME } else { PROGRAM_NAME },
            control,
            shards,
        )?;
        let set = |map: BorrowedFd<'_>, program: BorrowedFd<'_>| {
            maps::set(map, FIRST_KEY, program.as_raw_fd().to_ne_bytes())
        };
        let next = loaded.next.as_ref().map(|next| next.as_fd().try_clone_to_owned()).transpose();
        let next = next.map_err(step("keeping a file of L0"))?;
        let next =
            next.ok_or_else(|| SteeringError::Refused("next is not in the object".into()))?;
        set(next.as_fd(), files.rest).map_err(step("putting L0 before steering"))?;
        let l0 = Self::over(&loaded, Some(next), SEGMENT_BYTES_MAX, seed, shards)
            .map_err(step("mapping the arrays of L0"))?;
        set(files.first, loaded.program.as_fd()).map_err(step("putting L0 before steering"))?;
        Ok(l0)
    }

    /// Nobody answers before a card that steering has frames for: what a card before may have left
    /// there is taken away.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn detach_first(first: BorrowedFd<'_>) -> io::Result<()> {
        maps::remove(first, FIRST_KEY)
    }

    fn over(
        loaded: &Loaded,
        held: Option<OwnedFd>,
        reply_bytes_max: usize,
        seed: u64,
        shards: usize,
    ) -> io::Result<Vec<Self>> {
        let desks: Mapped<Desk> = Mapped::new(loaded.desk.as_fd(), shards)?;
        let places = Mapped::new(loaded.places.as_fd(), PLACES)?;
        let objects = Mapped::new(loaded.objects.as_fd(), OBJECTS * shards)?;
        for desk in desks.iter() {
            desk.seed.store(seed, SeqCst);
            desk.generation.store(1, SeqCst);
            desk.growth_max.store(u64::MAX, SeqCst);
        }
        let arrays =
            Arc::new(Arrays { _held: held, desks, places, objects, seed, reply_bytes_max });
        Ok((0..shards)
            .map(|shard| Self { arrays: Arc::clone(&arrays), shard, generation: 1, refused: 0 })
            .collect())
    }

    fn desk(&self) -> &Desk {
        &self.arrays.desks[self.shard]
    }

    /// The shard's replies.
    fn objects(&self) -> &[Object] {
        &self.arrays.objects[OBJECTS * self.shard..][..OBJECTS]
    }

    /// Lends a connection; its place, or `None` if others are in both that it can have.
    pub fn lend(&mut self, loan: &Loan) -> Option<u32> {
        let client = words_of(&loan.client);
        let may_have = hash::places_of(
            self.arrays.seed,
            client,
            loan.client_port.to_be(),
            loan.server_port.to_be(),
        );
        // Another shard may want the same one.
        let takes = |index: &usize| {
            self.arrays.places[*index].state.compare_exchange(FREE, BUSY, SeqCst, Acquire).is_ok()
        };
        let index = may_have.into_iter().find(takes)?;
        let place = &self.arrays.places[index];
        place.shard.store(self.shard as u64, Relaxed);
        for (to, from) in
            place.client.iter().zip(client).chain(place.server.iter().zip(words_of(&loan.server)))
        {
            to.store(from, Relaxed);
        }
        place.client_port.store(loan.client_port.to_be(), Relaxed);
        place.server_port.store(loan.server_port.to_be(), Relaxed);
        place.rcv_nxt.store(loan.rcv_nxt, Relaxed);
        place.snd_una.store(loan.snd_una, Relaxed);
        place.snd_nxt.store(loan.snd_nxt, Relaxed);
        place.edge.store(loan.edge, Relaxed);
        place.window.store(loan.window.to_be(), Relaxed);
        place.segment_bytes.store(loan.segment_bytes, Relaxed);
        place.burst_bytes.store(loan.burst_bytes, Relaxed);
        place.client_scale.store(loan.client_scale, Relaxed);
        place.has_timestamps.store(u8::from(loan.timestamps.is_some()), Relaxed);
        let stamps = loan.timestamps.unwrap_or_default();
        place.recent.store(stamps.recent, Relaxed);
        place.stamp.store(stamps.stamp, Relaxed);
        place.stamp_sent.store(stamps.sent, Relaxed);
        place.used_ns.store(loan.used_ns, Relaxed);
        place.tag.store(loan.tag, Relaxed);
        place.date.store(loan.date, Relaxed);
        place.state.store(LENT, SeqCst);
        Some(index as u32)
    }

    /// Takes a connection back as it stands; `None` if the program does not let go of it, or there
    /// is no such place.
    pub fn take_back(&mut self, place: u32) -> Option<Loan> {
        let place = self.arrays.places.get(place as usize)?;
        let mut since = None;
        loop {
            let state = place.state.load(SeqCst);
            if state == FREE {
                return None;
            }
            // Both what is lent and what was returned becomes ours by one exchange.
            if state != BUSY && place.state.compare_exchange(state, BUSY, SeqCst, SeqCst).is_ok() {
                break;
            }
            if since.get_or_insert_with(Instant::now).elapsed() > HANDS_OFF {
                return None;
            }
            std::hint::spin_loop();
        }
        let has_timestamps = place.has_timestamps.load(Relaxed) != 0;
        let loan = Loan {
            client: octets_of(&place.client),
            server: octets_of(&place.server),
            client_port: u16::from_be(place.client_port.load(Relaxed)),
            server_port: u16::from_be(place.server_port.load(Relaxed)),
            rcv_nxt: place.rcv_nxt.load(Relaxed),
            snd_una: place.snd_una.load(Relaxed),
            snd_nxt: place.snd_nxt.load(Relaxed),
            edge: place.edge.load(Relaxed),
            client_scale: place.client_scale.load(Relaxed),
            window: u16::from_be(place.window.load(Relaxed)),
            segment_bytes: place.segment_bytes.load(Relaxed),
            burst_bytes: place.burst_bytes.load(Relaxed),
            timestamps: has_timestamps.then(|| LoanTimestamps {
                recent: place.recent.load(Relaxed),
                stamp: place.stamp.load(Relaxed),
                sent: place.stamp_sent.load(Relaxed),
            }),
            used_ns: place.used_ns.load(Relaxed),
            tag: place.tag.load(Relaxed),
            date: place.date.load(Relaxed),
        };
        place.state.store(FREE, SeqCst);
        Some(loan)
    }

    /// When the program last did something for the connection at that place, in ns of
    /// CLOCK_MONOTONIC.
    pub fn used_ns(&self, place: u32) -> u64 {
        self.arrays.places.get(place as usize).map_or(0, |place| place.used_ns.load(Relaxed))
    }

    /// Where the reply to that request would be, below [`REPLIES`]; `None` if it is too long.
    pub fn slot_of(&self, head: &[u8]) -> Option<usize> {
        (!head.is_empty() && head.len() <= HEAD_BYTES_MAX)
            .then(|| hash::object_of(self.arrays.seed, head.len(), words(head)))
    }

    /// Can a frame grow that far, by what the program has met so far? It tries again from time to
    /// time: not all frames are alike.
    fn has_room(&mut self, head_len: usize, reply_len: usize) -> bool {
        if reply_len.saturating_sub(head_len) as u64 <= self.desk().growth_max.load(Relaxed) {
            return true;
        }
        self.refused += 1;
        if self.refused == REFUSED_MAX {
            self.refused = 0;
            self.desk().growth_max.store(u64::MAX, Relaxed);
        }
        false
    }

    /// Longest reply that can be published, in bytes: at a TAP [`REPLY_BYTES_MAX`], at a driver
    /// that of a segment.
    pub fn reply_bytes_max(&self) -> usize {
        self.arrays.reply_bytes_max
    }

    /// Publishes a reply, in place of whatever has its slot; false if it is too long.
    pub fn publish(&mut self, reply: &Reply<'_>) -> bool {
        let (head_len, reply_len) = (reply.head.len(), reply.bytes.len());
        let Some(slot) = self.slot_of(reply.head) else { return false };
        if reply_len == 0
            || reply_len > self.arrays.reply_bytes_max
            || !self.has_room(head_len, reply_len)
        {
            return false;
        }
        let object = &self.objects()[slot];
        let version = object.version.load(Relaxed);
        object.version.store(version | 1, SeqCst);
        std::sync::atomic::fence(SeqCst);
        object.generation.store(self.generation, Relaxed);
        object.epoch.store(reply.epoch, Relaxed);
        object.until_ns.store(reply.until_ns, Relaxed);
        object.tag.store(reply.tag, Relaxed);
        object.date.store(reply.date, Relaxed);
        object.head_len.store(head_len as u32, Relaxed);
        object.reply_len.store(reply_len as u32, Relaxed);
        // As the kernel has it, in memory order.
        object.sum.store(reply.sum.to_be().into(), Relaxed);
        object.head.iter().zip(words(reply.head)).for_each(|(to, from)| to.store(from, Relaxed));
        object.reply.iter().zip(words(reply.bytes)).for_each(|(to, from)| to.store(from, Relaxed));
        object.version.store((version | 1) + 1, Release);
        true
    }

    /// Withdraws all replies that are published now: no request that comes from now on gets one of
    /// them.
    pub fn revoke(&mut self) {
        self.generation += 1;
        self.desk().generation.store(self.generation, SeqCst);
    }

    /// Requests that the replies in a slot have answered so far.
    pub fn served(&self, slot: usize) -> u64 {
        self.objects().get(slot).map_or(0, |object| object.served.load(Relaxed))
    }
}

/// The only place of the arrays of programs.
const FIRST_KEY: [u8; 4] = [0; 4];

/// See [`verify_l0_at_tap`](crate::verify_l0_at_tap).
pub(crate) fn verify_at_egress(control: BorrowedFd<'_>) -> Result<u32, SteeringError> {
    check_capabilities()?;
    let loaded = loaded(AT_EGRESS, PROGRAM_NAME, control, 1)?;
    Ok(verified_instructions(loaded.program.as_fd()).unwrap_or(0))
}

/// See [`verify_l0_at_driver`](crate::verify_l0_at_driver).
pub(crate) fn verify_at_driver(control: BorrowedFd<'_>) -> Result<u32, SteeringError> {
    check_capabilities()?;
    let loaded = loaded(AT_DRIVER, PROGRAM_NAME, control, 1)?;
    Ok(verified_instructions(loaded.program.as_fd()).unwrap_or(0))
}

struct Loaded {
    program: OwnedFd,
    /// What is behind the program, in the driver.
    next: Option<OwnedFd>,
    desk: OwnedFd,
    places: OwnedFd,
    objects: OwnedFd,
}

fn loaded(
    bytes: &'static Aligned<[u8]>,
    program: &str,
    control: BorrowedFd<'_>,
    shards: usize,
) -> Result<Loaded, SteeringError> {
    let load = || {
        let object = load_object(bytes, control, shards)
            .map_err(|error| io::Error::other(format!("{error:#}")))?;
        Loaded::of(&object, program)
    };
    let (loaded, log) = with_log(load);
    loaded.map_err(|error| SteeringError::Refused(format!("{error}\n{log}")))
}

impl Loaded {
    fn of(object: &libbpf_rs::Object, program: &str) -> io::Result<Self> {
        let find = |name: &str| object.maps().find(|map| map.name() == OsStr::new(name));
        let map = |name: &str| {
            let map = find(name)
                .ok_or_else(|| io::Error::other(format!("{name} is not in the object")))?;
            map.as_fd().try_clone_to_owned()
        };
        let found = object.progs().find(|known| known.name() == OsStr::new(program));
        let found =
            found.ok_or_else(|| io::Error::other(format!("{program} is not in the object")))?;
        Ok(Self {
            program: found.as_fd().try_clone_to_owned()?,
            next: find("next").map(|map| map.as_fd().try_clone_to_owned()).transpose()?,
            desk: map("desk")?,
            places: map("places")?,
            objects: map("objects")?,
        })
    }
}

fn load_object(
    bytes: &'static Aligned<[u8]>,
    control: BorrowedFd<'_>,
    shards: usize,
) -> libbpf_rs::Result<libbpf_rs::Object> {
    let mut open = ObjectBuilder::default().open_memory(&bytes.0)?;
    for mut map in open.maps_mut() {
        match map.name().to_str() {
            Some("control") => map.reuse_fd(control)?,
            Some("desk") => map.set_max_entries(shards as u32)?,
            Some("objects") => map.set_max_entries((OBJECTS * shards) as u32)?,
            _ => {}
        }
    }
    open.load()
}

/// Bytes as words in memory order, zeros behind them.
fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    })
}

fn words_of(octets: &[u8; 16]) -> [u32; 4] {
    std::array::from_fn(|word| {
        u32::from_ne_bytes(std::array::from_fn(|byte| octets[4 * word + byte]))
    })
}

fn octets_of(words: &[std::sync::atomic::AtomicU32; 4]) -> [u8; 16] {
    let mut octets = [0; 16];
    for (to, word) in octets.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
    }
    octets
}
