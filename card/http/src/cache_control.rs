//! Cache-Control of a reply (RFC 9111 section 5.2.2).
//!
//! The card is not an HTTP cache: an entry lives as long as its sources stay unchanged, whatever
//! the directives say about age. They matter for two things: `private` and `no-store` forbid
//! sharing, and `max-age` explains Expires.

use crate::head::list;
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

impl CacheControl {
    /// Takes the value of one field. Quoted arguments and unknown directives are odd; an empty
    /// element says nothing (RFC 9110 section 5.6.1.2).
    pub(crate) fn add(&mut self, value: &[u8], lifted: Lifted) -> Result<(), NotShared> {
        let mut outcome = Ok(());
        for directive in list(value).filter(|directive| !directive.is_empty()) {
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
            Some(at) => (&directive[..at], Some(&directive[at + 1..])),
            None => (directive, None),
        };
        match (name.to_ascii_lowercase_in(&mut [0; 24]), argument) {
            (b"private", None) => Err(NotShared::Private),
            // The argument names the fields that are private, or says something that is not known.
            (b"private", Some(_)) => Err(NotShared::CacheControlOdd),
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
            // The last two are what PHP pages have said to Internet Explorer since version 5.
            (
                b"s-maxage"
                | b"stale-while-revalidate"
                | b"stale-if-error"
                | b"post-check"
                | b"pre-check",
                Some(seconds),
            ) if crate::length::parse_content_length(seconds).is_some() => Ok(()),
            // Only a status is to be understood, and 200 is.
            (
                b"public" | b"no-cache" | b"must-revalidate" | b"proxy-revalidate"
                | b"no-transform" | b"immutable" | b"must-understand",
                None,
            ) => Ok(()),
            _ => Err(NotShared::CacheControlOdd),
        }
    }
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
            ("private=\"Set-Cookie\"", Err(NotShared::CacheControlOdd)),
            ("no-store", Err(NotShared::NoStore)),
            ("no-cache=\"a, no-store\"", Err(NotShared::CacheControlOdd)),
            ("no-cache=\"a\"", Err(NotShared::CacheControlOdd)),
            ("max-age", Err(NotShared::CacheControlOdd)),
            ("max-age=1, max-age=2", Err(NotShared::CacheControlOdd)),
            ("max-age=\"1\"", Err(NotShared::CacheControlOdd)),
            ("max-age=-1", Err(NotShared::CacheControlOdd)),
            ("", Ok(None)),
            ("max-age=1,", Ok(Some(1))),
            (" , public, ,max-age=1", Ok(Some(1))),
            ("max-age=1, public, max-age=1", Ok(Some(1))),
            ("post-check=0, pre-check=0", Ok(None)),
            ("must-revalidate, post-check=600, pre-check=3600", Ok(None)),
            ("post-check", Err(NotShared::CacheControlOdd)),
            ("pre-check=x", Err(NotShared::CacheControlOdd)),
            ("must-understand, public", Ok(None)),
            ("must-understand, no-store", Err(NotShared::NoStore)),
            ("secret-directive", Err(NotShared::CacheControlOdd)),
            ("a-directive-that-is-longer-than-any-known-one", Err(NotShared::CacheControlOdd)),
        ];
        for (value, expected) in table {
            let mut control = CacheControl::default();
            let outcome =
                control.add(value.as_bytes(), Lifted::default()).map(|()| control.max_age_s);
            assert_eq!(outcome, *expected, "{value}");
        }
    }

    #[test]
    fn what_the_operator_lifts() {
        let lifted = Lifted { private: true, no_store: true };
        for (value, expected) in [
            ("private, max-age=5", Ok(())),
            ("no-store, no-cache, must-revalidate", Ok(())),
            ("no-store, secret-directive", Err(NotShared::CacheControlOdd)),
            ("private=\"a\"", Err(NotShared::CacheControlOdd)),
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
