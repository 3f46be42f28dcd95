//! Folders that take long to fill: each is filled once in a process, and copied afterwards.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};

/// What is copied, once there is something. It is an archive in a file without a name, so nothing
/// is left of it when the process ends, however it ends.
pub(crate) struct Template(Mutex<Option<Arc<File>>>);

impl Template {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Fills a folder: the first one by `make`, and the others with a copy of what that left there,
    /// with its owners and modes. Whatever writes into the folder must have ended when `make`
    /// returns.
    pub(crate) fn fill(&self, folder: &Path, make: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut archive = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = archive.clone() {
            drop(archive);
            return unpack(&made, folder);
        }
        make()?;
        *archive = Some(Arc::new(pack(folder)?));
        Ok(())
    }
}

fn pack(folder: &Path) -> Result<File> {
    let file = tempfile::tempfile_in(folder)?;
    let mut command = tar(folder);
    command.args(["--create", "--sparse", "."]).stdout(file.try_clone()?);
    run(&mut command, Stdio::null())?;
    Ok(file)
}

fn unpack(archive: &File, folder: &Path) -> Result<()> {
    // Opened anew, because several threads may read it, each from its beginning.
    let archive = File::open(format!("/proc/self/fd/{}", archive.as_raw_fd()))?;
    run(tar(folder).args(["--extract", "--same-owner", "--preserve-permissions"]), archive.into())
}

fn tar(folder: &Path) -> Command {
    let mut command = Command::new("tar");
    // Without a name it might be whatever `TAPE` says.
    command.args(["--file=-", "--numeric-owner", "--directory"]).arg(folder);
    command
}

fn run(command: &mut Command, input: Stdio) -> Result<()> {
    let child = command.stdin(input).stderr(Stdio::piped()).spawn();
    let output = child.context("cannot run `tar`")?.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`tar` {}: {}", output.status, said.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    use std::os::unix::net::UnixListener;

    use anyhow::bail;
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn the_others_are_like_the_first() {
        let template = Template::new();
        let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let [first, others @ ..] = folders.each_ref().map(TempDir::path);
        let sparse = || {
            let file = File::create(first.join("sparse"))?;
            file.set_len(1 << 30)?;
            chown(first.join("sparse"), Some(12), Some(34))?;
            chown(first, Some(56), Some(78))?;
            std::fs::set_permissions(first, PermissionsExt::from_mode(0o750))?;
            // What made the folder has ended, so nobody would listen at it.
            drop(UnixListener::bind(first.join("socket"))?);
            Ok(())
        };
        assert!(template.fill(first, || bail!("nothing made")).is_err());
        template.fill(first, sparse).unwrap();
        // At the same time, and also when the first is gone.
        std::fs::remove_dir_all(first).unwrap();
        std::thread::scope(|scope| {
            for folder in others {
                let fill = || template.fill(folder, || bail!("made twice"));
                scope.spawn(move || fill().unwrap());
            }
        });
        for folder in others {
            let [top, file] = [folder.to_owned(), folder.join("sparse")]
                .map(|path| std::fs::metadata(path).unwrap());
            assert_eq!((top.uid(), top.gid(), top.mode() & 0o7777), (56, 78, 0o750));
            assert_eq!((file.uid(), file.gid(), file.len()), (12, 34, 1 << 30));
            assert!(file.blocks() < 1000, "{} blocks", file.blocks());
            assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1);
        }
    }
}
