//! A logical unit for a first try and for measurements: a sparse file behind a real target (tgtd)
//! in a network of its own.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use nicache_device::Transport;
use nicache_initiator::{IscsiLun, IscsiOptions, LunError, TargetUrl};
use nicache_target::{Target, TargetOptions};
use tempfile::TempDir;

/// A running target over a sparse file. Both go with it.
#[derive(Debug)]
pub struct Demo {
    // The target first: it has the file open.
    target: Target,
    folder: TempDir,
}

impl Demo {
    /// What is missing on this machine, if anything: a program, or root.
    pub fn missing() -> Option<&'static str> {
        nicache_target::missing().or_else(|| Transport::default().missing())
    }

    /// Starts a target with a unit of `bytes` in a new folder below `below`. The calling thread
    /// must live as long as the target.
    pub fn start(below: &Path, bytes: u64) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("nicache-nfs-").tempdir_in(below)?;
        let image = folder.path().join("unit");
        File::create(&image)?.set_len(bytes)?;
        let target = Target::start(&image, &TargetOptions::default())?;
        Ok(Self { target, folder })
    }

    /// The file of the unit.
    pub fn image(&self) -> PathBuf {
        self.folder.path().join("unit")
    }

    /// Removes the file's name now, so nothing is left however this process ends. The target
    /// still has it.
    pub fn forget_image(&self) -> io::Result<()> {
        fs::remove_file(self.image())?;
        fs::remove_dir(self.folder.path())
    }

    /// The unit's address in the target's network.
    pub fn url(&self) -> String {
        self.target.url()
    }

    /// Logs in. The session is in the target's network; the calling thread stays in its own.
    pub fn open_unit(&self, options: &IscsiOptions) -> Result<IscsiLun, LunError> {
        let refused = |reason: String| LunError::Refused { lun: self.url(), reason };
        let url: TargetUrl = self.url().parse().map_err(|error| refused(format!("{error}")))?;
        std::thread::scope(|scope| {
            let open = || {
                self.target.enter().map_err(|error| refused(error.to_string()))?;
                IscsiLun::open(&url, options)
            };
            scope.spawn(open).join().unwrap_or_else(|_| Err(refused("the thread ended".to_owned())))
        })
    }
}
