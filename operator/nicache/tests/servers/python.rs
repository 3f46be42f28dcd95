//! Python's `http.server`, as it is started by hand.

use super::site::Folder;
use super::stage::{Stage, Traits};
use super::{cases, edits};

fn command(folder: &Folder, protocol: &str) -> Vec<String> {
    let root = folder.root().to_str().unwrap().to_owned();
    // Debian's, whatever comes first in PATH.
    [
        "/usr/bin/python3",
        "-m",
        "http.server",
        "80",
        "--bind",
        "0.0.0.0",
        "--directory",
        &root,
        "--protocol",
        protocol,
    ]
    .map(str::to_owned)
    .to_vec()
}

fn check(name: &'static str, protocol: &str) {
    let traits = Traits { is_root: true, ..Traits::default() };
    let stage = Stage::new(name, traits, &[], |folder| command(folder, protocol));
    cases::check(&stage);
    edits::check(&stage);
}

#[test]
fn closing_each_connection() {
    check("Python, HTTP/1.0", "HTTP/1.0");
}

#[test]
fn keeping_connections() {
    check("Python, HTTP/1.1", "HTTP/1.1");
}
