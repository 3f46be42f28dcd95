//! Preconditions, from an entry where all servers agree, from the server where not; 304 in the
//! server's own words.

use super::stage::Stage;

fn all_kinds_of_conditions(stage: &Stage) {
    let plain = stage.direct("GET", "/small.txt", "");
    let tag = plain.field("etag").unwrap().to_owned();
    let date = plain.field("last-modified").unwrap().to_owned();
    let (before, after) = ("Sat, 01 Jan 2000 00:00:00 GMT", "Sat, 01 Jan 2050 00:00:00 GMT");
    let cases: &[(String, bool, u16)] = &[
        (format!("If-None-Match: {tag}\r\n"), true, 304),
        (format!("If-None-Match: W/{tag}\r\n"), true, 304),
        (format!("If-None-Match: \"x\", {tag}\r\n"), true, 304),
        ("If-None-Match: *\r\n".into(), true, 304),
        ("If-None-Match: \"x\"\r\n".into(), true, 200),
        (format!("If-Modified-Since: {date}\r\n"), true, 304),
        (format!("If-Modified-Since: {before}\r\n"), true, 200),
        (format!("If-None-Match: {tag}\r\nIf-Modified-Since: {date}\r\n"), true, 304),
        (format!("If-Match: {tag}\r\n"), true, 200),
        ("If-Match: *\r\n".into(), true, 200),
        (format!("If-Match: \"x\", {tag}\r\n"), true, 200),
        (format!("If-Unmodified-Since: {date}\r\n"), true, 200),
        (format!("If-Unmodified-Since: {after}\r\n"), true, 200),
        (format!("If-Match: {tag}\r\nIf-None-Match: {tag}\r\n"), true, 304),
        (format!("If-Match: {tag}\r\nRange: bytes=0-9\r\n"), true, 206),
        (format!("If-Unmodified-Since: {date}\r\nRange: bytes=0-9\r\n"), true, 206),
        ("If-Match: \"x\"\r\n".into(), false, 412),
        (format!("If-Match: W/{tag}\r\n"), false, 412),
        (format!("If-Unmodified-Since: {before}\r\n"), false, 412),
        (format!("If-Match: \"x\"\r\nIf-None-Match: {tag}\r\n"), false, 412),
        (format!("If-None-Match: {tag}\r\nRange: bytes=0-9\r\n"), false, 304),
    ];
    for (fields, due, status) in cases {
        let reply = stage.same("GET", "/small.txt", fields, *due);
        assert_eq!(reply.status(), *status, "{fields}{reply:?}");
    }
    // Here servers differ, so it is the server's business.
    for fields in [
        format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {date}\r\n"),
        format!("If-None-Match: {tag}\r\nIf-Modified-Since: {before}\r\n"),
        format!("If-Modified-Since: {after}\r\n"),
        format!("If-None-Match: {tag}\r\nCache-Control: no-cache\r\n"),
        format!("If-Match: {tag}\r\nIf-Unmodified-Since: {before}\r\n"),
        "If-None-Match: x\r\n".into(),
        "If-Modified-Since: yesterday\r\n".into(),
        "If-Unmodified-Since: yesterday\r\n".into(),
    ] {
        stage.same("GET", "/small.txt", &fields, false);
    }
    // HEAD from the entry of a GET, and its 304, too.
    assert_eq!(stage.same("HEAD", "/small.txt", "", true).status(), 200);
    assert_eq!(
        stage.same("HEAD", "/small.txt", &format!("If-None-Match: {tag}\r\n"), true).status(),
        304
    );
}

#[test]
fn of_nginx() {
    let stage = Stage::nginx(&[], "", "");
    all_kinds_of_conditions(&stage);
}

#[test]
fn of_apache() {
    let Some(stage) = Stage::apache(&[], "") else { return };
    all_kinds_of_conditions(&stage);
}
