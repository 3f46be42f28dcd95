//! Masks: tokens in a reply that are different each time and that the operator has declared to mean
//! nothing (request numbers, timings).
//!
//! A mask is `PREFIX*SUFFIX`, both literal. Wherever the prefix stands, the shortest run of at most
//! [`RUN_BYTES_MAX`] token bytes up to the suffix is masked; without a suffix it is all token bytes
//! that follow. A token byte is a printable ASCII character other than `<`, `>`, the quotes and the
//! backslash, so a run never leaves the attribute, string or word that it began in. Two texts
//! are equal under masks if they differ in such runs only, whatever their lengths.
//!
//! A run that is longer than the limit ends all masking: what follows counts as it stands. So does
//! a prefix whose run has no suffix behind it. Both make replies different, never equal. The time
//! is linear in the text for each mask, whatever the text is.

use core::fmt;

use memchr::memmem::{self, Finder};

/// Longest run that is masked, in bytes.
pub const RUN_BYTES_MAX: usize = 256;
/// Most masks for one path.
pub const MASKS_MAX: usize = 16;
/// Fewest bytes of a prefix: a shorter one stands everywhere.
pub const PREFIX_BYTES_MIN: usize = 4;
/// Most bytes of prefix and suffix each.
pub const LITERAL_BYTES_MAX: usize = 128;

/// Why a text is not a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MaskError {
    /// Not exactly one `*`.
    #[error("a mask is PREFIX*SUFFIX, with exactly one `*`")]
    Star,
    /// The prefix stands in too many places.
    #[error("a mask needs at least {PREFIX_BYTES_MIN} bytes before its `*`")]
    PrefixTooShort,
    /// Prefix or suffix are too long.
    #[error("a mask has at most {LITERAL_BYTES_MAX} bytes on either side of its `*`")]
    TooLong,
    /// A line break or another control character.
    #[error("a mask has no control characters")]
    ControlByte,
    /// More than [`MASKS_MAX`].
    #[error("at most {MASKS_MAX} masks for one path")]
    TooMany,
}

/// One mask.
#[derive(Clone)]
struct Mask {
    prefix: Finder<'static>,
    suffix: Box<[u8]>,
}

impl Mask {
    fn new(text: &str) -> Result<Self, MaskError> {
        let (prefix, suffix) =
            text.split_once('*').filter(|(_, rest)| !rest.contains('*')).ok_or(MaskError::Star)?;
        if prefix.len() < PREFIX_BYTES_MIN {
            return Err(MaskError::PrefixTooShort);
        }
        if prefix.len().max(suffix.len()) > LITERAL_BYTES_MAX {
            return Err(MaskError::TooLong);
        }
        if text.bytes().any(|byte| byte.is_ascii_control()) {
            return Err(MaskError::ControlByte);
        }
        Ok(Self { prefix: Finder::new(prefix).into_owned(), suffix: suffix.as_bytes().into() })
    }

    fn prefix_len(&self) -> usize {
        self.prefix.needle().len()
    }
}

/// The masks of one path.
#[derive(Clone, Default)]
pub struct Masks {
    masks: Vec<Mask>,
}

impl Masks {
    /// Reads masks, each `PREFIX*SUFFIX`.
    ///
    /// # Errors
    /// One of them is none, or there are too many.
    pub fn new<T: AsRef<str>>(masks: &[T]) -> Result<Self, MaskError> {
        if masks.len() > MASKS_MAX {
            return Err(MaskError::TooMany);
        }
        let masks = masks.iter().map(|text| Mask::new(text.as_ref())).collect::<Result<_, _>>()?;
        Ok(Self { masks })
    }

    /// Is nothing masked?
    pub fn is_empty(&self) -> bool {
        self.masks.is_empty()
    }

    /// Hands out what is left of `text`, piece by piece in order: between two pieces was a run.
    /// Returns the number of runs.
    pub fn apply<'t>(&self, text: &'t [u8], mut piece: impl FnMut(&'t [u8])) -> usize {
        let mut search = Search {
            masks: self,
            text,
            next: [Next::Unknown; MASKS_MAX],
            no_suffix: [0; MASKS_MAX],
            run_end: 0,
        };
        let (mut from, mut at, mut runs) = (0, 0, 0);
        while let Some((mask, run)) = search.next_prefix(at) {
            match search.end_of_run(mask, run) {
                End::At(end) => {
                    piece(&text[from..run]);
                    (from, at) = (end, end);
                    runs += 1;
                }
                End::None => at = run,
                End::TooLong => break,
            }
        }
        piece(&text[from..]);
        runs
    }
}

impl fmt::Debug for Masks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |mask: &Mask| {
            format!("{}*{}", mask.prefix.needle().escape_ascii(), mask.suffix.escape_ascii())
        };
        f.debug_list().entries(self.masks.iter().map(text)).finish()
    }
}

#[derive(Clone, Copy)]
enum Next {
    Unknown,
    At(usize),
    Never,
}

enum End {
    At(usize),
    None,
    TooLong,
}

/// A walk through a text. Every position that it remembers only grows.
struct Search<'m, 't> {
    masks: &'m Masks,
    text: &'t [u8],
    /// Where each prefix stands next.
    next: [Next; MASKS_MAX],
    /// Before this position no suffix of the mask begins in the run that was looked at.
    no_suffix: [usize; MASKS_MAX],
    /// End of the token bytes that were looked at last.
    run_end: usize,
}

impl Search<'_, '_> {
    /// The first prefix from `at` on, the longest of those at one place: its mask, and where its
    /// run begins.
    fn next_prefix(&mut self, at: usize) -> Option<(usize, usize)> {
        let mut best: Option<(usize, usize, usize)> = None;
        for (index, mask) in self.masks.masks.iter().enumerate() {
            let is_known = match self.next[index] {
                Next::Unknown => false,
                Next::At(place) => place >= at,
                Next::Never => true,
            };
            if !is_known {
                self.next[index] = mask
                    .prefix
                    .find(&self.text[at..])
                    .map_or(Next::Never, |found| Next::At(at + found));
            }
            if let Next::At(place) = self.next[index] {
                let is_first = |(_, known, len): (usize, usize, usize)| {
                    place < known || place == known && mask.prefix_len() > len
                };
                if best.is_none_or(is_first) {
                    best = Some((index, place, mask.prefix_len()));
                }
            }
        }
        best.map(|(index, place, len)| (index, place + len))
    }

    fn end_of_run(&mut self, index: usize, start: usize) -> End {
        let limit = (start + RUN_BYTES_MAX).min(self.text.len());
        self.run_end = self.run_end.max(start);
        while self.run_end < limit && is_token_byte(self.text[self.run_end]) {
            self.run_end += 1;
        }
        let end = self.run_end.min(limit);
        let is_too_long = end == start + RUN_BYTES_MAX
            && self.text.get(end).is_some_and(|byte| is_token_byte(*byte));
        let suffix = &*self.masks.masks[index].suffix;
        if suffix.is_empty() {
            return if is_too_long { End::TooLong } else { End::At(end) };
        }
        let from = self.no_suffix[index].max(start);
        let window =
            self.text.get(from..(end + suffix.len()).min(self.text.len())).unwrap_or_default();
        match memmem::find(window, suffix) {
            Some(found) => End::At(from + found),
            None => {
                self.no_suffix[index] = end + 1;
                if is_too_long { End::TooLong } else { End::None }
            }
        }
    }
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'<' | b'>' | b'"' | b'\'' | b'`' | b'\\')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pieces(masks: &Masks, text: &[u8]) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        masks.apply(text, |piece| all.push(piece.to_vec()));
        all
    }

    /// The text with a `*`, which no prefix and no suffix has, for each run.
    fn masked(masks: &Masks, text: &[u8]) -> Vec<u8> {
        pieces(masks, text).join(&b'*')
    }

    fn of(masks: &[&str], text: &str) -> String {
        String::from_utf8(masked(&Masks::new(masks).unwrap(), text.as_bytes())).unwrap()
    }

    #[test]
    fn runs_end_at_the_suffix() {
        let masks = ["\"id\":\"*\"", "time=*"];
        assert_eq!(
            of(&masks, r#"{"id":"17","a":1} time=12ms end"#),
            r#"{"id":"*","a":1} time=* end"#
        );
        assert_eq!(of(&masks, r#""id":"","id":"x""#), r#""id":"*","id":"*""#);
        assert_eq!(of(&masks, "time="), "time=*");
        assert_eq!(of(&["key:*}"], "key:1}} key:2"), "key:*}} key:2");
        assert_eq!(of(&[], "any"), "any");
    }

    #[test]
    fn a_run_does_not_leave_its_place() {
        for text in [
            "\"id\":\"a b\"",
            "\"id\":\"<b>\"",
            "\"id\":\"a\\\"b\"",
            "\"id\":\"\u{e9}\"",
            "\"id\":\"a'\"",
            "\"id\":\"a",
        ] {
            assert_eq!(of(&["\"id\":\"*\""], text), text);
        }
    }

    #[test]
    fn a_run_that_is_too_long_ends_all_masking() {
        for (len, is_masked) in [(RUN_BYTES_MAX, true), (RUN_BYTES_MAX + 1, false)] {
            let long = format!("id=\"{}\" id=\"1\"", "x".repeat(len));
            let wanted = if is_masked { "id=\"*\" id=\"*\"".to_owned() } else { long.clone() };
            assert_eq!(of(&["id=\"*\""], &long), wanted);
        }
        let long = format!("time={} time=1", "x".repeat(RUN_BYTES_MAX + 1));
        assert_eq!(of(&["time=*"], &long), long);
    }

    #[test]
    fn the_longest_prefix_counts() {
        assert_eq!(of(&["abcd*;", "abcdef*;"], "abcdefgh;abcd1;"), "abcdef*;abcd*;");
    }

    #[test]
    fn what_is_no_mask() {
        for (text, error) in [
            ("", MaskError::Star),
            ("no star", MaskError::Star),
            ("two*stars*", MaskError::Star),
            ("abc*", MaskError::PrefixTooShort),
            ("abcd\n*", MaskError::ControlByte),
        ] {
            assert_eq!(Masks::new(&[text]).unwrap_err(), error, "{text}");
        }
        assert_eq!(
            Masks::new(&[&format!("abcd*{}", "x".repeat(129))]).unwrap_err(),
            MaskError::TooLong
        );
        assert_eq!(Masks::new(&["abcd*"; MASKS_MAX + 1]).unwrap_err(), MaskError::TooMany);
    }

    /// Would take minutes if a prefix were followed by a search of its own each time.
    #[test]
    fn hostile_texts_take_linear_time() {
        let masks = Masks::new(&["aaaa*;", "aaaaaaaa*b", "{{{{*}"]).unwrap();
        let unit = format!("{}<", "a".repeat(RUN_BYTES_MAX - 8));
        for text in [
            unit.repeat(40_000),
            "a".repeat(10 << 20),
            "aaaa ".repeat(2 << 20),
            "aaaa;".repeat(2 << 20),
        ] {
            let mut left = 0;
            masks.apply(text.as_bytes(), |piece| left += piece.len());
            assert!(left <= text.len());
        }
    }

    fn texts() -> impl Strategy<Value = String> {
        let token =
            prop_oneof!["id=\"", "time=", "key:", "[a-z0-9]{0,6}", "[ ;<\"}*]", "x{250,260}"];
        proptest::collection::vec(token, 0..24).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn masking_twice_is_masking_once(text in texts()) {
            let masks = Masks::new(&["id=\"*\"", "time=*", "key:*}", "key:i*;"]).unwrap();
            let once = masked(&masks, text.as_bytes());
            prop_assert_eq!(masked(&masks, &once), once);
        }

        /// Texts with the same pieces differ within runs only: the pieces stand in both, in order,
        /// with token bytes in between.
        #[test]
        fn nothing_but_short_runs_is_masked(text in texts()) {
            let masks = Masks::new(&["id=\"*\"", "time=*", "key:*}"]).unwrap();
            let pieces = pieces(&masks, text.as_bytes());
            let mut at = 0;
            for (number, piece) in pieces.iter().enumerate() {
                let found = at + memmem::find(&text.as_bytes()[at..], piece).unwrap();
                let run = if number + 1 == pieces.len() {
                    &text.as_bytes()[at..text.len() - piece.len()]
                } else {
                    &text.as_bytes()[at..found]
                };
                prop_assert!(number > 0 || run.is_empty());
                prop_assert!(
                    run.len() <= RUN_BYTES_MAX && run.iter().all(|byte| is_token_byte(*byte))
                );
                at += run.len() + piece.len();
            }
            prop_assert_eq!(at, text.len());
        }

        #[test]
        fn other_tokens_are_equal_and_other_text_is_not(
            first in "[a-z0-9]{0,40}",
            second in "[a-z0-9]{0,40}",
            text in "[a-z <]{0,40}",
            change in "[a-z]",
        ) {
            let masks = Masks::new(&["id=\"*\"", "time=*"]).unwrap();
            let page = |id: &str, time: &str, text: &str| {
                format!("<p>{text}</p><a id=\"{id}\">{text}</a>time={time} end")
            };
            let one = pieces(&masks, page(&first, &second, &text).as_bytes());
            prop_assert_eq!(&one, &pieces(&masks, page(&second, &first, &text).as_bytes()));
            prop_assert_ne!(
                &one,
                &pieces(&masks, page(&first, &second, &format!("{text}{change}")).as_bytes())
            );
            prop_assert_eq!(one.len(), 3);
        }
    }
}
