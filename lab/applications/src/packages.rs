//! Debian's packages: which are missing, and how they are installed without starting any service.

use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::program::succeed;

/// `invoke-rc.d` asks this program before it starts a service.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Which of `packages` are not installed; on a machine without `dpkg` none is.
pub(crate) fn missing<'a>(packages: &[&'a str]) -> Vec<&'a str> {
    let query = Command::new("dpkg-query")
        .args(["-W", "-f", "${Package} ${db:Status-Status}\n"])
        .args(packages)
        .output();
    let text = query
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    let installed = |package: &str| {
        text.lines().any(|line| line.split_once(' ') == Some((package, "installed")))
    };
    packages.iter().copied().filter(|package| !installed(package)).collect()
}

/// Installs packages with `apt-get`; no service is started by that.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    let list = packages.join(" ");
    if !rustix::process::geteuid().is_root() {
        bail!(
            "installing packages needs root: run `sudo apt-get install --no-install-recommends {list}`"
        );
    }
    let _no_services = NoServices::begin()?;
    let apt = || {
        let mut command = Command::new("apt-get");
        command
            .args(["-q", "-y", "-o", "DPkg::Lock::Timeout=300"])
            .env("DEBIAN_FRONTEND", "noninteractive");
        command.stdin(Stdio::null());
        command
    };
    let install = || succeed(apt().args(["install", "--no-install-recommends"]).args(packages));
    // The package lists may be old or absent, so a failure is tried once more with fresh ones.
    if install().is_err() {
        succeed(apt().arg("update")).context("apt-get update failed; is there no network?")?;
        install().with_context(|| format!("cannot install {list}"))?;
    }
    Ok(())
}

/// Keeps packages from starting services until dropped, unless something else does so already.
struct NoServices {
    made: bool,
}

impl NoServices {
    fn begin() -> Result<Self> {
        let mut options = std::fs::OpenOptions::new();
        match options.write(true).create_new(true).mode(0o755).open(POLICY) {
            Ok(mut file) => {
                let begun = Self { made: true };
                file.write_all(b"#!/bin/sh\nexit 101\n")?;
                file.set_permissions(std::fs::Permissions::from_mode(0o755))?;
                Ok(begun)
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                Ok(Self { made: false })
            }
            Err(error) => Err(error).with_context(|| format!("cannot write {POLICY}")),
        }
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.made {
            let _ = std::fs::remove_file(Path::new(POLICY));
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_installed_is_not_missing() {
        assert_eq!(super::missing(&["dpkg", "no-such-package-at-all"]), ["no-such-package-at-all"]);
    }
}
