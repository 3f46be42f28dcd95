//! `<mss 1460,sackOK,TS val 1 ecr 0,nop,wscale 7>`.

use super::cursor::{Cursor, Reason};
use crate::option::{OptionSpec, Stamp};
use crate::script::OptionList;

/// Reads a list of options, if one is next.
pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Option<OptionList>, Reason> {
    if !cursor.take("<") {
        return Ok(None);
    }
    let mut list = OptionList::default();
    let inside = cursor.until('>')?;
    if inside.is_empty() {
        return Ok(Some(list));
    }
    for text in inside.split(',') {
        let mut option = Cursor::new(text);
        if option.take_word("...") {
            list.others = true;
        } else {
            list.options.push(one(&mut option)?);
        }
        option.end()?;
    }
    Ok(Some(list))
}

fn one(cursor: &mut Cursor<'_>) -> Result<OptionSpec, Reason> {
    Ok(match cursor.word() {
        "eol" => OptionSpec::End,
        "nop" => OptionSpec::Nop,
        "sackOK" => OptionSpec::SackPermitted,
        "mss" => OptionSpec::Mss(if cursor.take("*") {
            None
        } else {
            Some(cursor.number("a segment size")?)
        }),
        "wscale" => OptionSpec::WindowScale(if cursor.take("*") {
            None
        } else {
            Some(cursor.number("a shift")?)
        }),
        "sack" => OptionSpec::Sack(blocks(cursor)?),
        "TS" if cursor.is_empty() => OptionSpec::Timestamps { val: Stamp::Any, ecr: Stamp::Any },
        "TS" => {
            cursor.expect("val")?;
            let val = stamp(cursor)?;
            cursor.expect("ecr")?;
            OptionSpec::Timestamps { val, ecr: stamp(cursor)? }
        }
        "option" => {
            let kind = cursor.number("an option's kind")?;
            OptionSpec::Other { kind, data: hex(cursor.word())? }
        }
        word => {
            return Err(format!(
                "`{word}` is not an option: mss, wscale, sackOK, sack, TS, nop, eol, option or ..."
            ));
        }
    })
}

fn blocks(cursor: &mut Cursor<'_>) -> Result<Option<Vec<(u32, u32)>>, Reason> {
    if cursor.take("*") {
        return Ok(None);
    }
    let mut blocks = Vec::new();
    while !cursor.is_empty() {
        let left = cursor.sequence("the left edge of a block")?;
        cursor.expect(":")?;
        blocks.push((left, cursor.sequence("the right edge of a block")?));
    }
    if (1..=4).contains(&blocks.len()) {
        Ok(Some(blocks))
    } else {
        Err("one to four blocks fit".into())
    }
}

fn stamp(cursor: &mut Cursor<'_>) -> Result<Stamp, Reason> {
    if cursor.take("*") {
        return Ok(Stamp::Any);
    }
    if cursor.take("$") {
        let name = cursor.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
        return if name.is_empty() {
            Err("a name is expected behind `$`".into())
        } else {
            Ok(Stamp::Named(name.to_owned()))
        };
    }
    cursor.sequence("a timestamp, `*` or `$name`").map(Stamp::Number)
}

fn hex(text: &str) -> Result<Vec<u8>, Reason> {
    let bytes = text.as_bytes();
    let digit = |byte: u8| (byte as char).to_digit(16);
    let pairs = bytes.chunks(2).map(|pair| match pair {
        [high, low] => Some((digit(*high)? * 16 + digit(*low)?) as u8),
        _ => None,
    });
    pairs
        .collect::<Option<Vec<u8>>>()
        .filter(|data| data.len() <= 38)
        .ok_or_else(|| format!("`{text}` is not pairs of hexadecimal digits, 38 at most"))
}
