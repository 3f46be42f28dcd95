//! Folders of data, by the operator's word: the server's programs read these files anew for each
//! request that needs them, and keep nothing of them in memory. Then what a request looked at says
//! all, and a change there concerns only the pages that were made from it.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::witnesses::event::LookupEvent;

/// Folders whose files the server reads anew for each request that needs them, by the operator's
/// word, so nothing of them is in its memory.
#[derive(Debug, Default)]
pub struct DataFolders {
    folders: Vec<Box<[u8]>>,
}

impl DataFolders {
    /// `folders`: absolute paths; everything in them is meant, at any depth.
    pub fn new(folders: &[PathBuf]) -> Self {
        // Without double and final slashes, and with one at the end.
        let slashed = |path: &PathBuf| {
            path.components().collect::<PathBuf>().join("").as_os_str().as_bytes().into()
        };
        Self { folders: folders.iter().map(slashed).collect() }
    }

    /// Is the look-up one in such a folder, by the whole path that the program used?
    pub fn has(&self, event: &LookupEvent) -> bool {
        let is_in = |folder: &[u8]| {
            let inner = event.path.strip_prefix(folder);
            inner.is_some_and(|inner| !inner.split(|byte| *byte == b'/').any(|part| part == b".."))
        };
        !event.incomplete && self.folders.iter().any(|folder| is_in(folder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(path: &str) -> LookupEvent {
        LookupEvent { path: path.as_bytes().into(), ..LookupEvent::blank(1) }
    }

    #[test]
    fn only_what_is_in_the_folder() {
        let data = DataFolders::new(&[PathBuf::from("/data"), PathBuf::from("/x//y/")]);
        for path in ["/data/a.txt", "/data/b/c/d", "/x/y/z"] {
            assert!(data.has(&lookup(path)), "{path}");
        }
        for path in [
            "/data",
            "/database/a",
            "/data/../etc/a",
            "/data/a/../../b",
            "data/a",
            "/x/yz",
            "/x",
            "",
        ] {
            assert!(!data.has(&lookup(path)), "{path}");
        }
        assert!(!data.has(&LookupEvent { incomplete: true, ..lookup("/data/a") }));
        assert!(!DataFolders::default().has(&lookup("/data/a")));
    }
}
