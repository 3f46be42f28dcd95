//! Reading a line word by word.

use std::time::Duration;

/// Why a line cannot be read, in words.
pub(super) type Reason = String;

/// What is left of a line.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    /// All of it.
    pub(super) fn new(line: &'a str) -> Self {
        Cursor { rest: line.trim() }
    }

    /// What is left.
    pub(super) fn rest(&self) -> &'a str {
        self.rest
    }

    /// Is nothing left?
    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Takes `text`, and blanks behind it, if it is next.
    pub(super) fn take(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    /// Takes `word` if it is the next whole word.
    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let mut ahead = self.clone();
        if ahead.word() == word {
            *self = ahead;
            return true;
        }
        false
    }

    /// Takes `text`, or says that it is missing.
    pub(super) fn expect(&mut self, text: &str) -> Result<(), Reason> {
        if self.take(text) {
            Ok(())
        } else {
            Err(format!("`{text}` is expected before `{}`", self.rest))
        }
    }

    /// The next word: up to a blank.
    pub(super) fn word(&mut self) -> &'a str {
        self.take_while(|c| !c.is_whitespace())
    }

    /// What is next as long as `wanted` says so, and takes blanks behind it.
    pub(super) fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !wanted(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        word
    }

    /// Takes what is before `end`, and `end`.
    pub(super) fn until(&mut self, end: char) -> Result<&'a str, Reason> {
        let (inside, rest) =
            self.rest.split_once(end).ok_or_else(|| format!("`{end}` is missing"))?;
        self.rest = rest.trim_start();
        Ok(inside.trim())
    }

    /// A number, perhaps negative, that fits into `T`.
    pub(super) fn number<T: TryFrom<i64>>(&mut self, what: &str) -> Result<T, Reason> {
        let word = self.take_while(|c| c.is_ascii_digit() || c == '-');
        let bad =
            || format!("{what} is expected before `{word}{}`, a number in its range", self.rest);
        let number = word.parse::<i64>().map_err(|_| bad())?;
        T::try_from(number).map_err(|_| bad())
    }

    /// A relative sequence number: up to 2^32 in either direction.
    pub(super) fn sequence(&mut self, what: &str) -> Result<u32, Reason> {
        let number: i64 = self.number(what)?;
        if number.unsigned_abs() > 1 << 32 {
            return Err(format!("{what} {number} is farther away than sequence numbers reach"));
        }
        Ok(number as u32)
    }

    /// A relative sequence number, up to 2^32 in either direction, or `None` for `*`.
    pub(super) fn sequence_or_any(&mut self, what: &str) -> Result<Option<u32>, Reason> {
        if self.take("*") { Ok(None) } else { self.sequence(what).map(Some) }
    }

    /// A time: `0.25`, `250ms`, `250us`; at most a day.
    pub(super) fn duration(&mut self) -> Result<Duration, Reason> {
        let digits = self.number_text();
        let unit = self.take_while(|c| c.is_ascii_alphabetic());
        let scale_ns: u64 = match unit {
            "" | "s" => 1_000_000_000,
            "ms" => 1_000_000,
            "us" => 1_000,
            _ => return Err(format!("`{unit}` is not a unit of time: s, ms or us")),
        };
        decimal(digits, scale_ns)
            .filter(|ns| *ns <= 86_400_000_000_000)
            .map(Duration::from_nanos)
            .ok_or_else(|| format!("invalid time `{digits}{unit}`: use 0.2 or 200ms, up to a day"))
    }

    /// Digits with at most one point, which is not that of `..`.
    fn number_text(&mut self) -> &'a str {
        let bytes = self.rest.as_bytes();
        let digits =
            |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let whole = digits(0);
        let end = match bytes.get(whole..) {
            Some([b'.', b'.', ..]) => whole,
            Some([b'.', ..]) => whole + 1 + digits(whole + 1),
            _ => whole,
        };
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        text
    }

    /// Nothing may be left.
    pub(super) fn end(&self) -> Result<(), Reason> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(format!("nothing is expected at `{}`", self.rest))
        }
    }
}

/// A decimal number times `scale`, cut to a whole one.
fn decimal(digits: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() || fraction.len() > 9 {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    if fraction.is_empty() {
        return Some(whole);
    }
    let part = fraction.parse::<u64>().ok()?.checked_mul(scale)?;
    whole.checked_add(part / 10u64.pow(fraction.len() as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let time = |text: &str| {
            let mut cursor = Cursor::new(text);
            cursor.duration().map(|time| (time.as_nanos(), cursor.rest().to_owned()))
        };
        assert_eq!(time("0.2 x"), Ok((200_000_000, "x".into())));
        assert_eq!(time("200ms"), Ok((200_000_000, String::new())));
        assert_eq!(time("1..2"), Ok((1_000_000_000, "..2".into())));
        assert_eq!(time("1.5..2"), Ok((1_500_000_000, "..2".into())));
        assert_eq!(time("15us~1"), Ok((15_000, "~1".into())));
        for bad in ["", "x", "1h", ".5", "99999999999999999999", "90000"] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers() {
        assert_eq!(Cursor::new("-1").sequence("seq"), Ok(u32::MAX));
        assert_eq!(Cursor::new("4294967297").sequence("seq").ok(), None);
        assert_eq!(Cursor::new("4294967296").sequence("seq"), Ok(0));
        assert_eq!(Cursor::new("*").sequence_or_any("seq"), Ok(None));
        assert!(Cursor::new("70000").number::<u16>("win").is_err());
        assert!(Cursor::new("--1").number::<i64>("n").is_err());
    }

    #[test]
    fn words() {
        let mut cursor = Cursor::new("  any order {");
        assert!(!cursor.take_word("an") && cursor.take_word("any"));
        assert_eq!(cursor.word(), "order");
        assert!(cursor.expect("}").is_err() && cursor.expect("{").is_ok() && cursor.end().is_ok());
    }
}
