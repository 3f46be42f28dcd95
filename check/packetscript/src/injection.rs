//! The segment that a script has the client send, with the numbers of the wire.

use std::time::Duration;

use crate::connection::Connection;
use crate::endpoint;
use crate::option::{OptionSpec, Stamp, TcpOption};
use crate::packet::Packet;
use crate::script::{Segment, TooBig};

/// What the client's clock of timestamps shows at the beginning.
const STAMP_AT_START_MS: u32 = 1000;
const ACK: u8 = 0x10;
const URG: u8 = 0x20;

/// Builds it. `now` is for timestamps that the script leaves open.
///
/// # Errors
/// In words: something that the script refers to is not known.
pub(crate) fn packet(
    segment: &Segment,
    connection: &Connection,
    ip: u8,
    now: Duration,
) -> Result<Packet, String> {
    let relative = segment.seq.unwrap_or(0);
    let flags = segment.flags.map_or(0, |flags| flags.bits);
    let seq = connection.client_isn.wrapping_add(relative);
    let ack = match segment.ack {
        Some(ack) => connection.server_base().wrapping_add(ack),
        None if flags & ACK != 0 => {
            return Err("a segment with ACK has an acknowledgment number: ack N".to_owned());
        }
        None => 0,
    };
    let options = segment.options.iter().flat_map(|list| &list.options);
    let options: Vec<TcpOption> = options
        .map(|option| wire_option(option, connection, flags, now))
        .collect::<Result<_, _>>()?;
    if crate::option::write(&options).len() > 40 {
        return Err("the options have more than 40 bytes".to_owned());
    }
    Ok(Packet {
        source: endpoint::client(ip),
        destination: endpoint::server(ip),
        ecn: segment.ecn.map_or(0, |ecn| ecn as u8),
        source_port: endpoint::client_port(connection.number),
        destination_port: endpoint::SERVER_PORT,
        seq,
        ack,
        flags: flags | if segment.urgent.is_some() { URG } else { 0 },
        window: segment.window.map_or(u16::MAX, |(window, _)| window),
        urgent: segment.urgent.unwrap_or(0),
        options,
        payload: payload(segment, connection, relative)?,
    })
}

/// The client's stream begins at 1. A keep-alive's byte before it is a zero.
fn payload(segment: &Segment, connection: &Connection, relative: u32) -> Result<Vec<u8>, String> {
    let stream = &connection.streams.client;
    let len = segment.len.unwrap_or(0);
    (0..len)
        .map(|offset| {
            let position = relative.wrapping_add(offset).wrapping_sub(1);
            let is_before =
                |until: u32| (relative.wrapping_add(offset).wrapping_sub(until) as i32) < 0;
            if segment.other_until.is_some_and(is_before) {
                return Ok(b'#');
            }
            if position > u32::MAX - (1 << 24) {
                return Ok(0);
            }
            stream.get(position as usize).copied().ok_or_else(|| {
                format!(
                    "the stream of connection {} ends before {}; there are {} bytes",
                    connection.number,
                    u64::from(relative) + u64::from(len),
                    stream.len()
                )
            })
        })
        .collect()
}

fn wire_option(
    option: &OptionSpec,
    connection: &Connection,
    flags: u8,
    now: Duration,
) -> Result<TcpOption, String> {
    let certain = || "an option that is sent has a value, not *".to_owned();
    Ok(match option {
        OptionSpec::End => TcpOption::End,
        OptionSpec::Nop => TcpOption::Nop,
        OptionSpec::Mss(mss) => TcpOption::Mss(mss.ok_or_else(certain)?),
        OptionSpec::WindowScale(scale) => TcpOption::WindowScale(scale.ok_or_else(certain)?),
        OptionSpec::SackPermitted => TcpOption::SackPermitted,
        OptionSpec::Sack(blocks) => {
            let base = connection.server_base();
            let blocks = blocks.as_ref().ok_or_else(certain)?;
            TcpOption::Sack(
                blocks
                    .iter()
                    .map(|(l, r)| (base.wrapping_add(*l), base.wrapping_add(*r)))
                    .collect(),
            )
        }
        OptionSpec::Timestamps { val, ecr } => {
            let val = match val {
                Stamp::Number(number) => *number,
                Stamp::Any => STAMP_AT_START_MS + now.as_millis() as u32,
                Stamp::Named(_) => return Err("names are for timestamps of the server".to_owned()),
            };
            let ecr = match ecr {
                _ if flags & ACK == 0 => 0,
                Stamp::Number(number) => connection.stamp_base().wrapping_add(*number),
                Stamp::Any => connection.last_stamp(),
                Stamp::Named(name) => connection
                    .named_stamp(name)
                    .ok_or_else(|| format!("no timestamp was named `${name}`"))?,
            };
            TcpOption::Timestamps { val, ecr }
        }
        OptionSpec::Other { kind, data } => TcpOption::Other { kind: *kind, data: data.clone() },
    })
}

/// The ICMP error that a script asks for.
pub(crate) fn too_big(error: &TooBig, connection: &Connection, ip: u8) -> Vec<u8> {
    let quoted = Packet {
        source: endpoint::server(ip),
        destination: endpoint::client(ip),
        ecn: 0,
        source_port: endpoint::SERVER_PORT,
        destination_port: endpoint::client_port(connection.number),
        seq: connection.server_base().wrapping_add(error.seq),
        ack: connection.client_isn.wrapping_add(1),
        flags: ACK,
        window: 500,
        urgent: 0,
        options: Vec::new(),
        payload: vec![0; error.len as usize],
    };
    crate::packet::too_big(endpoint::router(ip), error.mtu, &quoted)
}

/// The SYN of one of the clients of a flood.
pub(crate) fn flooding_syn(at: u32, ip: u8) -> Packet {
    let (source, source_port) = endpoint::flooding(ip, at);
    Packet {
        source,
        destination: endpoint::server(ip),
        ecn: 0,
        source_port,
        destination_port: endpoint::SERVER_PORT,
        seq: at.wrapping_mul(2_654_435_761),
        ack: 0,
        flags: 2,
        window: u16::MAX,
        urgent: 0,
        options: vec![TcpOption::Mss(1460)],
        payload: Vec::new(),
    }
}
