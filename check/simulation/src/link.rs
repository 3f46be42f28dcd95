//! Between the frames of simulated machines and a port of the card: super-frames and partial
//! checksums like a kernel's.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use nicache_port::{
    Burst, Capabilities, Checksum, FaultCounters, FaultRates, Faulty, Gso, GsoKind, ManualClock,
    MemoryPort, Offload, Port, SendError, send_with_fallback,
};
use nicache_tcp::checksum;
use smoltcp::wire::Ipv4Packet;

use crate::device::TCP_AT;
use crate::machine::mac;

const FLAGS: usize = TCP_AT + 13;
const SEQ: usize = TCP_AT + 4;
const CHECKSUM: usize = TCP_AT + 16;
const PSH_FIN: u8 = 0x09;
const SYN_RST: u8 = 0x06;
const PACKET_BYTES_MAX: usize = 60_000;

/// The machines' end of a wire to the card.
#[derive(Debug)]
pub(crate) struct Link {
    port: Faulty<MemoryPort, ManualClock>,
    burst: Burst,
    /// Segments in a row are joined, as by a kernel that sends or coalesces super-frames.
    join: bool,
    /// Checksums are left to the receiver.
    partial: bool,
    /// Super-frames sent and received.
    pub super_frames: (u64, u64),
    /// Frames and bytes that the port took, and that came from it.
    pub sent: (u64, u64),
    /// Frames and bytes that came from the port.
    pub received: (u64, u64),
    /// Frames that the port refused.
    pub refused: u64,
}

impl Link {
    /// Over the end of a wire.
    pub(crate) fn new(port: Faulty<MemoryPort, ManualClock>, join: bool, partial: bool) -> Self {
        Self {
            port,
            burst: Burst::new(16),
            join,
            partial,
            super_frames: (0, 0),
            sent: (0, 0),
            received: (0, 0),
            refused: 0,
        }
    }

    /// Sends all frames.
    pub(crate) fn send(&mut self, frames: &mut VecDeque<Vec<u8>>) {
        while let Some(mut frame) = frames.pop_front() {
            let mut offload = Offload::default();
            if self.partial && is_tcp(&frame) {
                let head_len = TCP_AT + tcp_header_len(&frame);
                let size = payload_len(&frame);
                while self.join
                    && size > 0
                    && frames.front().is_some_and(|next| joins(&frame, next, size))
                {
                    let Some(next) = frames.pop_front() else { break };
                    let next_end = packet_end(&next);
                    let end = packet_end(&frame);
                    frame.truncate(end);
                    frame.extend_from_slice(&next[head_len..next_end]);
                    frame[FLAGS] |= next[FLAGS] & PSH_FIN;
                    let total = (frame.len() - 14) as u16;
                    Ipv4Packet::new_unchecked(&mut frame[14..]).set_total_len(total);
                    Ipv4Packet::new_unchecked(&mut frame[14..]).fill_checksum();
                    offload.gso = Some(Gso {
                        kind: GsoKind::Tcp4,
                        size: size as u16,
                        header_len: head_len as u16,
                        ecn: false,
                    });
                }
                let end = packet_end(&frame);
                frame.truncate(end);
                let pseudo = checksum::pseudo_header_v4(
                    [frame[26], frame[27], frame[28], frame[29]],
                    [frame[30], frame[31], frame[32], frame[33]],
                    (end - TCP_AT) as u32,
                );
                frame[CHECKSUM..CHECKSUM + 2].copy_from_slice(&pseudo.to_be_bytes());
                offload.checksum = Checksum::Partial { start: TCP_AT as u16, offset: 16 };
                self.super_frames.0 += u64::from(offload.gso.is_some());
            }
            match self.port.send(&[IoSlice::new(&frame)], offload) {
                Ok(()) => {
                    self.sent.0 += 1;
                    self.sent.1 += frame.len() as u64;
                }
                Err(_) => self.refused += 1,
            }
        }
    }

    /// Moves on what was held back long enough.
    pub(crate) fn flush(&mut self) {
        // The port in memory has nothing to break.
        let _ = self.port.flush();
    }

    /// When a frame that is held back moves on.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.port.next_release_ns()
    }

    /// From now on nothing happens to frames but their way.
    pub(crate) fn calm(&mut self, latency_ns: u64) {
        let rates = FaultRates { latency_ns, ..FaultRates::default() };
        self.port.set_rates(&rates, &rates);
    }

    /// What happened to frames, in both directions together.
    pub(crate) fn faults(&self) -> FaultCounters {
        let (sent, received) = (self.port.send_counters(), self.port.receive_counters());
        FaultCounters {
            frames: sent.frames + received.frames,
            lost: sent.lost + received.lost,
            duplicated: sent.duplicated + received.duplicated,
            reordered: sent.reordered + received.reordered,
            corrupted: sent.corrupted + received.corrupted,
            delayed: sent.delayed + received.delayed,
            overflowed: sent.overflowed + received.overflowed,
            refused: sent.refused + received.refused,
        }
    }

    /// Hands over all frames that have come, cut to what a plain Ethernet carries. Returns how
    /// many.
    pub(crate) fn receive(&mut self, mut deliver: impl FnMut(Vec<u8>)) -> usize {
        let mut count = 0;
        while let Ok(received) = self.port.receive(&mut self.burst) {
            if received == 0 {
                break;
            }
            count += received;
            for frame in &mut self.burst {
                self.received.0 += 1;
                self.received.1 += frame.len() as u64;
                self.super_frames.1 += u64::from(frame.offload().gso.is_some());
                if is_damaged_arp(frame.data()) {
                    continue;
                }
                let mut plain = Plain(&mut deliver);
                let sent =
                    send_with_fallback(&mut plain, &[IoSlice::new(frame.data())], frame.offload());
                self.refused += u64::from(sent.is_err());
            }
        }
        count
    }
}

/// ARP has no checksum: on a real wire the frame check sequence finds what was damaged.
fn is_damaged_arp(frame: &[u8]) -> bool {
    frame.len() >= 42 && frame[12..14] == [8, 6] && frame[22..28] != mac(frame[31])
}

fn is_tcp(frame: &[u8]) -> bool {
    frame.len() >= TCP_AT + 20 && frame[12..14] == [8, 0] && frame[14] == 0x45 && frame[23] == 6
}

fn packet_end(frame: &[u8]) -> usize {
    14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]))
}

fn tcp_header_len(frame: &[u8]) -> usize {
    usize::from(frame[TCP_AT + 12] >> 4) * 4
}

fn payload_len(frame: &[u8]) -> usize {
    packet_end(frame) - TCP_AT - tcp_header_len(frame)
}

fn seq(frame: &[u8]) -> u32 {
    u32::from_be_bytes([frame[SEQ], frame[SEQ + 1], frame[SEQ + 2], frame[SEQ + 3]])
}

/// May `next` follow in one super-frame of segments of `size` bytes?
fn joins(frame: &[u8], next: &[u8], size: usize) -> bool {
    if !is_tcp(next) || (frame[FLAGS] | next[FLAGS]) & SYN_RST != 0 || frame[FLAGS] & 1 != 0 {
        return false;
    }
    let head_len = tcp_header_len(frame);
    let so_far = payload_len(frame);
    head_len == tcp_header_len(next)
        && frame[..12] == next[..12]
        && frame[26..34] == next[26..34]
        && frame[TCP_AT..TCP_AT + 4] == next[TCP_AT..TCP_AT + 4]
        && frame[TCP_AT + 8..TCP_AT + 12] == next[TCP_AT + 8..TCP_AT + 12]
        && frame[TCP_AT + 14..TCP_AT + 16] == next[TCP_AT + 14..TCP_AT + 16]
        && frame[TCP_AT + 20..TCP_AT + head_len] == next[TCP_AT + 20..TCP_AT + head_len]
        && so_far.is_multiple_of(size)
        && seq(frame).wrapping_add(so_far as u32) == seq(next)
        && (1..=size).contains(&payload_len(next))
        && so_far + payload_len(next) <= PACKET_BYTES_MAX
}

/// A port without offloads that hands frames on.
struct Plain<'a, F>(&'a mut F);

impl<F: FnMut(Vec<u8>)> Port for Plain<'_, F> {
    fn capabilities(&self) -> Capabilities {
        Capabilities::PLAIN
    }

    fn receive(&mut self, burst: &mut Burst) -> io::Result<usize> {
        burst.clear();
        Ok(0)
    }

    fn send(&mut self, parts: &[IoSlice<'_>], _: Offload) -> Result<(), SendError> {
        let frame: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        if frame.len() > Capabilities::PLAIN.frame_bytes_max {
            return Err(SendError::TooLong);
        }
        (self.0)(frame);
        Ok(())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
