//! Ways to change what a site shows.

use std::fmt;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};

/// What pages show before any edit.
pub(crate) const FIRST: &str = "version=0.";

/// Versions are counted for the whole process, so that no two edits have the same marker.
static VERSION: AtomicU64 = AtomicU64::new(1);

type Change = Box<dyn Fn(SocketAddr, &str) -> Result<()> + Send + Sync>;

/// A way to change what a page shows.
pub struct Edit {
    name: &'static str,
    path: String,
    delay: Duration,
    change: Change,
}

impl fmt::Debug for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Edit").field("name", &self.name).field("path", &self.path).finish_non_exhaustive()
    }
}

impl Edit {
    /// `change` makes the page at `path` show the marker that it is given.
    pub(crate) fn new(
        name: &'static str,
        path: &str,
        change: impl Fn(&str) -> Result<()> + Send + Sync + 'static,
    ) -> Edit {
        Edit { name, path: path.to_owned(), delay: Duration::ZERO, change: Box::new(move |_, marker| change(marker)) }
    }

    /// `change` speaks HTTP to the server.
    pub(crate) fn by_http(
        name: &'static str,
        path: &str,
        change: impl Fn(SocketAddr, &str) -> Result<()> + Send + Sync + 'static,
    ) -> Edit {
        Edit { name, path: path.to_owned(), delay: Duration::ZERO, change: Box::new(change) }
    }

    /// The application itself may show the old content for so long.
    pub(crate) fn delayed(self, seconds: u32) -> Edit {
        Edit { delay: Duration::from_secs(seconds.into()), ..self }
    }

    /// The number in a marker, for a column or a field.
    pub(crate) fn number(marker: &str) -> &str {
        marker.trim_start_matches("version=").trim_end_matches('.')
    }

    /// Its name, such as `sql-update`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Path and query of the page that shows it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// How long after the edit the application itself may go on showing what was before, without any cache in front of it (PHP looks
    /// at a script's time every few seconds only). Zero for most.
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// Makes the edit and returns the marker, such as `version=17.`, that the page's body contains from now on. `server` is where the running
    /// server is reached; edits by a web form go there.
    pub fn make(&self, server: SocketAddr) -> Result<String> {
        let marker = format!("version={}.", VERSION.fetch_add(1, Ordering::Relaxed));
        (self.change)(server, &marker).with_context(|| format!("the edit `{}` failed", self.name))?;
        Ok(marker)
    }
}

/// A file that shows a marker.
#[derive(Debug, Clone)]
pub(crate) struct MarkedFile {
    path: PathBuf,
    /// The file's text; `@VERSION@` stands for the marker.
    template: String,
}

impl MarkedFile {
    /// Writes the file with the first marker.
    pub fn create(path: PathBuf, template: impl Into<String>) -> Result<MarkedFile> {
        let file = MarkedFile { path, template: template.into() };
        file.overwrite(FIRST)?;
        std::fs::set_permissions(&file.path, std::fs::Permissions::from_mode(0o644))?;
        Ok(file)
    }

    /// Two edits of it: a new file in its place, and new bytes in the same file.
    pub fn edits(&self, names: [&'static str; 2], page: &str, delay: u32) -> [Edit; 2] {
        let (renamed, overwritten) = (self.clone(), self.clone());
        [
            Edit::new(names[0], page, move |marker| renamed.replace(marker)).delayed(delay),
            Edit::new(names[1], page, move |marker| overwritten.overwrite(marker)).delayed(delay),
        ]
    }

    fn replace(&self, marker: &str) -> Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(self.text(marker).as_bytes())?;
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
        file.persist(&self.path)?;
        Ok(())
    }

    fn overwrite(&self, marker: &str) -> Result<()> {
        std::fs::write(&self.path, self.text(marker)).with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn text(&self, marker: &str) -> String {
        self.template.replace("@VERSION@", marker)
    }
}
