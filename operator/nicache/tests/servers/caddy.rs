//! Caddy's file server.

use super::site::Folder;
use super::stage::{Stage, Traits, is_there};
use super::{cases, edits};

fn command(folder: &Folder) -> Vec<String> {
    let file = folder.write(
        "Caddyfile",
        "{
           admin off
           auto_https off
         }
         :80 {
           root * @FOLDER@/site
           encode gzip
           file_server
         }
        ",
    );
    ["caddy", "run", "--adapter", "caddyfile", "--config", &file].map(str::to_owned).to_vec()
}

#[test]
fn files() {
    if !is_there("caddy") {
        return;
    }
    let traits = Traits { is_root: true, ..Traits::default() };
    let stage = Stage::new("Caddy", traits, &[], command);
    cases::check(&stage);
    edits::check(&stage);
}
