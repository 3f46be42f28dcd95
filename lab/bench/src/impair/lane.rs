//! Which transfer a frame belongs to, by the client's port: so the n-th packet of a transfer
//! meets the same fate whoever answers, and whatever other transfers do meanwhile. Packets with
//! payload are counted by themselves: senders differ in how many others they send.

use std::ops::Range;

/// Where the servers listen.
const SERVER_PORT: u16 = 80;
/// Ports that clients take turns with; a port comes again long after its connection is forgotten.
const PORTS: Range<u16> = 20_000..42_000;

/// The client's port of transfer `number` of a run.
pub(super) fn client_port(number: u32) -> u16 {
    PORTS.start + (number % u32::from(PORTS.end - PORTS.start)) as u16
}

/// The client's port in an Ethernet frame with TCP in it, either way; without payload a number
/// beyond all ports. Other frames have none, so no address of a neighbour is lost.
pub(super) fn lane_of(frame: &[u8]) -> Option<u16> {
    let (port, has_payload) = segment(frame).filter(|(port, _)| PORTS.contains(port))?;
    Some(port + if has_payload { 0 } else { PORTS.len() as u16 })
}

/// The client's port, and whether there is payload.
fn segment(frame: &[u8]) -> Option<(u16, bool)> {
    let word = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    let (transport, end) = match word(12)? {
        0x0800 if *frame.get(23)? == 6 => {
            (14 + usize::from(frame.get(14)? & 0x0f) * 4, 14 + usize::from(word(16)?))
        }
        0x86dd if *frame.get(20)? == 6 => (14 + 40, 14 + 40 + usize::from(word(18)?)),
        _ => return None,
    };
    let (from, to) = (word(transport)?, word(transport + 2)?);
    let payload = transport + usize::from(frame.get(transport + 12)? >> 4) * 4;
    Some((if from == SERVER_PORT { to } else { from }, payload < end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(
        ethertype: u16,
        protocol: (usize, u8),
        transport: usize,
        ports: (u16, u16),
        payload: usize,
    ) -> Vec<u8> {
        let mut frame = vec![0; transport + 20 + payload];
        frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
        frame[14] = 0x45;
        let (at, before) = if ethertype == 0x0800 { (16, 14) } else { (18, 54) };
        let len = (frame.len() - before) as u16;
        frame[at..at + 2].copy_from_slice(&len.to_be_bytes());
        frame[protocol.0] = protocol.1;
        frame[transport..transport + 2].copy_from_slice(&ports.0.to_be_bytes());
        frame[transport + 2..transport + 4].copy_from_slice(&ports.1.to_be_bytes());
        frame[transport + 12] = 5 << 4;
        frame
    }

    #[test]
    fn the_port_of_the_client_in_both_directions() {
        for (from, to) in [(30_000, 80), (80, 30_000)] {
            for (payload, lane) in [(1, 30_000), (0, 52_000)] {
                assert_eq!(lane_of(&frame(0x0800, (23, 6), 34, (from, to), payload)), Some(lane));
                assert_eq!(lane_of(&frame(0x86dd, (20, 6), 54, (from, to), payload)), Some(lane));
            }
        }
        assert_eq!(lane_of(&frame(0x0800, (23, 17), 34, (30_000, 80), 9)), None);
        assert_eq!((lane_of(&[]), lane_of(&[8; 20])), (None, None));
    }

    #[test]
    fn ethernet_padding_is_no_payload() {
        let mut padded = frame(0x0800, (23, 6), 34, (30_000, 80), 0);
        padded.extend([0; 6]);
        assert_eq!(lane_of(&padded), Some(52_000));
    }

    #[test]
    fn ports_take_turns() {
        assert_eq!(
            (client_port(0), client_port(21_999), client_port(22_000)),
            (20_000, 41_999, 20_000)
        );
    }
}
