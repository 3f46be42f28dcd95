//! Pages of programs whose files are on an overlay, as in a container: every change comes into its
//! upper layer, and a file of a lower one becomes another.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use nicache_applications::Client;

use crate::check::Cases;
use crate::files::what_a_script_reads_of;
use crate::stage::{Setup, Stage};

const READS: &str = "<?php echo 'It says ', file_get_contents('@FOLDER@/data/@NAME@'), '!';";

/// What the server opens right after it was written may be changed with no other time to show for
/// it.
fn let_files_rest(_: &Path) {
    std::thread::sleep(Duration::from_millis(200));
}

#[test]
fn what_a_script_reads() {
    let mut stage = what_a_script_reads_of(Stage::start(
        &Setup { overlay: Some(Vec::new()), ..Setup::default() },
        let_files_rest,
    ));
    let cases = Cases::default();
    cases.end(&mut stage);
}

/// Scripts, what they include and what they read, in the lower layer.
const LOWER: &[(&str, &str)] = &[
    ("data/place", "old"),
    ("data/appended", "old"),
    ("data/replaced", "old"),
    ("data/removed", "old"),
    ("data/mode", "old"),
    ("data/mapped", "old"),
    ("data/folder/file", "old"),
    ("include/place.php", "<?php return 'old';"),
    ("include/replaced.php", "<?php return 'old';"),
    ("site/include-place.php", "<?php echo 'It says ', include '@FOLDER@/include/place.php';"),
    (
        "site/include-replaced.php",
        "<?php echo 'It says ', include '@FOLDER@/include/replaced.php';",
    ),
    ("site/place.php", "<?php echo 'It says ', file_get_contents('@FOLDER@/data/place'), '!';"),
    ("site/itself.php", "<?php echo 'old';"),
    ("site/exists.php", "<?php echo file_exists('@FOLDER@/data/removed') ? 'yes' : 'no';"),
    ("site/mode.php", "<?php clearstatcache(); printf('%o', fileperms('@FOLDER@/data/mode'));"),
    ("site/listed.php", "<?php echo implode(' ', scandir('@FOLDER@/data/folder'));"),
];

#[test]
fn what_is_copied_up() {
    copied_up(0);
}

/// PHP goes on for two seconds with what it has compiled.
#[test]
fn what_is_copied_up_and_looked_at_now_and_then() {
    copied_up(2);
}

fn copied_up(revalidate: u32) {
    let lower = LOWER.iter().map(|&(name, text)| (name.to_owned(), text.to_owned())).collect();
    let setup = Setup { overlay: Some(lower), revalidate, ..Setup::default() };
    let mut stage = Stage::start(&setup, |_| {});
    let mut cases = Cases::default();
    let data = stage.path("data").display().to_string();
    let page = |name: &str| {
        stage.script(&format!("reads-{name}.php"), &READS.replace("@NAME@", name));
        format!("/reads-{name}.php")
    };
    cases.run("in place", || {
        stage.change("/place.php", "new", || stage.write("data/place", "new"));
        stage.change("/place.php", "newer", || stage.write("data/place", "newer"));
    });
    cases.run("appended to", || {
        stage.change(&page("appended"), "oldnew", || {
            stage.shell(&format!("printf new >>{data}/appended"));
        });
    });
    cases.run("replaced", || {
        stage.change(&page("replaced"), "new", || stage.replace("data/replaced", "new"));
    });
    cases.run("a whiteout, and a file in its place", || {
        stage.change("/exists.php", "no", || stage.remove("data/removed"));
        stage.change("/exists.php", "yes", || stage.write("data/removed", "new"));
    });
    cases.run("attributes", || {
        stage.change("/mode.php", "600", || stage.shell(&format!("chmod 600 {data}/mode")));
    });
    cases.run("a store to a mapping", || {
        let url = page("mapped");
        let store = "import mmap, sys\nwith open(sys.argv[1], 'r+b') as f:\n    m = mmap.mmap(f.fileno(), 0)\n";
        let script = format!("{store}m[0:3] = b'new'\nm.close()\n");
        stage.change(&url, "new", || {
            let status = stage.command("python3")
                .args(["-c", &script, &format!("{data}/mapped")]).status().unwrap();
            assert!(status.success());
        });
    });
    cases.run("a folder is listed", || {
        stage.change("/listed.php", "file two", || stage.write("data/folder/two", ""));
        stage.change("/listed.php", ".. two", || stage.remove("data/folder/file"));
    });
    if revalidate == 0 {
        cases.run("what is compiled", || {
            stage.change("/include-place.php", "new", || {
                stage.write("include/place.php", "<?php return 'new';");
            });
            stage.change("/include-replaced.php", "new", || {
                stage.replace("include/replaced.php", "<?php return 'new';");
            });
            stage.change("/itself.php", "new", || stage.script("itself.php", "<?php echo 'new';"));
        });
    }
    cases.end(&mut stage);
}

const ROUNDS: usize = 120;

/// The server opens the lower file in the very moment that somebody has it copied and writes to the
/// copy.
#[test]
fn what_is_copied_up_while_the_server_opens_it() {
    let mut lower = vec![(
        "site/race.php".to_owned(),
        "<?php echo include \"@FOLDER@/include/$_GET[n].php\";".to_owned(),
    )];
    lower.extend(
        (0..ROUNDS).map(|round| (format!("include/{round}.php"), "<?php return 'old';".to_owned())),
    );
    let stage = Stage::start(&Setup { overlay: Some(lower), ..Setup::default() }, |_| {});
    let address = stage.address();
    for round in 0..ROUNDS {
        let (url, is_new, is_over) =
            (format!("/race.php?n={round}"), AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut client = Client::new(address);
                    while !is_over.load(SeqCst) {
                        let was_new = is_new.load(SeqCst);
                        let reply = client.get(&url).unwrap().text();
                        assert!(
                            reply == "new" || reply == "old" && !was_new,
                            "{url}: `{reply}` after the change"
                        );
                    }
                });
            }
            // From before the first opening to after the first hits.
            std::thread::sleep(Duration::from_micros(200 * (round as u64 % 60)));
            let file = OpenOptions::new()
                .write(true)
                .open(stage.path(&format!("include/{round}.php")))
                .unwrap();
            file.write_all_at(b"new", 14).unwrap();
            drop(file);
            is_new.store(true, SeqCst);
            std::thread::sleep(Duration::from_millis(30));
            is_over.store(true, SeqCst);
        });
        assert_eq!(stage.get(&url), "new", "{url}");
    }
    println!("  {} hits", stage.counter("hits_dynamic"));
    // If such a page were never kept, this would show nothing.
    assert_eq!(stage.warm(&format!("/race.php?n={}", ROUNDS - 1)), "new");
}
