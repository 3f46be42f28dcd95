//! What runs in namespaces.

#![allow(dead_code)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use nicache_namespaces::wait_for_listener;
pub(crate) use nicache_namespaces::{Namespace, Process};

/// An nginx that says its name and who asks, and has a file; it listens.
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
    let nginx =
        namespace.start("nginx", &["-c", conf.to_str().unwrap(), "-e", log.to_str().unwrap()]);
    for address in listen.split("; listen ").map(|address| address.parse().unwrap()) {
        namespace.run(move || wait_for_listener(address, Duration::from_secs(20)));
    }
    nginx
}

/// Answers each request with its body.
pub(crate) fn send_back(listener: &TcpListener) {
    for stream in listener.incoming() {
        let mut stream = BufReader::new(stream.unwrap());
        let (mut line, mut len) = (String::new(), 0);
        while stream.read_line(&mut line).is_ok_and(|bytes| bytes > 0) && line != "\r\n" {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                len = value.trim().parse().unwrap();
            }
            line.clear();
        }
        let mut body = vec![0; len];
        if stream.read_exact(&mut body).is_err() {
            continue;
        }
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n");
        let _ = stream.get_mut().write_all(&[head.as_bytes(), &body].concat());
    }
}
