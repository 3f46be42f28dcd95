//! The attackers' end of the wire: frames of any kind toward the server, and the segments that come
//! back.

use std::io::IoSlice;
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result};
use nicache_netns::Namespace;
use nicache_port::{Burst, Checksum, Offload, Port, Tap, TapConfig, TapQueue, wait};
use nicache_tcp::frame::{Addresses, HEADERS_BYTES_MAX, Mac, Packet, Tags, write_headers};
use nicache_tcp::wire::CHECKSUM_OFFSET;
use nicache_tcp::{HeadRepr, SegmentHead, checksum};

use super::address::{MAC, NETWORK};
use super::tamper::Tamper;

/// Name of the interface.
pub(super) const INTERFACE: &str = "siege";
/// The server's port.
pub(super) const SERVER_PORT: u16 = 80;

const BURST_FRAMES: usize = 64;

/// A segment that came back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment<'a> {
    /// To whom: address and port.
    pub to: (Ipv4Addr, u16),
    /// Its header.
    pub head: SegmentHead,
    /// Its bytes.
    pub payload: &'a [u8],
}

/// The interface, and what was counted at it.
#[derive(Debug)]
pub(super) struct Wire {
    port: TapQueue,
    server: Ipv4Addr,
    server_mac: Mac,
    ip_id: u16,
    /// Frames sent.
    pub sent: u64,
    /// Frames that the interface refused.
    pub refused: u64,
    /// Segments that came back.
    pub received: u64,
    /// What happens to segments on their way, if anything.
    pub tamper: Option<Tamper>,
}

impl Wire {
    /// Makes the interface in `namespace`; somebody has to bring it up.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) fn open(namespace: &Namespace, server: Ipv4Addr, server_mac: Mac) -> Result<Self> {
        let config = TapConfig { tso: false, uso: false, ..TapConfig::default() };
        let mut queues = namespace.run(move || Tap::open_with(INTERFACE, 1, &config))?;
        let port = queues.pop().context("no queue")?;
        Ok(Self {
            port,
            server,
            server_mac,
            ip_id: 1,
            sent: 0,
            refused: 0,
            received: 0,
            tamper: None,
        })
    }

    /// The bytes of a segment's frame, with right checksums.
    pub(super) fn frame(&mut self, from: Ipv4Addr, head: &HeadRepr, payload: &[u8]) -> Vec<u8> {
        let addresses = Addresses {
            source_mac: MAC,
            destination_mac: self.server_mac,
            tags: Tags::default(),
            source: from.into(),
            destination: self.server.into(),
        };
        self.ip_id = self.ip_id.wrapping_add(1);
        let mut headers = [0; HEADERS_BYTES_MAX];
        let len = write_headers(&addresses, head, payload.len() as u32, self.ip_id, &mut headers);
        let mut frame = Vec::with_capacity(len + payload.len());
        frame.extend_from_slice(&headers[..len]);
        frame.extend_from_slice(payload);
        let (tcp_at, field) = (addresses.tcp_at(), addresses.tcp_at() + CHECKSUM_OFFSET);
        // The field has the sum of the pseudo-header.
        let sum = checksum::sum(&frame[tcp_at..]);
        frame[field..field + 2].copy_from_slice(&(!sum).to_be_bytes());
        frame
    }

    /// Sends a segment.
    pub(super) fn send(&mut self, from: Ipv4Addr, head: &HeadRepr, payload: &[u8]) {
        let frame = self.frame(from, head, payload);
        let Some(mut tamper) = self.tamper.take() else { return self.send_raw(&frame) };
        tamper.apply(frame, |frame| self.send_raw(frame));
        self.tamper = Some(tamper);
    }

    /// Sends bytes, whatever they are.
    pub(super) fn send_raw(&mut self, frame: &[u8]) {
        let offload = Offload { checksum: Checksum::Unverified, gso: None };
        match self.port.send(&[IoSlice::new(frame)], offload) {
            Ok(()) => self.sent += 1,
            Err(_) => self.refused += 1,
        }
    }

    /// Addresses that frames are made of: the attackers' MAC, the server's MAC, the server's
    /// address.
    pub(super) fn ends(&self) -> (Mac, Mac, Ipv4Addr) {
        (MAC, self.server_mac, self.server)
    }

    /// Hands what has come back to `take`; how many frames that were.
    ///
    /// # Errors
    /// The interface is gone.
    pub(super) fn receive(
        &mut self,
        burst: &mut Burst,
        mut take: impl FnMut(&mut Self, Segment<'_>),
    ) -> Result<usize> {
        let count = self.port.receive(burst).context("the attackers' interface")?;
        for frame in burst.iter() {
            let Some((packet, head)) = parse(frame.data()) else { continue };
            self.received += 1;
            let Some(to) = packet.destination.v4_octets() else { continue };
            let payload = &frame.data()[packet.transport_at + head.header_len..packet.end];
            take(self, Segment { to: (to.into(), head.dst_port), head, payload });
        }
        Ok(count)
    }

    /// Sleeps until something comes back or `time` is over.
    pub(super) fn sleep(&self, time: Duration) {
        if let Some(fd) = self.port.wait_fd() {
            let _ = wait(&[fd], Some(time));
        }
    }

    /// Room for what comes back at a time.
    pub(super) fn burst() -> Burst {
        Burst::new(BURST_FRAMES)
    }
}

/// A segment to one of the attackers.
fn parse(frame: &[u8]) -> Option<(Packet, SegmentHead)> {
    let packet = Packet::parse(frame)?;
    let ours = packet.destination.v4_octets().is_some_and(|to| to[..2] == NETWORK);
    let head = nicache_tcp::parse(frame.get(packet.transport_at..packet.end)?).ok()?;
    (ours && head.src_port == SERVER_PORT).then_some((packet, head))
}

/// An attacker's address, of 65,024: none ends in 0 or 255.
pub(super) fn address(number: u32) -> Ipv4Addr {
    let number = number % ADDRESSES;
    Ipv4Addr::new(NETWORK[0], NETWORK[1], (number / 254) as u8, (number % 254 + 1) as u8)
}

/// How many [`address`]es there are.
pub(super) const ADDRESSES: u32 = 256 * 254;
