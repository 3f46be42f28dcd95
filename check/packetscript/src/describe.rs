//! Segments as text, in the words of scripts.

use std::fmt::Write as _;

use crate::connection::Connection;
use crate::option::TcpOption;
use crate::packet::Packet;
use crate::parse::FLAG_LETTERS;
use crate::script::Ecn;

/// Which end sent a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// The script.
    Client,
    /// The server.
    Server,
}

const ACK: u8 = 0x10;

/// A segment of that connection.
pub(crate) fn describe(packet: &Packet, sender: Sender, connection: &Connection) -> String {
    let (own, other) = match sender {
        Sender::Client => (connection.client_isn, connection.server_base()),
        Sender::Server => (connection.server_base(), connection.client_isn),
    };
    let mut text = String::new();
    if connection.number != 1 {
        let _ = write!(text, "#{} ", connection.number);
    }
    if packet.ecn != 0 {
        let _ = write!(text, "[{}] ", Ecn::of_bits(packet.ecn).name());
    }
    let seq = signed(packet.seq.wrapping_sub(own));
    let len = packet.payload.len() as i64;
    let _ = write!(text, "{} {seq}:{}({len})", flags(packet.flags), seq + len);
    if packet.flags & ACK != 0 {
        let _ = write!(text, " ack {}", signed(packet.ack.wrapping_sub(other)));
    }
    let _ = write!(text, " win {}", packet.window);
    if packet.urgent != 0 {
        let _ = write!(text, " urg {}", packet.urgent);
    }
    let options: Vec<String> = packet
        .options
        .iter()
        .filter(|option| !matches!(option, TcpOption::Nop | TcpOption::End))
        .map(|item| option(item, sender, connection, other))
        .collect();
    if !options.is_empty() {
        let _ = write!(text, " <{}>", options.join(","));
    }
    text
}

/// The letters of control bits.
pub(crate) fn flags(bits: u8) -> String {
    let text: String = FLAG_LETTERS
        .iter()
        .enumerate()
        .filter(|(bit, _)| bits & (1 << bit) != 0)
        .map(|(_, letter)| letter)
        .collect();
    // As tcpdump has it: what opens and closes comes first.
    let (first, rest): (String, String) = text.chars().partition(|letter| "SFR".contains(*letter));
    if text.is_empty() { "-".to_owned() } else { first + &rest }
}

/// Small numbers before the first one are negative.
fn signed(relative: u32) -> i64 {
    if relative > u32::MAX - (1 << 24) {
        i64::from(relative) - (1 << 32)
    } else {
        i64::from(relative)
    }
}

fn option(option: &TcpOption, sender: Sender, connection: &Connection, other: u32) -> String {
    match option {
        TcpOption::End => "eol".to_owned(),
        TcpOption::Nop => "nop".to_owned(),
        TcpOption::Mss(mss) => format!("mss {mss}"),
        TcpOption::WindowScale(scale) => format!("wscale {scale}"),
        TcpOption::SackPermitted => "sackOK".to_owned(),
        TcpOption::Sack(blocks) => {
            let blocks: Vec<String> = blocks
                .iter()
                .map(|(left, right)| {
                    format!(
                        "{}:{}",
                        signed(left.wrapping_sub(other)),
                        signed(right.wrapping_sub(other))
                    )
                })
                .collect();
            format!("sack {}", blocks.join(" "))
        }
        TcpOption::Timestamps { val, ecr } => {
            let relative = |stamp: u32| signed(stamp.wrapping_sub(connection.stamp_base()));
            match sender {
                Sender::Server => format!("TS val {} ecr {ecr}", relative(*val)),
                Sender::Client if *ecr == 0 => format!("TS val {val} ecr 0"),
                Sender::Client => format!("TS val {val} ecr {}", relative(*ecr)),
            }
        }
        TcpOption::Other { kind, data } => {
            let hex: String = data.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("option {kind} {hex}")
        }
    }
}
