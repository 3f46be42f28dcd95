//! Files that the operator says hold sessions: each belongs to one visitor, whom its name or
//! content identifies.
//!
//! A reply that is kept was given to two clients, one of them without any cookie, so it rests on
//! nobody's session. To make, read, write or remove such a file says nothing about other replies,
//! and what the server does with them is left out of everything that the watcher looks at.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::witnesses::event::{EventKind, Identity, LookupEvent};

/// Files remembered at once. With more of them all are forgotten, and what is written to those
/// refuses replies until they are opened again.
const FILES_MAX: usize = 65_536;

#[derive(Clone, Debug)]
enum Pattern {
    File(Box<[u8]>),
    /// Beginning of the paths of files in one folder.
    Prefix(Box<[u8]>),
}

/// Files that the operator says hold sessions, each of one visitor: what the server does with them
/// is left out of everything that the watcher looks at.
#[derive(Debug, Default)]
pub struct SessionFiles {
    patterns: Vec<Pattern>,
    files: HashSet<Identity>,
}

impl SessionFiles {
    /// `patterns`: absolute paths, or the beginnings of such in one folder with a final `*`.
    pub fn new(patterns: &[PathBuf]) -> Self {
        let pattern = |path: &PathBuf| {
            let text = path.as_os_str().as_bytes();
            text.strip_suffix(b"*")
                .map_or_else(|| Pattern::File(text.into()), |stem| Pattern::Prefix(stem.into()))
        };
        Self { patterns: patterns.iter().map(pattern).collect(), files: HashSet::new() }
    }

    /// Events have been lost: the number of one that was removed may be another file's by now.
    pub fn forget_files(&mut self) {
        self.files.clear();
    }

    /// Takes note of an event. True if it is about such a file and nothing else.
    pub fn observe(&mut self, event: &LookupEvent) -> bool {
        if self.patterns.is_empty() {
            return false;
        }
        match event.kind {
            EventKind::Lookup => {
                let is_session = !event.incomplete && self.is_session(&event.path);
                if let Some(inode) = event.inode {
                    if is_session && self.files.len() >= FILES_MAX {
                        self.files.clear();
                    }
                    // The number of one that was removed may be another file's by now.
                    if is_session {
                        self.files.insert(inode)
                    } else {
                        self.files.remove(&inode)
                    };
                }
                is_session
            }
            EventKind::Wrote => event.inode.is_some_and(|inode| self.files.contains(&inode)),
            EventKind::Removed => !event.incomplete && self.is_session(&event.path),
            _ => false,
        }
    }

    fn is_session(&self, path: &[u8]) -> bool {
        let climbs = || path.split(|byte| *byte == b'/').any(|part| part == b"..");
        let matches = |pattern: &Pattern| match pattern {
            Pattern::File(file) => **file == *path,
            Pattern::Prefix(stem) => {
                path.strip_prefix(&**stem).is_some_and(|rest| !rest.contains(&b'/'))
            }
        };
        self.patterns.iter().any(matches) && !climbs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Identity = Identity { dev: 1, ino: 7 };

    fn event(kind: EventKind, path: &str, inode: Option<Identity>) -> LookupEvent {
        LookupEvent { kind, path: path.as_bytes().into(), inode, ..LookupEvent::blank(1) }
    }

    #[test]
    fn only_files_of_sessions_are_left_out() {
        let mut sessions =
            SessionFiles::new(&[PathBuf::from("/s/sess_*"), PathBuf::from("/s/one")]);
        for path in ["/s/sess_1", "/s/sess_", "/s/one"] {
            assert!(sessions.observe(&event(EventKind::Lookup, path, None)), "{path}");
            assert!(sessions.observe(&event(EventKind::Removed, path, None)), "{path}");
        }
        for path in ["/s/ses", "/s/one2", "/s", "/s/sess_a/../../b", "/s/sess_a/b", "sess_1", ""] {
            assert!(!sessions.observe(&event(EventKind::Lookup, path, None)), "{path}");
            assert!(!sessions.observe(&event(EventKind::Removed, path, None)), "{path}");
        }
        let incomplete =
            LookupEvent { incomplete: true, ..event(EventKind::Lookup, "/s/sess_1", None) };
        assert!(!sessions.observe(&incomplete));
    }

    #[test]
    fn a_number_that_is_another_file_by_now_is_no_session() {
        let mut sessions = SessionFiles::new(&[PathBuf::from("/s/sess_*")]);
        let wrote = event(EventKind::Wrote, "", Some(FILE));
        assert!(!sessions.observe(&wrote));
        sessions.observe(&event(EventKind::Lookup, "/s/sess_1", Some(FILE)));
        assert!(sessions.observe(&wrote));
        assert!(!sessions.observe(&event(EventKind::Wrote, "", None)));
        sessions.observe(&event(EventKind::Lookup, "/data/page", Some(FILE)));
        assert!(!sessions.observe(&wrote));
    }
}
