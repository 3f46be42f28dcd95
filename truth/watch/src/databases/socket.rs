//! Where a database server on this machine is reached.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::processes::sockets_of;

/// Path of the socket that a server listens at in the file system, as this process has to say it. A
/// server in a container may have another root, in which the same path is another socket.
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
    let path = listening.into_iter().next().ok_or_else(|| {
        io::Error::other(format!(
            "the server (process {server}) listens at no socket in the file system"
        ))
    })?;
    let root = PathBuf::from(format!("/proc/{server}/root"));
    let of_server = root.join(path.strip_prefix("/").unwrap_or(&path));
    let identity =
        |path: &Path| std::fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino()));
    let there = identity(&of_server)?;
    Ok(if identity(&path).is_ok_and(|here| here == there) { path } else { of_server })
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};

    use super::*;

    /// Listens at the path that it is given, and says its process's number.
    const SERVER: &str = "import os, socket, sys, time
s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); print(os.getpid(), flush=True)
sys.stdin.read()";

    #[test]
    fn a_socket_is_that_of_the_servers_own_root() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sock");
        let script = format!(
            "mount -t tmpfs tmpfs {} && exec python3 -c \"$0\" {}",
            folder.path().display(),
            path.display()
        );
        let mut in_container = Command::new("unshare");
        in_container.args(["--mount", "sh", "-c", &script, SERVER]);
        let mut beside = Command::new("python3");
        beside.args(["-c", SERVER]).arg(&path);
        for (mut command, is_here) in [(in_container, false), (beside, true)] {
            let mut server = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let mut line = String::new();
            BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
            let found = listening_socket(line.trim().parse().unwrap()).unwrap();
            assert_eq!(found == path, is_here, "{}", found.display());
            UnixStream::connect(&found).unwrap();
            drop(server.stdin.take());
            server.wait().unwrap();
        }
    }
}
