//! IPv4 forwarding, switched on while some nicache needs it.
//!
//! The setting belongs to the whole network namespace and several nicaches may need it, so the last one puts back what the first one found. They find
//! each other by a file in the run folder on which each holds a shared lock. A nicache that is killed leaves the file behind; the next one
//! takes the value from it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};

use super::set_sysctl;
use crate::control::run_folder;

const SETTING: &str = "net/ipv4/ip_forward";
const PREFIX: &str = "ip_forward.";

/// A claim to forwarding; dropping the last one restores the setting.
#[derive(Debug)]
pub struct Forwarding {
    file: File,
}

impl Forwarding {
    /// Switches forwarding on.
    pub fn switch_on() -> Result<Forwarding> {
        let netns = std::fs::metadata("/proc/thread-self/ns/net")?.ino();
        let path = run_folder().join(format!("{PREFIX}{netns}"));
        remove_leftovers(&path);
        let mut options = OpenOptions::new();
        let opened = options.read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = opened.with_context(|| format!("cannot open {}", path.display()))?;
        flock(&file, FlockOperation::LockShared)?;
        let current =
            std::fs::read_to_string(format!("/proc/sys/{SETTING}")).context("cannot read net.ipv4.ip_forward")?;
        if current.trim() != "1" {
            set_sysctl(SETTING, "1").context("clients on other machines need IPv4 forwarding")?;
            file.rewind()?;
            file.write_all(current.trim().as_bytes())?;
            tracing::info!("switched on net.ipv4.ip_forward; it goes off again with the last nicache that needs it");
        }
        Ok(Forwarding { file })
    }

    fn restore(&mut self) -> Result<()> {
        // Only the last holder gets the exclusive lock.
        if flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(());
        }
        let mut before = String::new();
        self.file.rewind()?;
        self.file.read_to_string(&mut before)?;
        if !before.is_empty() {
            set_sysctl(SETTING, &before)?;
            self.file.set_len(0)?;
        }
        Ok(())
    }
}

/// Removes the files of other network namespaces that nobody holds, since a namespace made later may get the same number.
fn remove_leftovers(own: &Path) {
    for entry in std::fs::read_dir(run_folder()).into_iter().flatten().flatten() {
        let path = entry.path();
        if path == own || !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let Ok(file) = File::open(&path) else {
            continue;
        };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = std::fs::remove_file(&path);
        }
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        if let Err(error) = self.restore() {
            tracing::warn!("net.ipv4.ip_forward stays on: {error:#}");
        }
    }
}
