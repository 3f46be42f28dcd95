//! Forwarding of IPv4 or IPv6, switched on while some nicache needs it.
//!
//! The setting belongs to the whole network namespace and several nicaches may need it, so the last
//! one puts back what the first one found. They find each other by a file in the run folder on
//! which each holds a shared lock. A nicache that is killed leaves the file behind; the next one
//! takes the value from it.
//!
//! A machine that forwards IPv6 takes no further routes from routers, and drops those that it has,
//! unless `accept_ra` is 2 (ip-sysctl). So what is 1 is set to 2 first: the machine keeps its own
//! way out.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::io::retry_on_intr;

use super::sysctl::set_sysctl;
use crate::control::run_folder;

/// What is forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IpVersion {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl IpVersion {
    /// Beginning of the names of files.
    fn prefix(self) -> &'static str {
        match self {
            Self::V4 => "forwarding4.",
            Self::V6 => "forwarding6.",
        }
    }

    fn setting(self) -> &'static str {
        match self {
            Self::V4 => "net/ipv4/ip_forward",
            Self::V6 => "net/ipv6/conf/all/forwarding",
        }
    }

    /// What is to be set, in this order, where it is something else now.
    fn wanted(self) -> Vec<(String, &'static str)> {
        let mut wanted = Vec::new();
        if self == Self::V6 {
            let interfaces =
                std::fs::read_dir("/proc/sys/net/ipv6/conf").into_iter().flatten().flatten();
            let names = interfaces.map(|entry| entry.file_name().to_string_lossy().into_owned());
            let accepts = |name: &String| {
                value_of(&format!("net/ipv6/conf/{name}/accept_ra")).is_ok_and(|value| value == "1")
            };
            wanted.extend(
                names.filter(accepts).map(|name| (format!("net/ipv6/conf/{name}/accept_ra"), "2")),
            );
        }
        wanted.push((self.setting().to_owned(), "1"));
        wanted
    }
}

fn value_of(setting: &str) -> Result<String> {
    let value = std::fs::read_to_string(format!("/proc/sys/{setting}"));
    Ok(value.with_context(|| format!("cannot read {setting}"))?.trim().to_owned())
}

/// A claim to forwarding; dropping the last one restores the setting.
#[derive(Debug)]
pub(super) struct Forwarding {
    version: IpVersion,
    file: File,
}

impl Forwarding {
    /// Switches forwarding on.
    pub(super) fn switch_on(version: IpVersion) -> Result<Self> {
        let netns = std::fs::metadata("/proc/thread-self/ns/net")?.ino();
        let path = run_folder().join(format!("{}{netns}", version.prefix()));
        remove_leftovers(&path, version.prefix());
        let mut options = OpenOptions::new();
        let opened = options.read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = opened.with_context(|| format!("cannot open {}", path.display()))?;
        retry_on_intr(|| flock(&file, FlockOperation::LockShared))?;
        if value_of(version.setting())? != "1" {
            let mut before = String::new();
            let wanted = version.wanted();
            for (setting, _) in &wanted {
                before += &format!("{setting} {}\n", value_of(setting)?);
            }
            // Written down before it is done: who is killed meanwhile has it put back by the next
            // one.
            file.set_len(0)?;
            file.rewind()?;
            file.write_all(before.as_bytes())?;
            for (setting, value) in &wanted {
                set_sysctl(setting, value).context("clients on other machines need forwarding")?;
            }
            let setting = version.setting().replace('/', ".");
            tracing::info!(
                "switched on {setting}; it goes off again with the last nicache that needs it"
            );
        }
        Ok(Self { version, file })
    }

    fn restore(&mut self) -> Result<()> {
        // Only the last holder gets the exclusive lock.
        if flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(());
        }
        let mut before = String::new();
        self.file.rewind()?;
        self.file.read_to_string(&mut before)?;
        // Interfaces may have gone meanwhile.
        let there = |setting: &str| std::path::Path::new("/proc/sys").join(setting).exists();
        let lines = before.lines().rev().filter_map(|line| line.split_once(' '));
        for (setting, value) in lines.filter(|(setting, _)| there(setting)) {
            set_sysctl(setting, value)?;
        }
        self.file.set_len(0)?;
        Ok(())
    }
}

/// Removes the files of other network namespaces that nobody holds, because a namespace made later
/// may get the same number.
fn remove_leftovers(own: &Path, prefix: &str) {
    for entry in std::fs::read_dir(run_folder()).into_iter().flatten().flatten() {
        let path = entry.path();
        if path == own || !entry.file_name().to_string_lossy().starts_with(prefix) {
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
            tracing::warn!("{} stays on: {error:#}", self.version.setting().replace('/', "."));
        }
    }
}
