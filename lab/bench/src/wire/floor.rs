//! What a TAP itself costs: a program that answers every request with the same bytes, and knows
//! nothing.
//!
//! It has no connections, no look-up, no date, no timers and no retransmission: a reply is made of
//! the numbers of the segment that asks for it. What it takes is, but for very little, what the
//! kernel takes for a frame in and a frame out, with the client's reception of that. So it says how
//! much of the figures of a card that reads and writes frames as well is the card's.

use std::io::IoSlice;

use anyhow::{Context, Result, ensure};
use nicache_port::{
    Burst, Checksum, FrameBuf, Gso, GsoKind, Idle, IdlePolicy, IdleStep, Offload, Port, Tap,
    TapQueue, wait,
};
use nicache_tcp::frame::{Addresses, HEADERS_BYTES_MAX, Mac, Packet, write_headers};
use nicache_tcp::wire::CHECKSUM_OFFSET;
use nicache_tcp::{Flags, HeadRepr, SynOptions, Timestamps};
use smoltcp::wire::IpProtocol;

use super::site::Object;

/// Name of the interface.
pub const INTERFACE: &str = "floor";
/// The link address of the server that is none.
pub const MAC: &str = "02:00:00:00:00:02";
/// Largest object: with its head it goes into any first window.
pub const BYTES_MAX: u64 = 10_000;

const BURST_FRAMES: usize = 64;
const MSS: u16 = 1448;
const WINDOW: u16 = 64_000;

/// Opens the interface in the thread's network namespace and answers until it is killed. Says so in
/// a line on standard output.
///
/// # Errors
/// There is no such object, or the kernel refuses the interface.
pub fn serve(bytes: u64) -> Result<()> {
    ensure!(bytes <= BYTES_MAX, "the largest object is {BYTES_MAX} bytes");
    let mut queue = Tap::open(INTERFACE, 1)?.pop().context("no queue")?;
    println!("ready");
    let body = Object { bytes, connections: 0 }.body();
    let (open, closing) = (reply("keep-alive", &body), reply("close", &body));
    let (mut burst, mut idle) = (Burst::new(BURST_FRAMES), Idle::new(IdlePolicy::default()));
    loop {
        let now_ns = nicache_clock::monotonic_ns();
        let frames = queue.receive(&mut burst)?;
        for frame in &mut burst {
            answer(&mut queue, frame, &open, &closing, (now_ns / 1_000_000) as u32);
        }
        if frames > 0 {
            idle.handle_work(now_ns, frames);
            continue;
        }
        match idle.poll(now_ns) {
            IdleStep::Again | IdleStep::Nap => std::hint::spin_loop(),
            IdleStep::Sleep => drop(wait(queue.wait_fd().as_slice(), None)?),
        }
    }
}

/// A reply to every request, with a head as long as nginx's.
fn reply(connection: &str, body: &[u8]) -> Vec<u8> {
    let mut reply = format!(
        "HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Mon, 13 Nov 2023 10:00:00 GMT\r\nContent-Type: application/octet-stream\r\n\
         Content-Length: {}\r\nLast-Modified: Mon, 13 Nov 2023 10:00:00 GMT\r\nConnection: {connection}\r\n\
         ETag: \"6551f2a0-{:x}\"\r\nAccept-Ranges: bytes\r\n\r\n",
        body.len(),
        body.len()
    )
    .into_bytes();
    reply.extend_from_slice(body);
    reply
}

fn answer(queue: &mut TapQueue, frame: &FrameBuf, open: &[u8], closing: &[u8], now_ms: u32) {
    let data = frame.data();
    let Some(packet) = Packet::parse(data).filter(|packet| packet.protocol == IpProtocol::Tcp)
    else {
        return;
    };
    let Ok(asked) = nicache_tcp::parse(&data[packet.transport_at..packet.end]) else { return };
    let request = &data[packet.transport_at + asked.header_len..packet.end];
    if asked.flags.rst() || request.is_empty() && !asked.flags.syn() && !asked.flags.fin() {
        return;
    }
    let stamps =
        asked.timestamps.or_else(|| asked.syn_options.and_then(|options| options.timestamps));
    let timestamps = stamps.map(|theirs| Timestamps { val: now_ms, ecr: theirs.val });
    let closes = request.windows(5).any(|word| word == b"close");
    let payload = if request.is_empty() {
        &[][..]
    } else if closes {
        closing
    } else {
        open
    };
    let mut head = HeadRepr {
        src_port: asked.dst_port,
        dst_port: asked.src_port,
        seq: asked.ack,
        ack: asked.seq + asked.segment_len(request.len() as u32),
        flags: if closes { Flags::ACK | Flags::FIN } else { Flags::ACK },
        window: WINDOW,
        timestamps,
        ..HeadRepr::default()
    };
    if asked.flags.syn() {
        head.flags = Flags::SYN | Flags::ACK;
        head.syn_options = Some(SynOptions {
            mss: Some(MSS + 12),
            window_scale: None,
            sack_permitted: false,
            timestamps,
            ecn: false,
        });
    }
    let mac = |at: usize| -> Mac {
        data[at..at + 6].try_into().expect("six bytes of a frame that was parsed")
    };
    let addresses = Addresses {
        source_mac: mac(0),
        destination_mac: mac(6),
        tags: packet.tags,
        source: packet.destination,
        destination: packet.source,
    };
    let mut bytes = [0; HEADERS_BYTES_MAX];
    let len = write_headers(&addresses, &head, payload.len() as u32, 0, &mut bytes);
    let mut offload = Offload {
        checksum: Checksum::Partial {
            start: addresses.tcp_at() as u16,
            offset: CHECKSUM_OFFSET as u16,
        },
        ..Offload::default()
    };
    if payload.len() > usize::from(MSS) {
        offload.gso =
            Some(Gso { kind: GsoKind::Tcp4, size: MSS, header_len: len as u16, ecn: false });
    }
    // A frame that does not go is as good as lost.
    let _ = queue.send(&[IoSlice::new(&bytes[..len]), IoSlice::new(payload)], offload);
}
