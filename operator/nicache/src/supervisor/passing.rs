//! Plain connectivity while there is no card: frames pass between its two interfaces as they are.
//!
//! Not those of connections that are lost with the card
//! ([`SharedLedger`](crate::engine::SharedLedger)): to a client whose numbers the card had moved,
//! the server's next bytes would be others, in the place of those that it lacks. The next card
//! resets them.

use std::collections::HashSet;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use nicache_card::FlowKey;
use nicache_port::{Burst, Port, send_with_fallback, wait};
use nicache_tcp::frame::Packet;
use rustix::event::{EventfdFlags, eventfd};

/// Frames taken at a time.
const BURST_FRAMES: usize = 16;
/// Longest sleep.
const PAUSE: Duration = Duration::from_millis(100);

/// Somebody passes frames: a thread here, or programs in the kernel. Dropping it ends the thread;
/// afterwards nobody reads the ports.
#[derive(Debug)]
pub(super) struct Passing {
    _thread: Option<PassingThread>,
}

#[derive(Debug)]
struct PassingThread {
    stop: Arc<AtomicBool>,
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Passing {
    /// Programs in the kernel do, because they see no card.
    pub(super) fn in_kernel() -> Self {
        Self { _thread: None }
    }

    /// Passes frames between the ports of each pair, that toward the clients first, from now on;
    /// but not those of connections that are `lost`.
    pub(super) fn start<P: Port + Send + 'static>(
        pairs: Vec<(P, P)>,
        lost: HashSet<FlowKey>,
    ) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (stopped, rung) = (Arc::clone(&stop), Arc::clone(&bell));
        let body = move || {
            if let Err(error) = pass(pairs, lost, &stopped, &rung) {
                tracing::error!("frames do not pass while there is no card: {error}");
            }
        };
        let thread = std::thread::Builder::new()
            .name("passing".into())
            .spawn(body)
            .context("cannot start a thread")?;
        Ok(Self { _thread: Some(PassingThread { stop, bell, thread: Some(thread) }) })
    }
}

impl Drop for PassingThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn pass<P: Port>(
    mut pairs: Vec<(P, P)>,
    mut lost: HashSet<FlowKey>,
    stop: &AtomicBool,
    bell: &OwnedFd,
) -> io::Result<()> {
    let mut burst = Burst::new(BURST_FRAMES);
    while !stop.load(Ordering::Acquire) {
        let mut passed = 0;
        for (one, other) in &mut pairs {
            passed += pass_burst(one, other, &mut burst, |frame| is_lost(frame, true, &mut lost))?;
            passed += pass_burst(other, one, &mut burst, |frame| is_lost(frame, false, &mut lost))?;
        }
        if passed == 0 {
            let ports =
                pairs.iter().flat_map(|(one, other)| [one.wait_fd(), other.wait_fd()]).flatten();
            let files: Vec<_> = ports.chain([bell.as_fd()]).collect();
            wait(&files, Some(PAUSE))?;
        }
    }
    Ok(())
}

/// Is it a segment of a connection that is lost? A client that begins anew has another one.
fn is_lost(frame: &[u8], from_client: bool, lost: &mut HashSet<FlowKey>) -> bool {
    const TCP: u8 = 6;
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    if lost.is_empty() {
        return false;
    }
    let Some(packet) = Packet::parse(frame) else { return false };
    let &[from_0, from_1, to_0, to_1, _, _, _, _, _, _, _, _, _, flags, ..] =
        &frame[packet.transport_at..packet.end]
    else {
        return false;
    };
    let (from, to) = (u16::from_be_bytes([from_0, from_1]), u16::from_be_bytes([to_0, to_1]));
    let (client, client_port, server, server_port) = match from_client {
        true => (packet.source, from, packet.destination, to),
        false => (packet.destination, to, packet.source, from),
    };
    let key = FlowKey { client, server, client_port, server_port, vlans: packet.tags.vlans() };
    if u8::from(packet.protocol) != TCP || !lost.contains(&key) {
        return false;
    }
    if from_client && flags & (SYN | ACK) == SYN {
        lost.remove(&key);
        return false;
    }
    true
}

/// What a port does not take is lost, as on a wire.
fn pass_burst<P: Port>(
    from: &mut P,
    to: &mut P,
    burst: &mut Burst,
    mut is_lost: impl FnMut(&[u8]) -> bool,
) -> io::Result<usize> {
    let received = from.receive(burst)?;
    for frame in burst.iter() {
        if is_lost(frame.data()) {
            continue;
        }
        let _ = send_with_fallback(to, &[IoSlice::new(frame.data())], frame.offload());
    }
    to.flush()?;
    Ok(received)
}

#[cfg(test)]
mod tests {
    use nicache_port::{Capabilities, Offload, memory_wire};

    use super::*;

    #[test]
    fn frames_pass_both_ways_until_it_ends() {
        let (wire, mut client) = memory_wire(16, Capabilities::FULL, Capabilities::FULL);
        let (host, mut server) = memory_wire(16, Capabilities::FULL, Capabilities::FULL);
        let passing = Passing::start(vec![(wire, host)], HashSet::new()).unwrap();
        let frame = [7; 60];
        let mut burst = Burst::new(4);
        for _ in 0..3 {
            client.send(&[IoSlice::new(&frame)], Offload::default()).unwrap();
            while server.receive(&mut burst).unwrap() == 0 {}
            assert_eq!(burst.frames()[0].data(), frame);
            server.send(&[IoSlice::new(&frame)], Offload::default()).unwrap();
            while client.receive(&mut burst).unwrap() == 0 {}
            assert_eq!(burst.frames()[0].data(), frame);
        }
        drop(passing);
        assert!(
            client.send(&[IoSlice::new(&frame)], Offload::default()).is_err()
                || server.receive(&mut burst).is_err()
                || burst.is_empty()
        );
    }

    /// A TCP segment over IPv4, from port 40000 of 10.0.0.1 to port 80 of 10.0.0.2 or back.
    fn segment(from_client: bool, flags: u8) -> Vec<u8> {
        let mut frame = vec![
            2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0,
        ];
        let (client, server) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let (client_port, server_port) = (40_000u16.to_be_bytes(), 80u16.to_be_bytes());
        match from_client {
            true => frame.extend(
                [client, server].concat().into_iter().chain(client_port).chain(server_port),
            ),
            false => frame.extend(
                [server, client].concat().into_iter().chain(server_port).chain(client_port),
            ),
        }
        frame.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 1, 0, 0, 0, 0, 0]);
        frame
    }

    #[test]
    fn what_is_lost_with_a_card_does_not_pass() {
        const DATA: u8 = 0x18;
        let key = FlowKey {
            client: std::net::Ipv4Addr::new(10, 0, 0, 1).into(),
            server: std::net::Ipv4Addr::new(10, 0, 0, 2).into(),
            client_port: 40_000,
            server_port: 80,
            ..FlowKey::default()
        };
        let mut lost = HashSet::from([key]);
        for from_client in [true, false] {
            assert!(is_lost(&segment(from_client, DATA), from_client, &mut lost));
            assert!(
                !is_lost(&segment(from_client, DATA), !from_client, &mut lost),
                "another connection"
            );
        }
        assert!(!is_lost(&segment(true, DATA)[..20], true, &mut lost));
        // Begun anew.
        assert!(!is_lost(&segment(true, 2), true, &mut lost));
        assert!(!is_lost(&segment(false, 0x12), false, &mut lost) && lost.is_empty());
    }
}
