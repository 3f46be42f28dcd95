//! The files that every server serves.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

/// 1 January 2020: servers call the tags of files weak, or do not answer conditions, that have just
/// changed.
pub(crate) fn long_ago() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_577_836_800)
}

/// A folder with a document root `site`, a server's configuration and its logs beside it.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        // Witnesses are for ext4, which /tmp need not be.
        let folder = Self(
            tempfile::Builder::new().prefix("nicache-servers-").tempdir_in("/var/tmp").unwrap(),
        );
        std::fs::set_permissions(folder.0.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::create_dir(folder.root()).unwrap();
        folder.fill();
        folder
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.0.path().join("site")
    }

    /// A file of the site.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// Writes a file beside the site; `@FOLDER@` stands for the folder. Its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let file = self.0.path().join(name);
        std::fs::write(&file, text.replace("@FOLDER@", self.0.path().to_str().unwrap())).unwrap();
        file.to_str().unwrap().to_owned()
    }

    fn fill(&self) {
        for folder in ["dir", "bare", "edits"] {
            std::fs::create_dir(self.path(folder)).unwrap();
        }
        self.put("small.txt", &letters(1000));
        self.put("large.bin", &letters(1_200_000));
        self.put("empty.txt", b"");
        self.put("dir/index.html", b"<p>the index\n");
        self.put("bare/file.txt", b"in a folder without an index\n");
        self.put("a b.txt", b"with a space\n");
        self.put("gr\u{fc}\u{df}e.txt", b"with letters beyond ASCII\n");
        self.put("words.txt", "many words, and some more \n".repeat(500).as_bytes());
        let packed =
            Command::new("gzip").arg("-nc").arg(self.path("words.txt")).output().expect("gzip");
        self.put("words.txt.gz", &packed.stdout);
        symlink("small.txt", self.path("link.txt")).unwrap();
        symlink("dir", self.path("linked")).unwrap();
    }

    /// Writes a file that seems to have been there for long.
    pub(crate) fn put(&self, name: &str, content: &[u8]) {
        std::fs::write(self.path(name), content).unwrap();
        date(&self.path(name), long_ago());
    }
}

/// Sets when a file was last changed.
pub(crate) fn date(path: &Path, modified: SystemTime) {
    std::fs::File::open(path).unwrap().set_modified(modified).unwrap();
}

/// Text without pattern.
pub(crate) fn letters(len: usize) -> Vec<u8> {
    let mut state = len as u64 | 1;
    let next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b'a' + (state >> 33) as u8 % 26
    };
    std::iter::repeat_with(next).take(len).collect()
}
