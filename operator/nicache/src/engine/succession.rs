//! One card takes the place of another that still works ([`nicache_card::OlderCard`]).

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nicache_card::OlderCard;
use nicache_port::{Divertible, PairSocket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

use super::clock::monotonic;
use super::ports::AnyPort;
use super::shard::Shard;

/// A port of a shard.
pub(crate) type ShardPort = Divertible<AnyPort>;

/// All shards of a card.
pub(crate) type Shards = Vec<Shard<ShardPort, ShardPort>>;

/// How often the older looks whether its connections have ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long connections may go on with the older. Then they are reset.
const OLDER_TIME: Duration = Duration::from_secs(120);

/// The older of each shard, by two sockets for the wire and for the host, and a file that tells
/// whether it lives.
pub(crate) fn older_cards(files: Vec<OwnedFd>) -> Result<(Vec<OlderCard>, OwnedFd)> {
    let life = files.first().context("the sockets to the older did not come")?.try_clone()?;
    let mut sockets = files.into_iter().map(|file| Box::new(PairSocket::from(file)));
    let mut older_cards = Vec::new();
    while let Some((wire, host)) = sockets.next().zip(sockets.next()) {
        older_cards.push(OlderCard { wire, host });
    }
    Ok((older_cards, life))
}

/// Waits until the older no longer reads its ports: until it says so, or has ended. However long it
/// takes, because each of two who read a port would have half of each connection.
pub(crate) fn wait_for(older: &OwnedFd) {
    while poll(&mut [PollFd::new(older, PollFlags::IN)], None) == Err(rustix::io::Errno::INTR) {}
}

/// Is the other end of a socket open?
fn is_open(socket: &OwnedFd) -> bool {
    let mut files = [PollFd::new(socket, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let polled = retry_on_intr(|| poll(&mut files, Some(&now)));
    polled.is_ok() && !files[0].revents().contains(PollFlags::HUP)
}

/// A thread that ends this process when its connections have ended, once it is told that another
/// card has taken over.
pub(crate) struct Yielding(Sender<()>);

impl Yielding {
    /// Starts the thread, which waits to be told.
    ///
    /// `older`: who is older still. What is meant for that one comes by here, so it ends first.
    pub(crate) fn prepare(
        shards: Arc<Vec<Shard<ShardPort, ShardPort>>>,
        older: Option<OwnedFd>,
    ) -> Result<Self> {
        let (told, tell) = channel();
        let body = move || end_when_done(&shards, older.as_ref(), &tell);
        std::thread::Builder::new().name("yielding".into()).spawn(body)?;
        Ok(Self(told))
    }

    /// The shards receive from the younger card from now on, and the process ends with their
    /// connections.
    pub(crate) fn begin(
        &self,
        shards: &[Shard<ShardPort, ShardPort>],
        files: Vec<OwnedFd>,
    ) -> Result<()> {
        let first =
            files.first().context("the younger card's sockets did not come")?.try_clone()?;
        let mut sockets = files.into_iter().map(PairSocket::from);
        for shard in shards {
            let (wire, host) = sockets
                .next()
                .zip(sockets.next())
                .context("the younger card's sockets did not come")?;
            shard.ask_patiently(move |card| {
                card.wire_mut().divert(wire);
                card.host_mut().divert(host);
                // What an operator purges from now on is told to the younger card only.
                card.set_bypass(true);
            })?;
        }
        retry_on_intr(|| rustix::io::write(&first, &[1])).context("telling the younger card")?;
        let _ = self.0.send(());
        Ok(())
    }
}

fn end_when_done(
    shards: &[Shard<ShardPort, ShardPort>],
    older: Option<&OwnedFd>,
    tell: &Receiver<()>,
) {
    if tell.recv().is_err() {
        return;
    }
    let until = Instant::now() + OLDER_TIME;
    let left = || -> Result<usize> {
        let flows = shards
            .iter()
            .map(|shard| shard.ask_patiently(|card| card.sole_flows()))
            .collect::<Result<Vec<_>>>()?;
        Ok(flows.into_iter().sum())
    };
    loop {
        match left() {
            Ok(0) if !older.is_some_and(is_open) => break,
            Err(_) => break,
            Ok(_) if Instant::now() > until => {
                for shard in shards {
                    let _ = shard.ask_patiently(|card| card.reset_all(monotonic()));
                }
                break;
            }
            Ok(_) => std::thread::sleep(LOOK_EVERY),
        }
    }
    std::process::exit(0);
}
