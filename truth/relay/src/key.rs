//! The key that a relay and its card hosts share.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// 32 secret bytes.
#[derive(Clone)]
pub struct Key(pub(crate) [u8; 32]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// Reads a key from a file of 64 hexadecimal digits that nobody but its owner may read.
    ///
    /// # Errors
    /// It cannot be read, others may read it, or it is not a key; the text says what to do.
    pub fn read(path: &Path) -> io::Result<Self> {
        let wrong = |what: &str| io::Error::other(format!("{}: {what}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| wrong(&error.to_string()))?;
        if std::fs::metadata(path)?.mode() & 0o077 != 0 {
            return Err(wrong("others may read the key: chmod 600"));
        }
        let key = Self::parse(text.trim());
        key.ok_or_else(|| {
            wrong("no key of 64 hexadecimal digits; make one with: openssl rand -hex 32")
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let mut key = [0; 32];
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        for (byte, digits) in key.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Self(key))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_secret_and_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, format!("{}\n", "0f".repeat(32))).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Key::read(&path).unwrap_err().to_string().contains("chmod"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(Key::read(&path).unwrap().0, [15; 32]);
        for text in ["", "0f", &"xy".repeat(32), &"é".repeat(32)] {
            std::fs::write(&path, text).unwrap();
            assert!(Key::read(&path).is_err(), "{text}");
        }
    }
}
