//! The secret that file handles are proven with. It must outlast restarts: with another one every
//! client mounts again.

use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use nicache_initiator::TargetUrl;
use nicache_nfs::HandleKey;
use nicache_secret::random_bytes;
use rustix::fs::FlockOperation;
use thiserror::Error;

const KEY_BYTES: usize = 32;

/// The secret cannot be had.
#[derive(Debug, Error)]
pub enum KeyError {
    /// A file cannot be read or made.
    #[error("cannot keep the secret of file handles in {path}: {error}")]
    File {
        /// Which file cannot be read or made.
        path: PathBuf,
        /// Why the file cannot be read or made.
        error: io::Error,
    },
    /// Others can read it.
    #[error(
        "{path} can be read by others: run `chmod 600 {path}`, or remove it, and all clients mount again"
    )]
    Open {
        /// Which file can be read by others.
        path: PathBuf,
    },
    /// Another gateway has it.
    #[error(
        "another nicache serves this unit ({path} is locked): end it first; two would destroy the unit's file system"
    )]
    Taken {
        /// Which file is locked.
        path: PathBuf,
    },
    /// It is something else.
    #[error(
        "{path} is not a secret of file handles ({KEY_BYTES} bytes): remove it, and all clients mount again"
    )]
    Form {
        /// Which file is something else.
        path: PathBuf,
    },
}

/// A secret, and the right to serve the unit that it belongs to: two gateways would destroy the
/// unit's file system.
#[derive(Debug)]
pub struct KeptKey {
    /// The secret.
    pub key: HandleKey,
    /// Who this gateway is for the target's reservations: the same as long as the secret is, and
    /// nothing follows from it for the secret.
    pub identity: u32,
    /// Locked while this lives. The lock goes with the process.
    _file: File,
}

/// Where the secret of a unit is kept: one file for each unit, by its target's name and its number.
pub fn key_path(folder: &Path, unit: &TargetUrl) -> PathBuf {
    folder.join(format!("{}-{}.key", unit.target, unit.lun))
}

/// Reads the secret, or makes one, and locks its file. Missing folders are made for root alone.
pub fn load_or_make_key(path: &Path) -> Result<KeptKey, KeyError> {
    match load(path) {
        Err(KeyError::File { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
            make(path).map_err(|error| KeyError::File { path: path.to_owned(), error })?;
            load(path)
        }
        loaded => loaded,
    }
}

fn load(path: &Path) -> Result<KeptKey, KeyError> {
    let failed = |error| KeyError::File { path: path.to_owned(), error };
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.mode() & 0o077 != 0 {
        return Err(KeyError::Open { path: path.to_owned() });
    }
    let mut bytes = Vec::new();
    (&file).take(KEY_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    let secret: [u8; KEY_BYTES] =
        bytes.try_into().map_err(|_| KeyError::Form { path: path.to_owned() })?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            Ok(KeptKey { identity: identity_of(&secret), key: HandleKey::new(secret), _file: file })
        }
        Err(rustix::io::Errno::WOULDBLOCK) => Err(KeyError::Taken { path: path.to_owned() }),
        Err(error) => Err(failed(error.into())),
    }
}

fn identity_of(secret: &[u8; KEY_BYTES]) -> u32 {
    let derived = blake3::derive_key(
        "nicache 2026-11 identity of a gateway for persistent reservations",
        secret,
    );
    derived.first_chunk().copied().map(u32::from_le_bytes).unwrap_or_default()
}

/// Whole or not at all, also if the machine stops; of two that make one at a time, the first one's
/// stays.
fn make(path: &Path) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or_else(|| Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let secret = random_bytes::<KEY_BYTES>()?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(&secret)?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(path) {
        Ok(_) => File::open(folder)?.sync_all(),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error.error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn it_is_made_once_and_for_root_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/key");
        let kept = load_or_make_key(&path).unwrap();
        assert!(matches!(load_or_make_key(&path), Err(KeyError::Taken { .. })));
        let identity = kept.identity;
        drop(kept);
        assert_eq!(load_or_make_key(&path).unwrap().identity, identity);
        assert_ne!(load_or_make_key(&folder.path().join("other")).unwrap().identity, identity);
        let first = std::fs::read(&path).unwrap();
        assert_eq!((first.len(), path.metadata().unwrap().mode() & 0o777), (KEY_BYTES, 0o600));
        load_or_make_key(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), first);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(load_or_make_key(&path), Err(KeyError::Open { .. })));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, "short").unwrap();
        assert!(matches!(load_or_make_key(&path), Err(KeyError::Form { .. })));
    }
}
