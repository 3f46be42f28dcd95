//! What clients accept: variants by Accept-Encoding and Accept, whatever the server says in Vary.

use std::io::Write;
use std::process::{Command, Stdio};

use super::stage::Stage;

const CODINGS: [&str; 6] = [
    "",
    "Accept-Encoding: gzip\r\n",
    "Accept-Encoding: gzip, deflate, br\r\n",
    "Accept-Encoding: identity\r\n",
    "Accept-Encoding: gzip;q=0\r\n",
    "Accept-Encoding: br\r\n",
];

fn words() -> Vec<u8> {
    "many words, and some more \n".repeat(500).into_bytes()
}

fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let mut process = Command::new("gzip")
        .arg("-dc")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("gzip");
    let mut input = process.stdin.take().unwrap();
    let bytes = bytes.to_vec();
    let writer = std::thread::spawn(move || input.write_all(&bytes));
    let output = process.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    output.stdout
}

/// Each variant is what the server makes of it, from an entry of its own, and changes with the
/// file.
fn variants(stage: &Stage, name: &str, write: impl Fn(&[u8])) {
    for round in 0..2 {
        let content = [words(), vec![b'x'; round]].concat();
        write(&content);
        for fields in CODINGS {
            let reply = stage.same("GET", name, fields, true);
            let is_packed = reply.field("content-encoding") == Some("gzip");
            assert_eq!(
                is_packed,
                fields.contains("gzip\r") || fields.contains("gzip,"),
                "{fields}{reply:?}"
            );
            let body = if is_packed { unpacked(&reply.body) } else { reply.body };
            assert!(body == content, "{fields}: {} bytes", body.len());
        }
    }
    // Spellings of the same list share an entry.
    let before = stage.counter("fills_stored");
    for same in ["Accept-Encoding: GZIP,deflate,br\r\n", "Accept-Encoding: gzip,deflate, BR\r\n"] {
        stage.same("GET", name, same, true);
    }
    println!("{name}: {} entries for other spellings", stage.counter("fills_stored") - before);
}

fn write(stage: &Stage, name: &str, content: &[u8]) {
    std::fs::write(stage.path(name), content).unwrap();
    // Apache calls the tag of a file weak that has just changed.
    let before = std::time::SystemTime::now()
        - std::time::Duration::from_secs(10 + content.len() as u64 % 2);
    std::fs::File::options()
        .write(true)
        .open(stage.path(name))
        .unwrap()
        .set_modified(before)
        .unwrap();
}

#[test]
fn made_by_nginx() {
    let stage = Stage::nginx(&[], "gzip on; gzip_types text/plain; gzip_vary on;", "");
    variants(&stage, "/words.txt", |content| write(&stage, "words.txt", content));
}

#[test]
fn made_by_nginx_without_vary() {
    let stage = Stage::nginx(&[], "gzip on; gzip_types text/plain;", "");
    variants(&stage, "/words.txt", |content| write(&stage, "words.txt", content));
}

#[test]
fn stored_beside_the_file() {
    let stage = Stage::nginx(&["--recheck", "0"], "gzip_static on; gzip_vary on;", "");
    variants(&stage, "/words.txt", |content| {
        write(&stage, "words.txt", content);
        let packed = Command::new("gzip")
            .args(["-nc", stage.path("words.txt").to_str().unwrap()])
            .output()
            .unwrap();
        write(&stage, "words.txt.gz", &packed.stdout);
    });
}

#[test]
fn made_by_apache() {
    let Some(stage) = Stage::apache(&[], "AddOutputFilterByType DEFLATE text/plain") else {
        return;
    };
    variants(&stage, "/words.txt", |content| write(&stage, "words.txt", content));
}

/// Pictures by what the browser takes, without a word of `Vary`; and a page that is the same for
/// all.
#[test]
fn chosen_by_what_is_accepted() {
    let map = "map $http_accept $kind { default png; ~webp webp; }";
    let stage =
        Stage::nginx(&[], map, "location = /picture.bin { try_files /picture.$kind =404; }");
    for kind in ["png", "webp"] {
        write(&stage, &format!("picture.{kind}"), format!("a picture as {kind}").as_bytes());
    }
    let browsers =
        ["Accept: image/webp,*/*\r\n", "Accept: */*\r\n", "", "Accept: image/avif,image/webp\r\n"];
    for round in 0..2 {
        for fields in browsers {
            let reply = stage.same("GET", "/picture.bin", fields, true);
            let kind = if fields.contains("webp") { "webp" } else { "png" };
            assert_eq!(
                reply.body,
                format!("a picture as {kind}").repeat(round + 1).as_bytes(),
                "{fields}"
            );
        }
        for kind in ["png", "webp"] {
            write(
                &stage,
                &format!("picture.{kind}"),
                format!("a picture as {kind}").repeat(2).as_bytes(),
            );
        }
    }
    write(&stage, "plain.txt", b"for all");
    browsers.iter().for_each(|fields| drop(stage.same("GET", "/plain.txt", fields, true)));
    let split = stage.counter("classes_split");
    assert!((1..=2).contains(&split), "{split}");
}
