//! Probe frames: does all that comes in by two interfaces under [`Steering`](crate::Steering)
//! arrive, and what goes out leave?
//!
//! A driver, or the kernel in its place, may take programs and sockets and hand them nothing, or
//! frames that are cut. So, before a card begins, for each interface:
//!
//! * it *hears*: a frame that comes in comes to the card's ports;
//! * it *speaks*: a frame that the card sends leaves;
//! * it *passes* the rest: a frame that is not the card's leaves on the other side, byte for byte.
//!
//! A frame is made to come in by the kernel itself (`BPF_PROG_TEST_RUN`): behind the driver for all
//! ports, and through the XDP program where there is one. That nobody on the network answers means
//! nothing here; and where there is no carrier, nothing that would have to leave is looked at. What
//! leaves has the Ethertype for local experiments (IEEE 802), and is from and to the address of the
//! interface that it leaves by, or to that of the server behind it: a switch throws it away, and a
//! station does not know it.
//!
//! The card must not be alive meanwhile.

mod kernel;

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nicache_port::{Burst, Offload, Port};

use self::kernel::{
    Watcher, address_of, inject, is_running, is_up, run_as_received, sent, slaves_of,
};
use crate::maps;
use crate::side::Rest;

/// How long a frame is tried again. What works does so at once; on a machine that is busy or
/// emulated it takes longer. No fewer times than `TRIES_MIN`, however late they come.
const LIMIT: Duration = Duration::from_secs(5);
const TRIES_MIN: u32 = 25;
/// Between two tries, and between two looks.
const TRY_EVERY: Duration = Duration::from_millis(100);
const LOOK_EVERY: Duration = Duration::from_millis(1);

const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
/// `PROBE_*` in `ebpf/steer.bpf.c`; and what the card sends.
const FOR_CARD: u16 = 1;
const OF_REST: u16 = 2;
const OF_CARD: u16 = 3;
/// Bytes behind the mark.
const BODY_BYTES: u8 = 100;

/// The files of [`Steering`](crate::Steering) that probe frames need.
#[derive(Debug, Clone, Copy)]
pub struct ProbeFiles<'a> {
    /// What tells them from others.
    pub key: BorrowedFd<'a>,
    /// Lets a socket see those that leave.
    pub filter: BorrowedFd<'a>,
    /// Have one come in from the wire, from the host.
    pub inject: [BorrowedFd<'a>; 2],
    /// The XDP programs at the wire and the host, where there are any.
    pub drivers: [Option<BorrowedFd<'a>>; 2],
}

/// An interface, and the card's ports on it.
pub struct ProbeSide<'a> {
    /// The interface's name, in the network namespace of the calling thread.
    pub interface: &'a str,
    /// One for each queue.
    pub ports: Vec<&'a mut dyn Port>,
    /// What they are.
    pub sockets: ProbeSockets,
    /// Where frames from it go that are not the card's.
    pub rest: Rest,
}

/// What the card's ports on an interface are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeSockets {
    /// [`PacketSocket`](nicache_port::PacketSocket)s.
    Packet,
    /// [`XdpSocket`](crate::XdpSocket)s to which the kernel copies.
    Copied,
    /// [`XdpSocket`](crate::XdpSocket)s whose memory the driver receives into. No frame is made to
    /// come in to them: it would be taken from the driver's queue behind its back.
    ZeroCopy,
}

/// What does not work.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// Frames that come in do not come to the card.
    #[error("what comes in by `{0}` does not reach the card")]
    Deaf(String),
    /// Frames that the card sends do not leave.
    #[error("what the card sends on `{0}` does not leave")]
    Mute(String),
    /// Other frames do not pass.
    #[error("what comes in by `{from}` does not leave by `{to}` as it was")]
    Cut {
        /// Where it came from.
        from: String,
        /// Where it should have gone to.
        to: String,
    },
    /// The port is broken.
    #[error("a port is broken: {0}")]
    Port(#[source] io::Error),
    /// A system call failed, with what was being done.
    #[error("{step}: {error}")]
    Io {
        /// What was being done.
        step: &'static str,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
}

/// Sends probe frames through everything between the wire (first) and the host. `key` is any number
/// that nobody else knows, not 0. Tells what could not be tried, and why.
///
/// # Errors
/// See [`ProbeError`].
pub fn probe(
    files: &ProbeFiles<'_>,
    sides: &mut [ProbeSide<'_>; 2],
    key: u64,
) -> Result<Vec<String>, ProbeError> {
    let io = |step: &'static str| move |error: io::Error| ProbeError::Io { step, error };
    let _marked =
        Marked::set(files.key, key).map_err(io("telling the programs about probe frames"))?;
    let mut untried = Vec::new();
    for side in sides.iter() {
        if !is_up(side.interface).map_err(io("asking whether an interface is up"))? {
            untried.push(format!("{} is down", side.interface));
        }
    }
    if !untried.is_empty() {
        return Ok(untried);
    }
    for number in 0..2 {
        let other = sides[1 - number].interface;
        let side = &mut sides[number];
        let has_carrier =
            |name: &str| is_running(name).map_err(io("asking for an interface's carrier"));
        try_ports(side, Some(files.inject[number]), files.drivers[number], key, &mut untried)?;
        let there = address_of(other).map_err(io("asking for an interface's address"))?;
        let to = match side.rest {
            Rest::Pass => continue,
            Rest::Redirect => there,
            Rest::Station(address) => address,
        };
        if !has_carrier(other)? {
            continue;
        }
        let watcher = Watcher::open(other, files.filter)
            .map_err(io("watching what leaves by an interface"))?;
        let driver = files.drivers[number]
            .map(|program| Way::Driver { program, name: side.interface.to_owned() });
        for way in [Way::Stack(files.inject[number])].into_iter().chain(driver) {
            let frame = frame(to, there, key, OF_REST);
            let tried =
                repeat(|| way.take(&frame), || watcher.has_seen(&frame).map_err(ProbeError::Port))?;
            match tried {
                Tried::Seen => {}
                Tried::Unseen if !has_carrier(other)? => {
                    untried.push(format!("{other} has no carrier"));
                }
                Tried::Unseen => {
                    return Err(ProbeError::Cut {
                        from: side.interface.to_owned(),
                        to: other.to_owned(),
                    });
                }
                Tried::Cannot(error) => {
                    untried.push(format!(
                        "nothing can be made to come in by {}: {error}",
                        side.interface
                    ));
                }
            }
        }
    }
    untried.dedup();
    Ok(untried)
}

/// Sends probe frames through one link alone: what comes in by it must reach its ports, and what
/// they send must leave. `program` hands frames that nobody keeps to its AF_XDP sockets; `key` is
/// any number that nobody else knows, not 0. Tells what could not be tried, and why.
///
/// # Errors
/// See [`ProbeError`].
pub fn probe_link(
    program: BorrowedFd<'_>,
    side: &mut ProbeSide<'_>,
    key: u64,
) -> Result<Vec<String>, ProbeError> {
    let is_up = is_up(side.interface)
        .map_err(|error| ProbeError::Io { step: "asking whether an interface is up", error })?;
    if !is_up {
        return Ok(vec![format!("{} is down", side.interface)]);
    }
    let mut untried = Vec::new();
    try_ports(side, None, Some(program), key, &mut untried)?;
    Ok(untried)
}

/// Do a side's ports hear and speak?
fn try_ports(
    side: &mut ProbeSide<'_>,
    inject: Option<BorrowedFd<'_>>,
    driver: Option<BorrowedFd<'_>>,
    key: u64,
    untried: &mut Vec<String>,
) -> Result<(), ProbeError> {
    let io = |step: &'static str| move |error: io::Error| ProbeError::Io { step, error };
    let has_carrier =
        |name: &str| is_running(name).map_err(io("asking for an interface's carrier"));
    let mut ways = Vec::new();
    // Sockets of XDP hear nothing that is already behind the driver.
    let is_xdp = side.sockets != ProbeSockets::Packet;
    if !is_xdp {
        ways.extend(inject.map(|inject| (None, Way::Stack(inject))));
    }
    if side.sockets == ProbeSockets::ZeroCopy {
        untried.push(format!("{} receives into the card's memory itself", side.interface));
    } else if let Some(program) = driver {
        // The program is run by what the interface is made of.
        let mut below = if is_xdp { slaves_of(side.interface) } else { Vec::new() };
        if below.is_empty() {
            below.push(side.interface.to_owned());
        }
        ways.extend(
            below.into_iter().map(|name| (is_xdp.then_some(0), Way::Driver { program, name })),
        );
        if is_xdp && side.ports.len() > 1 {
            untried.push(format!(
                "nothing can be made to come in by other queues of {} than the first",
                side.interface
            ));
        }
    }
    let own = address_of(side.interface).map_err(io("asking for an interface's address"))?;
    for (queue, way) in &ways {
        let frame = frame(own, own, key, FOR_CARD);
        match hears(side, *queue, way, &frame)? {
            Tried::Seen => {}
            Tried::Unseen => return Err(ProbeError::Deaf(side.interface.to_owned())),
            Tried::Cannot(error) => {
                untried
                    .push(format!("nothing can be made to come in by {}: {error}", side.interface));
            }
        }
    }
    // The kernel tells of a lost carrier up to a second later.
    let is_mute = has_carrier(side.interface)? && !speaks(side, &frame(own, own, key, OF_CARD))?;
    if !has_carrier(side.interface)? {
        untried.push(format!("{} has no carrier", side.interface));
    } else if is_mute {
        return Err(ProbeError::Mute(side.interface.to_owned()));
    }
    Ok(())
}

/// How a frame comes in.
enum Way<'a> {
    /// Behind the driver.
    Stack(BorrowedFd<'a>),
    /// Through the XDP program, as by the first queue.
    Driver { program: BorrowedFd<'a>, name: String },
}

impl Way<'_> {
    fn take(&self, frame: &[u8]) -> io::Result<()> {
        match self {
            Way::Stack(program) => inject(*program, frame),
            Way::Driver { program, name } => run_as_received(*program, name, frame),
        }
    }
}

/// What came of a frame.
enum Tried {
    Seen,
    Unseen,
    /// The kernel lets no frame come in that way.
    Cannot(io::Error),
}

/// Does a frame that comes in come to the port of `queue`, or to any?
fn hears(
    side: &mut ProbeSide<'_>,
    queue: Option<usize>,
    way: &Way<'_>,
    frame: &[u8],
) -> Result<Tried, ProbeError> {
    let mut burst = Burst::new(8);
    repeat(
        || way.take(frame),
        || {
            let mut is_there = false;
            for (number, port) in side.ports.iter_mut().enumerate() {
                while port.receive(&mut burst).map_err(ProbeError::Port)? > 0 {
                    let is_wanted = queue.is_none_or(|queue| queue == number);
                    is_there |= is_wanted && burst.iter().any(|received| received.data() == frame);
                }
            }
            Ok(is_there)
        },
    )
}

/// Does a frame leave that each of the ports sends?
fn speaks(side: &mut ProbeSide<'_>, frame: &[u8]) -> Result<bool, ProbeError> {
    let count = || {
        sent(side.interface)
            .map_err(|error| ProbeError::Io { step: "asking what an interface has sent", error })
    };
    for port in &mut side.ports {
        let before = count()?;
        let send = || {
            // What is full or without carrier just now is tried again.
            let _ = port.send(&[IoSlice::new(frame)], Offload::default());
            let _ = port.flush();
            Ok(())
        };
        if !matches!(repeat(send, || Ok(count()? != before))?, Tried::Seen) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn repeat(
    mut act: impl FnMut() -> io::Result<()>,
    mut is_seen: impl FnMut() -> Result<bool, ProbeError>,
) -> Result<Tried, ProbeError> {
    let began = Instant::now();
    let mut tries = 0;
    while tries < TRIES_MIN || began.elapsed() < LIMIT {
        tries += 1;
        if let Err(error) = act() {
            return Ok(Tried::Cannot(error));
        }
        let tried = Instant::now();
        loop {
            if is_seen()? {
                return Ok(Tried::Seen);
            }
            if tried.elapsed() >= TRY_EVERY {
                break;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
    Ok(Tried::Unseen)
}

fn frame(to: [u8; 6], from: [u8; 6], key: u64, kind: u16) -> Vec<u8> {
    let mut frame = [&to[..], &from, &ETHERTYPE, &key.to_ne_bytes(), &kind.to_ne_bytes()].concat();
    frame.extend((0..BODY_BYTES).map(|at| at.wrapping_mul(0x9d) ^ 0x5a));
    frame
}

/// The programs know probe frames until this is dropped.
struct Marked<'a>(BorrowedFd<'a>);

impl<'a> Marked<'a> {
    fn set(map: BorrowedFd<'a>, key: u64) -> io::Result<Self> {
        maps::set(map, [0; 4], key.to_ne_bytes())?;
        Ok(Marked(map))
    }
}

impl Drop for Marked<'_> {
    fn drop(&mut self) {
        // It is a number that nobody else knows.
        let _ = maps::set(self.0, [0; 4], [0; 8]);
    }
}
