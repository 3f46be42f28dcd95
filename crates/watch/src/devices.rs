//! Device numbers as the kernel has them (`s_dev`), which is what its witnesses tell.
//!
//! Programs are told the same number, but on Btrfs: there each subvolume has one of its own, and the file system's is in
//! mountinfo alone (proc_pid_mountinfo(5)).

use std::collections::HashMap;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Statx, StatxFlags};

use crate::event::Identity;

/// What programs are told.
pub(crate) fn told_device(stat: &Statx) -> u32 {
    stat.stx_dev_major << 20 | stat.stx_dev_minor
}

/// Does `identity` mean the inode that `stat` is of (with its mount)?
pub(crate) fn is_identity_of(identity: Identity, stat: &Statx) -> bool {
    stat.stx_ino == identity.ino
        && (told_device(stat) == identity.dev || Mounts::default().device(stat.stx_mnt_id) == Some(identity.dev))
}

/// What the witnesses may call what the path leads to.
pub(crate) fn identities_at(path: &Path, flags: AtFlags) -> Vec<Identity> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    let Ok(stat) = rustix::fs::statx(CWD, path, flags, wanted) else { return Vec::new() };
    let devices = [Some(told_device(&stat)), Mounts::default().device(stat.stx_mnt_id)];
    devices.into_iter().flatten().map(|dev| Identity { dev, ino: stat.stx_ino }).collect()
}

/// Which file system is mounted where, by the number of the mount, as far as it was asked for.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    devices: HashMap<u64, u32>,
    /// Processes in whose mount namespaces mounts may be that this one does not have, and which were looked at.
    processes: Vec<(u32, bool)>,
    is_own_read: bool,
}

impl Mounts {
    /// The mounts of that process may be asked for, too.
    pub(crate) fn add_process(&mut self, process: u32) {
        if !self.processes.iter().any(|&(known, _)| known == process) {
            self.processes.push((process, false));
        }
    }

    /// Device number of the file system that is mounted there.
    pub(crate) fn device(&mut self, mount: u64) -> Option<u32> {
        if let Some(&device) = self.devices.get(&mount) {
            return Some(device);
        }
        if !std::mem::replace(&mut self.is_own_read, true) {
            self.read("/proc/thread-self/mountinfo");
        }
        while !self.devices.contains_key(&mount) {
            let (process, is_read) = self.processes.iter_mut().find(|(_, is_read)| !is_read)?;
            *is_read = true;
            let path = format!("/proc/{process}/mountinfo");
            self.read(&path);
        }
        self.devices.get(&mount).copied()
    }

    fn read(&mut self, path: &str) {
        let mounts = std::fs::read(path).unwrap_or_default();
        self.devices.extend(mounts.split(|&byte| byte == b'\n').filter_map(parse));
    }
}

/// Number and device of one mount.
fn parse(line: &[u8]) -> Option<(u64, u32)> {
    let mut fields = line.split(|&byte| byte == b' ').map(|field| std::str::from_utf8(field).ok());
    let mount = fields.next()??.parse().ok()?;
    let (major, minor) = fields.nth(1)??.split_once(':')?;
    Some((mount, major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_mountinfo() {
        let line = b"36 35 98:1000 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue";
        assert_eq!(parse(line), Some((36, 98 << 20 | 1000)));
        assert_eq!(parse(b"36 35 no /mnt1"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn the_device_of_the_root() {
        let stat =
            rustix::fs::statx(CWD, c"/proc", AtFlags::empty(), StatxFlags::BASIC_STATS | StatxFlags::MNT_ID).unwrap();
        assert_eq!(Mounts::default().device(stat.stx_mnt_id), Some(told_device(&stat)));
        assert_eq!(Mounts::default().device(u64::MAX), None);
        let mut of_others = Mounts { is_own_read: true, ..Mounts::default() };
        of_others.add_process(std::process::id());
        assert_eq!(of_others.device(stat.stx_mnt_id), Some(told_device(&stat)));
    }
}
