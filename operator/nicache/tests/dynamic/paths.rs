//! Settings for some paths: what may differ, what is shared although the server does not say so,
//! and what is not kept.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nicache_applications::Client;

use crate::check::{Cases, eventually};
use crate::common;
use crate::stage::{Setup, Stage, T};

const OPTIONS: &[&str] = &[
    "--session-files=@FOLDER@/tmp/sess_*",
    "--path=pattern = '/masked*', masks = ['id=\"*\"', 'took *ms'], \
     mask-headers = ['X-Page-Number'], recheck-max = '1s'",
    "--path=pattern = '/private*', share-private = true",
    "--path=pattern = '/session*', share-no-store = true, drop-set-cookie = ['PHPSESSID']",
    "--path=pattern = '/never*', cache = false",
    "--path=pattern = '/slow*', recheck = '1m'",
    "--path=pattern = '/files*', recheck = '0'",
    "--path=pattern = '/harmless*', ignore-cookie = ['theme']",
];

const PATIENCE: Duration = Duration::from_secs(60);

fn stage() -> Stage {
    Stage::start(&Setup { options: OPTIONS, ..Setup::default() }, |_| {})
}

/// Asks until the card has answered three times; false if it does not within `limit`.
fn is_kept(stage: &Stage, path: &str, limit: Duration) -> bool {
    let mut client = stage.client();
    let (before, begun) = (stage.counter("hits_dynamic"), Instant::now());
    while begun.elapsed() < limit {
        assert_eq!(client.get(path).unwrap().status, 200);
        if stage.counter("hits_dynamic") >= before + 3 {
            return true;
        }
        std::thread::sleep(Duration::from_millis(15));
    }
    false
}

fn unix_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()
}

fn with_cookie(client: &mut Client, path: &str, cookie: &str) -> String {
    client.request("GET", path, &[("Cookie", cookie)], b"").unwrap().text()
}

/// A token with the time in it, another of changing length, a header, and a text.
const TOKENS: &str = "<?php header('X-Page-Number: ' . bin2hex(random_bytes(8)));
    echo '<p id=\"', (int) (microtime(true) * 1000), '\">took ', random_int(1, 99999), 'ms ', file_get_contents('@FOLDER@/data/text');";

#[test]
fn what_differs_by_masked_tokens_is_kept() {
    let mut stage = stage();
    let mut cases = Cases::default();
    stage.write("data/text", "first");
    stage.script("masked.php", TOKENS);
    stage.script("plain.php", TOKENS);
    cases.run("tokens are never older than T", || {
        let mut client = stage.client();
        let is_shared = || {
            assert!(is_kept(&stage, "/masked.php", PATIENCE));
            let (hits, begun) = (stage.counter("hits_dynamic"), Instant::now());
            let mut tokens = std::collections::HashSet::new();
            while begun.elapsed() < 4 * T {
                let asked = unix_ms();
                let text = client.get("/masked.php").unwrap().text();
                let token: u128 = text.split('"').nth(1).unwrap().parse().unwrap();
                assert!(token + T.as_millis() + 100 >= asked, "{} ms old", asked - token);
                tokens.insert(token);
                std::thread::sleep(Duration::from_millis(5));
            }
            stage.counter("hits_dynamic") > hits + tokens.len() as u64 && tokens.len() > 2
        };
        assert!(eventually(is_shared));
        assert!(stage.counter("masked") > 0);
    });
    cases.run("the rest shows at once", || {
        for number in 0..5 {
            assert!(is_kept(&stage, "/masked.php", PATIENCE));
            stage.write("data/text", &format!("text {number}"));
            assert!(stage.get("/masked.php").ends_with(&format!("text {number}")));
        }
    });
    cases.run("elsewhere the same is not kept", || {
        assert!(!is_kept(&stage, "/plain.php", Duration::from_secs(2)));
    });
    cases.end(&mut stage);
}

/// The number of an execution and how long it took are in no reply of the card's: replies that
/// differ in these alone are the same.
#[test]
fn fields_of_an_execution_do_not_count() {
    const OF_EXECUTION: &str = "<?php header('X-Request-Id: ' . bin2hex(random_bytes(8))); header('X-Runtime: ' . lcg_value());
        header('Server-Timing: db;dur=' . random_int(1, 99999)); header('X-Kept: yes'); echo file_get_contents('@FOLDER@/data/text');";
    let mut stage = Stage::start(&Setup::default(), |_| {});
    let mut cases = Cases::default();
    let lines = |stage: &Stage| {
        let request = "GET /numbered.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let reply = common::ask_once(stage.address(), request).to_lowercase();
        ["x-request-id:", "x-runtime:", "server-timing:", "x-kept: yes"]
            .map(|line| reply.contains(line))
    };
    stage.write("data/text", "first");
    stage.script("numbered.php", OF_EXECUTION);
    cases.run("the server's own have them, the card's do not", || {
        assert_eq!(lines(&stage), [true; 4]);
        assert!(is_kept(&stage, "/numbered.php", PATIENCE));
        let hits = stage.counter("hits_dynamic");
        let seen: Vec<_> = (0..50).map(|_| lines(&stage)).collect();
        assert!(
            stage.counter("hits_dynamic") > hits && seen.contains(&[false, false, false, true])
        );
        assert!(
            seen.iter().all(|seen| seen[0] == seen[1] && seen[1] == seen[2] && seen[3]),
            "{seen:?}"
        );
    });
    cases.run("an edit shows at once", || {
        for number in 0..5 {
            assert!(is_kept(&stage, "/numbered.php", PATIENCE));
            stage.write("data/text", &format!("text {number}"));
            assert_eq!(stage.get("/numbered.php"), format!("text {number}"));
        }
    });
    cases.end(&mut stage);
}

#[test]
fn what_the_operator_shares() {
    let mut stage = stage();
    let mut cases = Cases::default();
    cases.run("private", || {
        for name in ["private", "other"] {
            stage.script(
                &format!("{name}.php"),
                "<?php header('Cache-Control: private, max-age=0'); echo 'for all';",
            );
        }
        stage.script(
            "privately.php",
            "<?php header('Cache-Control: no-store, private'); echo 'for one';",
        );
        assert!(is_kept(&stage, "/private.php", PATIENCE));
        for path in
            ["/other.php", "/privately.php", "/%2e/private.php", "/private.php/../other.php"]
        {
            assert!(!is_kept_if_any(&stage, path), "{path}");
        }
    });
    cases.run("sessions", || {
        stage.script(
            "session.php",
            "<?php session_start(); $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1; echo 'visit ', $_SESSION['n'];",
        );
        let mut visitors = [(); 2].map(|()| Client::with_cookies(stage.address()));
        for visitor in &mut visitors {
            let reply = visitor.request("GET", "/session.php", &[("X-Direct", "1")], b"").unwrap();
            assert!(reply.header("set-cookie").is_some());
        }
        assert!(is_kept(&stage, "/session.php", PATIENCE));
        let (mut without, begun) = (0, Instant::now());
        for round in 2.. {
            if round >= 40 && (without > 0 || begun.elapsed() > PATIENCE) {
                break;
            }
            let reply = stage.client().get("/session.php").unwrap();
            assert_eq!(reply.text(), "visit 1");
            without += u32::from(reply.header("set-cookie").is_none());
            for visitor in &mut visitors {
                assert_eq!(visitor.get("/session.php").unwrap().text(), format!("visit {round}"));
            }
        }
        assert!(without > 0, "no reply without a cookie, so none of the card");
    });
    cases.run("harmless cookies", || {
        stage.script("harmless.php", "<?php echo 'for all';");
        assert!(is_kept(&stage, "/harmless.php", PATIENCE));
        let mut client = stage.client();
        let is_answered = eventually(|| {
            let (hits, bypasses) = (stage.counter("hits"), stage.counter("bypass_cookie"));
            for _ in 0..10 {
                assert_eq!(with_cookie(&mut client, "/harmless.php", "theme=dark"), "for all");
                assert_eq!(
                    with_cookie(&mut client, "/harmless.php", "theme=dark; sid=1"),
                    "for all"
                );
            }
            assert_eq!(stage.counter("bypass_cookie"), bypasses + 10);
            stage.counter("hits") > hits
        });
        assert!(is_answered);
    });
    cases.run("cookies that are not as harmless as was said", || {
        stage.script("harmless2.php", "<?php echo 'theme ', $_COOKIE['theme'] ?? 'none';");
        let mut clients = [stage.client(), stage.client()];
        for _ in 0..60 {
            for client in &mut clients {
                with_cookie(client, "/harmless2.php", "theme=dark");
            }
        }
        for _ in 0..5 {
            assert_eq!(stage.get("/harmless2.php"), "theme none");
        }
    });
    cases.end(&mut stage);
}

fn is_kept_if_any(stage: &Stage, path: &str) -> bool {
    let mut client = stage.client();
    let before = stage.counter("hits");
    for _ in 0..60 {
        client.get(path).unwrap();
    }
    stage.counter("hits") > before
}

#[test]
fn what_is_kept_for_how_long() {
    let mut stage = stage();
    let mut cases = Cases::default();
    cases.run("never", || {
        stage.script("never.php", "<?php echo 'for all';");
        let before = stage.counter("misses_excluded");
        assert!(!is_kept_if_any(&stage, "/never.php") && !is_kept_if_any(&stage, "/%6eever.php"));
        assert_eq!(stage.counter("misses_excluded"), before + 120);
    });
    cases.run("longer than elsewhere", || {
        stage.script("slow.php", "<?php echo 'for all ', file_get_contents('@FOLDER@/data/text');");
        stage.write("data/text", "first");
        let mut client = stage.client();
        let counters = || {
            ["hits_dynamic", "recheck_requests", "purges_by_source"].map(|name| stage.counter(name))
        };
        let lasts = || {
            assert!(is_kept(&stage, "/slow.php", PATIENCE));
            let (before, begun, mut requests) = (counters(), Instant::now(), 0);
            while begun.elapsed() < 3 * T {
                client.get("/slow.php").unwrap();
                requests += 1;
            }
            let after = counters();
            let [hits, asked, purged] = [0, 1, 2].map(|at| after[at] - before[at]);
            println!("  {requests} requests, {hits} hits, {asked} asked again, {purged} purged");
            // T would cost three. What the database does by itself may cost one, and so may what
            // voids everything: other tests' mounts.
            hits > requests * 9 / 10 && asked <= 1 + 2 * purged
        };
        assert!(eventually(lasts), "it is not kept longer");
        stage.write("data/text", "second");
        assert_eq!(client.get("/slow.php").unwrap().text(), "for all second");
    });
    cases.run("files alone", || {
        stage.script("files.php", "<?php echo 'for all';");
        assert!(!is_kept_if_any(&stage, "/files.php"));
        stage.script("files.html", "a file");
        std::thread::sleep(Duration::from_millis(100));
        assert!(eventually(|| is_kept_if_any(&stage, "/files.html")));
    });
    cases.end(&mut stage);
}

/// A page that changes before it is used costs the server more with the card than without.
#[test]
fn what_changes_more_often_than_it_is_used_is_put_aside() {
    let mut stage = stage();
    let mut cases = Cases::default();
    stage.script("worth.php", "<?php echo file_get_contents('@FOLDER@/data/text');");
    stage.write("data/text", "0");
    cases.run("it is found, and recovers", || {
        assert!(is_kept(&stage, "/worth.php", PATIENCE));
        let mut client = stage.client();
        let begun = Instant::now();
        let mut number = 0;
        while stage.counter("misses_not_worth") == 0 {
            number += 1;
            stage.write("data/text", &number.to_string());
            assert_eq!(client.get("/worth.php").unwrap().text(), number.to_string());
            // Time for the card's own request, by which it becomes an entry again.
            std::thread::sleep(Duration::from_millis(60));
            assert!(begun.elapsed() < Duration::from_secs(90), "{number} changes, never put aside");
        }
        assert!(stage.counter("put_aside") > 0);
        assert!(is_kept(&stage, "/worth.php", PATIENCE));
    });
    cases.end(&mut stage);
}

/// Without the setting, a changed file that nobody asks for keeps all pages from being kept for a
/// minute, as PHP might have it in memory.
#[test]
fn data_concerns_only_the_pages_that_read_it() {
    let options = &["--data-folder=@FOLDER@/data"];
    let mut stage = Stage::start(&Setup { options, ..Setup::default() }, |_| {});
    let mut cases = Cases::default();
    for name in ["one", "other"] {
        stage.script(
            &format!("{name}.php"),
            &format!("<?php echo file_get_contents('@FOLDER@/data/{name}');"),
        );
        stage.write(&format!("data/{name}"), "0");
    }
    cases.run("the others go on", || {
        for number in 1..5 {
            for name in ["one", "other"] {
                assert!(is_kept(&stage, &format!("/{name}.php"), PATIENCE), "{name}");
            }
            let wasted = stage.counter("fill_refused_dirty");
            stage.write("data/one", &number.to_string());
            assert!(is_kept(&stage, "/other.php", PATIENCE));
            assert_eq!(stage.counter("fill_refused_dirty"), wasted);
            assert_eq!(stage.get("/one.php"), number.to_string());
        }
    });
    cases.run("scripts are no data", || {
        assert!(is_kept(&stage, "/one.php", PATIENCE));
        stage.script("one.php", "<?php echo 'new ', file_get_contents('@FOLDER@/data/one');");
        assert!(stage.get("/one.php").starts_with("new "));
    });
    cases.end(&mut stage);
}
