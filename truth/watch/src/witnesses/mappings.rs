//! Files that somebody has mapped so they may store to them (`mapped_files` in `ebpf/files.h`):
//! of those the kernel's witness sees no change.
//!
//! A mapping that is made later is found by the kernel; those that are there already are looked for
//! here, once.

use std::io;
use std::os::unix::fs::MetadataExt;

use crate::processes::processes;
use crate::witnesses::event::Identity;
use crate::witnesses::notes::Notes;

/// Inode number of the PID namespace in which all processes are seen (linux/proc_ns.h).
const INITIAL_PID_NAMESPACE: u64 = 0xefff_fffc;
const OVERLAY_MAGIC: u64 = 0x794c_7630;
/// Bytes of `struct inode_key`: inode and device number, eight bytes each.
const KEY_BYTES: usize = 16;
/// The key that says whether there are mappings that are not known.
const UNKNOWN: [u8; KEY_BYTES] = [0; KEY_BYTES];

/// Files that somebody has mapped to store to them, of which the kernel's witness sees no change:
/// looks for mappings that are there already.
#[derive(Clone, Debug)]
pub(crate) struct Mappings {
    pub(crate) notes: Notes,
}

impl Mappings {
    /// Takes up those that are there. To be called when the kernel notes new ones.
    ///
    /// # Errors
    /// What the map says.
    pub(crate) fn adopt(&self) -> io::Result<()> {
        // Its place is taken before any other.
        let sees_all = std::fs::metadata("/proc/self/ns/pid")
            .is_ok_and(|own| own.ino() == INITIAL_PID_NAMESPACE);
        self.note(UNKNOWN, !sees_all)?;
        for process in processes() {
            let Ok(maps) = std::fs::read(format!("/proc/{process}/maps")) else { continue };
            for line in maps.split(|byte| *byte == b'\n') {
                let Some(mapping) = Mapping::parse(line).filter(|mapping| mapping.is_shared) else {
                    continue;
                };
                // Memory, or a file of a file system without a device, which may be an overlay over
                // one with.
                if mapping.file.dev >> 20 == 0 {
                    let link = format!("/proc/{process}/map_files/{}", mapping.addresses);
                    if rustix::fs::statfs(link)
                        .is_ok_and(|stat| stat.f_type as u64 == OVERLAY_MAGIC)
                    {
                        self.note(UNKNOWN, true)?;
                    }
                } else {
                    self.note(key(mapping.file), true)?;
                }
            }
        }
        Ok(())
    }

    /// Is it certain that nobody stores to the file?
    pub(crate) fn has_none_of(&self, file: Identity) -> bool {
        matches!(self.notes.find([0; 2]), Ok(Some(0)))
            && matches!(self.notes.find([file.ino, u64::from(file.dev)]), Ok(None))
    }

    fn note(&self, key: [u8; KEY_BYTES], is_there: bool) -> io::Result<()> {
        let noted = self.notes.note(&key, &[u8::from(is_there)]);
        noted.map_err(|error| io::Error::other(format!("noting files that are mapped: {error}")))
    }
}

fn key(file: Identity) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&file.ino.to_ne_bytes());
    key[8..].copy_from_slice(&u64::from(file.dev).to_ne_bytes());
    key
}

/// Does the process run code of this file? False if it cannot be seen.
pub(crate) fn runs(process: u32, file: Identity) -> bool {
    let maps = std::fs::read(format!("/proc/{process}/maps")).unwrap_or_default();
    let mut mappings = maps.split(|byte| *byte == b'\n').filter_map(Mapping::parse);
    mappings.any(|mapping| mapping.is_run && mapping.file == file)
}

/// A line of `/proc/PID/maps` about a file (proc(5)).
#[derive(PartialEq, Eq, Debug)]
struct Mapping<'a> {
    addresses: &'a str,
    is_shared: bool,
    is_run: bool,
    file: Identity,
}

impl Mapping<'_> {
    fn parse(line: &[u8]) -> Option<Mapping<'_>> {
        let mut words =
            std::str::from_utf8(line.get(..line.len().min(120))?).ok()?.split_ascii_whitespace();
        let (addresses, permissions, _offset) = (words.next()?, words.next()?, words.next()?);
        let (major, minor) = words.next()?.split_once(':')?;
        let number = |digits: &str| u32::from_str_radix(digits, 16).ok();
        let file = Identity {
            dev: number(major)? << 20 | number(minor)?,
            ino: words.next()?.parse().ok()?,
        };
        let (is_shared, is_run) = (permissions.ends_with('s'), permissions.contains('x'));
        (file.ino != 0).then_some(Mapping { addresses, is_shared, is_run, file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps() {
        let file = Identity { dev: 0xfe << 20, ino: 1_417_556 };
        let line = *b"7f21c0000000-7f21c0001000 rw-s 00000000 fe:00 1417556   /var/lib/x/db-shm";
        let changed = |from, to| line.map(|byte| if byte == from { to } else { byte });
        let mapping = Mapping {
            addresses: "7f21c0000000-7f21c0001000",
            is_shared: true,
            is_run: false,
            file,
        };
        assert_eq!(Mapping::parse(&line), Some(mapping));
        // What is mapped for reading may be mapped for writing by mprotect.
        assert!(Mapping::parse(&changed(b'w', b'-')).unwrap().is_shared);
        assert!(
            !Mapping::parse(b"7f21c0000000-7f21c0001000 rw-p 00000000 fe:00 1417556   /db")
                .unwrap()
                .is_shared
        );
        assert!(
            Mapping::parse(b"7f21c0000000-7f21c0001000 r-xp 00000000 fe:00 1417556   /libz.so.1")
                .unwrap()
                .is_run
        );
        for none in [
            &b"7f21c0000000-7f21c0001000 rw-p 00000000 00:00 0"[..],
            b"7f21c0000000-7f21c0001000 rw-s",
            b"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]",
            b"",
            b"\xff\xfe",
        ] {
            assert_eq!(Mapping::parse(none), None);
        }
    }

    #[test]
    fn a_process_runs_its_own_program() {
        let of = |path: &str| {
            let stat = rustix::fs::stat(path).unwrap();
            let dev = rustix::fs::major(stat.st_dev) << 20 | rustix::fs::minor(stat.st_dev);
            Identity { dev, ino: stat.st_ino }
        };
        assert!(runs(std::process::id(), of("/proc/self/exe")));
        assert!(
            !runs(std::process::id(), of("/etc/passwd")) && !runs(u32::MAX, of("/proc/self/exe"))
        );
    }
}
