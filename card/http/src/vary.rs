//! Vary (RFC 9110 section 12.5.5).

use crate::head::{is_token, list};
use crate::limits::{VARY_NAME_BYTES_MAX, VARY_NAMES_MAX};
use crate::reason::NotShared;

/// Fields by which requests are always told apart, so `Vary` on them costs nothing: in every
/// key, or as a trait of clients ([`Trait`](crate::Trait)), where an entry answers only whom the
/// server has given the same bytes.
fn is_always_told_apart(name: &[u8]) -> bool {
    [&b"accept-encoding"[..], b"accept", b"origin", b"host"]
        .iter()
        .any(|always| name.eq_ignore_ascii_case(always))
}

/// Request fields that choose between the variants of a resource, in lower case and in the reply's
/// order. Fields by which requests are told apart anyhow (Accept-Encoding, Accept, Origin, Host)
/// are left out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct VaryNames {
    names: [[u8; VARY_NAME_BYTES_MAX]; VARY_NAMES_MAX],
    lengths: [u8; VARY_NAMES_MAX],
    count: u8,
}

impl VaryNames {
    /// The names, in lower case.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let stored = self.names.iter().zip(&self.lengths).take(usize::from(self.count));
        stored.map(|(name, length)| &name[..usize::from(*length)])
    }

    /// Is the field among them?
    pub(crate) fn has(&self, name: &[u8]) -> bool {
        self.iter().any(|stored| stored.eq_ignore_ascii_case(name))
    }

    /// No names: the request's own key says it all.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Adds a name unless it is there already or counts always. Errors: the name is not a token,
    /// too long, or one too many.
    pub(crate) fn add(&mut self, name: &[u8]) -> Result<(), NotShared> {
        if !is_token(name) {
            return Err(NotShared::VaryOdd);
        }
        if is_always_told_apart(name) || self.has(name) {
            return Ok(());
        }
        let index = usize::from(self.count);
        if index == VARY_NAMES_MAX || name.len() > VARY_NAME_BYTES_MAX {
            return Err(NotShared::VaryTooLarge);
        }
        let slot = &mut self.names[index][..name.len()];
        slot.copy_from_slice(name);
        slot.make_ascii_lowercase();
        self.lengths[index] = name.len() as u8;
        self.count += 1;
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn from_list(names: &[&str]) -> Result<Self, NotShared> {
        let mut all = Self::default();
        names.iter().try_for_each(|name| all.add(name.as_bytes()))?;
        Ok(all)
    }
}

impl core::fmt::Debug for VaryNames {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter().map(|name| name.escape_ascii().to_string())).finish()
    }
}

/// What a reply's Vary fields say together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vary {
    /// The listed fields, maybe none, beside those in every key.
    Names(VaryNames),
    /// `*`, or a list that an entry cannot keep: the reply is nobody else's.
    Star,
}

impl Default for Vary {
    fn default() -> Self {
        Self::Names(VaryNames::default())
    }
}

impl Vary {
    /// Takes the value of one Vary field. After an error this is [`Vary::Star`]. An empty element
    /// says nothing (RFC 9110 section 5.6.1.2).
    pub(crate) fn add(&mut self, value: &[u8]) -> Result<(), NotShared> {
        let mut outcome = Ok(());
        for name in list(value).filter(|name| !name.is_empty()) {
            let added = match self {
                _ if name == b"*" => Err(NotShared::VaryStar),
                // A request that has a key has no cookies but those that no reply depends on.
                _ if name.eq_ignore_ascii_case(b"cookie") => Ok(()),
                Self::Names(names) => names.add(name),
                Self::Star => break,
            };
            if added.is_err() {
                *self = Self::Star;
                outcome = added;
            }
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(values: &[&str]) -> Result<Vec<String>, NotShared> {
        let mut vary = Vary::default();
        let mut outcome = Ok(());
        for value in values {
            let added = vary.add(value.as_bytes());
            outcome = outcome.and(added);
        }
        outcome?;
        match vary {
            Vary::Names(names) => {
                Ok(names.iter().map(|n| String::from_utf8(n.to_vec()).unwrap()).collect())
            }
            Vary::Star => panic!("star without an error"),
        }
    }

    #[test]
    fn lists() {
        assert_eq!(parse(&[]).unwrap(), Vec::<String>::new());
        assert_eq!(parse(&["Accept-Encoding, ORIGIN", "accept"]).unwrap(), Vec::<String>::new());
        assert_eq!(parse(&["User-Agent,Cookie", "cookie"]).unwrap(), ["user-agent"]);
        assert_eq!(parse(&["a, b, c, d, a"]).unwrap().len(), 4);
        assert_eq!(parse(&["a, b, c, d, e"]), Err(NotShared::VaryTooLarge));
        assert_eq!(parse(&[&"x".repeat(33)]), Err(NotShared::VaryTooLarge));
        assert_eq!(parse(&["*"]), Err(NotShared::VaryStar));
        assert_eq!(parse(&["Cookie, *"]), Err(NotShared::VaryStar));
        assert_eq!(parse(&[""]).unwrap(), Vec::<String>::new());
        assert_eq!(parse(&["a,,b", ", c,"]).unwrap(), ["a", "b", "c"]);
        assert_eq!(parse(&[",*"]), Err(NotShared::VaryStar));
        assert_eq!(parse(&["a b"]), Err(NotShared::VaryOdd));
    }
}
