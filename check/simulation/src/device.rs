//! The network card of a simulated machine: queues of frames below smoltcp, with the knobs that
//! smoltcp itself lacks.
//!
//! Options of SYNs can be taken away, so peers without SACK, timestamps or window scaling
//! occur. Sequence numbers are moved to where a seed wants them: near the wrap-around, and growing
//! with time from connection to connection as RFC 6528 asks for (smoltcp's own are random).

use std::collections::{HashMap, VecDeque};

use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use smoltcp::wire::{
    EthernetFrame, EthernetProtocol, IpAddress, IpProtocol, Ipv4Packet, TcpPacket, TcpSeqNumber,
};

/// Where a TCP header starts in a frame without VLAN tag and IP options.
pub(crate) const TCP_AT: usize = 34;

/// What is done to the SYNs of a machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SynChanges {
    /// No SACK.
    pub no_sack: bool,
    /// No timestamps.
    pub no_timestamps: bool,
    /// No window scaling.
    pub no_window_scale: bool,
    /// No segment size at all.
    pub no_mss: bool,
    /// First sequence numbers lie at most so many bytes before the wrap-around; `None`: anywhere.
    pub wraps_within: Option<u32>,
}

/// The network card of a simulated machine: queues of frames below smoltcp, with the knobs that
/// smoltcp itself lacks.
#[derive(Debug)]
pub(crate) struct Station {
    /// Frames for the machine.
    pub incoming: VecDeque<Vec<u8>>,
    /// Frames of the machine.
    pub outgoing: VecDeque<Vec<u8>>,
    /// Segments of the machine across the wrap of sequence numbers.
    pub wraps: u64,
    mtu: usize,
    shifts: Shifts,
}

#[derive(Debug)]
struct Shifts {
    changes: SynChanges,
    /// By own port, peer's address and port.
    by_connection: HashMap<(u16, u32, u16), Shift>,
    now_us: u64,
}

#[derive(Clone, Copy, Debug)]
struct Shift {
    /// First sequence number as smoltcp chose it.
    chosen: u32,
    /// The one that the wire sees.
    shown: u32,
    since_us: u64,
}

impl Shift {
    fn delta(&self) -> u32 {
        self.shown.wrapping_sub(self.chosen)
    }
}

impl Station {
    /// A card for IP packets of `mtu` bytes.
    pub(crate) fn new(mtu: usize, changes: SynChanges) -> Self {
        Self {
            incoming: VecDeque::new(),
            outgoing: VecDeque::new(),
            wraps: 0,
            mtu,
            shifts: Shifts { changes, by_connection: HashMap::new(), now_us: 0 },
        }
    }

    /// IP bytes of the longest packet.
    pub(crate) fn mtu(&self) -> usize {
        self.mtu
    }
}

/// A TCP packet over plain IPv4: its two addresses.
fn addresses(frame: &[u8]) -> Option<(IpAddress, IpAddress, usize)> {
    let ethernet = EthernetFrame::new_checked(frame).ok()?;
    if ethernet.ethertype() != EthernetProtocol::Ipv4 {
        return None;
    }
    let ip = Ipv4Packet::new_checked(&frame[14..]).ok()?;
    if ip.next_header() != IpProtocol::Tcp
        || ip.header_len() != 20
        || ip.frag_offset() != 0
        || ip.more_frags()
    {
        return None;
    }
    let end = 14 + ip.total_len() as usize;
    (end >= TCP_AT + 20).then_some((
        IpAddress::Ipv4(ip.src_addr()),
        IpAddress::Ipv4(ip.dst_addr()),
        end,
    ))
}

fn number_of(address: IpAddress) -> u32 {
    match address {
        IpAddress::Ipv4(address) => u32::from_be_bytes(address.octets()),
        IpAddress::Ipv6(_) => 0,
    }
}

impl Shifts {
    /// Changes a frame that leaves; true if it is a segment across the wrap of sequence numbers.
    fn leave(&mut self, frame: &mut [u8]) -> bool {
        let Some((source, destination, end)) = addresses(frame) else { return false };
        let Ok(mut tcp) = TcpPacket::new_checked(&mut frame[TCP_AT..end]) else { return false };
        let connection = (tcp.src_port(), number_of(destination), tcp.dst_port());
        if tcp.syn() {
            let chosen = tcp.seq_number().0 as u32;
            let now_us = self.now_us;
            let spread = (u64::from(connection.0) << 32 | u64::from(connection.1))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                >> 32;
            let shown = match (self.by_connection.get(&connection), self.changes.wraps_within) {
                (Some(known), _) if known.chosen == chosen => known.shown,
                // RFC 6528: the next incarnation starts further on.
                (Some(known), _) => known
                    .shown
                    .wrapping_add(1_000_000)
                    .wrapping_add((now_us - known.since_us) as u32),
                (None, Some(within)) => 0u32.wrapping_sub(spread as u32 % within),
                (None, None) => spread as u32,
            };
            self.by_connection.insert(connection, Shift { chosen, shown, since_us: now_us });
        }
        if let Some(shift) = self.by_connection.get(&connection) {
            let seq = tcp.seq_number().0 as u32;
            tcp.set_seq_number(TcpSeqNumber(seq.wrapping_add(shift.delta()) as i32));
        }
        if tcp.syn() {
            self.strip(tcp.options_mut());
        }
        tcp.fill_checksum(&source, &destination);
        let payload = end - TCP_AT - usize::from(tcp.header_len());
        (tcp.seq_number().0 as u32).checked_add(payload as u32).is_none()
    }

    fn strip(&self, options: &mut [u8]) {
        const NOP: u8 = 1;
        let mut at = 0;
        while at < options.len() {
            let len = match options[at] {
                0 => return,
                NOP => 1,
                _ => usize::from(options.get(at + 1).copied().unwrap_or(1)).max(1),
            };
            let gone = match options[at] {
                2 => self.changes.no_mss,
                3 => self.changes.no_window_scale,
                4 => self.changes.no_sack,
                8 => self.changes.no_timestamps,
                _ => false,
            };
            let end = (at + len).min(options.len());
            if gone {
                options[at..end].fill(NOP);
            }
            at = end;
        }
    }

    fn arrive(&self, frame: &mut [u8]) {
        let Some((source, destination, end)) = addresses(frame) else { return };
        let Ok(mut tcp) = TcpPacket::new_checked(&mut frame[TCP_AT..end]) else { return };
        // A damaged one must stay damaged.
        if !tcp.ack() || !tcp.verify_checksum(&source, &destination) {
            return;
        }
        if let Some(shift) =
            self.by_connection.get(&(tcp.dst_port(), number_of(source), tcp.src_port()))
        {
            let ack = tcp.ack_number().0 as u32;
            tcp.set_ack_number(TcpSeqNumber(ack.wrapping_sub(shift.delta()) as i32));
            tcp.fill_checksum(&source, &destination);
        }
    }
}

/// A received frame.
#[derive(Debug)]
pub(crate) struct Received(Vec<u8>);

/// Room for a frame.
#[derive(Debug)]
pub(crate) struct Sending<'a> {
    outgoing: &'a mut VecDeque<Vec<u8>>,
    wraps: &'a mut u64,
    shifts: &'a mut Shifts,
}

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; len];
        let result = f(&mut frame);
        *self.wraps += u64::from(self.shifts.leave(&mut frame));
        self.outgoing.push_back(frame);
        result
    }
}

impl Device for Station {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sending<'a>;

    fn receive(&mut self, timestamp: Instant) -> Option<(Received, Sending<'_>)> {
        self.shifts.now_us = timestamp.total_micros() as u64;
        let mut frame = self.incoming.pop_front()?;
        self.shifts.arrive(&mut frame);
        Some((
            Received(frame),
            Sending {
                outgoing: &mut self.outgoing,
                wraps: &mut self.wraps,
                shifts: &mut self.shifts,
            },
        ))
    }

    fn transmit(&mut self, timestamp: Instant) -> Option<Sending<'_>> {
        self.shifts.now_us = timestamp.total_micros() as u64;
        Some(Sending {
            outgoing: &mut self.outgoing,
            wraps: &mut self.wraps,
            shifts: &mut self.shifts,
        })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.mtu + 14;
        capabilities
    }
}
