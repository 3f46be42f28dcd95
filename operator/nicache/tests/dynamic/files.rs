//! Files that a page is made of, changed in every way.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nicache_applications::Client;

use crate::check::{Cases, eventually};
use crate::common::Stop;
use crate::living::LONG;
use crate::stage::{Setup, Shell, Stage};

const READS: &str = "<?php echo 'It says ', file_get_contents('@FOLDER@/data/@NAME@'), '!';";

/// A page that shows a file of its own.
fn page(stage: &Stage, name: &str) -> String {
    stage.write(&format!("data/{name}"), "old");
    stage.script(&format!("{name}.php"), &READS.replace("@NAME@", name));
    format!("/{name}.php")
}

#[test]
fn what_a_script_reads() {
    let mut stage = what_a_script_reads_of(Stage::start(&Setup::default(), |_| {}));
    let mut cases = Cases::default();
    what_stays_open(&stage, &mut cases);
    cases.end(&mut stage);
}

/// Every way by which any program may change a file.
pub(crate) fn what_a_script_reads_of(mut stage: Stage) -> Stage {
    let mut cases = Cases::default();
    let data = stage.path("data").display().to_string();
    cases.run("in place", || {
        let url = page(&stage, "place");
        stage.change(&url, "new", || stage.write("data/place", "new"));
    });
    cases.run("renamed over", || {
        let url = page(&stage, "renamed");
        stage.change(&url, "new", || stage.replace("data/renamed", "new"));
    });
    cases.run("include in place", || {
        stage.write("include/place.php", "<?php return 'old';");
        stage.script("include.php", "<?php echo 'It says ', include '@FOLDER@/include/place.php';");
        stage.change("/include.php", "new", || {
            stage.write("include/place.php", "<?php return 'new';");
        });
        stage.change("/include.php", "newer", || {
            stage.replace("include/place.php", "<?php return 'newer';");
        });
    });
    cases.run("the script itself", || {
        stage.script("itself.php", "<?php echo 'old';");
        stage.change("/itself.php", "new", || stage.script("itself.php", "<?php echo 'new';"));
    });
    cases.run("a file that appears and goes", || {
        stage.script(
            "exists.php",
            "<?php echo file_exists('@FOLDER@/data/appears') ? 'yes' : 'no';",
        );
        stage.change("/exists.php", "yes", || stage.write("data/appears", ""));
        stage.change("/exists.php", "no", || stage.remove("data/appears"));
    });
    cases.run("a folder on the way appears", || {
        stage.script(
            "way.php",
            "<?php echo @file_get_contents('@FOLDER@/data/a/b/c') ?: 'nothing';",
        );
        stage.change("/way.php", "deep", || {
            stage.make_folder("data/x/b");
            stage.write("data/x/b/c", "deep");
            stage.rename("data/x", "data/a");
        });
    });
    cases.run("index.php beside index.html", || {
        stage.make_folder("site/index");
        stage.script("index/index.html", "old");
        for _ in 0..5 {
            assert_eq!(stage.get("/index/"), "old");
        }
        stage.script("index/index.php", "<?php echo 'new';");
        stage.expect("/index/", "new");
        stage.change("/index/", "old", || stage.remove("site/index/index.php"));
    });
    cases.run("a directory is listed", || {
        stage.make_folder("data/listed");
        stage.script("list.php", "<?php echo implode(' ', scandir('@FOLDER@/data/listed'));");
        stage.change("/list.php", "one", || stage.write("data/listed/one", ""));
        stage.change("/list.php", "two", || {
            stage.rename("data/listed/one", "data/listed/two");
        });
        stage.script("glob.php", "<?php echo count(glob('@FOLDER@/data/listed/*')), ' files';");
        stage.change("/glob.php", "0 files", || stage.remove("data/listed/two"));
    });
    cases.run("attributes", || {
        stage.write("data/attributes", "");
        let script = "<?php clearstatcache(); printf('%o', fileperms('@FOLDER@/data/attributes'));";
        stage.script("attributes.php", script);
        stage.change("/attributes.php", "600", || {
            stage.shell(&format!("chmod 600 {data}/attributes"));
        });
        stage.script(
            "time.php",
            "<?php clearstatcache(); echo filemtime('@FOLDER@/data/attributes');",
        );
        stage.change("/time.php", "1000000000", || {
            stage.shell(&format!("touch -d @1000000000 {data}/attributes"));
        });
    });
    cases.run("attributes of a folder", || {
        stage.make_folder("data/dated");
        stage.shell(&format!("touch -d @1000000000 {data}/dated"));
        stage.script(
            "dated.php",
            "<?php clearstatcache(); $t = filemtime('@FOLDER@/data/dated'); echo $t > 1e9 ? 'new' : $t;",
        );
        stage.change("/dated.php", "new", || stage.write("data/dated/one", ""));
    });
    cases.run("hard link", || {
        let url = page(&stage, "hard");
        stage.make_folder("tmp/elsewhere");
        stage.shell(&format!("ln {data}/hard {data}/../tmp/elsewhere/name"));
        stage.change(&url, "new", || stage.write("tmp/elsewhere/name", "new"));
    });
    cases.run("through a bind mount", || {
        let url = page(&stage, "bound");
        let script =
            format!("mkdir -p {data}/../tmp/m; mount --bind {data} {data}/../tmp/m; echo new >{data}/../tmp/m/bound");
        stage.change(&url, "new", || {
            let status =
                stage.command("unshare").args(["--mount", "sh", "-ec", &script]).status().unwrap();
            assert!(status.success());
        });
    });
    cases.run("the times stay", || {
        let url = page(&stage, "times");
        let script = format!(
            "touch -r {data}/times {data}/reference; echo new >{data}/times; touch -r {data}/reference {data}/times"
        );
        stage.change(&url, "new", || stage.shell(&script));
    });
    cases.run("emptied, then written", || {
        let url = page(&stage, "emptied");
        let mut writer = Shell::new(stage.command("sh"), "echo said");
        stage.change(&url, "says !", || drop(writer.run(&format!("exec 3>{data}/emptied"))));
        writer.run("printf new >&3");
        stage.expect(&url, "new");
        writer.run("exec 3>&-");
        stage.change(&url, "says !", || stage.shell(&format!("truncate -s 0 {data}/emptied")));
    });
    cases.run("a reflink or copy over it", || {
        let url = page(&stage, "copied");
        stage.write("data/source", "new");
        stage.change(&url, "new", || {
            stage.shell(&format!("cp --reflink=auto {data}/source {data}/copied"));
        });
    });
    cases.run("a sparse hole and a direct write", || {
        let url = page(&stage, "punched");
        stage.warm(&url);
        stage.shell(&format!("fallocate --punch-hole --offset 0 --length 3 {data}/punched"));
        stage.expect(&url, "\0\0\0");
        let script =
            format!("head -c 4096 /dev/zero | tr '\\0' d | dd of={data}/punched bs=4096 oflag=direct status=none");
        stage.change(&url, "dddd", || stage.shell(&script));
    });
    cases.run("changed while it is being read", || {
        stage.write("data/left", "old");
        stage.write("data/right", "old");
        let read = "file_get_contents('@FOLDER@/data/";
        let text = format!("<?php $l = {read}left'); usleep(300000); echo $l, ' ', {read}right');");
        stage.script("torn.php", &text);
        stage.warm("/torn.php");
        let address = stage.address();
        for round in 0..3 {
            let versions = format!("v{round} v{round}");
            std::thread::scope(|scope| {
                stage.write("data/left", &format!("u{round}"));
                let reader =
                    scope.spawn(move || Client::new(address).get("/torn.php").unwrap().text());
                std::thread::sleep(Duration::from_millis(150));
                stage.write("data/left", &format!("v{round}"));
                stage.write("data/right", &format!("v{round}"));
                // The server itself may tear it, for this one.
                println!("  {}", reader.join().unwrap());
            });
            stage.expect("/torn.php", &versions);
        }
    });
    cases.run("logs do not disturb", || {
        // nginx and PHP write logs of their own, too.
        stage.script("logs.php", "<?php echo 'logged';");
        let mut writer = Shell::new(stage.command("sh"), "echo said");
        writer.run(&format!("exec 3>>{data}/../log/other.log"));
        let mut client = stage.client();
        let stays = || {
            stage.warm("/logs.php");
            let before = stage.counter("hits_dynamic");
            for _ in 0..50 {
                writer.run("echo a line >&3");
                assert_eq!(client.get("/logs.php").unwrap().text(), "logged");
            }
            stage.counter("hits_dynamic") > before + 25
        };
        assert!(eventually(stays), "lines of a log void pages");
    });
    cases.end(&mut stage);
    stage
}

/// By descriptors and mappings that the test's own process keeps, and by its own io_uring.
fn what_stays_open(stage: &Stage, cases: &mut Cases) {
    cases.run("stores through a mapping", || {
        let url = page(stage, "mapped");
        stage.warm(&url);
        let file =
            OpenOptions::new().read(true).write(true).open(stage.path("data/mapped")).unwrap();
        use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
        // SAFETY: a new mapping, which nothing else in this process knows of.
        let at = unsafe {
            mmap(
                std::ptr::null_mut(),
                4096,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )
        };
        let at = at.unwrap().cast::<u8>();
        drop(file);
        for letters in [b"aaa", b"bbb", b"ccc"] {
            // SAFETY: the mapping is a page long.
            unsafe { std::ptr::copy_nonoverlapping(letters.as_ptr(), at, 3) };
            stage.expect(&url, std::str::from_utf8(letters).unwrap());
        }
        // SAFETY: the whole mapping, not used any longer.
        unsafe { munmap(at.cast(), 4096) }.unwrap();
        stage.change(&url, "new", || stage.write("data/mapped", "new"));
    });
    cases.run("a descriptor that stays open for writing", || {
        let url = page(stage, "held");
        stage.warm(&url);
        let mut file = OpenOptions::new().write(true).open(stage.path("data/held")).unwrap();
        for text in ["n01", "n02", "n03"] {
            std::io::Seek::rewind(&mut file).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            stage.expect(&url, text);
        }
        drop(file);
        stage.change(&url, "new", || stage.write("data/held", "new"));
    });
    cases.run("io_uring", || {
        use io_uring::{IoUring, opcode, types};
        let url = page(stage, "ring");
        let mut ring = IoUring::new(8).unwrap();
        let file = OpenOptions::new().write(true).open(stage.path("data/ring")).unwrap();
        let put = |ring: &mut IoUring, file: &File, text: &'static str| {
            let write =
                opcode::Write::new(types::Fd(file.as_raw_fd()), text.as_ptr(), text.len() as u32)
                    .build();
            // SAFETY: the text is static, and the descriptor lives until the completion has come.
            unsafe { ring.submission().push(&write) }.unwrap();
            ring.submit_and_wait(1).unwrap();
            assert_eq!(ring.completion().next().unwrap().result(), text.len() as i32);
        };
        put(&mut ring, &file, "one");
        stage.expect(&url, "one");
        put(&mut ring, &file, "two");
        stage.expect(&url, "two");
        drop(file);
        stage.change(&url, "new", || {
            // Opened before the ring's write, by the ring itself.
            let path = std::ffi::CString::new(stage.path("data/ring").to_str().unwrap()).unwrap();
            let open = opcode::OpenAt::new(types::Fd(-100), path.as_ptr()).flags(1).build();
            // SAFETY: the path lives until the completion has come.
            unsafe { ring.submission().push(&open) }.unwrap();
            ring.submit_and_wait(1).unwrap();
            let descriptor = ring.completion().next().unwrap().result();
            assert!(descriptor >= 0);
            // SAFETY: a new descriptor, which nobody else has.
            let file = unsafe { <File as std::os::fd::FromRawFd>::from_raw_fd(descriptor) };
            put(&mut ring, &file, "new");
        });
    });
}

#[test]
fn where_links_lead() {
    where_links_lead_of(Setup::default());
}

/// Pages show where links lead at once, with any setup.
pub(crate) fn where_links_lead_of(setup: Setup) {
    // Otherwise PHP itself remembers for two minutes where links lead.
    let setup = Setup { php: &["realpath_cache_size=0", "opcache.revalidate_path=1"], ..setup };
    let mut stage = Stage::start(&setup, |_| {});
    let mut cases = Cases::default();
    let data = stage.path("data").display().to_string();
    cases.run("a symbolic link is switched", || {
        stage.write("data/first", "old");
        stage.write("data/second", "new");
        stage.shell(&format!("ln -s first {data}/link"));
        stage.script("link.php", "<?php echo file_get_contents('@FOLDER@/data/link');");
        stage.change("/link.php", "new", || {
            stage.shell(&format!("ln -s second {data}/l2; mv -T {data}/l2 {data}/link"));
        });
    });
    cases.run("a symbolic link to a folder is switched", || {
        deploy(&stage);
        stage.change("/app.php", "new", || {
            stage.shell(&format!("ln -s two {data}/l3; mv -T {data}/l3 {data}/current"));
        });
    });
    cases.end(&mut stage);
}

/// Two releases of a small application, the first of them current.
fn deploy(stage: &Stage) {
    for (name, says) in [("one", "old"), ("two", "new")] {
        stage.make_folder(&format!("data/{name}"));
        stage.write(&format!("data/{name}/app.php"), "<?php echo include __DIR__ . '/text.php';");
        stage.write(&format!("data/{name}/text.php"), &format!("<?php return '{says}';"));
    }
    stage.shell(&format!("ln -s one {}/current", stage.path("data").display()));
    stage.script("app.php", "<?php include '@FOLDER@/data/current/app.php';");
}

/// The server itself lags behind here. Once it shows the new page, no entry may bring the old one
/// back; and the card may be behind the server by no more than T.
#[test]
fn where_php_itself_is_late() {
    where_php_itself_is_late_of(Setup::default());
}

/// No entry brings an old page back once the server itself, which lags behind here, shows the new
/// one, with any setup.
pub(crate) fn where_php_itself_is_late_of(setup: Setup) {
    // `opcache.revalidate_freq` is 2, in whole seconds that must be over.
    const REVALIDATE: Duration = Duration::from_secs(3);
    const SLACK: Duration = Duration::from_millis(800);
    let setup = Setup {
        revalidate: 2,
        workers: 2,
        php: &["opcache.file_update_protection=0", "user_ini.cache_ttl=1"],
        ..setup
    };
    let mut stage = Stage::start(&setup, |_| {});
    let mut cases = Cases::default();
    // Requests until the page is certain to be new, with every reply and what came before it.
    let follow_beside = |beside: Option<&str>, url: &str, limit: Duration, together: bool| {
        let edited = Instant::now();
        let mut client = stage.client();
        let mut new_at = None;
        while edited.elapsed() < limit + Duration::from_secs(2) {
            if let Some(beside) = beside {
                client.get(beside).unwrap();
            }
            let asked = edited.elapsed();
            let is_new = client.get(url).unwrap().text().contains("new");
            assert!(
                is_new || !together || new_at.is_none(),
                "{url}: old at {asked:?} although new at {new_at:?}"
            );
            assert!(
                is_new || asked < limit,
                "{url}: old {asked:?} after the edit; PHP says {}",
                stage.direct(url)
            );
            if is_new {
                new_at.get_or_insert(asked);
            }
            std::thread::sleep(Duration::from_millis(7));
        }
        println!("  {url}: new after {:?}", new_at.unwrap());
    };
    let follow =
        |url: &str, limit: Duration, together: bool| follow_beside(None, url, limit, together);
    cases.run("an include just after it was looked at", || {
        stage.write("include/late.php", "<?php return 'old';");
        stage.script("late.php", "<?php echo include '@FOLDER@/include/late.php';");
        stage.warm("/late.php");
        // Until PHP has just looked at it.
        std::thread::sleep(REVALIDATE);
        stage.direct("/late.php");
        std::thread::sleep(Duration::from_millis(100));
        stage.write("include/late.php", "<?php return 'new';");
        // Everything else goes, so the page is filled again while PHP is late.
        assert!(
            crate::common::command(&["purge", "--all", "--name", stage.nicache.name()])
                .status
                .success()
        );
        follow("/late.php", REVALIDATE + crate::stage::T + SLACK, true);
    });
    cases.run("the page itself just after it was looked at", || {
        stage.script("itself.php", "<?php echo 'old';");
        stage.warm("/itself.php");
        std::thread::sleep(REVALIDATE);
        stage.direct("/itself.php");
        std::thread::sleep(Duration::from_millis(100));
        stage.script("itself.php", "<?php echo 'new';");
        assert!(
            crate::common::command(&["purge", "--all", "--name", stage.nicache.name()])
                .status
                .success()
        );
        follow("/itself.php", REVALIDATE + crate::stage::T + SLACK, true);
    });
    cases.run("an include whose time another page asks for, while PHP goes on with what it has compiled", || {
        stage.write("include/asked.php", "<?php return 'old';");
        stage.script("asked.php", "<?php echo include '@FOLDER@/include/asked.php';");
        let asks = "<?php clearstatcache(true); $f = '@FOLDER@/include/asked.php'; echo is_file($f), filemtime($f), realpath($f);";
        stage.script("asks.php", asks);
        stage.warm("/asked.php");
        std::thread::sleep(REVALIDATE);
        stage.direct("/asked.php");
        std::thread::sleep(Duration::from_millis(100));
        stage.write("include/asked.php", "<?php return 'new';");
        follow_beside(Some("/asks.php"), "/asked.php", REVALIDATE + Duration::from_millis(200),
            true);
    });
    cases.run("an include that another page loaded, on any worker", || {
        stage.write("include/shared.php", "<?php return 'old';");
        for name in ["one", "two", "three"] {
            stage.script(
                &format!("{name}.php"),
                "<?php echo include '@FOLDER@/include/shared.php';",
            );
        }
        stage.warm("/one.php");
        // The first execution of these finds the include in memory.
        stage.warm("/two.php");
        stage.warm("/three.php");
        // PHP never sees a change within the second of the one before.
        std::thread::sleep(Duration::from_millis(1100));
        stage.replace("include/shared.php", "<?php return 'new';");
        follow("/three.php", REVALIDATE + crate::stage::T + SLACK, true);
        for url in ["/one.php", "/two.php"] {
            assert_eq!(stage.get(url), "new");
        }
    });
    cases.run("edited while it is being revalidated, again and again", || {
        stage.write("include/often.php", "<?php return 0;");
        stage.script("often.php", "<?php echo include '@FOLDER@/include/often.php';");
        stage.warm("/often.php");
        let mut client = stage.client();
        let (mut written, mut shown) = (vec![Instant::now()], 0);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(9) {
            if written.last().unwrap().elapsed() > Duration::from_millis(430)
                && begun.elapsed() < Duration::from_secs(5)
            {
                stage.write("include/often.php", &format!("<?php return {};", written.len()));
                written.push(Instant::now());
            }
            let asked = Instant::now();
            let version: usize = client.get("/often.php").unwrap().text().parse().unwrap();
            assert!(
                version >= shown,
                "{version} after {shown}, {:?} after the beginning, the last edit at {:?}; PHP says {}",
                asked - begun,
                *written.last().unwrap() - begun,
                stage.direct("/often.php")
            );
            shown = version;
            if let Some(next) = written.get(version + 1) {
                let age = asked.saturating_duration_since(*next);
                assert!(age < REVALIDATE + crate::stage::T + SLACK, "version {version} is {age:?} out of date");
            }
        }
        assert_eq!(shown, written.len() - 1);
    });
    cases.run(".user.ini appears", || {
        stage.script("ini.php", "<?php echo ini_get('highlight.string');");
        stage.warm("/ini.php");
        stage.script(".user.ini", "highlight.string = new");
        // Each process looks for itself.
        follow("/ini.php", Duration::from_secs(1) + crate::stage::T + SLACK, false);
    });
    cases.run("a release is switched, then PHP reloaded", || {
        deploy(&stage);
        stage.warm("/app.php");
        let data = stage.path("data").display().to_string();
        stage.shell(&format!("ln -s two {data}/l2; mv -T {data}/l2 {data}/current"));
        // It may be old as long as PHP remembers where the link led.
        stage.warm("/app.php");
        crate::machine::reload_php(&stage);
        let fresh = || {
            (stage.client().request("GET", "/app.php", &[("X-Direct", "1")], b"").ok()?.text()
                == "new")
                .then_some(())
        };
        assert!(crate::common::within(Duration::from_secs(60), fresh).is_some());
        stage.expect("/app.php", "new");
    });
    cases.end(&mut stage);
}

/// What a try to have an old text brought back has shown.
struct Try {
    /// Requests that PHP answered with the old text after it had answered with the new one.
    brought_back: usize,
    /// Whether the old text was compiled before the new one was there.
    was_quick: bool,
    /// How long PHP took to compile it.
    compiling: Duration,
}

/// Has PHP compile an old text while a new one takes its place.
fn while_the_old_text_is_compiled(stage: &Stage, number: u32, long: &str) -> Try {
    // Of a file that PHP knows it would not notice at once that it has another text.
    let (include, path) = (format!("include/long{number}.php"), format!("/long{number}.php"));
    stage.script(&path[1..], &format!("<?php echo include '@FOLDER@/{include}';"));
    stage.write(&include, &format!("<?php\n{long}return 'old';"));
    let hour_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
    let file = OpenOptions::new().write(true).open(stage.path(&include)).unwrap();
    file.set_modified(hour_ago).unwrap();
    let (was_quick, compiling) = std::thread::scope(|scope| {
        let (mut first, path) = (stage.client(), &path);
        let ask = move || {
            let asked = Instant::now();
            (first.request("GET", path, &[("X-Direct", "1")], b"").unwrap().text(), asked.elapsed())
        };
        let compiling = scope.spawn(ask);
        std::thread::sleep(Duration::from_millis(150));
        stage.replace(&include, "<?php return 'new';");
        let shown = stage.direct(path);
        let is_over = compiling.is_finished();
        let (first_shown, took) = compiling.join().unwrap();
        (shown != "new" || is_over || first_shown != "old", took)
    });
    let ended = Instant::now();
    let mut client = stage.client();
    let mut brought_back = 0;
    while ended.elapsed() < Duration::from_secs(4) {
        let is_new = stage.direct(&path) == "new";
        let shown = client.get(&path).unwrap().text();
        brought_back += usize::from(!is_new);
        assert!(
            !is_new || shown == "new",
            "{shown} {:?} after PHP had compiled the old text",
            ended.elapsed()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    stage.warm(&path);
    Try { brought_back: if was_quick { 0 } else { brought_back }, was_quick, compiling }
}

/// One process is still compiling the old text when another one has read the new one, and brings
/// the old one back: PHP does not keep a file that is younger than
/// `opcache.file_update_protection`, and looks at what it keeps every `opcache.revalidate_freq`
/// seconds.
#[test]
fn an_old_text_that_takes_long_to_compile() {
    let php = &["memory_limit=2G", "opcache.memory_consumption=512"];
    let mut stage = Stage::start(&Setup { revalidate: 2, php, ..Setup::default() }, |_| {});
    let mut cases = Cases::default();
    let body =
        |i: u32| format!("function f{i}($a) {{ return $a > {i} ? $a . 'text {i}' : $a * {i}; }}\n");
    cases.run("an old text that takes long to compile", || {
        // PHP must still compile when the new text is there, but not for longer than it trusts what
        // it keeps, from the request's beginning. How long it compiles depends on the machine and
        // on who else is at work there.
        let mut functions = 25_000;
        let brought_back = (1..=40).find_map(|number| {
            let long: String = (0..functions).map(body).collect();
            let Try { brought_back, was_quick, compiling } =
                while_the_old_text_is_compiled(&stage, number, &long);
            println!(
                "  {functions} functions in {compiling:?}: the old text was brought back to {brought_back} requests"
            );
            if was_quick {
                functions = (functions * 3 / 2).min(100_000);
            } else if compiling > Duration::from_secs(1) {
                functions = functions * 2 / 3;
            }
            (brought_back > 0).then_some(brought_back)
        });
        assert!(brought_back.is_some(), "the old text never came back: this shows nothing");
    });
    cases.end(&mut stage);
}

/// Whoever overwrites a file makes it empty first, and the server may read it then. Once it is
/// written nobody is shown the page without it.
#[test]
fn what_is_made_empty_first() {
    const READERS: usize = 6;
    let mut stage = Stage::start(&Setup { options: LONG, ..Setup::default() }, |_| {});
    let mut cases = Cases::default();
    stage.write("data/text", "0");
    stage.write("include/part.php", "<?php $text = '0';");
    stage.script("file.php", "<?php echo file_get_contents('@FOLDER@/data/text');");
    stage.script("part.php", "<?php include '../include/part.php'; echo $text ?? '';");
    for (path, file) in [("/file.php", "data/text"), ("/part.php", "include/part.php")] {
        cases.run(file, || {
            stage.warm(path);
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let _stop = Stop(&stop);
                for _ in 0..READERS {
                    let (stop, mut client) = (&stop, stage.client());
                    scope.spawn(move || {
                        while !stop.load(Ordering::Relaxed) {
                            assert_eq!(client.get(path).expect("a reply").status, 200);
                        }
                    });
                }
                let mut shown = Vec::new();
                for version in 1..=300 {
                    let text = if path == "/part.php" {
                        format!("<?php $text = '{version}';")
                    } else {
                        version.to_string()
                    };
                    stage.write(file, "");
                    std::thread::sleep(Duration::from_micros(version % 30 * 200));
                    stage.write(file, &text);
                    let reply = Client::new(stage.address()).get(path).unwrap();
                    if reply.text() != version.to_string() {
                        shown.push((version, reply.text()));
                    }
                    // Nothing may have been kept between two of them. As long as nobody writes, it
                    // is, and the next one takes the place of what is kept.
                    if version == 150 {
                        assert_eq!(stage.warm(path), version.to_string());
                    }
                    std::thread::sleep(Duration::from_millis(version % 7 * 5));
                }
                assert!(shown.is_empty(), "not the versions that were written: {shown:?}");
            });
        });
    }
    cases.end(&mut stage);
}
