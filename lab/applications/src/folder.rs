//! The private folder of a site.
//!
//! It is below `/var/lib`, on a disk almost everywhere: nicache watches no tmpfs. What programs
//! make and remove all the time (sockets, temporary files, databases) is in folders of its own,
//! away from what the web server shows, so it is not a change of a directory on the way to a
//! page.

use std::fs::File;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

const PARENT: &str = "/var/lib";
/// The file whose lock the owner of a folder holds.
const OWNER: &str = "owner.lock";

/// A folder that is removed when dropped.
#[derive(Debug)]
pub(crate) struct Folder {
    folder: TempDir,
    _owner: File,
}

impl Folder {
    /// Makes it: `/var/lib/nicache-NAME-XXXXXX`, with `site`, `run`, `tmp` and `log` in it.
    pub(crate) fn create(name: &str) -> Result<Self> {
        let prefix = format!("nicache-{name}-");
        remove_leftovers(Path::new(PARENT), &prefix);
        let folder =
            tempfile::Builder::new().prefix(&prefix).tempdir_in(PARENT).with_context(|| {
                format!("cannot make a folder for the site below {PARENT} (are you root?)")
            })?;
        // It gets its name when it is locked, so nobody takes the folder for a leftover.
        let unlocked = folder.path().join("owner.new");
        let owner = File::create(&unlocked)?;
        owner.lock()?;
        std::fs::rename(&unlocked, folder.path().join(OWNER))?;
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
        let made = Self { folder, _owner: owner };
        made.subfolder("site", "root")?;
        for name in ["run", "tmp", "log"] {
            // Programs of several users write into each.
            std::fs::set_permissions(
                made.subfolder(name, "root")?,
                std::fs::Permissions::from_mode(0o1777),
            )?;
        }
        Ok(made)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A file or folder in it.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Path of a file or folder in it as text, for configuration files; there is nothing to quote
    /// in it.
    pub(crate) fn text(&self, name: &str) -> String {
        self.join(name).display().to_string()
    }

    /// Makes a folder that belongs to `user`.
    pub(crate) fn subfolder(&self, name: &str, user: &str) -> Result<PathBuf> {
        let path = self.join(name);
        std::fs::create_dir_all(&path)?;
        give(&path, user)?;
        Ok(path)
    }

    /// Writes a file that everybody may read.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644))?;
        Ok(path)
    }
}

/// Gives a file or folder to a user and the group of that user.
pub(crate) fn give(path: &Path, user: &str) -> Result<()> {
    let (uid, gid) = ids(user)?;
    chown(path, Some(uid), Some(gid))
        .with_context(|| format!("cannot give {} to {user}", path.display()))
}

/// Gives a folder and all that is in it to a user.
pub(crate) fn give_all(path: &Path, user: &str) -> Result<()> {
    give(path, user)?;
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            give_all(&entry.path(), user)?;
        } else if kind.is_file() {
            give(&entry.path(), user)?;
        }
    }
    Ok(())
}

/// Copies a tree, files behind symbolic links included, so the copy can be edited.
pub(crate) fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in
        std::fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))?
    {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        // A link may lead nowhere, where a package only suggests another.
        match std::fs::metadata(&source) {
            Ok(kind) if kind.is_dir() => copy_tree(&source, &target)?,
            Ok(_) => {
                std::fs::copy(&source, &target)
                    .with_context(|| format!("cannot copy {}", source.display()))?;
            }
            Err(_) => {}
        }
    }
    Ok(())
}

/// User and group number of a user of this machine.
fn ids(user: &str) -> Result<(u32, u32)> {
    let table = std::fs::read_to_string("/etc/passwd")?;
    let fields = table.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let entry = fields.into_iter().find(|fields| fields.first() == Some(&user) && fields.len() > 3);
    let entry = entry.with_context(|| {
        format!("there is no user `{user}`; a package that makes it is missing")
    })?;
    Ok((entry[2].parse()?, entry[3].parse()?))
}

/// Removes what killed owners left behind.
fn remove_leftovers(parent: &Path, prefix: &str) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(prefix) {
            continue;
        }
        // Without the file, the folder is somebody else's, or is being made just now.
        let owner = File::open(entry.path().join(OWNER));
        if owner.is_ok_and(|owner| owner.try_lock().is_ok()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_and_removed() {
        let folder = Folder::create("folder-test").unwrap();
        let path = folder.path().to_owned();
        let second = Folder::create("folder-test").unwrap();
        assert!(path.join("site").is_dir(), "the second did not remove the first, which is in use");
        drop((folder, second));
        assert!(!path.exists());
    }

    #[test]
    fn what_nobody_owns_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let dead = parent.path().join("nicache-x-1");
        std::fs::create_dir(&dead).unwrap();
        File::create(dead.join(OWNER)).unwrap();
        let others = parent.path().join("nicache-x-2");
        std::fs::create_dir(&others).unwrap();
        remove_leftovers(parent.path(), "nicache-x-");
        assert!(!dead.exists() && others.exists());
    }
}
