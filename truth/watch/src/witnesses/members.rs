//! Programs outside the server's network that are the server's all the same: PHP-FPM as a service
//! of the machine.
//!
//! The kernel follows them from their exec on (`ebpf/members.h`), by names that it is given here.
//! What runs already when its name is given is not a member: nobody has seen what it has in its
//! memory. It is one once it has begun anew, as PHP-FPM does when it is told to reload.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::witnesses::notes::Notes;

/// Longest name, in bytes: that of the kernel's key, without the end.
pub const MEMBER_NAME_BYTES_MAX: usize = NAME_BYTES - 1;

const NAME_BYTES: usize = 120;
/// A command as the kernel has it, without the end.
const COMMAND_BYTES_MAX: usize = 15;
/// Outsiders that are remembered. There are as many as the machine has versions of PHP.
const OUTSIDERS_MAX: usize = 16;

/// By what a program is a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberName {
    /// The program's command, the name of its file as in `/proc/PID/comm`, and the inode number of
    /// the network namespace that it is in.
    Command(String, u32),
    /// The unit of systemd whose control group (version 2) it is in, or in a group below: a part of
    /// the group's path.
    Unit(String),
}

/// The members, as the kernel knows them.
#[derive(Clone, Debug)]
pub struct Members {
    pub(crate) members: Notes,
    pub(crate) names: Arc<MapHandle>,
}

impl Members {
    /// Has every program that is started by this name from now on be a member.
    ///
    /// # Errors
    /// There are 16 names already, or this one is empty or too long.
    pub fn expect(&self, name: &MemberName) -> io::Result<()> {
        let key = key_of(name)
            .ok_or_else(|| io::Error::other(format!("{name:?} is empty or too long")))?;
        self.names.update(&key, &1u32.to_ne_bytes(), MapFlags::ANY).map_err(io::Error::other)
    }

    /// Is the process one?
    pub fn contains(&self, process: u32) -> bool {
        matches!(self.members.find([u64::from(process), 0]), Ok(Some(_)))
    }
}

/// `struct member_name`.
fn key_of(name: &MemberName) -> Option<[u8; 8 + NAME_BYTES]> {
    let (kind, netns, name, most) = match name {
        MemberName::Command(name, netns) => (1u32, *netns, name, COMMAND_BYTES_MAX),
        MemberName::Unit(name) => (2, 0, name, MEMBER_NAME_BYTES_MAX),
    };
    let mut key = [0; 8 + NAME_BYTES];
    key[..4].copy_from_slice(&kind.to_ne_bytes());
    key[4..8].copy_from_slice(&netns.to_ne_bytes());
    if name.is_empty() || name.len() > most {
        return None;
    }
    key[8..8 + name.len()].copy_from_slice(name.as_bytes());
    Some(key)
}

/// Programs that the server has asked, that would be members if they had begun after their names
/// were given.
#[derive(Debug, Default)]
pub(crate) struct Outsiders {
    processes: BTreeSet<u32>,
}

impl Outsiders {
    /// The server has asked this process, which is outside its network and no member. PHP-FPM is
    /// the server's, whoever has started it: from its next start on it is a member.
    pub(crate) fn observe(&mut self, process: u32, members: &Members) {
        if self.processes.contains(&process) {
            return;
        }
        let Ok(command) = std::fs::read_to_string(format!("/proc/{process}/comm")) else { return };
        let command = command.trim_end();
        let netns =
            std::fs::metadata(format!("/proc/{process}/ns/net")).map(|network| network.ino());
        let Ok(Ok(netns)) = netns.map(u32::try_from) else { return };
        if !is_php_fpm(command) || self.processes.len() >= OUTSIDERS_MAX {
            return;
        }
        match members.expect(&MemberName::Command(command.to_owned(), netns)) {
            Ok(()) => drop(self.processes.insert(process)),
            Err(error) => tracing::warn!(process, command, "cannot be followed: {error}"),
        }
    }

    /// Programs that still run as they were, for somebody who may tell them to begin anew.
    pub(crate) fn take(&mut self, members: &Members) -> Vec<u32> {
        self.processes.retain(|&process| !members.contains(process) && is_there(process));
        self.processes.iter().copied().collect()
    }
}

fn is_there(process: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{process}/comm"))
        .is_ok_and(|command| is_php_fpm(command.trim_end()))
}

/// Is this command PHP-FPM, as distributions call it: `php-fpm`, `php-fpm8.2`, `php8-fpm`,
/// `php82-php-fpm`?
pub fn is_php_fpm(command: &str) -> bool {
    command.starts_with("php") && command.contains("fpm")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_keys() {
        let command = key_of(&MemberName::Command("php-fpm8.2".into(), 7)).unwrap();
        assert_eq!(
            (&command[..4], &command[4..8]),
            (&1u32.to_ne_bytes()[..], &7u32.to_ne_bytes()[..])
        );
        assert_eq!(&command[8..19], b"php-fpm8.2\0");
        assert_ne!(key_of(&MemberName::Unit("php-fpm8.2".into())).unwrap(), command);
        assert!(key_of(&MemberName::Unit("u".repeat(MEMBER_NAME_BYTES_MAX))).is_some());
        for name in [
            MemberName::Unit(String::new()),
            MemberName::Unit("u".repeat(MEMBER_NAME_BYTES_MAX + 1)),
            MemberName::Command("c".repeat(COMMAND_BYTES_MAX + 1), 7),
        ] {
            assert_eq!(key_of(&name), None);
        }
        for command in ["php-fpm", "php-fpm8.2", "php8-fpm", "php82-php-fpm"] {
            assert!(is_php_fpm(command));
        }
        assert!(!is_php_fpm("php8.2") && !is_php_fpm("nginx"));
    }
}
