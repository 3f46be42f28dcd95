//! The witness without privileges (`--watch preload`): what the server's own programs and those of `nicache follow` change shows at once,
//! what others change after T at most.

use std::time::{Duration, Instant};

use nicache_applications::Client;
use rustix::process::Signal;

use crate::check::Cases;
use crate::common::{self, kill, within};
use crate::machine::{process, under_load};
use crate::stage::{Database, Setup, Stage, T, Watch};

/// For an execution and the machine's other work.
const SLACK: Duration = Duration::from_millis(800);

fn start() -> Stage {
    Stage::start(&Setup { watch: Watch::Preload, ..Setup::default() }, |_| {})
}

/// A page that shows a file of its own.
fn page(stage: &Stage, name: &str) -> String {
    stage.edit(&format!("data/{name}"), "old");
    let text = "<?php echo 'It says ', file_get_contents('@FOLDER@/data/@NAME@'), '!';";
    stage.script(&format!("{name}.php"), &text.replace("@NAME@", name));
    format!("/{name}.php")
}

#[test]
fn what_followed_programs_change() {
    let mut stage = start();
    let mut cases = Cases::default();
    let data = stage.path("data").display().to_string();
    cases.run("in place", || {
        let url = page(&stage, "place");
        stage.change(&url, "new", || stage.edit("data/place", "new"));
    });
    cases.run("renamed over", || {
        let url = page(&stage, "renamed");
        stage.change(&url, "new", || stage.shell(&format!("echo new >{data}/r; mv {data}/r {data}/renamed")));
    });
    cases.run("include", || {
        stage.edit("include/place.php", "<?php return 'old';");
        stage.script("include.php", "<?php echo 'It says ', include '@FOLDER@/include/place.php';");
        stage.change("/include.php", "new", || stage.edit("include/place.php", "<?php return 'new';"));
    });
    cases.run("a file that appears and goes", || {
        stage.script("exists.php", "<?php echo file_exists('@FOLDER@/data/appears') ? 'yes' : 'no';");
        stage.change("/exists.php", "yes", || stage.shell(&format!("touch {data}/appears")));
        stage.change("/exists.php", "no", || stage.shell(&format!("rm {data}/appears")));
    });
    cases.run("a folder on the way", || {
        stage.script("way.php", "<?php echo @file_get_contents('@FOLDER@/data/a/b') ?: 'nothing';");
        stage.change("/way.php", "deep", || stage.shell(&format!("mkdir {data}/a; echo deep >{data}/a/b")));
        stage.change("/way.php", "nothing", || stage.shell(&format!("mv {data}/a {data}/z")));
    });
    cases.run("a listing", || {
        stage.shell(&format!("mkdir {data}/list; touch {data}/list/one"));
        stage.script(
            "list.php",
            "<?php echo implode(' ', scandir('@FOLDER@/data/list')), count(glob('@FOLDER@/data/list/*'));",
        );
        stage.change("/list.php", "two2", || stage.shell(&format!("touch {data}/list/two")));
    });
    cases.run("a symbolic link is switched", || {
        stage.shell(&format!("echo old >{data}/first; echo new >{data}/second; ln -s first {data}/link"));
        stage.script(
            "link.php",
            "<?php clearstatcache(true); echo readlink('@FOLDER@/data/link'), file_get_contents('@FOLDER@/data/link');",
        );
        stage.change("/link.php", "secondnew", || {
            stage.shell(&format!("ln -s second {data}/l; mv -T {data}/l {data}/link"))
        });
    });
    cases.run("mode and time", || {
        stage.edit("data/attributes", "");
        stage.script("mode.php", "<?php clearstatcache(); printf('%o', fileperms('@FOLDER@/data/attributes'));");
        stage.change("/mode.php", "600", || stage.shell(&format!("chmod 600 {data}/attributes")));
        stage.script("time.php", "<?php clearstatcache(); echo filemtime('@FOLDER@/data/attributes');");
        stage.change("/time.php", "1000000000", || stage.shell(&format!("touch -d @1000000000 {data}/attributes")));
    });
    cases.run("a program that writes as a stream and as it ends", || {
        let url = page(&stage, "stream");
        stage.change(&url, "new", || stage.shell(&format!("awk 'BEGIN {{ printf \"new\" >\"{data}/stream\" }}'")));
        stage.change(&url, "end", || stage.shell(&format!("awk 'BEGIN {{ printf \"end\" }}' >{data}/stream")));
    });
    cases.run("stores through a mapping", || {
        let url = page(&stage, "mapped");
        let script = format!(
            "python3 -c \"import mmap; f = open('{data}/mapped', 'r+b'); m = mmap.mmap(f.fileno(), 0); f.close(); m[0:3] = b'new'; m.close()\""
        );
        stage.change(&url, "new", || stage.shell(&script));
    });
    cases.run("libraries that bind deeply: curl and SQLite", || {
        let url = page(&stage, "curl");
        let text = "<?php $c = curl_init('file://@FOLDER@/data/curl'); curl_setopt($c, CURLOPT_RETURNTRANSFER, 1); echo curl_exec($c);";
        stage.script("curl.php", text);
        stage.change(&url, "new", || stage.edit("data/curl", "new"));
        let sqlite = |sql: &str| stage.shell(&format!("sqlite3 {data}/base \"{sql}\""));
        sqlite("CREATE TABLE t (id INTEGER PRIMARY KEY, text); INSERT INTO t VALUES (1, 'old')");
        let text = "<?php $db = new SQLite3('@FOLDER@/data/base', SQLITE3_OPEN_READONLY); echo $db->querySingle('SELECT text FROM t');";
        stage.script("sqlite.php", text);
        stage.change("/sqlite.php", "new", || sqlite("UPDATE t SET text = 'new'"));
    });
    cases.run("a page of the server writes", || {
        let url = page(&stage, "own");
        stage.shell(&format!("chmod 666 {data}/own"));
        stage.script("write.php", "<?php file_put_contents('@FOLDER@/data/own', 'new'); echo 'written';");
        stage.change(&url, "new", || assert_eq!(stage.get("/write.php"), "written"));
    });
    cases.run("the server's own writer, by a program that it starts", || {
        let url = page(&stage, "started");
        stage.shell(&format!("chmod 666 {data}/started"));
        stage.script("start.php", "<?php shell_exec('sh -c \"printf new >@FOLDER@/data/started\"'); echo 'written';");
        stage.change(&url, "new", || assert_eq!(stage.get("/start.php"), "written"));
    });
    cases.run("a file of the server itself is dynamic, too", || {
        stage.shell(&format!("printf 'hello old' >{data}/../site/plain.html"));
        stage.change("/plain.html", "new", || stage.shell(&format!("printf 'hello new' >{data}/../site/plain.html")));
        assert_eq!(stage.counter("hits"), stage.counter("hits_dynamic"), "a hit that is not dynamic");
    });
    cases.end(&mut stage);
}

/// Nobody sees it; no reply may be older than T.
#[test]
fn what_strangers_change() {
    let mut stage = start();
    let mut cases = Cases::default();
    let mut late = |name: &str, change: &dyn Fn(&Stage, usize)| {
        cases.run(name, || {
            let url = page(&stage, "late");
            for version in 0..4 {
                stage.warm(&url);
                let shown = format!("version {version}");
                change(&stage, version);
                let (changed, mut client) = (Instant::now(), stage.client());
                let mut old = Duration::ZERO;
                while changed.elapsed() < T + SLACK + Duration::from_millis(500) {
                    let asked = changed.elapsed();
                    if !client.get(&url).unwrap().text().contains(&shown) {
                        old = asked;
                        assert!(asked < T + SLACK, "still old {asked:?} after the change");
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                println!("  old for {old:?}");
            }
        });
    };
    late("in place", &|stage, version| stage.write("data/late", &format!("version {version}")));
    late("renamed over", &|stage, version| stage.replace("data/late", &format!("version {version}")));
    late("a program without the library", &|stage, version| {
        let text = format!("printf 'version {version}' >{}", stage.path("data/late").display());
        assert!(std::process::Command::new("sh").args(["-ec", &text]).status().unwrap().success());
    });
    cases.end(&mut stage);
}

#[test]
fn what_cannot_be_followed_is_not_kept() {
    let mut stage = start();
    let mut cases = Cases::default();
    let is_kept = |url: &str| stage.try_warm(url, Duration::from_secs(3)).is_some();
    cases.run("a page is kept", || {
        stage.script("kept.php", "<?php echo 'kept';");
        stage.warm("/kept.php");
    });
    cases.run("a statically linked program", || {
        let source = "#include <stdio.h>\nint main(void) { puts(\"static\"); }";
        let program = stage.path("data/static").display().to_string();
        stage.write("data/static.c", source);
        let built =
            std::process::Command::new("cc").args(["-static", "-o", &program, &format!("{program}.c")]).status();
        assert!(built.unwrap().success());
        stage.script("static.php", "<?php echo shell_exec('@FOLDER@/data/static');");
        assert_eq!(stage.get("/static.php"), "static\n");
        assert!(!is_kept("/static.php"));
        stage.warm("/kept.php");
    });
    cases.run("as long as one runs, nothing is kept", || {
        let script = "<?php proc_open(['@FOLDER@/data/wait'], [], $pipes); echo 'started';";
        let program = stage.path("data/wait").display().to_string();
        stage.write("data/wait.c", "#include <unistd.h>\nint main(void) { sleep(5); }");
        let built =
            std::process::Command::new("cc").args(["-static", "-o", &program, &format!("{program}.c")]).status();
        assert!(built.unwrap().success());
        stage.script("wait.php", &format!("{script} fastcgi_finish_request();"));
        let address = stage.address();
        std::thread::scope(|scope| {
            scope.spawn(|| drop(Client::new(address).get("/wait.php")));
            std::thread::sleep(Duration::from_millis(400));
            stage.script("meanwhile.php", "<?php echo 'meanwhile';");
            assert!(!is_kept("/meanwhile.php"));
        });
        std::thread::sleep(Duration::from_secs(3));
        stage.warm("/meanwhile.php");
    });
    cases.run("a look-up of a host", || {
        stage.script("host.php", "<?php echo gethostbyname('localhost');");
        assert!(!is_kept("/host.php"));
    });
    cases.end(&mut stage);
}

#[test]
fn databases_make_pages_that_are_not_kept() {
    let setup = Setup { watch: Watch::Preload, database: Database::MariaDb, ..Setup::default() };
    let mut stage = Stage::start(&setup, |_| {});
    let mut cases = Cases::default();
    cases.run("a table", || {
        stage.sql("CREATE TABLE t (text VARCHAR(10)); INSERT INTO t VALUES ('old')");
        let text = "<?php $db = new mysqli(null, 'site', 'site', 'site', 0, '@FOLDER@/run/mariadb.sock'); echo $db->query('SELECT text FROM t')->fetch_row()[0];";
        stage.script("table.php", text);
        assert!(stage.try_warm("/table.php", Duration::from_secs(3)).is_none());
        assert!(stage.counter("fill_refused_unwatched_peer") > 0);
        stage.sql("UPDATE t SET text = 'new'");
        assert_eq!(stage.get("/table.php"), "new");
    });
    cases.run("a file beside it", || {
        let url = page(&stage, "beside");
        stage.change(&url, "new", || stage.edit("data/beside", "new"));
    });
    cases.end(&mut stage);
}

#[test]
fn what_happens_to_programs() {
    let mut stage = start();
    let mut cases = Cases::default();
    stage.edit("data/version", "0");
    stage.script("file.php", "<?php echo 'version ', file_get_contents('@FOLDER@/data/version');");
    let data = stage.path("data").display().to_string();
    let write = |version: usize| stage.shell(&format!("printf {version} >{data}/v; mv {data}/v {data}/version"));
    cases.run("readers and a writer", || {
        write(0);
        stage.warm("/file.php");
        let before = stage.counter("hits_dynamic");
        let (replies, failed) = under_load(&stage, "/file.php", Duration::from_secs(4), write, |_| {});
        println!("  {replies} replies, {} hits", stage.counter("hits_dynamic") - before);
        assert!(failed == 0 && stage.counter("hits_dynamic") > before);
    });
    cases.run("the watcher stands still for 5 s", || {
        write(0);
        stage.warm("/file.php");
        let watcher = stage.nicache.pid("watch_pid");
        let mut state = 0;
        let (replies, failed) = under_load(&stage, "/file.php", Duration::from_millis(7500), write, |at| {
            if state == 0 && at > Duration::from_millis(500) {
                kill(watcher, Signal::STOP);
                state = 1;
            } else if state == 1 && at > Duration::from_millis(5500) {
                kill(watcher, Signal::CONT);
                state = 2;
            }
        });
        if state == 1 {
            kill(watcher, Signal::CONT);
        }
        println!("  {replies} replies");
        assert!(failed == 0 && replies > 100);
        stage.warm("/file.php");
    });
    cases.run("more events than the ring holds", || {
        write(0);
        stage.warm("/file.php");
        let address = stage.address();
        stage.script("flood.php", "<?php $end = microtime(true) + 3; while (microtime(true) < $end) { clearstatcache(); @stat('/nowhere/' . rand()); } echo 'done';");
        let flood = std::thread::spawn(move || Client::new(address).get("/flood.php").map(|reply| reply.text()));
        let (replies, failed) = under_load(&stage, "/file.php", Duration::from_secs(4), write, |_| {});
        assert_eq!(flood.join().unwrap().unwrap(), "done");
        println!("  {replies} replies");
        assert_eq!(failed, 0);
        write(0);
        stage.warm("/file.php");
    });
    cases.run("processes of the server are killed", || {
        write(0);
        stage.warm("/file.php");
        let mut killed = 0;
        let (replies, failed) = under_load(&stage, "/file.php", Duration::from_secs(5), write, |at| {
            if killed < 4 && at > Duration::from_millis(500 + 800 * killed) {
                killed += 1;
                kill(process(&stage, if killed % 2 == 0 { "php-fpm: pool" } else { "nginx: worker" }), Signal::KILL);
            }
        });
        println!("  {replies} replies, {failed} failed");
        assert!(killed == 4 && replies > failed);
        stage.warm("/file.php");
    });
    cases.end(&mut stage);
}

#[test]
fn nothing_is_left_behind() {
    let left = |name: &str| {
        let places = ["/dev/shm/nicache", "/run/nicache", "/var/lib/nicache"];
        let all = places.iter().flat_map(|place| std::fs::read_dir(place).into_iter().flatten().flatten());
        all.filter(|entry| entry.file_name().to_str().is_some_and(|file| file.starts_with(&format!("{name}.")))).count()
    };
    let mut stage = start();
    let name = stage.nicache.name().to_owned();
    assert!(left(&name) >= 3);
    stage.nicache.signal(Signal::TERM);
    assert!(stage.nicache.wait(Duration::from_secs(10)).is_some());
    assert!(within(Duration::from_secs(3), || (left(&name) == 0).then_some(())).is_some(), "{} left", left(&name));
    drop(stage);
    common::assert_fails(&["--watch", "preload", "--recheck", "10s"], &["--watch preload", "--watch kernel"]);
}
