//! What runs in namespaces.

#![allow(dead_code)]

use std::path::Path;

pub(crate) use nicache_namespaces::{Namespace, Process};

/// An nginx that says its name and who asks, and has a file.
pub(crate) fn nginx(namespace: &Namespace, folder: &Path, name: &str, listen: &str) -> Process {
    let folder = folder.join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let at = folder.display();
    let configuration = format!(
        "daemon off; worker_processes 1; pid {at}/pid; error_log {at}/error.log; user root;
         events {{ worker_connections 256; }}
         http {{ access_log off; sendfile on; client_body_temp_path {at}/t1; proxy_temp_path {at}/t2; fastcgi_temp_path {at}/t3;
           uwsgi_temp_path {at}/t4; scgi_temp_path {at}/t5; default_type text/plain;
           server {{ listen {listen}; location /who {{ return 200 '{name} $remote_addr'; }} location / {{ root {at}/..; }} }} }}"
    );
    std::fs::write(folder.join("nginx.conf"), configuration).unwrap();
    let (conf, log) = (folder.join("nginx.conf"), folder.join("error.log"));
    namespace.start("nginx", &["-c", conf.to_str().unwrap(), "-e", log.to_str().unwrap()])
}
