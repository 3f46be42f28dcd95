//! `+0.2 > . 1:1461(1460) ack 101`.

use std::time::Duration;

use super::cursor::{Cursor, Reason};
use super::segment;
use crate::script::{Event, Expectation, Segment, ServerAction, TooBig, When};

/// Segments that one expectation may stand for.
const COUNT_MAX: u32 = 4096;
/// SYNs of a flood.
const FLOOD_MAX: u32 = 100_000;

/// Reads when, and what. `None` for the beginning of a group in any order.
pub(super) fn read(line: &str) -> Result<(When, Option<Event>), Reason> {
    let mut cursor = Cursor::new(line);
    let when = when(&mut cursor)?;
    let event = if cursor.take("<") {
        Some(inject(&mut cursor)?)
    } else if cursor.take(">") {
        Some(Event::Expect(expectation(&mut cursor)?))
    } else {
        match cursor.word() {
            "may" => {
                let is_repeated = cursor.take_word("any");
                cursor.expect(">")?;
                Some(Event::May { segment: segment::read(&mut cursor)?, is_repeated })
            }
            "no" => {
                cursor.expect("packet")?;
                cursor.expect("for")?;
                Some(Event::Quiet(cursor.duration()?))
            }
            "server" => Some(Event::Server(action(&mut cursor)?)),
            "flood" => {
                let syns = cursor.number("how many SYNs")?;
                if syns > FLOOD_MAX {
                    return Err(format!("{FLOOD_MAX} SYNs are the most"));
                }
                Some(Event::Flood(syns))
            }
            "any" => {
                cursor.expect("order")?;
                cursor.expect("{")?;
                None
            }
            word => {
                return Err(format!(
                    "`{word}` is not an event: < to send, > to expect, may >, may any >, no packet for, any order {{, server, flood"
                ));
            }
        }
    };
    cursor.end()?;
    Ok((when, event))
}

fn when(cursor: &mut Cursor<'_>) -> Result<When, Reason> {
    if cursor.take("@") {
        let (from, to) = range(cursor)?;
        return Ok(When::At(from, to.ok_or("a time since the beginning is a range: @0.5..0.6")?));
    }
    if !cursor.take("+") {
        return Ok(When::NOW);
    }
    if cursor.take("*") {
        return Ok(When::Any);
    }
    let (time, most) = range(cursor)?;
    if let Some(most) = most {
        return Ok(When::Between(time, most));
    }
    let tolerance = if cursor.take("~") { Some(cursor.duration()?) } else { None };
    Ok(When::After { time, tolerance })
}

/// A time, or two with `..` between them.
fn range(cursor: &mut Cursor<'_>) -> Result<(Duration, Option<Duration>), Reason> {
    let from = cursor.duration()?;
    if !cursor.take("..") {
        return Ok((from, None));
    }
    let to = cursor.duration()?;
    if to < from { Err("the range of times is empty".into()) } else { Ok((from, Some(to))) }
}

fn inject(cursor: &mut Cursor<'_>) -> Result<Event, Reason> {
    if cursor.take_word("too-big") {
        cursor.expect("mtu")?;
        let mtu = cursor.number("an MTU")?;
        cursor.expect("about")?;
        let connection = segment::connection(cursor)?;
        let seq = cursor.sequence("the quoted segment's number")?;
        cursor.expect("(")?;
        let len = cursor.number("its length")?;
        if len > 65_000 {
            return Err("a quoted segment has at most 65000 bytes".into());
        }
        cursor.expect(")")?;
        return Ok(Event::InjectTooBig(TooBig { connection, mtu, seq, len }));
    }
    let segment = segment::read(cursor)?;
    is_complete(&segment)?;
    Ok(Event::Inject(segment))
}

/// What is sent must be known.
fn is_complete(segment: &Segment) -> Result<(), Reason> {
    let Some(len) = segment.len else { return Err("a segment that is sent has a length".into()) };
    if segment.seq.is_none() || segment.flags.is_none() {
        return Err("a segment that is sent has flags and a sequence number".into());
    }
    if len > 60_000 {
        return Err("a segment that is sent has at most 60000 bytes".into());
    }
    match segment.window {
        Some((least, most)) if least != most => Err("a segment that is sent has one window".into()),
        _ => Ok(()),
    }
}

fn expectation(cursor: &mut Cursor<'_>) -> Result<Expectation, Reason> {
    let segment = segment::read(cursor)?;
    let mut count = 1;
    if cursor.take_word("in") {
        count = cursor.number("a number of segments")?;
        if !(1..=COUNT_MAX).contains(&count) {
            return Err(format!("1 to {COUNT_MAX} segments"));
        }
        if count > 1 && (segment.seq.is_none() || segment.len.is_none_or(|len| len < count)) {
            return Err("a row of segments has a sequence number and a length".into());
        }
    }
    Ok(Expectation { segment, count })
}

fn action(cursor: &mut Cursor<'_>) -> Result<ServerAction, Reason> {
    Ok(match cursor.word() {
        "pause" => ServerAction::Pause,
        "read" => {
            let bytes: u32 = cursor.number("a number of bytes")?;
            ServerAction::Read(bytes as usize)
        }
        "resume" => ServerAction::Resume,
        "close" => ServerAction::Close,
        "shutdown" => ServerAction::Shutdown,
        "reset" => ServerAction::Reset,
        word => {
            return Err(format!(
                "a server does not `{word}`: pause, read, resume, close, shutdown or reset"
            ));
        }
    })
}
