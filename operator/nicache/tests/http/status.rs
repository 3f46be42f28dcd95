//! Cache-Status (RFC 9211) on demand.

use super::stage::Stage;

#[test]
fn replies_of_the_card_say_so_if_asked_to() {
    let stage = Stage::nginx(&["--cache-status"], "", "");
    let status = |method: &str, fields: &str| {
        for _ in 0..60 {
            let before = stage.counter("hits");
            let reply = stage.ask(method, "/small.txt", fields);
            let is_hit = stage.counter("hits") > before;
            // A reply of the server passes as it is.
            assert_eq!(reply.field("cache-status").is_some(), is_hit, "{reply:?}");
            if is_hit {
                return reply;
            }
            stage.ask("GET", "/small.txt", "");
            std::thread::sleep(std::time::Duration::from_millis(30));
        }
        panic!("no hit: {method} {fields}");
    };
    for (method, fields, expected) in [
        ("GET", "", 200),
        ("HEAD", "", 200),
        ("GET", "If-None-Match: *\r\n", 304),
        ("GET", "Range: bytes=0-9\r\n", 206),
        ("GET", "Range: bytes=0-9,20-29\r\n", 206),
    ] {
        let reply = status(method, fields);
        assert_eq!(
            (reply.status(), reply.field("cache-status")),
            (expected, Some("nicache; hit")),
            "{reply:?}"
        );
    }
}

#[test]
fn and_say_nothing_if_not() {
    let stage = Stage::nginx(&[], "", "");
    assert_eq!(stage.same("GET", "/small.txt", "", true).field("cache-status"), None);
}
