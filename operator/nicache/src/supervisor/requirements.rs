//! What is looked at before anything is built up: privileges and programs.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Result, bail};
use rustix::thread::CapabilitySet;

pub(crate) fn check_privilege(command: &str) -> Result<()> {
    let effective = rustix::thread::capabilities(None)?.effective;
    if !effective.contains(CapabilitySet::NET_ADMIN | CapabilitySet::SYS_ADMIN) {
        bail!(
            "nicache {command} needs root (CAP_NET_ADMIN and CAP_SYS_ADMIN) for its network interfaces: try `sudo nicache {command} ...`"
        );
    }
    Ok(())
}

/// Looks a program up as the shell would, so a typing error is found before anything is built
/// up.
pub(crate) fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if program.contains('/') {
        is_program(Path::new(program))
    } else {
        std::env::split_paths(&path).any(|folder| is_program(&folder.join(program)))
    }
}

pub(super) fn check_program(program: &str, demo: bool) -> Result<()> {
    match (is_in_path(program), demo) {
        (true, _) => Ok(()),
        (false, true) => bail!(
            "nginx is not installed, and the demonstration site needs it: run tools/setup (Debian, Ubuntu: apt-get install \
             nginx-light), or name another server: nicache run -- SERVER ARGS..."
        ),
        (false, false) => {
            bail!("the server program `{program}` was not found: is it installed, and in PATH?")
        }
    }
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}
