//! Cost per frame of each port and of the software fallback. `cargo bench -p nicache-port`; the TAP
//! rows need root.
//!
//! The TAP is in a network namespace of its own. Its frames are for another MAC address, so the
//! kernel drops them as soon as its IP stack sees them: a row is the cost of our side and of the
//! kernel's way in.

use std::io::IoSlice;
use std::time::{Duration, Instant};

use nicache_port::*;

const RUN: Duration = Duration::from_millis(500);

/// Ethernet, IPv4 and TCP headers for nobody (another MAC address), and payload.
fn frame(payload: usize) -> Vec<u8> {
    let mut frame = vec![0; 54 + payload];
    frame[..6].copy_from_slice(&[2, 9, 9, 9, 9, 9]);
    frame[12] = 8;
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&((40 + payload) as u16).to_be_bytes());
    frame[23] = 6;
    frame[46] = 5 << 4;
    frame
}

fn offload(payload: usize) -> Offload {
    let gso = (payload > 1460).then_some(Gso {
        kind: GsoKind::Tcp4,
        size: 1460,
        header_len: 54,
        ecn: false,
    });
    Offload { checksum: Checksum::Partial { start: 34, offset: 16 }, gso }
}

/// Runs `step` for a while and prints the cost of one, given the bytes it moves.
fn measure(name: &str, bytes: usize, mut step: impl FnMut()) {
    (0..100).for_each(|_| step());
    let (start, mut steps) = (Instant::now(), 0u64);
    while start.elapsed() < RUN {
        (0..64).for_each(|_| step());
        steps += 64;
    }
    let ns = start.elapsed().as_nanos() as f64 / steps as f64;
    println!("{name:<40} {bytes:>6} B {ns:>10.0} ns {:>8.1} Gb/s", bytes as f64 * 8.0 / ns);
}

fn memory(name: &str, capabilities: Capabilities, payload: usize) {
    let (mut near, mut far) = memory_wire(64, capabilities, capabilities);
    let mut burst = Burst::new(64);
    let frame = frame(payload);
    let parts = [IoSlice::new(&frame[..54]), IoSlice::new(&frame[54..])];
    measure(name, frame.len(), || {
        send_with_fallback(&mut near, &parts, offload(payload)).unwrap();
        far.receive(&mut burst).unwrap();
    });
}

fn tap() -> Result<TapQueue, String> {
    nicache_namespaces::enter_new().map_err(|error| error.to_string())?;
    let mut queues = Tap::open("bench", 1).map_err(|error| error.to_string())?;
    nicache_namespaces::ip("link set bench up");
    Ok(queues.remove(0))
}

fn main() {
    for payload in [10, 1460, 60_000] {
        memory("memory wire, send and receive", Capabilities::FULL, payload);
    }
    for payload in [1460, 60_000] {
        memory("memory wire, software fallback", Capabilities::PLAIN, payload);
    }
    let mut tap = match tap() {
        Ok(tap) => tap,
        Err(reason) => return println!("no TAP: {reason}"),
    };
    let mut burst = Burst::new(32);
    measure("TAP, receive when empty", 0, || {
        tap.receive(&mut burst).unwrap();
    });
    for payload in [10, 1460, 60_000] {
        let frame = frame(payload);
        let whole = [IoSlice::new(&frame[..54]), IoSlice::new(&frame[54..])];
        measure("TAP, send, 2 parts", frame.len(), || tap.send(&whole, offload(payload)).unwrap());
    }
    let frame = frame(60_000);
    let mut scattered = vec![IoSlice::new(&frame[..54])];
    scattered.extend(frame[54..].chunks(2048).map(IoSlice::new));
    measure("TAP, send, 31 parts", frame.len(), || tap.send(&scattered, offload(60_000)).unwrap());
}
