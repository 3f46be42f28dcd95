//! Finds the numbers that a page shows.
//!
//! Most markers are a word in front of digits, `version=(\d+)`, and are found by a plain search for
//! the word. All others are regular expressions on bytes.

use std::fmt;
use std::ops::Range;

use memchr::memmem::Finder;
use regex::bytes::{Regex, RegexBuilder};

/// What a marker looks like in a page.
#[derive(Clone)]
pub struct Marker {
    text: String,
    search: Search,
}

#[derive(Clone)]
enum Search {
    /// A word in front of digits; `boundary`: it must not be the end of a longer word.
    Word {
        word: Box<Finder<'static>>,
        boundary: bool,
    },
    Pattern(Regex),
}

/// Why a text describes no marker.
#[derive(Debug, thiserror::Error)]
pub enum MarkerError {
    /// It is not a regular expression.
    #[error("the marker `{0}` is not a regular expression: {1}")]
    Syntax(String, regex::Error),
    /// There is nothing to say which part is the number.
    #[error(r"the marker `{0}` has no group for the number; write something like `version=(\d+)`")]
    NoGroup(String),
}

/// A number in a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Its value; one that is too large is the largest.
    pub(crate) value: u64,
    /// Where the marker is in the page.
    pub(crate) place: Range<usize>,
}

impl Marker {
    /// A marker by its regular expression (without Unicode classes), whose first group is the
    /// number.
    ///
    /// # Errors
    /// [`MarkerError`].
    pub fn new(text: &str) -> Result<Self, MarkerError> {
        let search = match word_in_front_of_digits(text) {
            Some((word, boundary)) => Search::Word { word: finder(&word), boundary },
            None => {
                let pattern = RegexBuilder::new(text)
                    .unicode(false)
                    .build()
                    .map_err(|error| MarkerError::Syntax(text.to_owned(), error))?;
                if pattern.captures_len() < 2 {
                    return Err(MarkerError::NoGroup(text.to_owned()));
                }
                Search::Pattern(pattern)
            }
        };
        Ok(Self { text: text.to_owned(), search })
    }

    /// The marker of a subject for which none is given: its name, `=`, and the number.
    pub fn named(name: &str) -> Self {
        let word = format!("{name}=");
        let search = Search::Word { word: finder(&word), boundary: true };
        Self { text: format!(r"\b{}(\d+)", regex::escape(&word)), search }
    }

    /// A marker that is a number right after these words.
    pub fn after(words: &str) -> Self {
        let search = Search::Word { word: finder(words), boundary: false };
        Self { text: format!(r"{}(\d+)", regex::escape(words)), search }
    }

    /// All numbers in `page`, in order.
    pub(crate) fn find_all(&self, page: &[u8], mut found: impl FnMut(Found)) {
        match &self.search {
            Search::Word { word, boundary } => {
                for start in word.find_iter(page) {
                    let digits_at = start + word.needle().len();
                    let digits = digits_at..digits_at + leading_digits(&page[digits_at..]);
                    let is_in_word = *boundary && start > 0 && is_word_byte(page[start - 1]);
                    if !digits.is_empty() && !is_in_word {
                        found(Found {
                            value: number(&page[digits.clone()]),
                            place: start..digits.end,
                        });
                    }
                }
            }
            Search::Pattern(pattern) => {
                for groups in pattern.captures_iter(page) {
                    if let (Some(whole), Some(digits)) = (groups.get(0), groups.get(1)) {
                        let text = digits.as_bytes();
                        if leading_digits(text) == text.len() && !text.is_empty() {
                            found(Found { value: number(text), place: whole.range() });
                        }
                    }
                }
            }
        }
    }
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Marker({:?})", self.text)
    }
}

fn finder(word: &str) -> Box<Finder<'static>> {
    Box::new(Finder::new(word).into_owned())
}

/// The word of `word(\d+)` or `\bword(\d+)`, and whether it must be the beginning of one.
fn word_in_front_of_digits(text: &str) -> Option<(String, bool)> {
    let rest = text.strip_suffix(r"(\d+)")?;
    let (rest, boundary) = rest.strip_prefix(r"\b").map_or((rest, false), |rest| (rest, true));
    let mut word = String::new();
    let mut characters = rest.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => word.push(characters.next().filter(char::is_ascii_punctuation)?),
            '.' | '+' | '*' | '?' | '(' | ')' | '|' | '[' | ']' | '{' | '}' | '^' | '$' => {
                return None;
            }
            plain => word.push(plain),
        }
    }
    // A boundary in front of anything but a word is another matter.
    let begins_as_word = word.bytes().next().is_some_and(is_word_byte);
    // In front of more digits, the longest match would begin elsewhere.
    let is_plain =
        word.is_ascii() && !word.is_empty() && !word.ends_with(|last: char| last.is_ascii_digit());
    (is_plain && (!boundary || begins_as_word)).then_some((word, boundary))
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn leading_digits(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(bytes.len())
}

fn number(digits: &[u8]) -> u64 {
    digits.iter().fold(0u64, |number, digit| {
        number.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(marker: &Marker, page: &[u8]) -> Vec<u64> {
        let mut values = Vec::new();
        marker.find_all(page, |found| values.push(found.value));
        values
    }

    #[test]
    fn words_and_patterns() {
        let marker = Marker::new(r"version=(\d+)").unwrap();
        assert!(matches!(marker.search, Search::Word { boundary: false, .. }));
        assert_eq!(
            values(&marker, b"version=7, version=, version=x version=08;conversion=9"),
            [7, 8, 9]
        );
        assert_eq!(values(&marker, b"version=99999999999999999999999999"), [u64::MAX]);
        let marker = Marker::new(r"<b>\s*(\d+)</b>").unwrap();
        assert!(matches!(marker.search, Search::Pattern(_)));
        assert_eq!(values(&marker, b"\xff<b> 12</b><b>13 </b>"), [12]);
        let marker = Marker::named("a.b");
        assert_eq!(marker.to_string(), r"\ba\.b=(\d+)");
        assert_eq!(values(&marker, b"a.b=1 aa.b=2 axb=3"), [1]);
        assert_eq!(values(&Marker::after("<p>v="), b"v=1 <p>v=2.<p>v=</p><b><p>v=03"), [2, 3]);
        let mut place = None;
        marker.find_all(b"..a.b=17;", |found| place = Some(found.place));
        assert_eq!(place, Some(2..8));
    }

    #[test]
    fn what_is_no_marker() {
        assert!(matches!(Marker::new("version="), Err(MarkerError::NoGroup(_))));
        assert!(matches!(Marker::new("version=("), Err(MarkerError::Syntax(..))));
    }

    proptest! {
        #[test]
        fn the_plain_search_finds_what_the_pattern_finds(
            text in prop::sample::select(
                vec![r"v=(\d+)", r"\bv=(\d+)", r"\bn\.v=(\d+)", r"v(\d+)"]),
            page in "[vn=. 0-9]{0,40}",
        ) {
            let plain = Marker::new(text).unwrap();
            let is_word = matches!(plain.search, Search::Word { .. });
            prop_assert!(is_word);
            let pattern = RegexBuilder::new(text).unicode(false).build().unwrap();
            let pattern = Marker { text: text.to_owned(), search: Search::Pattern(pattern) };
            prop_assert_eq!(values(&plain, page.as_bytes()), values(&pattern, page.as_bytes()));
        }
    }
}
