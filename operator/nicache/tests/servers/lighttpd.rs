//! lighttpd.

use std::time::{Duration, UNIX_EPOCH};

use super::site::Folder;
use super::stage::{Stage, Traits, get, is_there};
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
    lists(&stage);
    edits::check(&stage);
}

/// A list of a folder shows sizes and times. It looks names up below a descriptor, which is closed
/// when it is judged.
fn lists(stage: &Stage) {
    let (folder, request) = (stage.folder.path("listed"), get("/listed/", ""));
    std::fs::create_dir(&folder).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    write("one.txt", "1");
    write("two.txt", "22");
    let old = || {
        let file = std::fs::File::options().append(true).open(folder.join("two.txt")).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    };
    let edits: [(&str, &dyn Fn()); 5] = [
        (">three.txt<", &|| write("three.txt", "333")),
        (">12.0K<", &|| write("one.txt", &"1".repeat(12 << 10))),
        ("2001-Sep-09", &old),
        (">four.txt<", &|| {
            std::fs::rename(folder.join("one.txt"), folder.join("four.txt")).unwrap();
        }),
        (">sub<", &|| std::fs::create_dir(folder.join("sub")).unwrap()),
    ];
    for (shown, edit) in edits {
        let before = stage.counters();
        assert!(
            edits::warm_at_last(stage, &request),
            "before {shown}, the list is never kept: {:?}",
            cases::grown(&stage.counters(), &before, &["fill_", "miss", "hits"])
        );
        let before = stage.ask(&request).body;
        assert!(!String::from_utf8_lossy(&before).contains(shown));
        edit();
        let after = stage.ask(&request).body;
        let after = String::from_utf8_lossy(&after);
        assert!(after.contains(shown), "{shown} is not in the list: {after}");
    }
    assert!(edits::warm_at_last(stage, &request));
    std::fs::remove_file(folder.join("two.txt")).unwrap();
    assert!(!String::from_utf8_lossy(&stage.ask(&request).body).contains("two.txt"));
}
