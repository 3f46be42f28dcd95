//! Many who ask at once for what nobody has: the server is asked by few.

use std::cell::Cell;
use std::sync::Barrier;

use super::common::holds_after;
use super::stage::{Connection, Stage, text};

const CLIENTS: usize = 24;
const ROUNDS: usize = 3;

#[test]
fn a_cold_file_is_asked_for_by_few() {
    let stage = Stage::nginx(
        &[],
        "",
        "location /slow/ { alias @ROOT@/site/; limit_rate 3m; limit_rate_after 0; }",
    );
    let sent = Cell::new(0);
    let ask = |round| {
        sent.set(sent.get() + CLIENTS as u64);
        // 100 ms of the server's.
        let name = format!("cold{round}.bin");
        let content = text(300_000 + round);
        std::fs::write(stage.path(&name), &content).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1100));
        // The first to read it changes its access time.
        assert!(std::fs::read(stage.path(&name)).unwrap() == content);
        let barrier = Barrier::new(CLIENTS);
        let connections: Vec<Connection> = (0..CLIENTS).map(|_| stage.connect()).collect();
        std::thread::scope(|scope| {
            for mut connection in connections {
                let (barrier, name, content) = (&barrier, &name, &content);
                scope.spawn(move || {
                    barrier.wait();
                    let reply = connection
                        .ask(&format!("GET /slow/{name} HTTP/1.1\r\nHost: files\r\n\r\n"));
                    assert!(reply.body == *content, "{} bytes", reply.body.len());
                });
            }
        });
    };
    let mut counted = Vec::new();
    let are_few = || {
        let log = std::fs::read_to_string(stage.site.folder.path().join("access.log")).unwrap();
        let asked = log.lines().filter(|line| line.contains("/slow/")).count();
        let (collapsed, answered) =
            (stage.counter("waits_collapsed"), stage.counter("waits_answered"));
        let (asked, all) = (asked as u64, sent.get());
        println!(
            "{asked} of {all} requests at the server, {collapsed} waited, {answered} of these answered"
        );
        counted = vec![asked, all, collapsed, answered];
        collapsed > 0 && answered > 0 && asked < all
    };
    // On a busy machine all of them may come one after the other.
    let is_seen = holds_after(ROUNDS, ask, are_few);
    let status = super::common::status(stage.nicache.name());
    assert!(is_seen, "{counted:?} {status}");
}

#[test]
fn what_is_never_kept_is_asked_for_by_all() {
    let stage = Stage::nginx(
        &[],
        "",
        "location /private/ { alias @ROOT@/site/; add_header Cache-Control private; limit_rate 3m; }",
    );
    let begun = std::time::Instant::now();
    for _ in 0..3 {
        let connections: Vec<Connection> = (0..CLIENTS).map(|_| stage.connect()).collect();
        std::thread::scope(|scope| {
            for mut connection in connections {
                scope.spawn(move || {
                    let reply =
                        connection.ask("GET /private/big.bin HTTP/1.1\r\nHost: files\r\n\r\n");
                    assert!(reply.body == text(300_000));
                });
            }
        });
    }
    println!(
        "{} requests in {:?}, {} waited",
        3 * CLIENTS,
        begun.elapsed(),
        stage.counter("waits_collapsed")
    );
    assert_eq!(stage.counter("hits"), 0);
    // At most those of the first time, when nobody knew.
    assert!(stage.counter("waits_collapsed") < CLIENTS as u64);
}
