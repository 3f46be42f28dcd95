//! Makes the files of a trace.
//!
//! ```text
//! ROOT/00/<id of the object>        directories with an odd number are symlinks into the side folder
//! ROOT/.nicache-replay/new/         new files before they are renamed, and directories that are away
//! ROOT/.nicache-replay/00/          what symlinks of directory 00, or in it, lead to
//! ```

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::content::{LINE_BYTES, render};
use crate::oracle::State;
use crate::trace::Trace;

const SIDE: &str = ".nicache-replay";
/// Bytes of content made at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// Files of a directory, about: changing all of them at once must stay cheap.
const FILES_PER_DIRECTORY: usize = 24;
/// A directory or file of the site must be readable by the server, whose user is not ours.
const DIRECTORY_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;

/// Why the files cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// A file operation failed.
    #[error("cannot make the site in {root}")]
    Io {
        /// The document root.
        root: PathBuf,
        /// Why the operation failed.
        source: io::Error,
    },
    /// There are files already.
    #[error("{0} is not empty; give an empty or a new folder, for the site alone")]
    NotEmpty(PathBuf),
}

/// A document root with a file for every object of a trace.
#[derive(Debug)]
pub struct Site {
    root: PathBuf,
    /// Id, directory and initial bytes of each file; indices as in [`Trace::objects`].
    files: Vec<SiteFile>,
    directories: u32,
}

#[derive(Debug)]
struct SiteFile {
    id: u64,
    directory: u32,
    bytes: u64,
}

impl Site {
    /// Makes the files below `root`, which must be empty or not there. A file has the size that the
    /// log says, but at least one line of content.
    ///
    /// # Errors
    /// [`SiteError`].
    pub fn create(root: &Path, trace: &Trace) -> Result<Self, SiteError> {
        let failed = |source| SiteError::Io { root: root.to_owned(), source };
        make_directory(root).map_err(failed)?;
        if fs::read_dir(root).map_err(failed)?.next().is_some() {
            return Err(SiteError::NotEmpty(root.to_owned()));
        }
        let directories = trace.objects.len().div_ceil(FILES_PER_DIRECTORY).max(8) as u32;
        let file = |(index, object): (usize, &crate::trace::Object)| SiteFile {
            id: object.id,
            directory: index as u32 % directories,
            bytes: object.bytes.max(LINE_BYTES as u64),
        };
        let files = trace.objects.iter().enumerate().map(file).collect();
        let site = Self { root: root.canonicalize().map_err(failed)?, files, directories };
        site.fill().map_err(failed)?;
        Ok(site)
    }

    fn fill(&self) -> io::Result<()> {
        make_directory(&self.new_folder())?;
        for directory in 0..self.directories {
            make_directory(&self.target_folder(directory))?;
            if self.is_switched(directory) {
                let real = self.target_folder(directory).join("first");
                make_directory(&real)?;
                symlink(real, self.directory_path(directory))?;
            } else {
                make_directory(&self.directory_path(directory))?;
            }
        }
        (0..self.files.len()).try_for_each(|file| {
            let State::Content { version, len } = self.initial(file) else { return Ok(()) };
            write_new(&self.path(file), self.id(file), version, len)
        })
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether there is no file.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    pub(crate) fn id(&self, file: usize) -> u64 {
        self.files[file].id
    }

    pub(crate) fn initial(&self, file: usize) -> State {
        State::Content { version: 1, len: self.files[file].bytes }
    }

    pub(crate) fn directory(&self, file: usize) -> u32 {
        self.files[file].directory
    }

    pub(crate) fn is_switched(&self, directory: u32) -> bool {
        directory % 2 == 1
    }

    pub(crate) fn name(&self, file: usize) -> String {
        format!("{:016x}", self.files[file].id)
    }

    pub(crate) fn path(&self, file: usize) -> PathBuf {
        self.directory_path(self.files[file].directory).join(self.name(file))
    }

    pub(crate) fn directory_path(&self, directory: u32) -> PathBuf {
        self.root.join(format!("{directory:02}"))
    }

    pub(crate) fn new_folder(&self) -> PathBuf {
        self.root.join(SIDE).join("new")
    }

    /// Each directory has its own, because a change in it is a change of all paths through it.
    pub(crate) fn target_folder(&self, directory: u32) -> PathBuf {
        self.root.join(SIDE).join(format!("{directory:02}"))
    }

    /// The target of a request for the file.
    pub(crate) fn target(&self, file: usize) -> String {
        format!("/{:02}/{:016x}", self.files[file].directory, self.files[file].id)
    }
}

/// A directory that everybody may enter.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(DIRECTORY_MODE))
}

/// A new file with content, written in pieces.
pub(crate) fn write_new(path: &Path, id: u64, version: u32, len: u64) -> io::Result<()> {
    use std::io::Write;
    let mut file = fs::File::create_new(path)?;
    file.set_permissions(fs::Permissions::from_mode(FILE_MODE))?;
    let mut chunk = vec![0; CHUNK_BYTES.min(len as usize)];
    let mut offset = 0;
    while offset < len {
        let take = chunk.len().min((len - offset) as usize);
        render(id, version, offset, &mut chunk[..take]);
        file.write_all(&chunk[..take])?;
        offset += take as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::{Body, inspect};
    use crate::synthetic::{SyntheticConfig, synthetic};

    #[test]
    fn files_have_the_trace_s_sizes_and_prove_themselves() {
        let config = SyntheticConfig {
            objects: 60,
            requests: 2000,
            bytes_max: 5000,
            ..SyntheticConfig::default()
        };
        let trace = synthetic(&config);
        let folder = tempfile::tempdir().unwrap();
        let site = Site::create(&folder.path().join("site"), &trace).unwrap();
        assert_eq!(site.len(), trace.objects.len());
        for (file, object) in trace.objects.iter().enumerate() {
            let bytes = fs::read(site.path(file)).unwrap();
            assert_eq!(bytes.len() as u64, object.bytes);
            assert_eq!(inspect(object.id, &bytes), Body::Whole { version: 1 });
        }
        assert!(matches!(
            Site::create(&folder.path().join("site"), &trace),
            Err(SiteError::NotEmpty(_))
        ));
    }
}
