//! nginx: sendfile, without it, and with descriptors that it keeps.

use super::site::Folder;
use super::stage::{Stage, Traits};
use super::{cases, edits};

const SENDFILE: &str = "sendfile on;";
const KEEPS: &str =
    "sendfile on; open_file_cache max=1000 inactive=60s; open_file_cache_valid 1s; open_file_cache_errors on;";

fn command(folder: &Folder, http: &str) -> Vec<String> {
    let file = folder.write(
        "nginx.conf",
        &format!(
            "worker_processes 2; user www-data; pid @FOLDER@/pid; error_log @FOLDER@/error.log;
             events {{}}
             http {{
               access_log off; types {{ text/html html; text/plain txt; application/octet-stream bin; }}
               client_body_temp_path @FOLDER@/t1; proxy_temp_path @FOLDER@/t2; fastcgi_temp_path @FOLDER@/t3;
               uwsgi_temp_path @FOLDER@/t4; scgi_temp_path @FOLDER@/t5;
               gzip_static on; gzip_vary on; {http}
               server {{ listen 80; root @FOLDER@/site; }}
             }}"
        ),
    );
    ["nginx", "-c", &file, "-g", "daemon off;"].map(str::to_owned).to_vec()
}

fn stage(name: &'static str, options: &[&str], http: &str) -> Stage {
    let traits = Traits { keeps_files: http == KEEPS, ..Traits::default() };
    Stage::new(name, traits, options, |folder| command(folder, http))
}

#[test]
fn with_sendfile() {
    let stage = stage("nginx", &[], SENDFILE);
    cases::check(&stage);
    edits::check(&stage);
}

#[test]
fn with_sendfile_and_the_card_s_handshake() {
    let stage = stage("nginx", &["--handshake", "card"], SENDFILE);
    cases::check(&stage);
    edits::check(&stage);
}

#[test]
fn without_sendfile() {
    let stage = stage("nginx, no sendfile", &[], "sendfile off;");
    cases::check(&stage);
    edits::check(&stage);
}

#[test]
fn with_open_file_cache() {
    let stage = stage("nginx, open_file_cache", &[], KEEPS);
    cases::check(&stage);
    edits::check(&stage);
}

#[test]
fn reloaded() {
    let stage = stage("nginx", &[], SENDFILE);
    let configuration = command(&stage.folder, SENDFILE)[2].clone();
    edits::reload(&stage, || {
        let text = std::fs::read_to_string(&configuration).unwrap();
        let text = text.replace("listen 80;", "listen 80; add_header X-Configuration new always;");
        std::fs::write(&configuration, text).unwrap();
    });
}
