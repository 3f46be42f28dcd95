//! A document root that any server of files can serve: `DIR/<two digits>/<sixteen digits>`, both of
//! the object's id.
//!
//! A name tells nothing but the id, because a log's own paths can be of no file (`/a` and `/a/b`
//! both being asked for, a query, a name that is too long) and a server would treat some of them in
//! its own way (`index.html`, `.php`, `..`). So the names have no extension either, and every file
//! is of the server's default type.
//!
//! Contents are those of `content.rs`, cut to exactly the log's size.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::content::VERSION;
use crate::site::{SiteError, make_directory, write_new};
use crate::trace::Trace;

/// A static site's files.
#[derive(Debug)]
pub struct StaticSite;

/// Why a folder is not the site of a log.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// A file is missing or cannot be looked at.
    #[error("cannot look at {path}; was the site made from this log?")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why the file cannot be looked at.
        source: io::Error,
    },
    /// A file has another size than the log says.
    #[error("{path} has {got} bytes, and the log says {wanted}; was the site made from this log?")]
    Size {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        got: u64,
        /// The log's.
        wanted: u64,
    },
}

impl StaticSite {
    /// Makes the files below `root`, which must be empty or not there.
    ///
    /// # Errors
    /// [`SiteError`].
    pub fn create(root: &Path, trace: &Trace) -> Result<(), SiteError> {
        let failed = |source| SiteError::Io { root: root.to_owned(), source };
        make_directory(root).map_err(failed)?;
        if fs::read_dir(root).map_err(failed)?.next().is_some() {
            return Err(SiteError::NotEmpty(root.to_owned()));
        }
        let mut is_made = [false; 256];
        for object in &trace.objects {
            let path = root.join(&Self::target(object.id)[1..]);
            let directory = (object.id >> 56) as usize;
            if let Some(parent) = path.parent()
                && !std::mem::replace(&mut is_made[directory], true)
            {
                make_directory(parent).map_err(failed)?;
            }
            write_new(&path, object.id, VERSION, object.bytes).map_err(failed)?;
        }
        Ok(())
    }

    /// Looks whether `root` has a file of the right size for every object. What is in them, the
    /// replay will find out.
    ///
    /// # Errors
    /// [`CheckError`], the first one.
    pub fn check(root: &Path, trace: &Trace) -> Result<(), CheckError> {
        for object in &trace.objects {
            let path = root.join(&Self::target(object.id)[1..]);
            match fs::metadata(&path) {
                Err(source) => return Err(CheckError::Io { path, source }),
                Ok(file) if file.len() != object.bytes => {
                    return Err(CheckError::Size { path, got: file.len(), wanted: object.bytes });
                }
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// The target of a request for the object `id`.
    pub fn target(id: u64) -> String {
        String::from_utf8_lossy(&target(id)).into_owned()
    }
}

/// Bytes of a target.
const TARGET_BYTES: usize = 20;

/// The target of a request for the object `id`, made without the machinery of formats, which would
/// cost as much as reading a reply's head.
pub(crate) fn target(id: u64) -> [u8; TARGET_BYTES] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut target = *b"/00/0000000000000000";
    for place in 0..16 {
        target[4 + place] = DIGITS[(id >> (60 - 4 * place) & 15) as usize];
    }
    target.copy_within(4..6, 1);
    target
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::{Body, VERSION, inspect};
    use nicache_trace::{Record, Verb};

    fn trace() -> Trace {
        let mut trace = Trace::default();
        for object in 0..40u64 {
            let id = nicache_trace::mix(object + 1);
            let bytes = Some(object * 17);
            trace
                .push(&Record {
                    object: id,
                    verb: Verb::Get,
                    status: 200,
                    bytes,
                    ..Record::default()
                })
                .unwrap();
        }
        trace
    }

    #[test]
    fn files_have_exactly_the_log_s_sizes() {
        let (trace, folder) = (trace(), tempfile::tempdir().unwrap());
        let root = folder.path().join("site");
        StaticSite::create(&root, &trace).unwrap();
        for object in &trace.objects {
            let bytes = fs::read(root.join(&StaticSite::target(object.id)[1..])).unwrap();
            assert_eq!(bytes.len() as u64, object.bytes);
            let right =
                if bytes.is_empty() { Body::Empty } else { Body::Whole { version: VERSION } };
            assert!(bytes.len() % 64 < 26 || inspect(object.id, &bytes) == right);
        }
        StaticSite::check(&root, &trace).unwrap();
        assert!(matches!(StaticSite::create(&root, &trace), Err(SiteError::NotEmpty(_))));
    }

    #[test]
    fn a_site_of_another_log_is_told() {
        let (trace, folder) = (trace(), tempfile::tempdir().unwrap());
        assert!(matches!(StaticSite::check(folder.path(), &trace), Err(CheckError::Io { .. })));
        let root = folder.path().join("site");
        StaticSite::create(&root, &trace).unwrap();
        fs::write(root.join(&StaticSite::target(trace.objects[3].id)[1..]), "x").unwrap();
        let Err(CheckError::Size { got: 1, wanted: 51, .. }) = StaticSite::check(&root, &trace)
        else {
            panic!()
        };
    }

    #[test]
    fn targets() {
        assert_eq!(StaticSite::target(0xab12_3456_789a_bcde), "/ab/ab123456789abcde");
    }
}
