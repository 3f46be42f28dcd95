//! T where nothing shows that an answer has become wrong: a server's own rules, its clock, and what
//! few visitors gain and cost.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::check::Cases;
use crate::stage::{Setup, Stage, T};

const NGINX: &str = "
        location /link/ {
            secure_link $arg_md5,$arg_expires;
            secure_link_md5 \"$secure_link_expires$uri secret\";
            if ($secure_link = \"\") { return 403; }
            if ($secure_link = \"0\") { return 410; }
            alias @FOLDER@/data/;
        }
        location /backend/ {
            proxy_pass http://127.0.0.1:8999;
            error_page 502 504 =200 /maintenance.html;
        }";
/// For the machine's other work.
const SLACK: Duration = Duration::from_millis(700);

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// nginx' own form of a digest: base64 for URLs, without padding.
fn secure_link(expires: u64, uri: &str) -> String {
    let script = format!(
        "echo rtrim(strtr(base64_encode(md5('{expires}{uri} secret', true)), '+/', '-_'), '=');"
    );
    let output = std::process::Command::new("php").args(["-r", &script]).output().unwrap();
    format!("{uri}?md5={}&expires={expires}", String::from_utf8(output.stdout).unwrap())
}

/// The program behind nginx, when it is there.
fn answer(mut stream: TcpStream) {
    let mut request = [0; 4096];
    let _ = stream.read(&mut request);
    let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 8\r\n\r\nthe page");
}

fn earned_ms(stage: &Stage, url: &str) -> Option<u64> {
    let output = std::process::Command::new(crate::common::NICACHE)
        .args(["why", url, "--json", "--name", stage.nicache.name()])
        .output()
        .unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    report["page"]["entries"][0]["earned_ms"].as_u64()
}

#[test]
fn rules_of_the_server_that_nobody_sees() {
    let mut stage = Stage::start(
        &Setup { nginx: NGINX, options: &["--share", "8999"], ..Setup::default() },
        |_| {},
    );
    stage.write("data/film.txt", &"a film. ".repeat(100));
    stage.write("site/maintenance.html", "maintenance");
    let mut cases = Cases::default();
    cases.run("a link that expires", || {
        let is_kept_until_then = || {
            let expires = unix_s() + 9;
            let url = secure_link(expires, "/link/film.txt");
            let mut client = stage.client();
            let (before, mut earned) = (stage.counter("hits"), None);
            // nginx takes the link for good until that second is over.
            while unix_s() <= expires {
                let reply = client.get(&url).unwrap();
                assert!(reply.status == 200 || unix_s() >= expires, "{}", reply.status);
                // By now the page could have earned more, and soon it may be gone.
                if earned.is_none() && unix_s() + 2 >= expires {
                    earned = earned_ms(&stage, &url);
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            let hits = stage.counter("hits") - before;
            println!("  {hits} hits, T {earned:?} ms");
            assert!(earned.is_none_or(|earned| earned == 1000), "{earned:?}");
            std::thread::sleep(T + SLACK);
            (0..20).for_each(|_| assert_eq!(client.get(&url).unwrap().status, 410));
            hits >= 50 && earned.is_some()
        };
        // On a busy machine there may be few requests until then.
        assert!((0..3).any(|_| is_kept_until_then()), "it is never kept until it expires");
    });
    cases.run("a page for the time in which a program is not there", || {
        let mut client = stage.client();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(6) {
            assert_eq!(client.get("/backend/page").unwrap().text(), "maintenance");
            std::thread::sleep(Duration::from_millis(50));
        }
        let earned = Duration::from_millis(earned_ms(&stage, "/backend/page").unwrap_or(1000));
        // A quarter of the time, which on a busy machine may be more.
        let most = Duration::from_secs(3).max(begun.elapsed() / 4);
        assert!(earned <= most, "{earned:?}");
        let backend = TcpListener::bind("127.0.0.1:8999").unwrap();
        std::thread::spawn(move || backend.incoming().flatten().for_each(answer));
        std::thread::sleep(earned + SLACK);
        (0..20).for_each(|_| assert_eq!(client.get("/backend/page").unwrap().text(), "the page"));
    });
    cases.end(&mut stage);
}
