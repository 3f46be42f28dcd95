//! Ranges: the card sends what the server has shown it to send, and asks where servers differ.

use super::stage::{Stage, text};

/// Values of Range, and whether the card answers them.
const RANGES: &[(&str, bool)] = &[
    ("bytes=0-0", true),
    ("bytes=0-", true),
    ("bytes=0-999", true),
    ("bytes=-5", true),
    ("bytes=990-", true),
    ("bytes=500-999999", true),
    ("bytes=0-1,5-6", true),
    ("bytes=0-0,2-2,4-4,100-200,-1", true),
    ("bytes=0-1,5000000-", true),
    ("bytes=5000000-", false),
    ("bytes=-0", false),
    ("bytes=-5000000", false),
    ("bytes=5-2", false),
    ("bytes=abc", false),
    ("bytes= 0-1", false),
    ("bytes=0-1, 5-6", false),
    ("bytes=0-1,,5-6", false),
    ("bytes=0-1,2-3", false),
    ("bytes=0-5,3-8", false),
    ("bytes=5-6,0-1", false),
    ("bytes=0-,5-6", false),
    ("lines=0-1", false),
    ("bytes=99999999999999999999-", false),
    ("bytes=0-99999999999999999999", false),
];

fn all_kinds_of_ranges(stage: &Stage) {
    for name in ["/small.txt", "/big.bin"] {
        for &(range, due) in RANGES {
            let whole = range == "bytes=0-999" && name == "/big.bin";
            let reply = stage.same("GET", name, &format!("Range: {range}\r\n"), due || whole);
            if due {
                assert_eq!(reply.status(), 206, "{reply:?}");
            }
        }
        // More than are served from card memory.
        let many: Vec<String> = (0..17).map(|at| format!("{}-{}", at * 3, at * 3)).collect();
        stage.same("GET", name, &format!("Range: bytes={}\r\n", many.join(",")), false);
        for fields in
            ["Range: bytes=0-1\r\nRange: bytes=2-3\r\n", "Range: bytes=0-1\r\nX-Unknown: 1\r\n"]
        {
            stage.same("GET", name, fields, false);
        }
        // Servers send heads of 206 replies, which RFC 9110 section 14.2 does not know.
        stage.same("HEAD", name, "Range: bytes=0-1\r\n", false);
    }
    for range in ["bytes=0-0", "bytes=-1", "bytes=0-"] {
        stage.same("GET", "/empty.txt", &format!("Range: {range}\r\n"), false);
    }
    assert!(stage.counter("hits_range") > 0 && stage.counter("hits_ranges") > 0);
    if_range(stage);
    the_bytes_are_right(stage);
    a_change_is_seen(stage);
}

fn if_range(stage: &Stage) {
    let plain = stage.direct("GET", "/small.txt", "");
    let (tag, date) =
        (plain.field("etag").unwrap().to_owned(), plain.field("last-modified").unwrap().to_owned());
    for (value, due, status) in [
        (tag.as_str(), true, 206),
        ("\"other\"", true, 200),
        (&date, true, 206),
        ("Sat, 01 Jan 2000 00:00:00 GMT", true, 200),
        (&format!("W/{tag}"), false, 200),
        ("Sat, 01 Jan 2050 00:00:00 GMT", false, 200),
        ("odd", false, 200),
    ] {
        let fields = format!("Range: bytes=0-9\r\nIf-Range: {value}\r\n");
        let reply = stage.same("GET", "/small.txt", &fields, due);
        assert_eq!(reply.status(), status, "{value}");
    }
    // Without Range it means nothing.
    assert_eq!(stage.same("GET", "/small.txt", "If-Range: \"other\"\r\n", true).status(), 200);
    // A file that was changed just now has no strong date everywhere.
    std::fs::write(stage.path("young.txt"), text(500)).unwrap();
    let date = stage.direct("GET", "/young.txt", "").field("last-modified").unwrap().to_owned();
    stage.same("GET", "/young.txt", &format!("Range: bytes=0-9\r\nIf-Range: {date}\r\n"), false);
}

fn the_bytes_are_right(stage: &Stage) {
    let content = text(300_000);
    for (first, last) in
        [(0, 0), (1, 70_000), (4095, 4096), (299_999, 299_999), (8192, 8191 + 65_536)]
    {
        let reply =
            stage.same("GET", "/big.bin", &format!("Range: bytes={first}-{last}\r\n"), true);
        assert_eq!(reply.body, content[first..=last]);
        assert_eq!(
            reply.field("content-range"),
            Some(format!("bytes {first}-{last}/300000").as_str())
        );
    }
}

fn a_change_is_seen(stage: &Stage) {
    for len in [2000, 3000, 2500] {
        let content = text(len);
        std::fs::write(stage.path("changed.txt"), &content).unwrap();
        for _ in 0..5 {
            stage.ask("GET", "/changed.txt", "");
            let reply = stage.ask("GET", "/changed.txt", "Range: bytes=-100\r\n");
            assert_eq!(reply.body, content[len - 100..]);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

#[test]
fn of_nginx() {
    let stage = Stage::nginx(
        &[],
        "",
        "location /one/ { alias @ROOT@/site/; max_ranges 1; } location /none/ { alias @ROOT@/site/; max_ranges 0; }",
    );
    all_kinds_of_ranges(&stage);
    // What the server does not do, the card does not do, either.
    assert_eq!(stage.same("GET", "/one/small.txt", "Range: bytes=0-1\r\n", true).status(), 206);
    assert_eq!(
        stage.same("GET", "/one/small.txt", "Range: bytes=0-1,5-6\r\n", false).status(),
        200
    );
    assert_eq!(stage.same("GET", "/none/small.txt", "Range: bytes=0-1\r\n", false).status(), 200);
}

#[test]
fn of_apache() {
    let Some(stage) = Stage::apache(&[], "") else { return };
    all_kinds_of_ranges(&stage);
}
