//! What is served: a file of each size, by an nginx that listens on both versions of IP.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::wire::Object;

/// Files and configuration in a temporary folder on disk (what is on tmpfs cannot be watched, so
/// the card would not store it).
#[derive(Debug)]
pub(crate) struct Site {
    folder: TempDir,
    bodies: Vec<Vec<u8>>,
}

impl Site {
    /// Writes files of these sizes below `parent`.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(crate) fn create(parent: &Path, sizes: &[u64]) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("nicache-impair-")
            .tempdir_in(parent)
            .with_context(|| format!("cannot make a folder below {}", parent.display()))?;
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
        let files = folder.path().join("site");
        std::fs::create_dir(&files)?;
        let mut bodies = Vec::new();
        for &bytes in sizes {
            let object = Object { bytes, connections: 1 };
            bodies.push(object.body());
            std::fs::write(files.join(&object.path()[1..]), object.body())?;
        }
        Ok(Self { folder, bodies })
    }

    /// The folder, for logs.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Command of one nginx, which has a folder of this name for itself.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(crate) fn nginx(&self, name: &str) -> Result<Vec<String>> {
        let own = self.folder.path().join(name);
        std::fs::create_dir_all(&own)?;
        let (root, own) = (self.folder.path().display(), own.display().to_string());
        std::fs::write(format!("{own}/nginx.conf"), nginx_conf(&root.to_string(), &own))?;
        Ok(["nginx", "-p", &own, "-c", &format!("{own}/nginx.conf")].map(str::to_owned).to_vec())
    }

    /// Whether this is the body of the file of so many bytes, or its beginning.
    pub(crate) fn is_body(&self, bytes: u64, start: &[u8]) -> bool {
        self.bodies.iter().any(|body| body.len() as u64 == bytes && body.starts_with(start))
    }
}

fn nginx_conf(root: &str, own: &str) -> String {
    format!(
        "daemon off;
worker_processes 1;
pid {own}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 4096; }}
http {{
    default_type application/octet-stream;
    sendfile on;
    tcp_nopush on;
    access_log off;
    log_not_found off;
    client_body_temp_path {own}/temp-body;
    proxy_temp_path {own}/temp-proxy;
    fastcgi_temp_path {own}/temp-fastcgi;
    uwsgi_temp_path {own}/temp-uwsgi;
    scgi_temp_path {own}/temp-scgi;
    server {{
        listen 80 backlog=4096;
        listen [::]:80 backlog=4096 ipv6only=on;
        root {root}/site;
    }}
}}
"
    )
}
