//! Where the program `nicache` is, which runs a card.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Its name.
const NAME: &str = "nicache";

/// The program beside this one, or else the first one in `PATH`. An error says how to get it.
pub(crate) fn find() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = own.parent().map(Path::to_owned).into_iter().chain(std::env::split_paths(&path));
    folders.map(|folder| folder.join(NAME)).find(|file| file.is_file()).with_context(|| {
        format!(
            "there is no program `{NAME}` beside {} or in PATH: install the package {NAME}, or build it \
             (cargo build --release -p {NAME})",
            own.display()
        )
    })
}
