//! The ports of a card, in the order of their numbers, as its supervisor says.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nicache_port::{Losable, PacketSocket, Port, TapConfig};
use nicache_secret::random_u64;
use nicache_xdp::{LinkPort, ProbeSide, ProbeSockets, Rest, XdpError, XdpSocket, probe_link};

use super::messages::PortSetup;
use crate::engine::{AnyPort, tap, xdp_sockets};

/// The kernel frees the queues of a card that was killed only after it has told that it has ended:
/// for so long, one that is taken is tried again.
const TAKEN: Duration = Duration::from_secs(10);
/// Between two tries.
const AGAIN: Duration = Duration::from_millis(10);

/// A port that cannot be used as it is.
pub(super) struct Unfit {
    /// The port's number.
    pub port: usize,
    /// Why the port cannot be used.
    pub error: anyhow::Error,
}

/// A port of a card, which goes on without it when it breaks.
pub(super) type CardPort = Losable<AnyPort>;

/// Opens them, with their files.
pub(super) fn open(
    setups: &[PortSetup],
    files: &mut impl Iterator<Item = OwnedFd>,
) -> Result<Vec<CardPort>, Unfit> {
    let numbered = setups.iter().enumerate();
    numbered
        .map(|(port, setup)| open_one(setup, files).map_err(|error| Unfit { port, error }))
        .collect()
}

fn open_one(setup: &PortSetup, files: &mut impl Iterator<Item = OwnedFd>) -> Result<CardPort> {
    let mut next =
        || files.next().context("a file of the card's ports did not come with the setup");
    let packet =
        |file| PacketSocket::from_owned_fd(file).context("a packet socket from the supervisor");
    let port: AnyPort = match setup {
        PortSetup::Absent => return Ok(CardPort::absent("the interface is gone".to_owned())),
        PortSetup::Tap { super_frames } => {
            let config =
                TapConfig { tso: *super_frames, uso: *super_frames, ..TapConfig::default() };
            Box::new(tap(next()?, &config)?)
        }
        PortSetup::Packet => Box::new(packet(next()?)?),
        PortSetup::Xdp { interface, queues, probe } => {
            let (map, passed) = (next()?, packet(next()?)?);
            let program = probe.then(next).transpose()?;
            let (mut sockets, kind) = sockets(interface, *queues, map.as_fd())?;
            if let Some(program) = program {
                send_probe(interface, program.as_fd(), &mut sockets, kind)?;
            }
            Box::new(LinkPort::new(sockets, passed)?)
        }
    };
    Ok(CardPort::new(port))
}

fn sockets(
    interface: &str,
    queues: u32,
    map: BorrowedFd<'_>,
) -> Result<(Vec<XdpSocket>, ProbeSockets)> {
    let began = Instant::now();
    loop {
        match xdp_sockets(interface, queues, map) {
            Err(XdpError::Busy { .. }) if began.elapsed() < TAKEN => std::thread::sleep(AGAIN),
            // These errors tell their causes themselves.
            result => return result.map_err(|error| anyhow!("{error}")),
        }
    }
}

fn send_probe(
    interface: &str,
    program: BorrowedFd<'_>,
    sockets: &mut [XdpSocket],
    kind: ProbeSockets,
) -> Result<()> {
    let ports = sockets.iter_mut().map(|socket| socket as &mut dyn Port).collect();
    let mut side = ProbeSide { interface, ports, sockets: kind, rest: Rest::Pass };
    let probed = probe_link(program, &mut side, random_u64()? | 1);
    for untried in probed.map_err(|error| anyhow!("{error}"))? {
        tracing::info!("not all probe frames could be sent: {untried}");
    }
    Ok(())
}
