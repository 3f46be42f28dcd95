//! Methods that change something: what they name is asked for again (RFC 9111 section 4.4).

use super::common::{SOON, within};
use super::stage::Stage;

const SERVER: &str = "
    location = /made { return 303 /small.txt; }
    location = /made-absolute { return 201 /; add_header Location http://files/small.txt; }
    location = /made-elsewhere { return 303 http://elsewhere/small.txt; }
    location = /small.txt { error_page 405 = @changed; }
    location @changed { return 204; }";

/// Is the next request a hit?
fn is_hit(stage: &Stage, path: &str) -> bool {
    let before = stage.counter("hits");
    assert_eq!(stage.ask("GET", path, "").status(), 200);
    stage.counter("hits") > before
}

#[test]
fn what_a_request_names_is_asked_for_again() {
    let stage = Stage::nginx(&[], "", SERVER);
    let post = |path: &str, fields: &str| {
        let content = if fields.contains(" 5") { "hello" } else { "" };
        let request = format!("POST {path} HTTP/1.1\r\nHost: files\r\n{fields}\r\n{content}");
        stage.connect().ask(&request);
    };
    for (what, path, fields, goes) in [
        ("its target", "/small.txt", "Content-Length: 0\r\n", true),
        ("its target, with content", "/small.txt", "Content-Length: 5\r\n", true),
        ("another target", "/one.txt", "Content-Length: 0\r\n", false),
        ("Location", "/made", "Content-Length: 0\r\n", true),
        ("an absolute Location", "/made-absolute", "Content-Length: 0\r\n", true),
        ("a Location elsewhere", "/made-elsewhere", "Content-Length: 0\r\n", false),
        ("an error", "/nothing-there", "Content-Length: 0\r\n", false),
    ] {
        // What other tests mount makes everything suspect for a moment: what stays must be seen to
        // stay once.
        let stays = || {
            let was_hit = within(SOON, || {
                stage.same("GET", "/small.txt", "", true);
                is_hit(&stage, "/small.txt").then_some(())
            });
            assert!(was_hit.is_some(), "{what}");
            post(path, fields);
            is_hit(&stage, "/small.txt")
        };
        let attempts = if goes { 1 } else { 5 };
        let went = (0..attempts).map(|_| stays()).take_while(|stays| !stays).count() == attempts;
        assert_eq!(went, goes, "{what}");
    }
    assert!(stage.counter("invalidations") >= 3);
    // A safe method changes nothing.
    let stays = || {
        stage.same("GET", "/small.txt", "", true);
        stage.ask("OPTIONS", "/small.txt", "");
        is_hit(&stage, "/small.txt")
    };
    assert!((0..5).any(|_| stays()));
}

#[test]
fn a_file_that_is_put_is_seen_at_once() {
    let stage = Stage::nginx(
        &[],
        "",
        "dav_methods PUT DELETE; dav_access user:rw group:rw all:rw; client_body_temp_path @ROOT@/t1;",
    );
    let folder = stage.path("");
    std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let mut connection = stage.connect();
    for round in 0..20 {
        let content = format!("version {round}\n");
        let put = format!(
            "PUT /put.txt HTTP/1.1\r\nHost: files\r\nContent-Length: {}\r\n\r\n{content}",
            content.len()
        );
        let status = connection.ask(&put).status();
        assert!(matches!(status, 201 | 204), "{status}");
        for _ in 0..3 {
            let reply = connection.ask("GET /put.txt HTTP/1.1\r\nHost: files\r\n\r\n");
            assert_eq!(String::from_utf8(reply.body).unwrap(), content);
        }
    }
    assert!(connection.ask("DELETE /put.txt HTTP/1.1\r\nHost: files\r\n\r\n").status() < 300);
    assert_eq!(connection.ask("GET /put.txt HTTP/1.1\r\nHost: files\r\n\r\n").status(), 404);
}
