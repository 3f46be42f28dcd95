//! Requests and replies.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use crate::common::{EVENTUALLY, assert_all_gone, curl, holds_within, output};
use crate::serving::{Client, Serving, bytes, folder};

#[test]
fn files_are_served_as_they_are() {
    let folder = folder();
    for (name, len) in
        [("empty", 0), ("one", 1), ("block", 4096), ("more", 4097), ("large", 20_000_000)]
    {
        std::fs::write(folder.path().join(name), bytes(len as u64, len)).unwrap();
    }
    std::fs::create_dir(folder.path().join("sub")).unwrap();
    std::fs::write(folder.path().join("sub/index.html"), "<p>sub</p>").unwrap();
    let serving = Serving::start(folder.path(), &[]);
    let url = serving.url(0);
    for round in 0..3 {
        for (name, len) in
            [("empty", 0), ("one", 1), ("block", 4096), ("more", 4097), ("large", 20_000_000)]
        {
            let got = folder.path().join("got");
            output(
                "curl",
                &[
                    "-sS",
                    "-m",
                    "20",
                    "--fail",
                    "-o",
                    got.to_str().unwrap(),
                    &format!("{url}{name}"),
                ],
            );
            assert!(
                std::fs::read(&got).unwrap_or_default() == bytes(len as u64, len),
                "{name} in round {round}"
            );
            let _ = std::fs::remove_file(&got);
        }
    }
    assert_eq!(curl(&format!("{url}sub/")), "<p>sub</p>");
    let mut client = Client::open(serving.address(0));
    let moved = client.get("/sub?a=b", "");
    assert_eq!((moved.status, moved.field("location")), (301, Some("/sub/?a=b")));
    for (path, status) in [("/none", 404), ("/", 403), ("/one/", 404), ("/sub/none", 404)] {
        assert_eq!(client.get(path, "").status, status, "{path}");
    }
    let kind = |path: &str| {
        Client::open(serving.address(0)).get(path, "").field("content-type").unwrap().to_owned()
    };
    assert_eq!(
        (kind("/sub/").as_str(), kind("/one").as_str()),
        ("text/html", "application/octet-stream")
    );
    let (processes, ended_well) = serving.stop();
    assert!(ended_well);
    assert_all_gone(&processes);
}

#[test]
fn many_requests_on_a_connection() {
    let folder = folder();
    std::fs::write(folder.path().join("a"), bytes(1, 1000)).unwrap();
    std::fs::write(folder.path().join("b"), bytes(2, 100_000)).unwrap();
    let serving = Serving::start(folder.path(), &[]);
    let mut client = Client::open(serving.address(0));
    let one = |path: &str, method: &str| format!("{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    // More than the server prepares at a time.
    let mut text = String::new();
    for _ in 0..60 {
        text += &(one("/a", "GET") + &one("/b", "GET") + &one("/b", "HEAD") + &one("/none", "GET"));
    }
    client.send(&text).unwrap();
    for _ in 0..60 {
        assert!(client.receive(false).unwrap().body == bytes(1, 1000));
        assert!(client.receive(false).unwrap().body == bytes(2, 100_000));
        let head = client.receive(true).unwrap();
        assert_eq!((head.status, head.field("content-length")), (200, Some("100000")));
        assert_eq!(client.receive(false).unwrap().status, 404);
    }
    // A body that nobody wants is skipped.
    client.send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello").unwrap();
    let refused = client.receive(false).unwrap();
    assert_eq!((refused.status, refused.field("allow")), (405, Some("GET, HEAD")));
    assert_eq!(client.get("/a", "").body.len(), 1000);
    // HTTP/1.0 closes unless it asks for more.
    client.send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").unwrap();
    assert_eq!(client.receive(false).unwrap().field("connection"), Some("keep-alive"));
    client.send("GET /a HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(client.receive(false).unwrap().field("connection"), Some("close"));
    assert!(client.rest().unwrap().is_empty());
    // What two parsers could read in two ways ends the connection.
    let mut client = Client::open(serving.address(0));
    client.send("GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nx").unwrap();
    assert_eq!(client.receive(false).unwrap().status, 400);
    assert!(client.rest().unwrap().is_empty());
}

#[test]
fn connections_end_without_anything_sent_again() {
    let folder = folder();
    std::fs::write(folder.path().join("a"), bytes(1, 1000)).unwrap();
    let serving = Serving::start(folder.path(), &[]);
    // What the client's kernel has sent again.
    let repeated = || -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
        let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let at = names.split(' ').position(|name| name == "RetransSegs").unwrap();
        values.split(' ').nth(at).unwrap().parse().unwrap()
    };
    let mut again = 0;
    // A process that stands still for a moment makes the other end send again.
    let are_few = holds_within(EVENTUALLY, || {
        let before = repeated();
        for _ in 0..50 {
            let mut client = Client::open(serving.address(0));
            assert_eq!(client.get("/a", "Connection: close\r\n").body.len(), 1000);
            assert!(client.rest().unwrap().is_empty());
        }
        std::thread::sleep(Duration::from_millis(500));
        again = repeated() - before;
        again < 5
    });
    assert!(are_few, "{again} segments were sent again");
}

#[test]
fn parts_of_files() {
    let folder = folder();
    let content = bytes(3, 10_000);
    std::fs::write(folder.path().join("a.txt"), &content).unwrap();
    let serving = Serving::start(folder.path(), &[]);
    let mut client = Client::open(serving.address(0));
    for (range, from, to) in
        [("0-0", 0, 1), ("4000-4999", 4000, 5000), ("-1", 9999, 10_000), ("9000-", 9000, 10_000)]
    {
        let part = client.get("/a.txt", &format!("Range: bytes={range}\r\n"));
        let expected = format!("bytes {from}-{}/10000", to - 1);
        assert_eq!((part.status, part.field("content-range")), (206, Some(expected.as_str())));
        assert!(part.body == content[from..to], "{range}");
    }
    let several = client.get("/a.txt", "Range: bytes=0-1,5000-5001\r\n");
    let boundary =
        several.field("content-type").unwrap().split("boundary=").nth(1).unwrap().to_owned();
    let part = |from: usize| {
        let head = format!(
            "\r\n--{boundary}\r\nContent-Type: text/plain\r\nContent-Range: bytes {from}-{}/10000\r\n\r\n",
            from + 1
        );
        [head.as_bytes(), &content[from..from + 2]].concat()
    };
    assert_eq!(
        several.body,
        [part(0), part(5000), format!("\r\n--{boundary}--\r\n").into_bytes()].concat()
    );
    let none = client.get("/a.txt", "Range: bytes=10000-\r\n");
    assert_eq!((none.status, none.field("content-range")), (416, Some("bytes */10000")));
    let tag = client.get("/a.txt", "").field("etag").unwrap().to_owned();
    assert_eq!(
        client.get("/a.txt", &format!("Range: bytes=0-1\r\nIf-Range: {tag}\r\n")).status,
        206
    );
    assert_eq!(client.get("/a.txt", "Range: bytes=0-1\r\nIf-Range: \"other\"\r\n").status, 200);
}

#[test]
fn conditions_never_lie() {
    let folder = folder();
    let path = folder.path().join("a");
    std::fs::write(&path, "version 1").unwrap();
    let serving = Serving::start(folder.path(), &[]);
    let mut client = Client::open(serving.address(0));
    std::fs::write(&path, "version 1").unwrap();
    let young = client.get("/a", "");
    assert_eq!(young.field("last-modified"), None, "it may change again within this second");
    let mut tag = young.field("etag").unwrap().to_owned();
    // A young file's tag is the file's look: while a program that another test is just starting
    // still has the test's open file, or the file system writes it back, each look is a new one.
    let is_known = (0..100).any(|_| {
        let again = client.get("/a", &format!("If-None-Match: {tag}\r\n"));
        tag = again.field("etag").unwrap().to_owned();
        std::thread::sleep(Duration::from_millis(u64::from(again.status != 304) * 10));
        again.status == 304
    });
    assert!(is_known, "no tag of a file that stays as it is was ever found again");
    for version in 2..30 {
        // Of the same length, with the old time, within the same tick of the clock.
        let time = std::fs::metadata(&path).unwrap().modified().unwrap();
        std::fs::write(&path, format!("version {}", version % 10)).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        let fresh = client.get("/a", &format!("If-None-Match: {tag}\r\n"));
        assert_eq!(
            (fresh.status, fresh.body),
            (200, format!("version {}", version % 10).into_bytes())
        );
        let reply = client.get("/a", "");
        tag = reply.field("etag").unwrap().to_owned();
    }
    std::thread::sleep(Duration::from_millis(3100));
    let settled = client.get("/a", "");
    let (tag, date) = (settled.field("etag").unwrap(), settled.field("last-modified").unwrap());
    assert_eq!(client.get("/a", &format!("If-None-Match: W/{tag}\r\n")).status, 304);
    let not_modified = client.get("/a", &format!("If-Modified-Since: {date}\r\n"));
    assert_eq!((not_modified.status, not_modified.field("content-length")), (304, None));
    assert_eq!(client.get("/a", "If-Match: \"other\"\r\n").status, 412);
    assert_eq!(
        client.get("/a", "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n").status,
        200
    );
}

#[test]
fn lists_only_if_told_to() {
    let folder = folder();
    std::fs::write(folder.path().join("<b>&.txt"), "x").unwrap();
    std::fs::write(folder.path().join(".hidden"), "x").unwrap();
    std::fs::create_dir(folder.path().join("sub")).unwrap();
    let serving = Serving::start(folder.path(), &["--list"]);
    let page = curl(&serving.url(0));
    assert!(
        page.contains("./%3Cb%3E%26.txt") && page.contains("./sub/") && !page.contains("hidden"),
        "{page}"
    );
    assert_eq!(curl(&format!("{}%3Cb%3E%26.txt", serving.url(0))), "x");
    std::fs::write(folder.path().join("new"), "x").unwrap();
    assert!(curl(&serving.url(0)).contains("./new"), "a list is never old");
}

#[test]
fn nothing_outside_of_the_folder() {
    let outside = folder();
    std::fs::write(outside.path().join("secret"), "secret").unwrap();
    let folder = folder();
    let root = folder.path().join("root");
    std::fs::create_dir(&root).unwrap();
    std::fs::write(folder.path().join("beside"), "secret").unwrap();
    std::fs::create_dir_all(root.join("sub/deep")).unwrap();
    std::fs::write(root.join("sub/file"), "public").unwrap();
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, root.join(name)).unwrap();
    link("../beside", "up");
    link("sub/deep/../../../beside", "far-up");
    link(outside.path().join("secret").to_str().unwrap(), "absolute");
    link(outside.path().to_str().unwrap(), "folder");
    link("/proc/self/environ", "proc");
    link("sub/file", "inside");
    link("../root/sub/file", "out-and-in");
    link(root.join("sub").to_str().unwrap(), "absolute-inside");
    link("loop", "loop");
    std::fs::write(root.join("private"), "secret").unwrap();
    std::fs::set_permissions(root.join("private"), PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::create_dir(root.join("closed")).unwrap();
    std::fs::write(root.join("closed/file"), "secret").unwrap();
    std::fs::set_permissions(root.join("closed"), PermissionsExt::from_mode(0o700)).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        root.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o644),
        0,
    )
    .unwrap();
    let serving = Serving::start(&root, &["--list"]);
    let mut client = Client::open(serving.address(0));
    for path in [
        "/up",
        "/far-up",
        "/absolute",
        "/folder/secret",
        "/folder/",
        "/proc",
        "/private",
        "/closed/file",
        "/closed/",
        "/fifo",
        "/sub/../../beside",
        "/%2e%2e/beside",
        "/..%2fbeside",
        "/sub/%2e%2e/%2e%2e/beside",
        "/loop",
        "//../beside",
        "/sub/..%5c..%5cbeside",
        "/absolute%00.html",
    ] {
        let mut client = Client::open(serving.address(0));
        let reply = client.get(path, "");
        assert!([400, 403, 404].contains(&reply.status), "{path}: {reply:?}");
        assert!(!String::from_utf8_lossy(&reply.body).contains("secret"), "{path}");
    }
    for path in
        ["/inside", "/out-and-in", "/absolute-inside/file", "/sub/deep/../file", "/./sub//file"]
    {
        assert_eq!(client.get(path, "").body, b"public", "{path}");
    }
    // What was public and is not any longer.
    std::fs::set_permissions(root.join("sub/file"), PermissionsExt::from_mode(0o640)).unwrap();
    assert_eq!(client.get("/inside", "").status, 403);
    std::fs::set_permissions(root.join("sub/file"), PermissionsExt::from_mode(0o644)).unwrap();
    assert_eq!(client.get("/inside", "").body, b"public");
    std::fs::remove_file(root.join("inside")).unwrap();
    link("../beside", "inside");
    assert_eq!(client.get("/inside", "").status, 403);
}
