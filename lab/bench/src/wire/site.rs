//! What is served: one file per object size, and the configuration of nginx that all subjects
//! share.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use nicache_random::SplitMix64;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::cpu::Cpus;

/// What the report says about nginx.
pub(crate) const NGINX_SETTINGS: &str = "a worker for each CPU it has, sendfile on, tcp_nopush on, open_file_cache on (checked once a second), access_log off, \
     keepalive_requests unlimited";

/// A file and how it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Bytes of the body.
    pub bytes: u64,
    /// Connections at a time.
    pub connections: u32,
}

/// All objects, small to large. A large reply fills the pipe with few connections.
pub(crate) const OBJECTS: [Object; 5] = [
    Object { bytes: 1, connections: 64 },
    Object { bytes: 100, connections: 64 },
    Object { bytes: 10_000, connections: 64 },
    Object { bytes: 100_000, connections: 16 },
    Object { bytes: 1_000_000, connections: 4 },
];

impl Object {
    /// The object's size as people say it, such as "10 KB".
    pub fn label(&self) -> String {
        match self.bytes {
            bytes if bytes >= 1_000_000 => format!("{} MB", bytes / 1_000_000),
            bytes if bytes >= 1_000 => format!("{} KB", bytes / 1_000),
            bytes => format!("{bytes} B"),
        }
    }

    /// The object's request target.
    pub fn path(&self) -> String {
        format!("/object-{}", self.bytes)
    }

    /// The body: not compressible, and different at every place.
    pub fn body(&self) -> Vec<u8> {
        let mut random = SplitMix64::new(self.bytes);
        (0..self.bytes).map(|_| random.next_u64() as u8).collect()
    }
}

const PREFIX: &str = "nicache-bench-";
/// File with the number of the process whose folder this is.
const OWNER: &str = "pid-of-owner";

/// Files and configurations in a temporary folder on disk (what is on tmpfs cannot be watched, so
/// the card would not store it).
#[derive(Debug)]
pub(crate) struct Site {
    folder: TempDir,
}

impl Site {
    /// Writes everything below `parent`, and removes what a killed run left there.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(crate) fn create(parent: &Path) -> Result<Self> {
        remove_leftovers(parent);
        let folder = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in(parent)
            .with_context(|| format!("cannot make a folder below {}", parent.display()))?;
        std::fs::write(folder.path().join(OWNER), std::process::id().to_string())?;
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
        let files = folder.path().join("site");
        std::fs::create_dir(&files)?;
        for object in OBJECTS {
            std::fs::write(files.join(&object.path()[1..]), object.body())?;
        }
        let root = folder.path().display();
        for (name, file_cache) in [("nginx.conf", FILE_CACHE), ("nginx-plain.conf", "")] {
            std::fs::write(folder.path().join(name), nginx_conf(&root.to_string(), file_cache))?;
        }
        Ok(Self { folder })
    }

    /// The folder, for logs.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The folder with the objects.
    pub(crate) fn files(&self) -> std::path::PathBuf {
        self.folder.path().join("site")
    }

    /// Command of nginx with a cache of open files, and a worker for each of `cpus`.
    pub(crate) fn nginx(&self, cpus: Cpus) -> Vec<String> {
        self.nginx_with("nginx.conf", cpus)
    }

    /// Command of nginx without that cache.
    pub(crate) fn nginx_plain(&self, cpus: Cpus) -> Vec<String> {
        self.nginx_with("nginx-plain.conf", cpus)
    }

    fn nginx_with(&self, conf: &str, cpus: Cpus) -> Vec<String> {
        let folder = self.folder.path().display();
        let workers = format!("worker_processes {};", cpus.count());
        ["nginx", "-p", &folder.to_string(), "-c", &format!("{folder}/{conf}"), "-g", &workers]
            .map(str::to_owned)
            .to_vec()
    }
}

fn remove_leftovers(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let owner = std::fs::read_to_string(entry.path().join(OWNER));
        let gone = owner.is_ok_and(|pid| !Path::new("/proc").join(pid.trim()).exists());
        if gone && entry.file_name().to_string_lossy().starts_with(PREFIX) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// The file cache makes nginx about a third faster. Once a second it looks whether the file is
/// still the same: only a reply for which nginx has looked is one that the card may store.
const FILE_CACHE: &str = "open_file_cache max=1000 inactive=60s; open_file_cache_valid 1s;";

fn nginx_conf(root: &str, file_cache: &str) -> String {
    format!(
        "daemon off;
pid {root}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 4096; }}
http {{
    default_type application/octet-stream;
    sendfile on;
    tcp_nopush on;
    {file_cache}
    keepalive_requests 1000000000;
    access_log off;
    client_body_temp_path {root}/temp-body;
    proxy_temp_path {root}/temp-proxy;
    fastcgi_temp_path {root}/temp-fastcgi;
    uwsgi_temp_path {root}/temp-uwsgi;
    scgi_temp_path {root}/temp-scgi;
    server {{
        listen 80 backlog=4096;
        root {root}/site;
    }}
}}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_the_dead_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let dead = parent.path().join(format!("{PREFIX}dead"));
        std::fs::create_dir(&dead).unwrap();
        std::fs::write(dead.join(OWNER), "4194999").unwrap();
        let mine = Site::create(parent.path()).unwrap();
        let other = Site::create(parent.path()).unwrap();
        assert!(!dead.exists());
        assert!(mine.folder().exists() && other.folder().exists());
    }

    #[test]
    fn objects_have_their_size_and_do_not_repeat() {
        let body = OBJECTS[2].body();
        assert_eq!(body.len(), 10_000);
        assert_ne!(body[..5_000], body[5_000..]);
        assert_eq!(
            OBJECTS.map(|object| object.label()),
            ["1 B", "100 B", "10 KB", "100 KB", "1 MB"]
        );
    }
}
