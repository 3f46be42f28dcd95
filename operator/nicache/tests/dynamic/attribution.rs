//! Requests at the same time: what one of them reads is not a reason to void the page of another,
//! if it is certain whose it is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nicache_applications::Client;

use crate::check::Cases;
use crate::stage::{Database, Setup, Stage};

/// Changes that a page must survive, of so many or those in so long. Another program's work on the
/// machine can spoil one.
const SURVIVED: usize = 3;
const ROUNDS: usize = 24;
const PATIENCE: Duration = Duration::from_secs(120);

/// A slow page that looks at a file and at a table of its own.
fn page(stage: &Stage, name: &str) -> String {
    stage.sql(&format!(
        "CREATE TABLE {name} (id INT PRIMARY KEY, text VARCHAR(100)); INSERT INTO {name} VALUES (1, 'old')"
    ));
    stage.write(&format!("data/{name}"), "old");
    let text = "<?php clearstatcache(); $size = filesize('@FOLDER@/data/@NAME@'); usleep(120000);
        $db = new mysqli(null, 'site', 'site', 'site', 0, '@FOLDER@/run/mariadb.sock');
        echo $size, ' ', $db->query('SELECT text FROM @NAME@')->fetch_row()[0];";
    stage.script(&format!("{name}.php"), &text.replace("@NAME@", name));
    format!("/{name}.php")
}

/// Has clients ask the server itself for a page, all the time.
fn while_asked_for<T>(stage: &Stage, other: &str, job: impl FnOnce() -> T) -> T {
    let (address, stop) = (stage.address(), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(move || {
                let mut client = Client::new(address);
                while !stop.load(Ordering::Relaxed) {
                    client.request("GET", other, &[("X-Direct", "1")], b"").unwrap();
                }
            });
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
        stop.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Does the page survive a change, if it was made anew while the other one was asked for? It is
/// made of the file `own`.
fn survives(
    stage: &Stage,
    page: &str,
    own: &str,
    other: &str,
    round: usize,
    change: impl FnOnce(),
) -> bool {
    stage.write(&format!("data/{own}"), &"x".repeat(round % ROUNDS + 30));
    while_asked_for(stage, other, || stage.warm(page));
    std::thread::sleep(Duration::from_millis(200));
    let before = stage.counters();
    change();
    stage.get(page);
    let after = stage.counters();
    let is_hit = after["hits_dynamic"] == before["hits_dynamic"] + 1;
    if !is_hit {
        let changed = after
            .iter()
            .filter(|(name, count)| before[*name] != **count && !name.starts_with("bus_"));
        let changed: Vec<_> =
            changed.map(|(name, count)| format!("{name} {} to {count}", before[name])).collect();
        println!("  not a hit in round {round}: {}", changed.join(", "));
    }
    is_hit
}

/// The page survives changes. Where processes wait for the CPU, more of what others do is counted
/// as the page's own, so not all of them.
fn assert_survives(
    stage: &Stage,
    page: &str,
    own: &str,
    other: &str,
    mut change: impl FnMut(usize),
) {
    let (mut survived, mut rounds, begun) = (0, 0, Instant::now());
    while rounds < ROUNDS || begun.elapsed() < PATIENCE {
        let round = rounds;
        rounds += 1;
        survived += usize::from(survives(stage, page, own, other, round, || change(round)));
        if survived == SURVIVED {
            println!("  {survived} changes of {rounds} survived");
            return;
        }
    }
    panic!("{page} survived {survived} of {rounds} changes of what {other} is made of");
}

/// Neither a change of the other page's row nor of its file voids the page; changes of its own do,
/// at once.
fn separates(stage: &Stage, one: &str, two: &str) {
    let (page_one, page_two) = (format!("/{one}.php"), format!("/{two}.php"));
    assert_survives(stage, &page_one, one, &page_two, |round| {
        drop(stage.sql(&format!("UPDATE {two} SET text = 'r{round}'")));
    });
    assert_survives(stage, &page_one, one, &page_two, |round| {
        stage.write(&format!("data/{two}"), &"x".repeat(round % ROUNDS + 10));
    });
    for (page, table) in [(&page_one, one), (&page_two, two)] {
        while_asked_for(stage, if table == one { &page_two } else { &page_one }, || {
            stage.change(page, "new", || {
                drop(stage.sql(&format!("UPDATE {table} SET text = 'new'")));
            });
            stage.change(page, "77 ", || stage.write(&format!("data/{table}"), &"x".repeat(77)));
        });
    }
}

const KEPT: &str = "location ~ ^/kept/(.*\\.php)$ {
            fastcgi_pass kept;
            fastcgi_keep_conn on;
            include /etc/nginx/fastcgi_params;
            fastcgi_param SCRIPT_FILENAME $document_root/$1;
        }
        location ~ ^/hidden/(.*\\.php)$ {
            fastcgi_pass unix:@FOLDER@/run/php.sock;
            include /etc/nginx/fastcgi_params;
            fastcgi_param SCRIPT_FILENAME $document_root/$1;
            fastcgi_param REMOTE_PORT '';
        }";

#[test]
fn slow_pages_at_the_same_time() {
    let setup = Setup {
        database: Database::MariaDb,
        workers: 8,
        nginx: KEPT,
        options: &["--recheck", "20s"],
        ..Setup::default()
    };
    let mut stage = Stage::start(&setup, |_| {});
    let mut cases = Cases::default();
    cases.run("a file and a row of one's own", || {
        page(&stage, "one");
        page(&stage, "two");
        separates(&stage, "one", "two");
    });
    cases.run("connections to PHP that stay open", || {
        let [one, two] = ["k_one", "k_two"].map(|name| page(&stage, name));
        let (one, two) = (format!("/kept{one}"), format!("/kept{two}"));
        assert_survives(&stage, &one, "k_one", &two, |round| {
            drop(stage.sql(&format!("UPDATE k_two SET text = 'r{round}'")));
        });
        while_asked_for(&stage, &two, || {
            stage.change(&one, "new", || drop(stage.sql("UPDATE k_one SET text = 'new'")));
            stage.change(&one, "88 ", || stage.write("data/k_one", &"x".repeat(88)));
        });
    });
    cases.run("a web server that does not say for whom", || {
        let [one, two] = ["h_one", "h_two"].map(|name| page(&stage, name));
        let (one, two) = (format!("/hidden{one}"), format!("/hidden{two}"));
        // Everything counts: which also shows that the cases before do not pass by themselves.
        // The other page's question may miss the time in which the page is made, but seldom.
        let is_survived = |round: &usize| {
            let change = || drop(stage.sql(&format!("UPDATE h_two SET text = 'r{round}'")));
            survives(&stage, &one, "h_one", &two, *round, change)
        };
        let survived = (0..5).filter(is_survived).count();
        assert!(survived < SURVIVED, "{survived} changes of 5 survived");
        stage.change(&one, "new", || drop(stage.sql("UPDATE h_one SET text = 'new'")));
    });
    cases.run("a page that asks for another one", || {
        let two = page(&stage, "asked");
        stage
            .script("asks.php", &format!("<?php echo file_get_contents('http://127.0.0.1{two}');"));
        page(&stage, "beside");
        while_asked_for(&stage, "/beside.php", || {
            stage.change("/asks.php", "new", || drop(stage.sql("UPDATE asked SET text = 'new'")));
            stage.change("/asks.php", "99 ", || stage.write("data/asked", &"x".repeat(99)));
        });
    });
    cases.run("a page that starts a program", || {
        stage.write("data/child", "v0");
        stage.script(
            "child.php",
            "<?php usleep(50000); echo shell_exec('cat @FOLDER@/data/child');",
        );
        let one = page(&stage, "beside_child");
        while_asked_for(&stage, "/child.php", || {
            for round in 1..10 {
                stage.write("data/child", &format!("v{round}"));
                stage.sql(&format!("UPDATE beside_child SET text = 'v{round}'"));
                assert_eq!(stage.get("/child.php"), format!("v{round}"));
                assert!(stage.get(&one).ends_with(&format!("v{round}")));
            }
        });
    });
    cases.run("a page that works on after its end", || {
        let text =
            "<?php $n = (int) $_GET['n']; echo 'done'; fastcgi_finish_request(); usleep(80000);
            file_put_contents('@FOLDER@/data/late', \"late $n\");
            $db = new mysqli(null, 'site', 'site', 'site', 0, '@FOLDER@/run/mariadb.sock');
            $db->query(\"UPDATE late SET text = 'late $n'\");";
        stage.sql("CREATE TABLE late (text VARCHAR(20)); INSERT INTO late VALUES ('old')");
        stage.script("late.php", text);
        let shows = "<?php usleep(60000); echo @file_get_contents('@FOLDER@/data/late'), ' and ';
            $db = new mysqli(null, 'site', 'site', 'site', 0, '@FOLDER@/run/mariadb.sock');
            echo $db->query('SELECT text FROM late')->fetch_row()[0];";
        stage.script("shows.php", shows);
        for round in 0..8 {
            stage.warm("/shows.php");
            stage
                .client()
                .request("GET", &format!("/late.php?n={round}"), &[("X-Direct", "1")], b"")
                .unwrap();
            let new = format!("late {round}");
            while stage.sql("SELECT text FROM late").trim() != new {
                std::thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(stage.get("/shows.php"), format!("{new} and {new}"));
        }
    });
    cases.run("clients that go away", || {
        let [one, two] = ["leaves", "stays"].map(|name| page(&stage, name));
        let leave = || {
            use std::io::Write;
            let mut stream = std::net::TcpStream::connect(stage.address()).unwrap();
            write!(stream, "GET {one} HTTP/1.1\r\nHost: x\r\nX-Direct: 1\r\n\r\n").unwrap();
            std::thread::sleep(Duration::from_millis(30));
        };
        for round in 0..6 {
            (0..4).for_each(|_| leave());
            stage.warm(&two);
            stage.sql(&format!("UPDATE stays SET text = 'v{round}'"));
            assert!(stage.get(&two).ends_with(&format!("v{round}")));
        }
    });
    cases.end(&mut stage);
}

#[test]
fn one_worker_for_all() {
    let setup = Setup {
        database: Database::MariaDb,
        workers: 1,
        options: &["--recheck", "20s"],
        ..Setup::default()
    };
    let mut stage = Stage::start(&setup, |_| {});
    let mut cases = Cases::default();
    cases.run("requests that wait for the same worker", || {
        page(&stage, "one");
        page(&stage, "two");
        separates(&stage, "one", "two");
    });
    cases.end(&mut stage);
}
