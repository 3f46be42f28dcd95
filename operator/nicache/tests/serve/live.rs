//! Streams and playlists.

use std::io::Write;

use crate::common::{EVENTUALLY, SOON, holds_within, output};
use crate::serving::{Client, Serving, bytes, folder};

#[test]
fn a_block_crosses_once_for_all_viewers() {
    const VIEWERS: usize = 8;
    let folder = folder();
    let fifo = folder.path().join("tv");
    output("mkfifo", &[fifo.to_str().unwrap()]);
    let serving = Serving::start(folder.path(), &["--live", &format!("/tv.ts={}", fifo.display())]);
    let mut viewers: Vec<Client> = (0..VIEWERS).map(|_| Client::open(serving.address(0))).collect();
    for viewer in &mut viewers {
        viewer.send("GET /tv.ts HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let head = viewer.receive(true).unwrap();
        assert_eq!(
            (head.status, head.field("connection"), head.field("content-length")),
            (200, Some("close"), None)
        );
    }
    let content = bytes(5, 500_000);
    let mut source = std::fs::File::options().write(true).open(&fifo).unwrap();
    let mut seen = vec![Vec::new(); VIEWERS];
    // No faster than viewers take it.
    for part in content.chunks(10_000) {
        source.write_all(part).unwrap();
        for (viewer, seen) in viewers.iter_mut().zip(&mut seen) {
            seen.extend(viewer.take(part.len()));
        }
    }
    assert!(seen.iter().all(|seen| *seen == content));
    let card = serving.now()["report"]["cards"][0].clone();
    let crossed = card["bus"]["content"].as_u64().unwrap();
    assert!((500_000..510_000).contains(&crossed), "{crossed}");
    let is_empty = || serving.now()["report"]["cards"][0]["counters"]["blocks"] == 0;
    assert!(holds_within(SOON, is_empty), "blocks stay after their last use");
    // One that comes later begins with the present.
    let mut late = Client::open(serving.address(0));
    late.send("GET /tv.ts HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    late.receive(true).unwrap();
    source.write_all(b"present").unwrap();
    assert_eq!(late.take(7), b"present");
}

#[test]
fn one_that_does_not_read_is_cut() {
    let folder = folder();
    let fifo = folder.path().join("tv");
    output("mkfifo", &[fifo.to_str().unwrap()]);
    let serving = Serving::start(folder.path(), &["--live", fifo.to_str().unwrap()]);
    let mut lazy = Client::open(serving.address(0));
    let mut eager = Client::open(serving.address(0));
    for viewer in [&mut lazy, &mut eager] {
        viewer.send("GET /tv HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        viewer.receive(true).unwrap();
    }
    let mut source = std::fs::File::options().write(true).open(&fifo).unwrap();
    let part = bytes(6, 40_000);
    let is_cut = holds_within(SOON, || {
        for _ in 0..20 {
            source.write_all(&part).unwrap();
            assert!(eager.take(part.len()) == part);
        }
        serving.counter("live_viewers_cut") > 0
    });
    assert!(is_cut);
    source.write_all(b"on").unwrap();
    assert_eq!(eager.take(2), b"on");
}

#[test]
fn segments_go_with_their_playlist() {
    let folder = folder();
    let write = |name: &str, content: &[u8]| {
        std::fs::write(folder.path().join("new"), content).unwrap();
        std::fs::rename(folder.path().join("new"), folder.path().join(name)).unwrap();
    };
    for segment in 0..4 {
        write(&format!("seg{segment}.ts"), &bytes(segment, 50_000));
    }
    let playlist = |from: u64| {
        let names = (from..from + 2)
            .map(|number| format!("#EXTINF:2,\nseg{number}.ts\n"))
            .collect::<String>();
        format!("#EXTM3U\n#EXT-X-MEDIA-SEQUENCE:{from}\n{names}")
    };
    write("list.m3u8", playlist(0).as_bytes());
    let path = folder.path().join("list.m3u8");
    let serving = Serving::start(folder.path(), &["--live", path.to_str().unwrap()]);
    let mut client = Client::open(serving.address(0));
    let blocks = || serving.now()["report"]["cards"][0]["counters"]["blocks"].as_u64().unwrap();
    for from in 0..2 {
        write("list.m3u8", playlist(from).as_bytes());
        // Other tests may void them at the same moment: then they are asked for again.
        let mut last = 0;
        let are_settled = holds_within(EVENTUALLY, || {
            assert_eq!(client.get("/list.m3u8", "").body, playlist(from).as_bytes());
            for segment in from..from + 2 {
                let body = client.get(&format!("/seg{segment}.ts"), "").body;
                assert!(body == bytes(segment, 50_000));
            }
            // The playlist's one, and 13 for each of two segments.
            last = blocks();
            (26..=27).contains(&last)
        });
        assert!(are_settled, "{last} blocks after the playlist that begins with {from}");
    }
}
