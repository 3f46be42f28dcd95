//! The witness without privileges (`--watch preload`): what the server's own programs and those of
//! `nicache follow` change shows at once, what others change after T at most.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nicache_applications::Client;
use rustix::process::Signal;

use crate::check::{Cases, eventually};
use crate::common::{self, SOON, kill, within};
use crate::machine::{
    find_process, hits_under_load, more_events_than_fit, process, the_watcher_is_killed_of,
    under_load, watcher_stands_still,
};
use crate::stage::{Database, Setup, Shell, Stage, T, Watch};

/// For an execution and the machine's other work.
const SLACK: Duration = Duration::from_millis(800);

fn setup() -> Setup {
    Setup { watch: Watch::Preload, ..Setup::default() }
}

/// With a database behind a relay, because the library does not follow databases.
fn with(database: Database) -> Setup {
    Setup { database, relay: true, ..setup() }
}

fn start() -> Stage {
    Stage::start(&setup(), |_| {})
}

/// A page that shows a file of its own.
fn page(stage: &Stage, name: &str) -> String {
    stage.write(&format!("data/{name}"), "old");
    let text = "<?php echo 'It says ', file_get_contents('@FOLDER@/data/@NAME@'), '!';";
    stage.script(&format!("{name}.php"), &text.replace("@NAME@", name));
    format!("/{name}.php")
}

/// Runs each line as it comes.
fn interactive_python(stage: &Stage) -> Command {
    let mut python = stage.command("python3");
    python.args(["-i", "-q"]).stderr(Stdio::null());
    python
}

/// Cases of the kernel's witness that hold with the preloaded library, too, where both promise the
/// same.
mod as_in_the_kernel {
    use super::{setup, with};
    use crate::stage::{Database, Stage};
    use crate::{databases, files, postgres, privacy, sqlite, unseen};

    #[test]
    fn what_a_script_reads() {
        files::what_a_script_reads_of(Stage::start(&setup(), |_| {}));
    }

    #[test]
    fn where_links_lead() {
        files::where_links_lead_of(setup());
    }

    #[test]
    fn where_php_itself_is_late() {
        files::where_php_itself_is_late_of(setup());
    }

    #[test]
    fn sqlite() {
        sqlite::changes_of(Stage::start(&setup(), |_| {}));
    }

    #[test]
    fn rows_of_mariadb() {
        databases::changes_of_rows_of(Stage::start(&with(Database::MariaDb), |_| {}));
    }

    #[test]
    fn other_things_of_mariadb() {
        databases::changes_by_other_things_of(Stage::start(&with(Database::MariaDb), |_| {}));
    }

    #[test]
    fn functions_of_mariadb_that_write() {
        databases::functions_that_write_of(Stage::start(&with(Database::MariaDb), |_| {}));
    }

    #[test]
    fn postgres() {
        postgres::changes_of(Stage::start(&with(Database::Postgres), |_| {}));
    }

    #[test]
    fn functions_of_postgres_that_write() {
        postgres::functions_that_write_of(Stage::start(&with(Database::Postgres), |_| {}));
    }

    #[test]
    fn visitors() {
        privacy::visitors_of(&setup());
    }

    #[test]
    fn headers_that_the_server_does_not_name() {
        privacy::headers_that_the_server_does_not_name_of(&setup());
    }

    #[test]
    fn clocks_and_chance() {
        unseen::clocks_and_chance_of(&with(Database::MariaDb));
    }

    #[test]
    fn another_server() {
        unseen::another_server_of(setup());
    }

    #[test]
    fn what_requests_do_is_done() {
        unseen::what_requests_do_is_done_of(&with(Database::MariaDb));
    }
}

#[test]
fn what_followed_programs_change() {
    let mut stage = start();
    let mut cases = Cases::default();
    let data = stage.path("data").display().to_string();
    cases.run("by a command of nicache follow", || {
        let url = page(&stage, "followed");
        let script = format!("echo new >{data}/followed");
        let arguments = ["follow", "--name", stage.nicache.name(), "--", "sh", "-ec", &script];
        stage.change(&url, "new", || assert!(common::command(&arguments).status.success()));
    });
    cases.run("a descriptor that stays open for writing", || {
        let url = page(&stage, "held");
        stage.warm(&url);
        let mut writer = Shell::new(interactive_python(&stage), "print('said', flush=True)");
        writer.run(&format!("import os; f = os.open('{data}/held', os.O_WRONLY)"));
        for text in ["n01", "n02", "n03"] {
            writer.run(&format!("os.pwrite(f, b'{text}', 0)"));
            stage.expect(&url, text);
        }
        writer.run("os.close(f)");
        stage.change(&url, "new", || stage.write("data/held", "new"));
    });
    cases.run("a program that writes as a stream and as it ends", || {
        let url = page(&stage, "stream");
        stage.change(&url, "new", || {
            stage.shell(&format!("awk 'BEGIN {{ printf \"new\" >\"{data}/stream\" }}'"));
        });
        stage.change(&url, "end", || {
            stage.shell(&format!("awk 'BEGIN {{ printf \"end\" }}' >{data}/stream"));
        });
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
        stage.change(&url, "new", || stage.write("data/curl", "new"));
        let sqlite = |sql: &str| stage.shell(&format!("sqlite3 {data}/base \"{sql}\""));
        sqlite("CREATE TABLE t (id INTEGER PRIMARY KEY, text); INSERT INTO t VALUES (1, 'old')");
        let text = "<?php $db = new SQLite3('@FOLDER@/data/base', SQLITE3_OPEN_READONLY); echo $db->querySingle('SELECT text FROM t');";
        stage.script("sqlite.php", text);
        stage.change("/sqlite.php", "new", || sqlite("UPDATE t SET text = 'new'"));
    });
    cases.run("a page of the server writes", || {
        let url = page(&stage, "own");
        stage.shell(&format!("chmod 666 {data}/own"));
        stage.script(
            "write.php",
            "<?php file_put_contents('@FOLDER@/data/own', 'new'); echo 'written';",
        );
        stage.change(&url, "new", || assert_eq!(stage.get("/write.php"), "written"));
    });
    cases.run("the server's own writer, by a program that it starts", || {
        let url = page(&stage, "started");
        stage.shell(&format!("chmod 666 {data}/started"));
        stage.script(
            "start.php",
            "<?php shell_exec('sh -c \"printf new >@FOLDER@/data/started\"'); echo 'written';",
        );
        stage.change(&url, "new", || assert_eq!(stage.get("/start.php"), "written"));
    });
    cases.run("a file of the server itself is dynamic, too", || {
        stage.shell(&format!("printf 'hello old' >{data}/../site/plain.html"));
        stage.change("/plain.html", "new", || {
            stage.shell(&format!("printf 'hello new' >{data}/../site/plain.html"));
        });
        assert_eq!(
            stage.counter("hits"),
            stage.counter("hits_dynamic"),
            "a hit that is not dynamic"
        );
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
    late("in place", &|stage, version| {
        std::fs::write(stage.path("data/late"), format!("version {version}")).unwrap();
    });
    late("renamed over", &|stage, version| {
        std::fs::write(stage.path("data/new"), format!("version {version}")).unwrap();
        std::fs::rename(stage.path("data/new"), stage.path("data/late")).unwrap();
    });
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
        let built = std::process::Command::new("cc")
            .args(["-static", "-o", &program, &format!("{program}.c")])
            .status();
        assert!(built.unwrap().success());
        stage.script("static.php", "<?php echo shell_exec('@FOLDER@/data/static');");
        assert_eq!(stage.get("/static.php"), "static\n");
        assert!(!is_kept("/static.php"));
        stage.warm("/kept.php");
    });
    cases.run("as long as one runs, nothing is kept", || {
        let script = "<?php proc_open(['@FOLDER@/data/wait'], [], $pipes); echo 'started';";
        let program = stage.path("data/wait").display().to_string();
        let source = "#include <unistd.h>\nint main(void) { \
            while (!access(\"@HOLD@\", F_OK)) usleep(10000); }";
        let hold = stage.path("data/hold").display().to_string();
        stage.write("data/hold", "");
        stage.write("data/wait.c", &source.replace("@HOLD@", &hold));
        let built = std::process::Command::new("cc")
            .args(["-static", "-o", &program, &format!("{program}.c")])
            .status();
        assert!(built.unwrap().success());
        stage.script("wait.php", &format!("{script} fastcgi_finish_request();"));
        let address = stage.address();
        std::thread::scope(|scope| {
            scope.spawn(|| drop(Client::new(address).get("/wait.php")));
            let is_there = within(Duration::from_secs(60), || find_process(&stage, &program));
            stage.script("meanwhile.php", "<?php echo 'meanwhile';");
            let is_kept = is_kept("/meanwhile.php");
            stage.remove("data/hold");
            assert!(is_there.is_some() && !is_kept);
        });
        stage.warm("/meanwhile.php");
    });
    cases.run("a look-up of a host", || {
        stage.script("host.php", "<?php echo gethostbyname('localhost');");
        assert!(!is_kept("/host.php"));
    });
    cases.end(&mut stage);
}

#[test]
fn databases_without_a_relay_make_pages_that_are_not_kept() {
    let setup = Setup { watch: Watch::Preload, database: Database::MariaDb, ..Setup::default() };
    let mut stage = Stage::start(&setup, |_| {});
    let mut cases = Cases::default();
    cases.run("a table", || {
        stage.sql("CREATE TABLE t (text VARCHAR(10)); INSERT INTO t VALUES ('old')");
        let text = "<?php $db = new mysqli('@HOST@', 'site', 'site', 'site', 0, @SOCKET@); echo $db->query('SELECT text FROM t')->fetch_row()[0];";
        stage.script("table.php", text);
        assert!(stage.try_warm("/table.php", Duration::from_secs(3)).is_none());
        assert!(stage.counter("fill_refused_unwatched_peer") > 0);
        stage.sql("UPDATE t SET text = 'new'");
        assert_eq!(stage.get("/table.php"), "new");
    });
    cases.run("a file beside it", || {
        let url = page(&stage, "beside");
        stage.change(&url, "new", || stage.write("data/beside", "new"));
    });
    cases.end(&mut stage);
}

/// The database is a service of the machine, and so is its relay, as docs/dynamic.md has it.
#[test]
fn a_relay_on_the_same_machine() {
    const OPTIONS: &[&str] = &[
        "--share=3307",
        "--remote-database=mysql://127.0.0.1:3307,relay=127.0.0.1:7400,key=@FOLDER@/run/relay.key",
    ];
    let mut relay = None;
    let setup = Setup { database: Database::MariaDb, outside: true, options: OPTIONS, ..setup() };
    let mut stage = Stage::start(&setup, |folder| {
        let key = folder.join("run/relay.key");
        std::fs::write(&key, "5a".repeat(32)).unwrap();
        std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .unwrap();
        let client = format!(
            "mariadb --no-defaults --user=root --socket={}",
            folder.join("run/mariadb.sock").display()
        );
        let mut command = Command::new(common::NICACHE);
        command.args([
            "relay",
            "--protocol=mysql",
            "--listen=127.0.0.1:3307",
            "--database=127.0.0.1:3306",
        ]);
        command
            .args(["--cards=127.0.0.1:7400", "--client", &client, "--key"])
            .arg(key)
            .env("NICACHE_LOG", "warn");
        relay = Some(Guard(command.spawn().unwrap()));
        let is_there = || std::net::TcpStream::connect("127.0.0.1:7400").ok();
        assert!(within(Duration::from_secs(60), is_there).is_some(), "the relay is not there");
    });
    let mut cases = Cases::default();
    let sql = |text: &str| {
        let arguments =
            ["--no-defaults", "--skip-ssl", "--protocol=tcp", "--host=127.0.0.1", "--port=3307"];
        common::output(
            "mariadb",
            &[&arguments[..], &["--user=site", "--password=site", "site", "--execute", text]]
                .concat(),
        )
    };
    cases.run("an update", || {
        sql("CREATE TABLE t (id INT PRIMARY KEY, text VARCHAR(20)); INSERT INTO t VALUES (1, 'old'), (2, 'other')");
        let text = "<?php $db = new mysqli('127.0.0.1', 'site', 'site', 'site', 3307); echo $db->query('SELECT text FROM t WHERE id = 1')->fetch_row()[0];";
        stage.script("table.php", text);
        for new in ["new", "newer", "newest"] {
            stage.change("/table.php", new, || drop(sql(&format!("UPDATE t SET text = '{new}' WHERE id = 1"))));
        }
        let mut tries = 0;
        let is_reinstated = || {
            tries += 1;
            stage.warm("/table.php");
            let before = stage.counter("reinstated");
            sql(&format!("UPDATE t SET text = 'another {tries}' WHERE id = 2"));
            assert_eq!(stage.get("/table.php"), "newest");
            stage.counter("reinstated") > before
        };
        assert!(eventually(is_reinstated), "another row has the page made anew");
    });
    cases.end(&mut stage);
}

/// Ends a program with the test.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_happens_to_programs() {
    let mut stage = start();
    let mut cases = Cases::default();
    stage.write("data/version", "0");
    stage.script("file.php", "<?php echo 'version ', file_get_contents('@FOLDER@/data/version');");
    let data = stage.path("data").display().to_string();
    let write = &|version: usize| {
        stage.shell(&format!("printf {version} >{data}/v; mv {data}/v {data}/version"));
    };
    cases.run("readers and a writer", || {
        write(0);
        stage.warm("/file.php");
        hits_under_load(&stage, "/file.php", write);
    });
    cases.run("the watcher stands still for 5 s", || watcher_stands_still(&stage, write));
    cases.run("more events than the ring holds", || more_events_than_fit(&stage, write));
    cases.run("processes of the server are killed", || {
        write(0);
        stage.warm("/file.php");
        let (mut killed, mut next) = (0, Duration::from_millis(500));
        let (replies, failed) =
            under_load(&stage, "/file.php", Duration::from_secs(5), write, |at| {
                if killed < 4 && at > next {
                    (killed, next) = (killed + 1, at + Duration::from_millis(800));
                    kill(
                        process(
                            &stage,
                            if killed % 2 == 0 { "php-fpm: pool" } else { "nginx: worker" },
                        ),
                        Signal::KILL,
                    );
                }
                killed == 4
            });
        println!("  {replies} replies, {failed} failed");
        assert!(killed == 4 && replies > failed);
        stage.warm("/file.php");
    });
    cases.end(&mut stage);
}

#[test]
fn the_watcher_is_killed() {
    let stage = start();
    stage.write("data/version", "0");
    stage.script("file.php", "<?php echo 'version ', file_get_contents('@FOLDER@/data/version');");
    the_watcher_is_killed_of(stage);
}

#[test]
fn nothing_is_left_behind() {
    let left = |name: &str| {
        let places = ["/dev/shm/nicache", "/run/nicache", "/var/lib/nicache"];
        let all = places
            .iter()
            .flat_map(|place| std::fs::read_dir(place).into_iter().flatten().flatten());
        all.filter(|entry| {
            entry.file_name().to_str().is_some_and(|file| file.starts_with(&format!("{name}.")))
        })
        .count()
    };
    // Another one takes a name that is free again.
    let name: &str = Box::leak(format!("preload-{}", std::process::id()).into());
    let options: &[&str] = Box::leak(Box::new(["--name", name]));
    let mut stage = Stage::start(&Setup { options, ..setup() }, |_| {});
    assert!(left(name) >= 3);
    stage.nicache.signal(Signal::TERM);
    assert!(stage.nicache.wait(SOON).is_some());
    assert!(within(SOON, || (left(name) == 0).then_some(())).is_some(), "{} left", left(name));
    drop(stage);
    common::assert_fails(
        &["--watch", "preload", "--recheck", "10s"],
        &["--watch preload", "--watch kernel"],
    );
}
