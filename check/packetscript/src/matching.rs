//! Is a segment the one that a script expects?

use crate::connection::Connection;
use crate::describe::flags;
use crate::option::{OptionSpec, Stamp, TcpOption};
use crate::packet::Packet;
use crate::script::{Ecn, OptionList, Segment};

const PSH: u8 = 8;

/// How `packet` differs from `expected`; empty if it does not. PSH counts only where it is
/// expected.
pub(crate) fn differences(
    expected: &Segment,
    packet: &Packet,
    connection: &Connection,
) -> Vec<String> {
    let mut found = Vec::new();
    let mut compare = |what: &str, expected: Option<String>, got: String| {
        if let Some(expected) = expected
            && expected != got
        {
            found.push(format!("{what} is {got}, not {expected}"));
        }
    };
    compare("the connection", Some(expected.connection.to_string()), connection.number.to_string());
    let codepoint = |ecn: Ecn| ecn.name().to_owned();
    compare("the ECN codepoint", expected.ecn.map(codepoint), codepoint(Ecn::of_bits(packet.ecn)));
    if let Some(spec) = expected.flags {
        let ignored = if spec.bits & PSH == 0 { PSH } else { 0 };
        compare("the flags", Some(flags(spec.bits)), flags(packet.flags & !ignored));
    }
    let seq = packet.seq.wrapping_sub(connection.server_base());
    compare("the sequence number", expected.seq.map(text), text(seq));
    compare(
        "the length",
        expected.len.map(|len| len.to_string()),
        packet.payload.len().to_string(),
    );
    let len_max = expected.len_max.unwrap_or(u32::MAX) as usize;
    let is_longer = packet.payload.len() > len_max;
    let ack = packet.ack.wrapping_sub(connection.client_isn);
    compare("the acknowledgment", expected.ack.map(text), text(ack));
    compare(
        "the urgent pointer",
        expected.urgent.map(|urgent| urgent.to_string()),
        packet.urgent.to_string(),
    );
    if is_longer {
        found.push(format!("the length is {}, more than {len_max}", packet.payload.len()));
    }
    if let Some((least, most)) = expected.window
        && !(least..=most).contains(&packet.window)
    {
        let range = if least == most { least.to_string() } else { format!("in {least}..{most}") };
        found.push(format!("the window is {}, not {range}", packet.window));
    }
    if let Some(list) = &expected.options {
        option_differences(list, packet, connection, &mut found);
    }
    found
}

/// Relative numbers as scripts have them.
fn text(relative: u32) -> String {
    (relative as i32).to_string()
}

fn option_differences(
    list: &OptionList,
    packet: &Packet,
    connection: &Connection,
    found: &mut Vec<String>,
) {
    let is_padding = |option: &&TcpOption| matches!(option, TcpOption::Nop | TcpOption::End);
    let mut left: Vec<&TcpOption> =
        packet.options.iter().filter(|option| !is_padding(option)).collect();
    for expected in &list.options {
        if matches!(expected, OptionSpec::Nop | OptionSpec::End) {
            continue;
        }
        match left.iter().position(|option| is_kind(expected, option)) {
            None => found.push(format!("{} is missing", name(expected))),
            Some(at) => {
                let option = left.remove(at);
                if !is_equal(expected, option, connection) {
                    found.push(format!("{} is another", name(expected)));
                }
            }
        }
    }
    if !list.others {
        found.extend(
            left.iter()
                .map(|option| format!("there is an option that is not expected: {option:?}")),
        );
    }
}

fn name(option: &OptionSpec) -> String {
    match option {
        OptionSpec::End => "eol".to_owned(),
        OptionSpec::Nop => "nop".to_owned(),
        OptionSpec::Mss(_) => "mss".to_owned(),
        OptionSpec::WindowScale(_) => "wscale".to_owned(),
        OptionSpec::SackPermitted => "sackOK".to_owned(),
        OptionSpec::Sack(_) => "sack".to_owned(),
        OptionSpec::Timestamps { .. } => "TS".to_owned(),
        OptionSpec::Other { kind, .. } => format!("option {kind}"),
    }
}

fn is_kind(expected: &OptionSpec, option: &TcpOption) -> bool {
    match (expected, option) {
        (OptionSpec::Mss(_), TcpOption::Mss(_))
        | (OptionSpec::WindowScale(_), TcpOption::WindowScale(_))
        | (OptionSpec::SackPermitted, TcpOption::SackPermitted)
        | (OptionSpec::Sack(_), TcpOption::Sack(_))
        | (OptionSpec::Timestamps { .. }, TcpOption::Timestamps { .. }) => true,
        (OptionSpec::Other { kind, .. }, TcpOption::Other { kind: got, .. }) => kind == got,
        _ => false,
    }
}

fn is_equal(expected: &OptionSpec, option: &TcpOption, connection: &Connection) -> bool {
    match (expected, option) {
        (OptionSpec::Mss(expected), TcpOption::Mss(mss)) => {
            expected.is_none_or(|expected| expected == *mss)
        }
        (OptionSpec::WindowScale(expected), TcpOption::WindowScale(scale)) => {
            expected.is_none_or(|expected| expected == *scale)
        }
        (OptionSpec::Sack(expected), TcpOption::Sack(blocks)) => {
            let relative = |edge: u32| edge.wrapping_sub(connection.client_isn);
            let blocks: Vec<_> =
                blocks.iter().map(|(left, right)| (relative(*left), relative(*right))).collect();
            expected.as_ref().is_none_or(|expected| *expected == blocks)
        }
        (
            OptionSpec::Timestamps { val, ecr },
            TcpOption::Timestamps { val: got_val, ecr: got_ecr },
        ) => {
            let is_val = match val {
                Stamp::Any | Stamp::Named(_) => true,
                Stamp::Number(number) => *number == got_val.wrapping_sub(connection.stamp_base()),
            };
            let is_ecr = match ecr {
                Stamp::Any => true,
                Stamp::Named(name) => connection.named_stamp(name) == Some(*got_ecr),
                Stamp::Number(number) => number == got_ecr,
            };
            is_val && is_ecr
        }
        (OptionSpec::Other { data, .. }, TcpOption::Other { data: got, .. }) => data == got,
        _ => true,
    }
}

/// Gives the names that `expected` has for the packet's timestamps.
pub(crate) fn take_names(expected: &Segment, packet: &Packet, connection: &mut Connection) {
    let Some((val, _)) = crate::connection::timestamps(&packet.options) else { return };
    for option in expected.options.iter().flat_map(|list| &list.options) {
        if let OptionSpec::Timestamps { val: Stamp::Named(name), .. } = option {
            connection.name_stamp(name, val);
        }
    }
}
