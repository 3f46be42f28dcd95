//! Cache-Control of a reply (RFC 9111 section 5.2.2).
//!
//! The card is not an HTTP cache: an entry lives as long as its sources stay unchanged, whatever
//! the directives say about age. They matter for two things: `private` and `no-store` forbid
//! sharing, and `max-age` explains Expires.

use crate::head::{is_token, list, trim_ows};
use crate::reason::NotShared;

/// Directives against sharing that the operator lifts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lifted {
    pub(crate) private: bool,
    pub(crate) no_store: bool,
}

/// What the Cache-Control fields of one reply say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheControl {
    /// `max-age` in seconds.
    pub(crate) max_age_s: Option<u64>,
}

/// What the two directives that forbid sharing have in them. One that nobody knows and that looks
/// like them is taken for a slip of the pen.
const FORBIDDING: [&[u8]; 2] = [b"priv", b"stor"];

impl CacheControl {
    /// Takes the value of one field. A directive that is not known says nothing (RFC 9111 section
    /// 5.2.3), and neither does an empty element (RFC 9110 section 5.6.1.2). What is not a list of
    /// directives is odd.
    pub(crate) fn add(&mut self, value: &[u8], lifted: Lifted) -> Result<(), NotShared> {
        let mut outcome = Ok(());
        for directive in elements(value).filter(|directive| !directive.is_empty()) {
            if let Err(reason) = self.directive(directive) {
                outcome = match reason {
                    NotShared::Private if lifted.private => outcome,
                    NotShared::NoStore if lifted.no_store => outcome,
                    NotShared::Private | NotShared::NoStore => return Err(reason),
                    odd => Err(odd),
                };
            }
        }
        outcome
    }

    fn directive(&mut self, directive: &[u8]) -> Result<(), NotShared> {
        let (name, argument) = match directive.iter().position(|b| *b == b'=') {
            Some(at) => (&directive[..at], Some(argument(&directive[at + 1..])?)),
            None => (directive, None),
        };
        if !is_token(name) {
            return Err(NotShared::CacheControlOdd);
        }
        match (name.to_ascii_lowercase_in(&mut [0; 24]), argument) {
            // An argument names the fields that are private; the others go without them.
            (b"private", _) => Err(NotShared::Private),
            (b"no-store", _) => Err(NotShared::NoStore),
            // A server and the application behind it may both say it.
            (b"max-age", Some(seconds)) => {
                let seconds = crate::length::parse_content_length(seconds);
                if seconds.is_none() || self.max_age_s.is_some_and(|said| Some(said) != seconds) {
                    return Err(NotShared::CacheControlOdd);
                }
                self.max_age_s = seconds;
                Ok(())
            }
            (b"max-age", None) => Err(NotShared::CacheControlOdd),
            _ if FORBIDDING.into_iter().any(|word| has(name, word)) => {
                Err(NotShared::CacheControlOdd)
            }
            _ => Ok(()),
        }
    }
}

/// What a field says that is for caches of one kind alone (RFC 9213; Surrogate-Control): as one of
/// them, the card keeps to what forbids sharing, or looks like that. The rest is about age. Quotes
/// are not looked at, so one that is left open hides nothing.
pub(crate) fn check_targeted(value: &[u8], lifted: Lifted) -> Result<(), NotShared> {
    let [private, store] = FORBIDDING;
    for directive in list(value) {
        let name = directive.split(|byte| b"=; \t".contains(byte)).next().unwrap_or_default();
        if has(name, private) && !lifted.private {
            return Err(NotShared::Private);
        }
        if has(name, store) && !lifted.no_store {
            return Err(NotShared::NoStore);
        }
    }
    Ok(())
}

/// The elements of a list whose commas may be quoted (RFC 9110 sections 5.6.1 and 5.6.4).
fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let separates = move |byte: &u8| {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            _ => {}
        }
        *byte == b',' && !is_quoted
    };
    value.split(separates).map(trim_ows)
}

/// An argument without the quotes around it: a token, or a quoted string that ends where it ends.
fn argument(value: &[u8]) -> Result<&[u8], NotShared> {
    let inner = match value {
        [b'"', inner @ .., b'"'] => inner,
        _ if is_token(value) => return Ok(value),
        _ => return Err(NotShared::CacheControlOdd),
    };
    let mut is_escaped = false;
    let is_one = inner.iter().all(|byte| {
        let ends = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        !ends
    });
    if is_one && !is_escaped { Ok(inner) } else { Err(NotShared::CacheControlOdd) }
}

/// Does a name have this in it, in capital letters or not?
fn has(name: &[u8], word: &[u8]) -> bool {
    name.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
}

trait LowerIn {
    /// The bytes in lower case, in `room`; empty if there is too little of it.
    fn to_ascii_lowercase_in<'r>(&self, room: &'r mut [u8]) -> &'r [u8];
}

impl LowerIn for [u8] {
    fn to_ascii_lowercase_in<'r>(&self, room: &'r mut [u8]) -> &'r [u8] {
        let Some(room) = room.get_mut(..self.len()) else {
            return &[];
        };
        room.copy_from_slice(self);
        room.make_ascii_lowercase();
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives() {
        let table: &[(&str, Result<Option<u64>, NotShared>)] = &[
            ("max-age=3600", Ok(Some(3600))),
            ("public, Max-Age=0", Ok(Some(0))),
            ("no-cache", Ok(None)),
            ("public,immutable , max-age=31536000, stale-while-revalidate=5", Ok(Some(31_536_000))),
            ("private", Err(NotShared::Private)),
            ("max-age=x, PRIVATE", Err(NotShared::Private)),
            ("private=\"Set-Cookie\"", Err(NotShared::Private)),
            ("no-store", Err(NotShared::NoStore)),
            ("no-cache=\"a, no-store\"", Ok(None)),
            ("no-cache=\"a, \\\", no-store\", max-age=5", Ok(Some(5))),
            ("no-cache=\"a\", private", Err(NotShared::Private)),
            ("no-cache=\"a\\\", private\"", Ok(None)),
            ("no-cache=\"a, private", Err(NotShared::CacheControlOdd)),
            ("no-cache=\"a\"b\"", Err(NotShared::CacheControlOdd)),
            ("no-cache=\"a\\\"", Err(NotShared::CacheControlOdd)),
            ("no-cache=\"", Err(NotShared::CacheControlOdd)),
            ("no-cache=", Err(NotShared::CacheControlOdd)),
            ("no-cache=\"a\"", Ok(None)),
            ("max-age", Err(NotShared::CacheControlOdd)),
            ("max-age=1, max-age=2", Err(NotShared::CacheControlOdd)),
            ("max-age=\"1\"", Ok(Some(1))),
            ("max-age=-1", Err(NotShared::CacheControlOdd)),
            ("max-age=1.5", Err(NotShared::CacheControlOdd)),
            ("max-age: 60", Err(NotShared::CacheControlOdd)),
            ("", Ok(None)),
            ("max-age=1,", Ok(Some(1))),
            (" , public, ,max-age=1", Ok(Some(1))),
            ("max-age=1, public, max-age=1", Ok(Some(1))),
            ("post-check=0, pre-check=0", Ok(None)),
            ("must-revalidate, post-check=600, pre-check=3600", Ok(None)),
            ("post-check", Ok(None)),
            ("public, s-max-age=60, x-of-ours", Ok(None)),
            ("must-understand, public", Ok(None)),
            ("must-understand, no-store", Err(NotShared::NoStore)),
            ("no-cache; private", Err(NotShared::CacheControlOdd)),
            ("no-cache private", Err(NotShared::CacheControlOdd)),
            ("not/a/token", Err(NotShared::CacheControlOdd)),
            ("nostore", Err(NotShared::CacheControlOdd)),
            ("No_Stored", Err(NotShared::CacheControlOdd)),
            ("x-privat", Err(NotShared::CacheControlOdd)),
            ("a-directive-that-is-longer-than-any-known-one", Ok(None)),
            ("a-directive-that-is-longer-than-any-private-one", Err(NotShared::CacheControlOdd)),
        ];
        for (value, expected) in table {
            let mut control = CacheControl::default();
            let outcome =
                control.add(value.as_bytes(), Lifted::default()).map(|()| control.max_age_s);
            assert_eq!(outcome, *expected, "{value}");
        }
    }

    #[test]
    fn what_is_said_to_caches_of_one_kind() {
        for (value, expected) in [
            ("max-age=60", Ok(())),
            ("max-age=3600+600, content=\"ESI/1.0 private\"", Ok(())),
            ("max-age=60, content=\"a, no-store", Err(NotShared::NoStore)),
            ("", Ok(())),
            ("max-age=60, Private", Err(NotShared::Private)),
            ("private=\"a\"", Err(NotShared::Private)),
            ("no-store;edge", Err(NotShared::NoStore)),
            ("public,no-store ;q", Err(NotShared::NoStore)),
            ("nostore", Err(NotShared::NoStore)),
        ] {
            assert_eq!(check_targeted(value.as_bytes(), Lifted::default()), expected, "{value}");
        }
        let lifted = Lifted { private: true, no_store: false };
        assert_eq!(check_targeted(b"private", lifted), Ok(()));
        assert_eq!(check_targeted(b"private, no-store", lifted), Err(NotShared::NoStore));
    }

    #[test]
    fn what_the_operator_lifts() {
        let lifted = Lifted { private: true, no_store: true };
        for (value, expected) in [
            ("private, max-age=5", Ok(())),
            ("no-store, no-cache, must-revalidate", Ok(())),
            ("no-store, no-stores", Err(NotShared::CacheControlOdd)),
            ("no-store, nothing known", Err(NotShared::CacheControlOdd)),
            ("private=\"a\"", Ok(())),
        ] {
            assert_eq!(CacheControl::default().add(value.as_bytes(), lifted), expected, "{value}");
        }
        let private = Lifted { private: true, no_store: false };
        assert_eq!(
            CacheControl::default().add(b"private, no-store", private),
            Err(NotShared::NoStore)
        );
        assert_eq!(
            CacheControl::default().add(b"private, no-store", Lifted::default()),
            Err(NotShared::Private)
        );
    }
}
