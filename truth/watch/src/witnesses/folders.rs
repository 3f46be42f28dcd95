//! Folders that the server's processes have opened.
//!
//! A path that starts at a descriptor can be looked up again as long as the process has that
//! descriptor. glibc's modules go step by step from the root, with one descriptor after the other,
//! and close them; and programs that were run for a request are gone. For these it is known by
//! which path a folder was opened. It counts if that path leads to the same folder still.

use std::collections::HashMap;

use crate::witnesses::event::{EventKind, Identity, LookupEvent};

/// Processes whose folders are known.
const PROCESSES_MAX: usize = 1024;
/// Folders of one that are known.
const FOLDERS_MAX: usize = 128;
/// The longest path that is known.
const PATH_BYTES_MAX: usize = 256;

const S_IFMT: u16 = 0o170_000;
const S_IFDIR: u16 = 0o040_000;

/// Folders that one process has opened, by their paths.
#[derive(Debug, Default)]
pub(crate) struct Folders(HashMap<Identity, Box<[u8]>>);

impl Folders {
    /// Takes note of what the process has opened, and says by which path it had opened the folder
    /// that a path starts at.
    pub(crate) fn follow(&mut self, event: &mut LookupEvent) {
        if !matches!(event.kind, EventKind::Lookup | EventKind::Removed | EventKind::Moved) {
            return;
        }
        if event.kind == EventKind::Moved {
            // Relative ones meant something else.
            self.0.retain(|_, path| path.starts_with(b"/"));
        }
        if !event.path.starts_with(b"/")
            && let Some(folder) = event.directory.and_then(|directory| self.0.get(&directory))
        {
            event.folder = Some(folder.clone());
        }
        if let Some(inode) = event.inode.filter(|_| event.mode & S_IFMT == S_IFDIR)
            && event.kind == EventKind::Lookup
            && !event.incomplete
            && !event.own_root
            && let Some(path) = event.path_from_folder()
            && (1..=PATH_BYTES_MAX).contains(&path.len())
        {
            if self.0.len() >= FOLDERS_MAX && !self.0.contains_key(&inode) {
                self.0.clear();
            }
            self.0.insert(inode, path);
        }
    }

    /// What descriptors stand for is not known any longer.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Folders that processes have opened that take requests.
#[derive(Debug, Default)]
pub(crate) struct FoldersByProcess(HashMap<u32, Folders>);

impl FoldersByProcess {
    /// As [`Folders::follow`]. Where a process was when it opened a folder by a relative path is
    /// not known.
    pub(crate) fn follow(&mut self, event: &mut LookupEvent) {
        let opens = event.inode.is_some() && event.mode & S_IFMT == S_IFDIR;
        let is_relative_to_folder = event.directory.is_some() && !event.path.starts_with(b"/");
        if event.is_relative() || !(opens || is_relative_to_folder) {
            return;
        }
        if self.0.len() >= PROCESSES_MAX && !self.0.contains_key(&event.tgid) {
            self.0.clear();
        }
        self.0.entry(event.tgid).or_default().follow(event);
    }

    /// The process has ended: another may have its number.
    pub(crate) fn forget_process(&mut self, tgid: u32) {
        self.0.remove(&tgid);
    }

    /// Events have been lost.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: u32 = 7;

    fn folder(ino: u64) -> Identity {
        Identity { dev: 8 << 20, ino }
    }

    fn opened(path: &[u8], ino: u64) -> LookupEvent {
        LookupEvent {
            tgid: PROCESS,
            path: path.into(),
            inode: Some(folder(ino)),
            mode: S_IFDIR | 0o755,
            ..LookupEvent::blank(1)
        }
    }

    fn below(ino: u64, path: &[u8]) -> LookupEvent {
        let (inode, directory) = (None, Some(folder(ino)));
        LookupEvent { dirfd: 4, directory, inode, ..opened(path, 0) }
    }

    fn path_of(folders: &mut FoldersByProcess, mut event: LookupEvent) -> Option<Box<[u8]>> {
        folders.follow(&mut event);
        event.path_from_folder()
    }

    #[test]
    fn step_by_step_from_the_root() {
        let mut folders = FoldersByProcess::default();
        assert_eq!(path_of(&mut folders, below(2, b"etc")), None);
        path_of(&mut folders, opened(b"/", 2));
        let etc = LookupEvent { inode: Some(folder(3)), ..below(2, b"etc") };
        assert_eq!(path_of(&mut folders, etc).as_deref(), Some(&b"//etc"[..]));
        let userdb = path_of(&mut folders, below(3, b"userdb"));
        assert_eq!(userdb.as_deref(), Some(&b"//etc/userdb"[..]));
        // Those of another process say nothing, nor what rules of its own led to.
        assert_eq!(path_of(&mut folders, LookupEvent { tgid: 8, ..below(3, b"x") }), None);
        path_of(&mut folders, LookupEvent { own_root: true, ..opened(b"/a", 4) });
        path_of(&mut folders, opened(b"b", 4));
        assert_eq!(path_of(&mut folders, below(4, b"x")), None);
        folders.forget_process(PROCESS);
        assert_eq!(path_of(&mut folders, below(3, b"x")), None);
    }

    #[test]
    fn there_are_not_too_many() {
        let mut folders = FoldersByProcess::default();
        for ino in 0..=FOLDERS_MAX as u64 {
            path_of(&mut folders, opened(b"/a", ino));
        }
        assert_eq!(folders.0[&PROCESS].0.len(), 1);
        path_of(&mut folders, opened(&[b'/'; PATH_BYTES_MAX + 1], 0));
        assert_eq!(path_of(&mut folders, below(0, b"x")), None);
        path_of(&mut folders, opened(b"", 0));
        assert_eq!(path_of(&mut folders, below(0, b"x")), None);
        for tgid in 0..PROCESSES_MAX as u32 {
            path_of(&mut folders, LookupEvent { tgid: 1000 + tgid, ..opened(b"/a", 1) });
        }
        assert!(folders.0.len() <= PROCESSES_MAX);
    }
}
