//! Connection (RFC 9110 section 7.6.1, RFC 9112 section 9.3).

use crate::head::{is_name, list};
use crate::protocol::Version;

/// What a request says about the connection. Part of the key, because servers answer each class
/// with another head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ConnectionClass {
    /// HTTP/1.1 without Connection: persistent.
    Http11,
    /// HTTP/1.1 with `keep-alive`: persistent.
    Http11KeepAlive,
    /// HTTP/1.1 with `close`.
    Http11Close,
    /// HTTP/1.0 without Connection: closes.
    Http10,
    /// HTTP/1.0 with `keep-alive`: persistent.
    Http10KeepAlive,
    /// HTTP/1.0 with `close`.
    Http10Close,
}

impl ConnectionClass {
    /// Does the connection outlive the reply, as far as the client is concerned?
    pub const fn is_keep_alive(self) -> bool {
        matches!(self, Self::Http11 | Self::Http11KeepAlive | Self::Http10KeepAlive)
    }
}

/// Connection fields of one head, as they are found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ConnectionOptions {
    fields: u8,
    close: bool,
    keep_alive: bool,
    upgrade: bool,
    other: bool,
}

/// Is it the option that names the Upgrade field?
pub(crate) fn is_upgrade(option: &[u8]) -> bool {
    is_name(option, b"upgrade")
}

impl ConnectionOptions {
    /// Takes the value of one Connection field.
    #[inline]
    pub(crate) fn add(&mut self, value: &[u8]) {
        self.fields = self.fields.saturating_add(1);
        if is_name(value, b"keep-alive") {
            self.keep_alive = true;
        } else if is_name(value, b"close") {
            self.close = true;
        } else {
            self.add_list(value);
        }
    }

    #[cold]
    fn add_list(&mut self, value: &[u8]) {
        self.upgrade |= list(value).any(is_upgrade);
        // Beside `upgrade`, one plain option.
        self.other |= !self.upgrade || list(value).filter(|option| !is_upgrade(option)).count() > 1;
        for option in list(value).filter(|option| !is_upgrade(option)) {
            let (close, keep_alive) = (is_name(option, b"close"), is_name(option, b"keep-alive"));
            self.close |= close;
            self.keep_alive |= keep_alive;
            self.other |= !close && !keep_alive;
        }
    }

    /// The request's class, or none if the options are not exactly one plain `close` or
    /// `keep-alive`.
    #[inline]
    pub(crate) fn class(&self, version: Version) -> Option<ConnectionClass> {
        if self.upgrade { None } else { self.class_beside_upgrade(version) }
    }

    /// Does it name the Upgrade field, and is the rest plain?
    pub(crate) fn offers_upgrade(&self, version: Version) -> bool {
        self.upgrade && self.class_beside_upgrade(version).is_some()
    }

    fn class_beside_upgrade(&self, version: Version) -> Option<ConnectionClass> {
        if self.other || self.fields > 1 {
            return None;
        }
        Some(match (version, self.close, self.keep_alive) {
            (Version::Http11, true, _) => ConnectionClass::Http11Close,
            (Version::Http11, _, true) => ConnectionClass::Http11KeepAlive,
            (Version::Http11, ..) => ConnectionClass::Http11,
            (Version::Http10, true, _) => ConnectionClass::Http10Close,
            (Version::Http10, _, true) => ConnectionClass::Http10KeepAlive,
            (Version::Http10, ..) => ConnectionClass::Http10,
        })
    }

    /// Does the connection persist after this message (RFC 9112 section 9.3)? `close` wins.
    pub(crate) fn is_keep_alive(&self, version: Version) -> bool {
        !self.close && (version == Version::Http11 || self.keep_alive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(values: &[&str]) -> ConnectionOptions {
        let mut options = ConnectionOptions::default();
        values.iter().for_each(|value| options.add(value.as_bytes()));
        options
    }

    #[test]
    fn classes() {
        use ConnectionClass::*;
        let table: &[(&[&str], Version, Option<ConnectionClass>, bool)] = &[
            (&[], Version::Http11, Some(Http11), true),
            (&["Keep-Alive"], Version::Http11, Some(Http11KeepAlive), true),
            (&["close"], Version::Http11, Some(Http11Close), false),
            (&[], Version::Http10, Some(Http10), false),
            (&["keep-alive"], Version::Http10, Some(Http10KeepAlive), true),
            (&["CLOSE"], Version::Http10, Some(Http10Close), false),
            (&["keep-alive, close"], Version::Http11, None, false),
            (&["keep-alive", "close"], Version::Http11, None, false),
            (&["keep-alive", "keep-alive"], Version::Http11, None, true),
            (&["TE"], Version::Http11, None, true),
            (&["upgrade, keep-alive"], Version::Http10, None, true),
            (&[""], Version::Http11, None, true),
        ];
        for (values, version, class, keep_alive) in table {
            let options = options(values);
            assert_eq!(options.class(*version), *class, "{values:?}");
            assert_eq!(options.is_keep_alive(*version), *keep_alive, "{values:?}");
            if let Some(class) = class {
                assert_eq!(class.is_keep_alive(), *keep_alive, "{values:?}");
            }
        }
    }
}
