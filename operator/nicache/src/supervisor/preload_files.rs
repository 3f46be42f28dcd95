//! The files of `--watch preload`: the library that the server's programs load, and the folder of
//! the memory that they share with the watcher.
//!
//! Whoever can write the memory can have the card serve what is out of date. Programs of the server
//! run as any user, so the files are open to all; but nobody can list the folder above them, and
//! their own folder's name is random and told to these programs alone.

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nicache_secret::random_bytes;
use nicache_watch::{PRELOAD_LIBRARY, PRELOAD_VARIABLE};
use rustix::fs::{StatVfsMountFlags, statvfs};

/// Where the memory may be, best first: on a real disk each change would be written out now and
/// then.
const MEMORY_FOLDERS: [&str; 2] = ["/dev/shm/nicache", "/run/nicache"];
/// Where the library may be, unless programs may not be run from there.
const LIBRARY_FOLDERS: [&str; 3] = ["/run/nicache", "/var/lib/nicache", "/dev/shm/nicache"];
const LIBRARY: &str = "libnicache-preload.so";

/// The files of `--watch preload`: the library that the server's programs load, and the folder of
/// the memory that they share with the watcher. Dropping it removes everything.
#[derive(Debug)]
pub(super) struct PreloadFiles {
    /// Folder of the shared memory, empty at first.
    pub memory: PathBuf,
    /// The library's own file.
    object: PathBuf,
    folders: Vec<PathBuf>,
}

/// What a program does that loads the library.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    /// The program is a program of the server.
    Server,
    /// The program changes files.
    Writer,
}

impl PreloadFiles {
    /// Makes the folders, and writes the library. `name` is that of the instance.
    pub(super) fn create(name: &str) -> Result<Self> {
        let mut files =
            Self { memory: PathBuf::new(), object: PathBuf::new(), folders: Vec::new() };
        let memory = files.folder(&MEMORY_FOLDERS, name, "memory", |_| true)?;
        files.memory = memory.join(secret()?);
        make_folder(&files.memory, 0o711)?;
        let may_run = |folder: &Path| {
            statvfs(folder).is_ok_and(|system| !system.f_flag.contains(StatVfsMountFlags::NOEXEC))
        };
        files.object = files.folder(&LIBRARY_FOLDERS, name, "object", may_run)?.join(LIBRARY);
        std::fs::write(&files.object, PRELOAD_LIBRARY)
            .and_then(|()| {
                std::fs::set_permissions(&files.object, std::fs::Permissions::from_mode(0o755))
            })
            .with_context(|| format!("cannot write the library {}", files.object.display()))?;
        Ok(files)
    }

    /// What a program's environment must say.
    pub(super) fn environment(&self, part: Part) -> Vec<(String, String)> {
        let part = match part {
            Part::Server => "server",
            Part::Writer => "writer",
        };
        vec![
            ("LD_PRELOAD".into(), self.object.display().to_string()),
            (PRELOAD_VARIABLE.into(), format!("{part}:{}", self.memory.display())),
        ]
    }

    /// A folder of this instance in the first place that will do.
    fn folder(
        &mut self,
        places: &[&str],
        name: &str,
        what: &str,
        will_do: impl Fn(&Path) -> bool,
    ) -> Result<PathBuf> {
        for place in places.iter().map(Path::new) {
            // Others' folders that were left by a name that is free again are none of anybody's by
            // now.
            let folder = place.join(format!("{name}.{what}"));
            let made = place.parent().is_some_and(Path::is_dir)
                && make_folder(place, 0o755).is_ok()
                && will_do(place)
                && (!folder.exists() || std::fs::remove_dir_all(&folder).is_ok())
                && make_folder(&folder, 0o711).is_ok();
            if made {
                self.folders.push(folder.clone());
                return Ok(folder);
            }
        }
        bail!("--watch preload: no folder for its {what} can be made, tried {}", places.join(", "))
    }
}

impl Drop for PreloadFiles {
    fn drop(&mut self) {
        for folder in &self.folders {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// Removes what instances left behind that were killed. `is_dead` says of a name whether nobody has
/// it.
pub(super) fn remove_leftovers(is_dead: impl Fn(&str) -> bool) {
    let places = MEMORY_FOLDERS.iter().chain(&LIBRARY_FOLDERS).map(Path::new);
    for folder in places.flat_map(|place| std::fs::read_dir(place).into_iter().flatten().flatten())
    {
        let file_name = folder.file_name();
        let name = file_name
            .to_str()
            .and_then(|name| name.strip_suffix(".memory").or_else(|| name.strip_suffix(".object")));
        if name.is_some_and(&is_dead) {
            let _ = std::fs::remove_dir_all(folder.path());
        }
    }
}

fn make_folder(folder: &Path, mode: u32) -> Result<()> {
    std::fs::DirBuilder::new().recursive(mode == 0o755).mode(mode).create(folder)?;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode))?;
    Ok(())
}

fn secret() -> Result<String> {
    Ok(random_bytes::<16>()?.iter().map(|byte| format!("{byte:02x}")).collect())
}
