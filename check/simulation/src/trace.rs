//! Frames and what they say, for a person who looks for the cause of a failure.

use smoltcp::wire::{EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet, TcpPacket};

/// Prints frames to standard error if it is on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trace(pub bool);

impl Trace {
    /// Prints a frame.
    pub(crate) fn frame(self, now_ns: u64, place: &str, frame: &[u8]) {
        if self.0 {
            eprintln!("{:>12.6} {place:<10} {}", now_ns as f64 / 1e9, describe(frame));
        }
    }
}

fn describe(frame: &[u8]) -> String {
    let tcp = || {
        let ethernet = EthernetFrame::new_checked(frame).ok()?;
        let ip = Ipv4Packet::new_checked(&frame[14..]).ok()?;
        if ethernet.ethertype() != EthernetProtocol::Ipv4 || ip.next_header() != IpProtocol::Tcp {
            return None;
        }
        let end = (14 + usize::from(ip.total_len())).min(frame.len());
        let tcp = TcpPacket::new_checked(frame.get(34..end)?).ok()?;
        let flags: String = [
            (tcp.syn(), 'S'),
            (tcp.fin(), 'F'),
            (tcp.rst(), 'R'),
            (tcp.psh(), 'P'),
            (tcp.ack(), '.'),
        ]
        .into_iter()
        .filter_map(|(set, letter)| set.then_some(letter))
        .collect();
        let sound = tcp.verify_checksum(&ip.src_addr().into(), &ip.dst_addr().into())
            && ip.verify_checksum();
        let sound = if sound { "" } else { "BAD CHECKSUM " };
        let text = String::from_utf8_lossy(&tcp.payload()[..tcp.payload().len().min(48)])
            .replace(['\r', '\n'], "|");
        let text: String = text.chars().filter(|letter| !letter.is_control()).collect();
        Some(format!(
            "{sound}{}:{} > {}:{} {flags:<4} seq {} len {} ack {} win {} opt {:02x?} {text:?}",
            ip.src_addr().octets()[3],
            tcp.src_port(),
            ip.dst_addr().octets()[3],
            tcp.dst_port(),
            tcp.seq_number().0 as u32,
            tcp.payload().len(),
            tcp.ack_number().0 as u32,
            tcp.window_len(),
            tcp.options(),
        ))
    };
    tcp().unwrap_or_else(|| format!("{} other bytes", frame.len()))
}
