//! Files with all the versions that they have had. Whoever changes one here is its witness, too
//! (docs/coherence.md, rule 12): the stamp is raised before the call returns that changes it.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nicache_coherence::{RevisionTable, SourceSlot};
use tempfile::TempDir;

/// Files with all the versions that they have had. Whoever changes one here is its witness, too.
pub(crate) struct Folder {
    folder: TempDir,
    table: Arc<RevisionTable>,
    versions: BTreeMap<String, Vec<Vec<u8>>>,
}

/// How a file is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Other bytes of the same number, written where the old ones are.
    InPlace,
    /// Another file takes its name, of the same size.
    Replaced,
    /// Another file takes its name, which is longer or shorter.
    Resized,
    /// It is cut.
    Truncated,
}

impl Change {
    /// All of them.
    pub(crate) const ALL: [Self; 4] =
        [Self::InPlace, Self::Replaced, Self::Resized, Self::Truncated];
}

/// A writer that is not done.
#[derive(Debug)]
pub(crate) struct Writer {
    name: String,
    file: File,
    at: usize,
}

impl Writer {
    /// The file that it writes.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// Bytes of a version of a file: different in each block and in each version.
pub(crate) fn content(name: &str, version: usize, len: usize) -> Vec<u8> {
    let seed = name
        .bytes()
        .fold(version as u64 + 1, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; len];
    random.fill(&mut bytes);
    bytes
}

impl Folder {
    /// Without a file, on a file system that is watched.
    pub(crate) fn new() -> Self {
        let folder =
            tempfile::Builder::new().prefix("nicache-test-").tempdir_in("/var/tmp").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Self { folder, table: RevisionTable::on_heap(), versions: BTreeMap::new() }
    }

    /// What the witness writes.
    pub(crate) fn table(&self) -> &Arc<RevisionTable> {
        &self.table
    }

    /// Its path.
    pub(crate) fn root(&self) -> Vec<u8> {
        self.folder.path().as_os_str().as_encoded_bytes().to_vec()
    }

    /// The path of a file.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// All versions of a file, the first one first.
    pub(crate) fn versions(&self, name: &str) -> &[Vec<u8>] {
        &self.versions[name]
    }

    /// How many changes there have been.
    pub(crate) fn version(&self, name: &str) -> usize {
        self.versions[name].len() - 1
    }

    /// What it has now.
    pub(crate) fn bytes(&self, name: &str) -> &[u8] {
        self.versions[name].last().unwrap()
    }

    fn witness(&self, paths: &[&Path]) {
        for path in paths {
            let Ok(found) = fs::symlink_metadata(path) else { continue };
            let (major, minor) = (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
            self.table.record_change(SourceSlot::of_device_inode(major, minor, found.ino()));
        }
    }

    /// A new file.
    pub(crate) fn create(&mut self, name: &str, len: usize) {
        let (path, bytes) = (self.path(name), content(name, 0, len));
        fs::write(&path, &bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        self.witness(&[self.folder.path(), &path]);
        self.versions.insert(name.to_owned(), vec![bytes]);
    }

    /// Changes a file. `len` is for those that are resized and truncated.
    pub(crate) fn change(&mut self, name: &str, change: Change, len: usize) {
        let path = self.path(name);
        let (version, before) = (self.version(name) + 1, self.bytes(name).len());
        let bytes = match change {
            Change::InPlace | Change::Replaced => content(name, version, before),
            Change::Resized => content(name, version, len),
            Change::Truncated => self.bytes(name)[..len.min(before)].to_vec(),
        };
        match change {
            Change::InPlace => {
                self.witness(&[&path]);
                OpenOptions::new()
                    .write(true)
                    .open(&path)
                    .unwrap()
                    .write_all_at(&bytes, 0)
                    .unwrap();
            }
            Change::Truncated => {
                self.witness(&[&path]);
                OpenOptions::new()
                    .write(true)
                    .open(&path)
                    .unwrap()
                    .set_len(bytes.len() as u64)
                    .unwrap();
            }
            Change::Replaced | Change::Resized => {
                let other = self.path(&format!("{name}.new"));
                fs::write(&other, &bytes).unwrap();
                fs::set_permissions(&other, fs::Permissions::from_mode(0o644)).unwrap();
                self.witness(&[self.folder.path(), &other, &path]);
                fs::rename(&other, &path).unwrap();
            }
        }
        // As the kernel does it: once more when it is done.
        self.witness(&[self.folder.path(), &path]);
        self.versions.get_mut(name).unwrap().push(bytes);
    }

    /// Begins to change a file in place, a part at a time: each part makes a version.
    pub(crate) fn begin(&mut self, name: &str) -> Writer {
        let file = OpenOptions::new().write(true).open(self.path(name)).unwrap();
        Writer { name: name.to_owned(), file, at: 0 }
    }

    /// Writes so many bytes. True: the file is written to its end.
    pub(crate) fn write(&mut self, writer: &mut Writer, len: usize) -> bool {
        let path = self.path(&writer.name);
        let mut bytes = self.bytes(&writer.name).to_vec();
        let to = (writer.at + len).min(bytes.len());
        let part = content(&writer.name, self.version(&writer.name) + 1, to - writer.at);
        bytes[writer.at..to].copy_from_slice(&part);
        self.witness(&[&path]);
        writer.file.write_all_at(&part, writer.at as u64).unwrap();
        self.witness(&[&path]);
        writer.at = to;
        self.versions.get_mut(&writer.name).unwrap().push(bytes);
        to == self.bytes(&writer.name).len()
    }
}
