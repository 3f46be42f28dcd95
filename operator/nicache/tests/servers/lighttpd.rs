//! lighttpd.

use super::site::Folder;
use super::stage::{Stage, Traits, is_there};
use super::{cases, edits};

fn command(folder: &Folder) -> Vec<String> {
    let file = folder.write(
        "lighttpd.conf",
        "server.document-root = \"@FOLDER@/site\"
         server.port = 80
         server.username = \"www-data\"
         server.groupname = \"www-data\"
         server.pid-file = \"@FOLDER@/lighttpd.pid\"
         server.modules = ( \"mod_dirlisting\" )
         index-file.names = ( \"index.html\" )
         dir-listing.activate = \"enable\"
         mimetype.assign = ( \".html\" => \"text/html\", \".txt\" => \"text/plain\", \"\" => \"application/octet-stream\" )
        ",
    );
    ["lighttpd", "-D", "-f", &file].map(str::to_owned).to_vec()
}

#[test]
fn files() {
    if !is_there("lighttpd") {
        return;
    }
    // It remembers for up to two seconds what it has looked up.
    let traits = Traits { keeps_files: true, ..Traits::default() };
    let stage = Stage::new("lighttpd", traits, &[], command);
    cases::check(&stage);
    edits::check(&stage);
}
