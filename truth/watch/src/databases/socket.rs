//! Where a database server on this machine is reached.

use std::io;
use std::path::PathBuf;

use crate::processes::sockets_of;

/// Path of the socket that a server listens at in the file system.
pub(super) fn listening_socket(server: u32) -> io::Result<PathBuf> {
    let inodes = sockets_of(server);
    let table = std::fs::read_to_string(format!("/proc/{server}/net/unix"))?;
    let listening = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        // Num RefCount Protocol Flags Type St Inode Path; flag 0x10000 is "listens".
        let (flags, inode, path) = (*fields.get(3)?, fields.get(6)?.parse().ok()?, *fields.get(7)?);
        let listens = u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & 0x1_0000 != 0);
        (listens && inodes.contains(&inode) && path.starts_with('/')).then(|| PathBuf::from(path))
    });
    let mut listening: Vec<PathBuf> = listening.collect();
    listening.sort();
    listening.into_iter().next().ok_or_else(|| {
        io::Error::other(format!(
            "the server (process {server}) listens at no socket in the file system"
        ))
    })
}
