//! The part of a trace that is looked at: lines and records, without an allocation for each.

use std::ops::Range;

use memchr::memchr;

use crate::packing::{ReadError, Source};

/// Longest line that is looked at, in bytes; a longer one is bad.
pub(crate) const LINE_BYTES_MAX: usize = 64 * 1024;
/// Bytes that are held.
const WINDOW_BYTES: usize = 256 * 1024;

/// The next line or record. The range is where it is in [`Window::bytes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A whole one; a line without its end.
    Whole(Range<usize>),
    /// The beginning of a line that is too long, or what there is of a record or (where the packing
    /// is damaged) of a line.
    Part(Range<usize>),
    /// There is nothing more.
    End,
}

/// A buffer that moves over a trace.
#[derive(Debug)]
pub(crate) struct Window<'a> {
    source: Source<'a>,
    buffer: Box<[u8]>,
    /// What of it is not read yet.
    start: usize,
    end: usize,
    is_at_end: bool,
    /// Why the end is not the trace's own.
    damage: Option<ReadError>,
    /// The rest of a line that was too long is passed over.
    is_passing: bool,
}

impl<'a> Window<'a> {
    /// Over a source.
    pub(crate) fn new(source: Source<'a>) -> Self {
        let buffer = vec![0; WINDOW_BYTES].into_boxed_slice();
        Window {
            source,
            buffer,
            start: 0,
            end: 0,
            is_at_end: false,
            damage: None,
            is_passing: false,
        }
    }

    /// Damage of the packing at which reading ended.
    pub(crate) fn damage(&self) -> Option<&ReadError> {
        self.damage.as_ref()
    }

    /// Takes out the damage of the packing at which reading ended.
    pub(crate) fn take_damage(&mut self) -> Option<ReadError> {
        self.damage.take()
    }

    /// What is read of.
    pub(crate) fn source(&self) -> &Source<'a> {
        &self.source
    }

    /// At least this many of the next bytes (no more than half a window), or all that there are;
    /// they stay.
    pub(crate) fn peek(&mut self, bytes: usize) -> Result<&[u8], ReadError> {
        while self.end - self.start < bytes && self.fill()? {}
        Ok(&self.buffer[self.start..self.end])
    }

    /// Passes over bytes that were peeked.
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.start = self.end.min(self.start + bytes);
    }

    /// The bytes of what was found last.
    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// The next line.
    pub(crate) fn next_line(&mut self) -> Result<Found, ReadError> {
        let mut looked_at = 0;
        loop {
            let from = self.start + looked_at;
            let line_end = memchr(b'\n', &self.buffer[from..self.end]).map(|at| from + at);
            if let Some(line_end) = line_end {
                let range = self.start..line_end;
                self.start = line_end + 1;
                if std::mem::take(&mut self.is_passing) {
                    looked_at = 0;
                    continue;
                }
                return Ok(if range.len() > LINE_BYTES_MAX {
                    Found::Part(range)
                } else {
                    Found::Whole(range)
                });
            }
            if self.is_passing {
                self.start = self.end;
            }
            looked_at = self.end - self.start;
            if looked_at > LINE_BYTES_MAX {
                let range = self.start..self.end;
                self.start = self.end;
                self.is_passing = true;
                return Ok(Found::Part(range));
            }
            if !self.fill()? {
                let range = self.start..self.end;
                self.start = self.end;
                return Ok(match range.is_empty() {
                    true => Found::End,
                    // What there is of a line may pass for one with a shorter number at its end.
                    false if self.damage.is_some() => Found::Part(range),
                    false => Found::Whole(range),
                });
            }
        }
    }

    /// The next record of this many bytes.
    pub(crate) fn next_record(&mut self, bytes: usize) -> Result<Found, ReadError> {
        while self.end - self.start < bytes {
            if !self.fill()? {
                let range = self.start..self.end;
                self.start = self.end;
                return Ok(if range.is_empty() { Found::End } else { Found::Part(range) });
            }
        }
        let range = self.start..self.start + bytes;
        self.start = range.end;
        Ok(Found::Whole(range))
    }

    /// Reads some more; `false` at the end, or where the packing is damaged. There is always room
    /// for more than a line.
    fn fill(&mut self) -> Result<bool, ReadError> {
        if self.is_at_end {
            return Ok(false);
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let read = match self.source.read(&mut self.buffer[self.end..]) {
            Ok(read) => read,
            Err(damage @ ReadError::Damaged { .. }) => {
                self.damage = Some(damage);
                0
            }
            Err(error) => return Err(error),
        };
        self.end += read;
        self.is_at_end = read == 0;
        Ok(read > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// Gives few bytes at a time.
    struct Dripping<'a>(&'a [u8], usize);

    impl Read for Dripping<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let length = self.1.min(self.0.len()).min(buffer.len());
            buffer[..length].copy_from_slice(&self.0[..length]);
            self.0 = &self.0[length..];
            Ok(length)
        }
    }

    fn window(bytes: &[u8], drip: usize) -> Window<'_> {
        Window::new(Source::new(Dripping(bytes, drip)).unwrap())
    }

    proptest::proptest! {
        #[test]
        fn lines_are_those_of_a_split(
            lengths in proptest::collection::vec(
                proptest::prop_oneof![0usize..40, LINE_BYTES_MAX - 2..LINE_BYTES_MAX + 3,
                    200_000usize..400_000],
                0..8,
            ),
            ends in proptest::bool::ANY,
            drip in 1usize..100_000,
        ) {
            let mut text = Vec::new();
            for (number, &length) in lengths.iter().enumerate() {
                text.extend(std::iter::repeat_n(b'a' + number as u8, length));
                text.push(b'\n');
            }
            if !ends {
                text.pop();
            }
            let mut expected: Vec<&[u8]> = text.split(|&byte| byte == b'\n').collect();
            if expected.last() == Some(&&[][..]) {
                expected.pop();
            }
            let mut window = window(&text, drip.max(16));
            for line in expected {
                match window.next_line().unwrap() {
                    Found::Whole(range) => {
                        proptest::prop_assert!(line.len() <= LINE_BYTES_MAX);
                        proptest::prop_assert_eq!(window.bytes(range), line);
                    }
                    Found::Part(range) => {
                        proptest::prop_assert!(line.len() > LINE_BYTES_MAX);
                        proptest::prop_assert!(line.starts_with(window.bytes(range)));
                    }
                    Found::End => proptest::prop_assert!(false, "a line is missing"),
                }
            }
            proptest::prop_assert_eq!(window.next_line().unwrap(), Found::End);
        }

        #[test]
        fn records_are_those_of_chunks(
            length in 0usize..2000,
            bytes in 1usize..50,
            drip in 1usize..300,
        ) {
            let text: Vec<u8> = (0..length).map(|at| (at % 251) as u8 + 1).collect();
            let mut window = window(&text, drip);
            for chunk in text.chunks(bytes) {
                match window.next_record(bytes).unwrap() {
                    Found::Whole(range) => proptest::prop_assert_eq!(window.bytes(range), chunk),
                    Found::Part(range) => {
                        proptest::prop_assert!(chunk.len() < bytes);
                        proptest::prop_assert_eq!(window.bytes(range), chunk);
                    }
                    Found::End => proptest::prop_assert!(false, "a record is missing"),
                }
            }
            proptest::prop_assert_eq!(window.next_record(bytes).unwrap(), Found::End);
        }
    }

    #[test]
    fn peeked_bytes_stay() {
        let mut window = window(b"one\ntwo\n", 3);
        assert!(window.peek(5).unwrap().starts_with(b"one\nt"));
        assert_eq!(window.peek(100).unwrap(), b"one\ntwo\n");
        window.skip(4);
        let Found::Whole(range) = window.next_line().unwrap() else { panic!("no line") };
        assert_eq!(window.bytes(range), b"two");
    }
}
