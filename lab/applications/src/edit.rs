//! Ways to change what a site shows.

use std::fmt;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};

/// What pages show before any edit.
pub(crate) const FIRST: &str = "version=0.";

/// Where a file has its marker.
const PLACE: &str = "@VERSION@";

/// Versions are counted for the whole process, so no two edits have the same marker.
static VERSION: AtomicU64 = AtomicU64::new(1);

type Change = Arc<dyn Fn(SocketAddr, &str) -> Result<()> + Send + Sync>;

/// A way to change what a page shows.
#[derive(Clone)]
pub struct Edit {
    name: &'static str,
    path: String,
    words: String,
    delay: Duration,
    is_hasty: bool,
    change: Change,
}

impl fmt::Debug for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Edit")
            .field("name", &self.name)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Edit {
    /// `change` makes the page at `path` show `words`, and after them the marker that it is given.
    pub(crate) fn new(
        name: &'static str,
        path: &str,
        words: &str,
        change: impl Fn(&str) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::by_http(name, path, words, move |_, marker| change(marker))
    }

    /// `change` speaks HTTP to the server.
    pub(crate) fn by_http(
        name: &'static str,
        path: &str,
        words: &str,
        change: impl Fn(SocketAddr, &str) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        let (path, words) = (path.to_owned(), words.to_owned());
        Self { name, path, words, delay: Duration::ZERO, is_hasty: false, change: Arc::new(change) }
    }

    /// The application itself may show the old content for so long.
    pub(crate) fn delayed(self, seconds: u32) -> Self {
        Self { delay: Duration::from_secs(seconds.into()), ..self }
    }

    /// Allows the application to show the old content for so many seconds more, if it may show it
    /// for a while at all.
    pub(crate) fn later(self, seconds: u32) -> Self {
        if self.delay.is_zero() {
            self
        } else {
            Self { delay: self.delay + Duration::from_secs(seconds.into()), ..self }
        }
    }

    /// The application itself mixes up what happens within a second or two.
    pub(crate) fn hasty(self) -> Self {
        Self { is_hasty: true, ..self }
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

    /// What stands right before the marker on the page. Edits of one page with equal words change
    /// the same thing.
    pub fn words(&self) -> &str {
        &self.words
    }

    /// How long after the edit the application itself may go on showing what was before, without
    /// any cache in front of it (PHP looks at a script's time every few seconds only). Zero for
    /// most.
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// Whether the application itself, without any cache in front of it, may show no content for
    /// moments around the edit, and may go on showing what was before if it is edited again within
    /// two seconds.
    pub fn is_hasty(&self) -> bool {
        self.is_hasty
    }

    /// Makes the edit and returns the marker, such as `version=17.`, that the page's body contains
    /// from now on. `server` is where the running server is reached; edits by a web form go there.
    ///
    /// # Errors
    /// What the application or the file system says; the marker may be shown or not then.
    pub fn make(&self, server: SocketAddr) -> Result<String> {
        self.make_version(server, VERSION.fetch_add(1, Ordering::Relaxed))
    }

    /// Makes the edit with a version number that the caller chose, and returns the marker, such as
    /// `version=17.`, that the page's body contains from now on. `server` is where the running
    /// server is reached.
    ///
    /// # Errors
    /// What the application or the file system says; the marker may be shown or not then.
    pub fn make_version(&self, server: SocketAddr, version: u64) -> Result<String> {
        let marker = format!("version={version}.");
        (self.change)(server, &marker)
            .with_context(|| format!("the edit `{}` failed", self.name))?;
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
    pub(crate) fn create(path: PathBuf, template: impl Into<String>) -> Result<Self> {
        let file = Self { path, template: template.into() };
        file.overwrite(FIRST)?;
        std::fs::set_permissions(&file.path, std::fs::Permissions::from_mode(0o644))?;
        Ok(file)
    }

    /// Two edits of it: a new file in its place, and new bytes in the same file.
    pub(crate) fn edits(&self, names: [&'static str; 2], page: &str) -> [Edit; 2] {
        let (renamed, overwritten) = (self.clone(), self.clone());
        [
            Edit::new(names[0], page, self.words(), move |marker| renamed.replace(marker)),
            Edit::new(names[1], page, self.words(), move |marker| overwritten.overwrite(marker)),
        ]
    }

    /// What is right before the marker: no tag and no quote.
    fn words(&self) -> &str {
        let before = self.template.split_once(PLACE).map_or("", |(before, _)| before);
        before.rsplit(['>', '\'', '"', '\n']).next().unwrap_or_default()
    }

    fn replace(&self, marker: &str) -> Result<()> {
        let folder = self.path.parent().unwrap_or_else(|| Path::new("/"));
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(self.text(marker).as_bytes())?;
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
        file.persist(&self.path)?;
        Ok(())
    }

    fn overwrite(&self, marker: &str) -> Result<()> {
        std::fs::write(&self.path, self.text(marker))
            .with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn text(&self, marker: &str) -> String {
        self.template.replace(PLACE, marker)
    }
}
