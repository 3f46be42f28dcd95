//! `S. 0:0(0) ack 1 win 65535 <mss 1460>`.

use super::cursor::{Cursor, Reason};
use super::options;
use crate::script::{Ecn, FlagSpec, Segment};

/// The letters of the control bits, from the lowest.
pub(crate) const FLAG_LETTERS: [char; 8] = ['F', 'S', 'R', 'P', '.', 'U', 'E', 'W'];

/// Bytes of payload that a segment, or a row of them, may have.
const PAYLOAD_BYTES_MAX: u32 = 1 << 24;

/// Reads a segment.
pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Segment, Reason> {
    let connection = connection(cursor)?;
    let ecn = if cursor.take("[") { Some(codepoint(cursor.until(']')?)?) } else { None };
    let flags = flags(cursor.word())?;
    let seq = cursor.sequence_or_any("a sequence number")?;
    cursor.expect(":")?;
    let end = cursor.sequence_or_any("the number behind the payload")?;
    cursor.expect("(")?;
    let len_max =
        if cursor.take("..") { Some(cursor.sequence("the largest length")?) } else { None };
    let len =
        if len_max.is_some() { None } else { cursor.sequence_or_any("the payload's length")? };
    cursor.expect(")")?;
    if let (Some(seq), Some(end), Some(len)) = (seq, end, len)
        && seq.wrapping_add(len) != end
    {
        return Err(format!(
            "{seq} and {len} bytes end at {}, not at {end}",
            seq.wrapping_add(len)
        ));
    }
    if len.is_some_and(|len| len > PAYLOAD_BYTES_MAX) {
        return Err(format!("{PAYLOAD_BYTES_MAX} bytes are the most"));
    }
    let mut segment = Segment {
        connection,
        ecn,
        flags,
        seq,
        len,
        len_max,
        ack: None,
        window: None,
        urgent: None,
        options: None,
        other_until: None,
    };
    loop {
        if cursor.take_word("ack") {
            segment.ack = cursor.sequence_or_any("an acknowledgment number")?;
        } else if cursor.take_word("win") {
            segment.window = window(cursor)?;
        } else if cursor.take_word("urg") {
            segment.urgent = Some(cursor.number("an urgent pointer")?);
        } else if cursor.rest().starts_with('<') {
            segment.options = options::read(cursor)?;
        } else if cursor.take_word("other") {
            cursor.expect("bytes")?;
            let end = seq.unwrap_or(0).wrapping_add(len.unwrap_or(0));
            segment.other_until =
                Some(if cursor.take_word("until") { cursor.sequence("a number")? } else { end });
        } else {
            return Ok(segment);
        }
    }
}

/// The connection that is named, or the first.
pub(super) fn connection(cursor: &mut Cursor<'_>) -> Result<u16, Reason> {
    if !cursor.take("#") {
        return Ok(1);
    }
    let number = cursor.number("a connection's number")?;
    if (1..=999).contains(&number) {
        Ok(number)
    } else {
        Err("connections have numbers from 1 to 999".into())
    }
}

fn codepoint(name: &str) -> Result<Ecn, Reason> {
    [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce]
        .into_iter()
        .find(|ecn| ecn.name() == name)
        .ok_or_else(|| format!("`{name}` is not an ECN codepoint: noecn, ect0, ect1 or ce"))
}

fn flags(word: &str) -> Result<Option<FlagSpec>, Reason> {
    match word {
        "*" => return Ok(None),
        "-" => return Ok(Some(FlagSpec { bits: 0 })),
        "" => return Err("flags are expected: S, F, R, P, `.` for ACK, U, E, W; - for none".into()),
        _ => {}
    }
    let mut bits = 0;
    for letter in word.chars() {
        let bit = FLAG_LETTERS.iter().position(|known| *known == letter);
        bits |= 1
            << bit
                .ok_or_else(|| format!("`{letter}` in `{word}` is not a flag: S F R P . U E W"))?;
    }
    Ok(Some(FlagSpec { bits }))
}

fn window(cursor: &mut Cursor<'_>) -> Result<Option<(u16, u16)>, Reason> {
    if cursor.take("*") {
        return Ok(None);
    }
    let least = cursor.number("a window")?;
    let most = if cursor.take("..") { cursor.number("the largest window")? } else { least };
    if least > most {
        return Err(format!("the range {least}..{most} is empty"));
    }
    Ok(Some((least, most)))
}
