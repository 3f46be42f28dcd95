//! Programs that answer for the server and are not started by nicache: PHP-FPM as a service of the
//! machine, and units of systemd.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use nicache_applications::Client;
use nicache_prove::Outcome;
use rustix::process::Signal;

use crate::check::{Cases, eventually};
use crate::common::{self, within};
use crate::living::{LONG, stays};
use crate::rules::{carry_out, files_and_rows};
use crate::stage::{Database, Setup, Shell, Stage};

/// How often the log says that PHP-FPM was reloaded.
fn reloads(stage: &mut Stage) -> usize {
    stage.nicache.log_text().matches("it was reloaded while it had no request").count()
}

/// The first page that a program which is started again answers shows this.
fn expect_again(stage: &Stage, path: &str, text: &str) {
    let is_there = || {
        let hits = stage.counter("hits_dynamic");
        let reply = Client::new(stage.address()).get(path).unwrap();
        if reply.status != 502 && reply.text() != text {
            let hits = stage.counter("hits_dynamic") - hits;
            panic!(
                "not `{text}` but {reply:?}, {hits} hits; the server itself: {:?}",
                stage.direct(path)
            );
        }
        (reply.status == 200).then_some(())
    };
    assert!(within(Duration::from_secs(30), is_there).is_some(), "{path} does not come again");
    stage.expect(path, text);
}

/// Readers of a page get it whenever they ask, while PHP-FPM is at a request, is reloaded after
/// that, and the page is kept.
fn read_while_it_is_reloaded(
    stage: &mut Stage,
    path: &'static str,
    text: &'static str,
    held: JoinHandle<()>,
) {
    let stop = Arc::new(AtomicBool::new(false));
    let replies = Arc::new(AtomicU64::new(0));
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let (stop, replies, mut client) =
                (Arc::clone(&stop), Arc::clone(&replies), stage.client());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let reply = client.get(path).expect("a reply");
                    assert_eq!((reply.status, reply.text().as_str()), (200, text));
                    replies.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(2));
                }
            })
        })
        .collect();
    stage.wait_until(|| replies.load(Ordering::Relaxed) > 100);
    assert_eq!((stage.counter("hits_dynamic"), reloads(stage)), (0, 0), "it is at a request");
    stage.remove("data/hold");
    held.join().unwrap();
    stage.wait_until(|| stage.counter("hits_dynamic") > 20);
    stop.store(true, Ordering::Relaxed);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    assert_eq!(reloads(stage), 1);
}

/// Asks PHP-FPM by its socket, once that is there, for a page that takes as long as `data/hold` is
/// there (FastCGI 1.0, sections 5 and 6).
fn hold<S: Read + Write>(
    folder: &Path,
    connect: impl Fn() -> Option<S> + Send + 'static,
) -> JoinHandle<()> {
    std::fs::write(folder.join("data/hold"), "").unwrap();
    let script = format!(
        "<?php while (file_exists('{}/data/hold')) {{ clearstatcache(); usleep(5000); }} echo 'held';",
        folder.display()
    );
    std::fs::write(folder.join("site/hold.php"), script).unwrap();
    let script = folder.join("site/hold.php");
    std::thread::spawn(move || {
        let mut stream = within(Duration::from_secs(30), connect).expect("PHP-FPM listens");
        let pair = |name: &str, value: &str| {
            [&[name.len() as u8, value.len() as u8][..], name.as_bytes(), value.as_bytes()].concat()
        };
        let record = |kind: u8, content: &[u8]| {
            let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
            [&[1, kind, 0, 1, high, low, 0, 0][..], content].concat()
        };
        let params =
            [pair("SCRIPT_FILENAME", script.to_str().unwrap()), pair("REQUEST_METHOD", "GET")]
                .concat();
        let request = [
            record(1, &[0, 1, 0, 0, 0, 0, 0, 0]),
            record(4, &params),
            record(4, &[]),
            record(5, &[]),
        ]
        .concat();
        stream.write_all(&request).unwrap();
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).unwrap();
        assert!(
            String::from_utf8_lossy(&reply).contains("held"),
            "a request that it was at was cut off"
        );
    })
}

/// Says why it has no text.
const EARLY: &str = "<?php include '../include/early.php';
    echo $text ?? json_encode([error_get_last(), filesize(__DIR__ . '/../include/early.php'), getcwd()]);";

/// PHP-FPM runs before nicache does, in the machine's network, and talks to a database there.
#[test]
fn php_of_the_machine() {
    let setup = Setup {
        database: Database::MariaDb,
        outside: true,
        php_outside: true,
        options: LONG,
        ..Setup::default()
    };
    // Two pages that its processes know before anybody watches them.
    let mut held = None;
    let mut stage = Stage::start(&setup, |folder| {
        let socket = folder.join("run/php.sock");
        held = Some(hold(folder, move || UnixStream::connect(&socket).ok()));
        std::fs::write(folder.join("site/early.php"), EARLY).unwrap();
        std::fs::write(folder.join("include/early.php"), "<?php $text = 'first';").unwrap();
    });
    let mut cases = Cases::default();
    stage.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, text VARCHAR(100)); INSERT INTO t VALUES (1, 'old')",
    );
    stage.script(
        "row.php",
        "<?php $db = new mysqli('@HOST@', 'site', 'site', 'site', 0, @SOCKET@);
        echo $db->query('SELECT text FROM t WHERE id = 1')->fetch_row()[0];",
    );
    stage.write("data/text", "first");
    stage.script("file.php", "<?php echo file_get_contents('@FOLDER@/data/text');");
    stage.script("away.php", "<?php echo getmypid(), microtime();");

    cases.run("no request is lost when it is reloaded, and its pages are kept then", || {
        read_while_it_is_reloaded(&mut stage, "/early.php", "first", held.take().unwrap());
    });
    cases.run("what its script includes", || {
        stage.change("/early.php", "second", || {
            stage.replace("include/early.php", "<?php $text = 'second';");
        });
    });
    cases.run("a file", || {
        stage.change("/file.php", "second", || stage.write("data/text", "second"));
    });
    cases.run("a row", || {
        stage.change("/row.php", "new", || drop(stage.sql("UPDATE t SET text = 'new'")));
    });
    cases.run("others ask the database through the machine's network all the time", || {
        stage.sql("CREATE TABLE others (id INT)");
        stage.write("site/plain.html", "plain");
        // Whenever it runs, statements of others begin and end.
        stage.script(
            "slow.php",
            "<?php $db = new mysqli('@HOST@', 'site', 'site', 'site', 0, @SOCKET@); usleep(300000);
            echo $db->query('SELECT text FROM t WHERE id = 1')->fetch_row()[0];",
        );
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut command = Command::new("mariadb");
                command.args(["--no-defaults", "--batch", "--unbuffered", "--protocol=tcp"]);
                command.args(["--host=127.0.0.1", "--port=3306", "--user=site", "--password=site"]);
                let mut shell = Shell::new(
                    {
                        command.arg("--database=site");
                        command
                    },
                    "SELECT 'said';",
                );
                while !stop.load(Ordering::Relaxed) {
                    shell.run("INSERT INTO others VALUES (1); SELECT COUNT(*) FROM others;");
                    // Often enough for a page that takes longer.
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            let warmed = catch_unwind(AssertUnwindSafe(|| {
                stage.change("/slow.php", "newer", || {
                    drop(stage.sql("UPDATE t SET text = 'newer'"));
                });
                stage.warm_by("/plain.html", "hits");
            }));
            stop.store(true, Ordering::Relaxed);
            warmed.unwrap_or_else(|panic| resume_unwind(panic));
        });
    });
    cases.run("it asks the database through the machine's network itself", || {
        stage.script(
            "far.php",
            "<?php $db = new mysqli('127.0.0.1', 'site', 'site', 'site', 3306);
            echo $db->query('SELECT text FROM t WHERE id = 1')->fetch_row()[0];",
        );
        // A file is sent, and which one is decided by the row.
        for text in ["far", "new"] {
            stage.write(&format!("data/{text}.txt"), text);
        }
        stage.script(
            "chosen.php",
            "<?php $db = new mysqli('127.0.0.1', 'site', 'site', 'site', 3306);
            $file = '@FOLDER@/data/' . $db->query('SELECT text FROM t WHERE id = 1')->fetch_row()[0] . '.txt';
            header('Last-Modified: ' . gmdate('D, d M Y H:i:s', filemtime($file)) . ' GMT');
            readfile($file);",
        );
        for text in ["far", "new"] {
            stage.change("/far.php", text, || {
                drop(stage.sql(&format!("UPDATE t SET text = '{text}'")));
            });
            stage.expect("/chosen.php", text);
            stage.warm("/chosen.php");
        }
    });
    cases.run("another site's database begins on the machine", || {
        let stays = || {
            stage.warm("/row.php");
            let before = stage.counter("purges_by_source");
            for _ in 0..8 {
                Command::new("mariadbd").arg("--version").stdout(Stdio::null()).status().unwrap();
                assert_eq!(stage.get("/row.php"), "new");
            }
            let purged = stage.counter("purges_by_source") - before;
            println!("  {purged} purges");
            purged <= 3
        };
        assert!(eventually(stays), "it is purged");
    });
    cases.run("another site's database crashes on the machine", || {
        // Programs are databases by their names, and one of PostgreSQL's has a parent.
        let fork = "my $child = fork; sleep 60 unless $child; kill 9, $child; wait;";
        let named = |program: &str, name: &str| {
            let path = stage.path(name);
            symlink(format!("/usr/bin/{program}"), &path).unwrap();
            path
        };
        let (single, family) = (named("sleep", "mariadbd"), named("perl", "postgres"));
        let crash = |number: usize| {
            if number.is_multiple_of(2) {
                let mut child = Command::new(&single).arg("60").spawn().unwrap();
                child.kill().unwrap();
                child.wait().unwrap();
            } else {
                assert!(Command::new(&family).args(["-e", fork]).status().unwrap().success());
            }
        };
        let stays = || {
            stage.warm("/row.php");
            let before = stage.counter("purges_by_source");
            for number in 0..8 {
                crash(number);
                assert_eq!(stage.get("/row.php"), "new");
            }
            let purged = stage.counter("purges_by_source") - before;
            println!("  {purged} purges");
            purged <= 3
        };
        assert!(eventually(stays), "it is purged");
    });
    cases.run("others stay", || {
        stays(&stage, "/file.php", "hits_dynamic", || drop(stage.direct("/away.php")));
    });
    for (number, way) in
        ["reloaded by its operator", "started again by the machine"].into_iter().enumerate()
    {
        cases.run(way, || {
            let text = format!("text {number}");
            stage.warm("/early.php");
            stage.write("include/early.php", &format!("<?php $text = '{text}';"));
            if number == 0 {
                common::kill(u64::from(stage.php.as_ref().unwrap().0.id()), Signal::USR2);
            } else {
                stage.restart_php();
            }
            expect_again(&stage, "/early.php", &text);
            stage.warm("/early.php");
            stage.change("/file.php", &text, || stage.write("data/text", &text));
            assert_eq!(reloads(&mut stage), 1, "it was known from its start on");
        });
    }
    cases.end(&mut stage);
}

#[test]
fn it_is_reloaded_by_others_only() {
    let options = &["--reload-php=never", "--path=pattern = '*', recheck = '1m'"];
    let mut stage = Stage::start(&Setup { php_outside: true, options, ..Setup::default() }, |_| {});
    let mut cases = Cases::default();
    stage.write("data/text", "first");
    stage.script("file.php", "<?php echo file_get_contents('@FOLDER@/data/text');");
    let pid = stage.php.as_ref().unwrap().0.id();
    cases.run("it is said what to do", || {
        for _ in 0..5 {
            assert_eq!(stage.get("/file.php"), "first");
        }
        let is_said =
            || stage.nicache.log_text().contains(&format!("kill -USR2 {pid}")).then_some(());
        assert!(within(Duration::from_secs(30), is_said).is_some());
        for _ in 0..5 {
            assert_eq!(stage.get("/file.php"), "first");
        }
        assert_eq!((stage.counter("hits_dynamic"), reloads(&mut stage)), (0, 0));
    });
    cases.run("and done", || {
        common::kill(u64::from(pid), Signal::USR2);
        stage.warm("/file.php");
        stage.change("/file.php", "second", || stage.write("data/text", "second"));
    });
    cases.end(&mut stage);
}

const SHARED: &[&str] = &["--share=9000", LONG[0]];
/// A location that asks PHP-FPM in another way than by its socket.
const BY_TCP: &str =
    "location ~ ^/.*[.]php$ { fastcgi_pass 127.0.0.1:9000; include /etc/nginx/fastcgi_params;
    fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; }
    location /other { proxy_pass http://127.0.0.1:9000; }";
const KEPT: &str =
    "location ~ ^/.*[.]php$ { fastcgi_pass kept; fastcgi_keep_conn on; include /etc/nginx/fastcgi_params;
    fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; }";

/// PHP-FPM listens at a port of the machine, which is shared with the server.
#[test]
fn php_of_the_machine_by_tcp() {
    let setup = Setup {
        php_outside: true,
        pool: "listen = 127.0.0.1:9000\npm = static",
        options: SHARED,
        nginx: BY_TCP,
        ..Setup::default()
    };
    let mut held = None;
    let mut stage = Stage::start(&setup, |folder| {
        held = Some(hold(folder, || TcpStream::connect("127.0.0.1:9000").ok()));
    });
    let mut cases = Cases::default();
    stage.write("data/text", "first");
    stage.write("include/part.php", "<?php $text = 'part';");
    stage.script("file.php", "<?php echo file_get_contents('@FOLDER@/data/text');");
    stage.script("part.php", "<?php include '../include/part.php'; echo $text;");
    cases.run("no request is lost when it is reloaded, and its pages are kept then", || {
        read_while_it_is_reloaded(&mut stage, "/part.php", "part", held.take().unwrap());
    });
    cases.run("a file", || {
        stage.warm("/file.php");
        stage.change("/file.php", "second", || stage.write("data/text", "second"));
    });
    cases.run("what its script includes", || {
        stage.change("/part.php", "other", || {
            stage.replace("include/part.php", "<?php $text = 'other';");
        });
    });
    cases.run("started again by the machine", || {
        stage.warm("/part.php");
        stage.write("include/part.php", "<?php $text = 'third';");
        stage.restart_php();
        expect_again(&stage, "/part.php", "third");
        stage.warm("/part.php");
    });
    cases.run("a stranger at the port", || {
        let (mut php, _) = stage.php.take().unwrap();
        common::kill(u64::from(php.id()), Signal::TERM);
        php.wait().unwrap();
        let script = APPLICATION.replace("socketserver.UnixStreamServer", "socketserver.TCPServer");
        let script = script.replace("sys.argv[1], Handler", "('127.0.0.1', 9000), Handler");
        stage.write("data/app.py", &script);
        let paths = ["data/app.py", "run/none", "data/text"].map(|name| stage.path(name));
        let mut stranger =
            Command::new("python3").args(&paths).stdin(Stdio::null()).spawn().unwrap();
        let text = "of a stranger";
        stage.write("data/text", text);
        stage.wait_until(|| {
            Client::new(stage.address()).get("/other").is_ok_and(|reply| reply.text() == text)
        });
        let counts = || (stage.counter("hits_dynamic"), stage.counter("fills_stored"));
        let kept = counts();
        for _ in 0..6 {
            assert_eq!(stage.get("/other"), text);
        }
        let now_kept = counts();
        let _ = stranger.kill();
        let _ = stranger.wait();
        assert_eq!(now_kept, kept, "{}", common::status(stage.nicache.name()));
    });
    cases.end(&mut stage);
}

/// nginx keeps its connections to PHP-FPM, which ran before.
#[test]
fn php_of_the_machine_with_connections_that_are_kept() {
    let setup = Setup { php_outside: true, options: LONG, nginx: KEPT, ..Setup::default() };
    let mut stage = Stage::start(&setup, |_| {});
    let mut cases = Cases::default();
    stage.write("data/text", "first");
    stage.script("file.php", "<?php echo file_get_contents('@FOLDER@/data/text');");
    let pid = stage.php.as_ref().unwrap().0.id();
    cases.run("it is said what to do", || {
        let is_said = || {
            assert_eq!(stage.get("/file.php"), "first");
            let log = stage.nicache.log_text();
            (log.contains("fastcgi_keep_conn") && log.contains(&format!("kill -USR2 {pid}")))
                .then_some(())
        };
        assert!(within(Duration::from_secs(60), is_said).is_some());
        assert_eq!((stage.counter("hits_dynamic"), reloads(&mut stage)), (0, 0));
    });
    cases.run("and done", || {
        common::kill(u64::from(pid), Signal::USR2);
        stage.wait_until(|| {
            let _ = Client::new(stage.address()).get("/file.php");
            stage.counter("hits_dynamic") > 3
        });
        stage.change("/file.php", "second", || stage.write("data/text", "second"));
    });
    cases.end(&mut stage);
}

/// How often PHP-FPM outside is started again.
const RESTARTS: u64 = 5;

/// Versions of files and rows while PHP-FPM outside is started again and again.
#[test]
fn oracle_of_php_outside() {
    let setup = Setup {
        database: Database::MariaDb,
        outside: true,
        php_outside: true,
        workers: 4,
        ..Setup::default()
    };
    let mut stage = Stage::start(&setup, |_| {});
    stage.script("first.php", "<?php echo 'text';");
    stage.script("never.php", "<?php echo getmypid();");
    stage.warm("/first.php");
    let mut plan = files_and_rows(&stage);
    plan.duration = Some(Duration::from_secs(60));
    plan.statuses = vec![502, 503, 504];
    // PHP-FPM itself says nothing, with status 200, to some requests that its processes are at when
    // they are told to end.
    plan.pages.iter_mut().for_each(|page| page.steady = false);
    let asked_at_once = plan.readers.connections as u64;
    let stop = plan.stop.clone();
    let (is_over, over) = mpsc::channel::<()>();
    let report = std::thread::scope(|scope| {
        let stage = &mut stage;
        scope.spawn(move || {
            for _ in 0..RESTARTS {
                std::thread::sleep(Duration::from_millis(1200));
                stage.restart_php();
            }
            // In the end each page is looked at once more, and has to be there: by then the last
            // one answers, no process of those before.
            let last = u64::from(stage.php.as_ref().unwrap().0.id());
            stage.wait_until(|| {
                let reply = Client::new(stage.address()).get("/never.php").unwrap();
                reply.text().parse().is_ok_and(|process| common::family(last).contains(&process))
            });
            stop.store(true, Ordering::Relaxed);
            // The program ends with the thread that has started it.
            let _ = over.recv();
        });
        let report = carry_out(plan);
        drop(is_over);
        report
    });
    assert_eq!(report.outcome(), Outcome::Proven, "{report}");
    let empty: u64 = report.pages.iter().map(|page| page.lacking).sum();
    assert!(empty <= RESTARTS * asked_at_once, "an empty reply was kept: {report}");
    assert!(stage.counter("hits_dynamic") > 100);
}

/// A control group like that of a unit.
struct Unit {
    folder: PathBuf,
    /// The group below its own that its program is in.
    below: &'static str,
    process: Option<Child>,
}

impl Unit {
    fn new(name: &str) -> Self {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let mut groups = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let root = groups
            .find(|words| words[2] == "cgroup2")
            .expect("control groups of version 2 are mounted")[1]
            .to_owned();
        let folder = Path::new(&root).join(name);
        std::fs::create_dir(&folder).unwrap();
        Self { folder, below: "", process: None }
    }

    fn name(&self) -> String {
        self.folder.file_name().unwrap().to_str().unwrap().to_owned()
    }

    /// Starts its program, in place of the one that runs.
    fn start(&mut self, words: &[&str]) {
        self.stop();
        let mut command = Command::new("sh");
        let group = self.folder.join(self.below);
        std::fs::create_dir_all(&group).unwrap();
        let script = format!("echo $$ >{}/cgroup.procs && exec \"$@\"", group.display());
        command.args(["-c", &script, "sh"]).args(words).stdin(Stdio::null());
        self.process = Some(command.spawn().unwrap());
    }

    fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        self.stop();
        for folder in [self.folder.join(self.below), self.folder.clone()] {
            within(Duration::from_secs(5), || {
                (!folder.exists() || std::fs::remove_dir(&folder).is_ok()).then_some(())
            });
        }
    }
}

/// Answers with what is in a file, by a socket in a folder.
const APPLICATION: &str = "
import http.server, socketserver, sys, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = open(sys.argv[2]).read().encode()
        self.send_response(200)
        self.send_header('Content-Type', 'text/plain')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def address_string(self):
        return 'nginx'
    def log_message(self, *_):
        pass
class Server(socketserver.UnixStreamServer):
    allow_reuse_address = True
if os.path.exists(sys.argv[1]):
    os.unlink(sys.argv[1])
os.umask(0)
Server(sys.argv[1], Handler).serve_forever()
";

#[test]
fn a_unit_of_the_machine() {
    let mut unit = Unit::new(&format!("nicache-test-{}.service", std::process::id()));
    let option: &'static str = format!("--follow-unit={}", unit.name()).leak();
    let options: &'static [&'static str] = vec![option, LONG[0]].leak();
    let nginx = "location /app { proxy_pass http://unix:@FOLDER@/run/app.sock; }";
    let mut words = Vec::new();
    let mut stage = Stage::start(&Setup { options, nginx, ..Setup::default() }, |folder| {
        std::fs::write(folder.join("data/text"), "first").unwrap();
        std::fs::write(folder.join("data/app.py"), APPLICATION).unwrap();
        let paths = ["data/app.py", "run/app.sock", "data/text"]
            .map(|name| folder.join(name).display().to_string());
        words = [vec!["python3".to_owned()], paths.to_vec()].concat();
        unit.start(&words.iter().map(String::as_str).collect::<Vec<_>>());
        // It has become the program before anybody watches.
        assert!(
            within(Duration::from_secs(30), || folder.join("run/app.sock").exists().then_some(()))
                .is_some()
        );
    });
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut cases = Cases::default();
    cases.run("what ran before is not known", || {
        stage.wait_until(|| {
            Client::new(stage.address()).get("/app").is_ok_and(|reply| reply.text() == "first")
        });
        let before = stage.counter("hits_dynamic");
        for _ in 0..5 {
            assert_eq!(stage.get("/app"), "first");
        }
        assert_eq!(stage.counter("hits_dynamic"), before);
        assert!(stage.nicache.log_text().contains("is started again, by `systemctl restart"));
    });
    cases.run("started again it is followed", || {
        unit.start(&words);
        stage.wait_until(|| {
            Client::new(stage.address()).get("/app").is_ok_and(|reply| reply.text() == "first")
        });
        stage.warm("/app");
        stage.change("/app", "second", || stage.write("data/text", "second"));
    });
    cases.run("and again, in a group below its own", || {
        stage.warm("/app");
        unit.stop();
        unit.below = "payload";
        stage.write("data/text", "third");
        unit.start(&words);
        expect_again(&stage, "/app", "third");
        stage.warm("/app");
    });
    cases.end(&mut stage);
}
