//! What `nicache run` serves when it is given no server: a small site behind nginx.
//!
//! The files are unpacked below `/var/lib`, which is on a disk file system almost everywhere, and
//! in which nobody makes and deletes files all the time: that would void the card's entries.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use tempfile::TempDir;

const PREFIX: &str = "nicache-demo-";

macro_rules! site {
    ($($name:literal),* $(,)?) => {
        &[$(($name,
            include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo/site/", $name)))),*]
    };
}

/// The site's files.
const SITE: &[(&str, &[u8])] = site!["index.html", "style.css", "card.svg", "about.html"];

/// The configuration; `@ROOT@` and `@PORT@` are filled in.
const NGINX_CONF: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo/nginx.conf"));

/// An unpacked site, removed when dropped.
#[derive(Debug)]
pub(crate) struct Demo {
    folder: TempDir,
}

impl Demo {
    /// Unpacks site and configuration.
    pub(crate) fn unpack(port: u16) -> Result<Self> {
        let parent = Path::new("/var/lib");
        remove_leftovers(parent);
        let folder = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in(parent)
            .context("cannot make a folder for the demonstration site below /var/lib")?;
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
        std::fs::write(folder.path().join("pid-of-owner"), std::process::id().to_string())?;
        let site = folder.path().join("site");
        std::fs::create_dir(&site)?;
        for (name, content) in SITE {
            std::fs::write(site.join(name), content)?;
        }
        std::fs::write(site.join("large.txt"), large_file())?;
        let root = folder
            .path()
            .to_str()
            .context("the path of the demonstration site is not valid UTF-8")?;
        let configuration = NGINX_CONF.replace("@ROOT@", root).replace("@PORT@", &port.to_string());
        std::fs::write(folder.path().join("nginx.conf"), configuration)?;
        Ok(Self { folder })
    }

    /// The site's folder, where files can be edited.
    pub(crate) fn site(&self) -> std::path::PathBuf {
        self.folder.path().join("site")
    }

    /// The command that serves it.
    pub(crate) fn command(&self) -> Vec<String> {
        let configuration = self.folder.path().join("nginx.conf").to_string_lossy().into_owned();
        let prefix = self.folder.path().to_string_lossy().into_owned();
        vec!["nginx".into(), "-p".into(), prefix, "-c".into(), configuration]
    }
}

/// A megabyte of numbered lines, for trying out larger transfers.
fn large_file() -> String {
    let mut text = String::with_capacity(1 << 20);
    for line in 0..(1 << 20) / 64 {
        text.push_str(&format!(
            "{line:07} the quick brown fox jumps over the lazy dog, twice a day\n"
        ));
    }
    text
}

/// Removes what a killed nicache left behind.
fn remove_leftovers(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let owner = std::fs::read_to_string(entry.path().join("pid-of-owner"));
        let gone = owner.is_ok_and(|pid| !Path::new("/proc").join(pid.trim()).exists());
        if gone {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpacked_and_removed() {
        let demo = Demo::unpack(8080).unwrap();
        let folder = demo.folder.path().to_owned();
        let configuration = std::fs::read_to_string(folder.join("nginx.conf")).unwrap();
        assert!(
            configuration.contains("listen 8080") && !configuration.contains('@'),
            "{configuration}"
        );
        assert!(demo.site().join("index.html").exists());
        drop(demo);
        assert!(!folder.exists());
    }
}
