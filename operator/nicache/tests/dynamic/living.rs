//! A machine that lives: what other programs mount, start and end, and what has nothing to do with
//! the pages.

use std::process::Command;

use crate::check::{Cases, eventually};
use crate::machine::process;
use crate::stage::{Setup, Stage};

/// Every page may be a minute old as far as nobody can see, so nothing but what happens here
/// ends one.
pub(crate) const LONG: &[&str] = &["--path=pattern = '*', recheck = '1m'"];

/// Runs a shell script in the mount namespace of the server.
fn in_mounts_of_server(stage: &Stage, script: &str) {
    let pid = process(stage, "nginx: master").to_string();
    let output =
        Command::new("nsenter").args(["-t", &pid, "-m", "sh", "-ec", script]).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Sees that the page is answered by the card although this happens before each request.
pub(crate) fn stays(stage: &Stage, path: &str, counter: &str, happens: impl Fn()) {
    const TIMES: u64 = 8;
    let mut rows = Vec::new();
    let is_answered = eventually(|| {
        stage.warm_by(path, counter);
        let before = stage.counter(counter);
        for _ in 0..TIMES {
            happens();
            stage.get(path);
        }
        let hits = stage.counter(counter) - before;
        rows.push(hits);
        hits + 2 >= TIMES
    });
    assert!(is_answered, "{path}: {rows:?} hits of {TIMES} requests");
}

#[test]
fn mounts() {
    let mut stage = Stage::start(&Setup { options: LONG, ..Setup::default() }, |_| {});
    let mut cases = Cases::default();
    stage.script(
        "kept.php",
        "<?php include '@FOLDER@/include/part.php'; echo @file_get_contents('@FOLDER@/data/text');",
    );
    stage.write("include/part.php", "<?php echo 'part ';");
    stage.write("data/text", "first");
    stage.write("site/file.html", "a file");
    for name in ["elsewhere", "other", "other/data", "other/include"] {
        stage.make_folder(name);
    }
    stage.write("other/data/text", "second");
    stage.write("other/include/part.php", "<?php echo 'other part ';");
    let [elsewhere, other, folder] =
        ["elsewhere", "other", ""].map(|name| stage.path(name).display().to_string());
    let folder = folder.trim_end_matches('/');
    let elsewhere = [
        ("a namespace of its own", "unshare -m true".to_owned()),
        (
            "a sandbox",
            format!(
                "unshare -m sh -ec 'mount -t tmpfs none {elsewhere}; mount -o remount,bind,ro {elsewhere}'"
            ),
        ),
        (
            "a root of its own",
            format!(
                "unshare -m sh -ec 'mount --bind {other} {other}; cd {other}; mkdir -p old; pivot_root . old; umount -l old' || true"
            ),
        ),
        ("beside the pages", format!("mount -t tmpfs none {elsewhere}; umount {elsewhere}")),
        (
            "moved beside the pages",
            format!(
                "mount -t tmpfs none {elsewhere}; mkdir {elsewhere}/a; mount --bind {elsewhere}/a {elsewhere}/a; umount -R {elsewhere}"
            ),
        ),
    ];
    for (name, script) in &elsewhere {
        for (page, counter) in [("/kept.php", "hits_dynamic"), ("/file.html", "hits")] {
            cases.run(&format!("{name}: {page}"), || {
                stays(&stage, page, counter, || in_mounts_of_server(&stage, script));
            });
        }
    }
    let covered =
        |name: &str, warm: &str, there: &str, gone: &str, cover: String, uncover: String| {
            stage.warm_by(warm, if warm.ends_with("html") { "hits" } else { "hits_dynamic" });
            in_mounts_of_server(&stage, &cover);
            let (seen, directly) = (stage.get(warm), stage.direct(warm));
            assert_eq!((&*seen, &*directly), (there, there), "{name}: covered");
            stage.warm_by(warm, if warm.ends_with("html") { "hits" } else { "hits_dynamic" });
            in_mounts_of_server(&stage, &uncover);
            assert_eq!(stage.get(warm), gone, "{name}: uncovered");
        };
    cases.run("over a folder that a page reads", || {
        let (cover, uncover) =
            (format!("mount --bind {other}/data {folder}/data"), format!("umount {folder}/data"));
        covered("data", "/kept.php", "part second", "part first", cover, uncover);
    });
    cases.run("over a file that a page reads", || {
        let text = format!("{folder}/data/text");
        let (cover, uncover) =
            (format!("mount --bind {other}/data/text {text}"), format!("umount {text}"));
        covered("text", "/kept.php", "part second", "part first", cover, uncover);
    });
    cases.run("over the site", || {
        std::fs::write(stage.path("other/file.html"), "another file").unwrap();
        let (cover, uncover) =
            (format!("mount --bind {other} {folder}/site"), format!("umount -l {folder}/site"));
        covered("site", "/file.html", "another file", "a file", cover, uncover);
    });
    cases.run("moved over a folder that a page reads", || {
        let cover = format!(
            "mount --bind {other} {other}; mount --make-private {other}; mount -t tmpfs none {other}/data; echo -n third >{other}/data/text; \
             mount --move {other}/data {folder}/data"
        );
        covered("data", "/kept.php", "part third", "part first", cover, format!("umount {folder}/data; umount {other}"));
    });
    cases.run("links that a mount no longer follows", || {
        std::fs::write(stage.path("other/page.html"), "a page").unwrap();
        std::os::unix::fs::symlink(stage.path("other/page.html"), stage.path("site/link.html"))
            .unwrap();
        assert_eq!(stage.warm_by("/link.html", "hits"), "a page");
        let site = format!("{folder}/site");
        in_mounts_of_server(
            &stage,
            &format!("mount --bind {site} {site}; mount -o remount,bind,nosymfollow {site}"),
        );
        let seen = stage.get("/link.html");
        assert!(seen.contains("40") && seen == stage.direct("/link.html"), "{seen}");
        in_mounts_of_server(&stage, &format!("umount -l {site}"));
        assert_eq!(stage.get("/link.html"), "a page");
    });
    cases.end(&mut stage);
}
