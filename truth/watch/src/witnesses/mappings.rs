//! Files that somebody has mapped so that he may store to them (`mapped_files` in `ebpf/files.h`): of those the kernel's witness sees no change.
//!
//! A mapping that is made later is found by the kernel; those that are there already are looked for here, once.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::processes::processes;
use crate::witnesses::event::Identity;

/// Inode number of the PID namespace in which all processes are seen (linux/proc_ns.h).
const INITIAL_PID_NAMESPACE: u64 = 0xefff_fffc;
const OVERLAY_MAGIC: u64 = 0x794c_7630;
/// Bytes of `struct inode_key`: inode and device number, eight bytes each.
const KEY_BYTES: usize = 16;
/// The key that says whether there are mappings that are not known.
const UNKNOWN: [u8; KEY_BYTES] = [0; KEY_BYTES];

/// See the module's head.
#[derive(Clone, Debug)]
pub(crate) struct Mappings {
    pub(crate) map: Arc<MapHandle>,
}

impl Mappings {
    /// Takes up those that are there. To be called when the kernel notes new ones.
    ///
    /// # Errors
    /// What the map says.
    pub(crate) fn adopt(&self) -> io::Result<()> {
        // Its place is taken before any other.
        let sees_all = std::fs::metadata("/proc/self/ns/pid").is_ok_and(|own| own.ino() == INITIAL_PID_NAMESPACE);
        self.note(UNKNOWN, !sees_all)?;
        for process in processes() {
            let Ok(maps) = std::fs::read(format!("/proc/{process}/maps")) else { continue };
            for line in maps.split(|byte| *byte == b'\n') {
                match shared(line) {
                    None => {}
                    // Memory, or a file of a file system without a device, which may be an overlay over one with.
                    Some((addresses, file)) if file.dev >> 20 == 0 => {
                        let link = format!("/proc/{process}/map_files/{addresses}");
                        if rustix::fs::statfs(link).is_ok_and(|stat| stat.f_type as u64 == OVERLAY_MAGIC) {
                            self.note(UNKNOWN, true)?;
                        }
                    }
                    Some((_, file)) => self.note(key(file), true)?,
                }
            }
        }
        Ok(())
    }

    /// Is it certain that nobody stores to the file?
    pub(crate) fn has_none_of(&self, file: Identity) -> bool {
        let value = |key: &[u8]| self.map.lookup(key, MapFlags::ANY);
        matches!(value(&UNKNOWN), Ok(Some(unknown)) if unknown == [0]) && matches!(value(&key(file)), Ok(None))
    }

    fn note(&self, key: [u8; KEY_BYTES], is_there: bool) -> io::Result<()> {
        let noted = self.map.update(&key, &[u8::from(is_there)], MapFlags::ANY);
        noted.map_err(|error| io::Error::other(format!("noting files that are mapped: {error}")))
    }
}

fn key(file: Identity) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&file.ino.to_ne_bytes());
    key[8..].copy_from_slice(&u64::from(file.dev).to_ne_bytes());
    key
}

/// Addresses and file of a line of /proc/PID/maps, if it is a mapping of a file that others share.
fn shared(line: &[u8]) -> Option<(&str, Identity)> {
    let mut words = std::str::from_utf8(line.get(..line.len().min(120))?).ok()?.split_ascii_whitespace();
    let (addresses, permissions, _offset) = (words.next()?, words.next()?, words.next()?);
    let (major, minor) = words.next()?.split_once(':')?;
    let number = |digits: &str| u32::from_str_radix(digits, 16).ok();
    let file = Identity { dev: number(major)? << 20 | number(minor)?, ino: words.next()?.parse().ok()? };
    (permissions.ends_with('s') && file.ino != 0).then_some((addresses, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps() {
        let file = Identity { dev: 0xfe << 20, ino: 1_417_556 };
        let line = b"7f21c0000000-7f21c0001000 rw-s 00000000 fe:00 1417556   /var/lib/x/db-shm";
        assert_eq!(shared(line), Some(("7f21c0000000-7f21c0001000", file)));
        // What is mapped for reading may be mapped for writing by mprotect.
        assert_eq!(shared(&line.map(|byte| if byte == b'w' { b'-' } else { byte })).unwrap().1, file);
        for none in [
            &b"7f21c0000000-7f21c0001000 rw-p 00000000 fe:00 1417556   /var/lib/x/db"[..],
            b"7f21c0000000-7f21c0001000 rw-s 00000000 00:00 0",
            b"7f21c0000000-7f21c0001000 rw-s",
            b"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]",
            b"",
            b"\xff\xfe",
        ] {
            assert_eq!(shared(none), None);
        }
    }
}
