//! `nicache trace site` and `nicache replay --target`, as a user runs them.
#![allow(unsafe_code)]

#[path = "../../../operator/nicache/tests/common/mod.rs"]
mod common;

use std::fmt::Write;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{Site, command, output, private_network, within};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Ends the server with its workers when the test ends.
struct Server(Child);

impl Server {
    fn start(site: &Site) -> Self {
        let words = site.command();
        let child = Command::new(&words[0])
            .args(&words[1..])
            .stderr(Stdio::null())
            .spawn()
            .expect("nginx is installed");
        let server = Self(child);
        within(Duration::from_secs(20), || TcpStream::connect("127.0.0.1:80").ok())
            .expect("nginx listens");
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

/// 200 requests of 20 clients for 30 files, and lines of every kind that is left out.
fn log() -> String {
    let mut log = "nonsense\n".to_owned();
    for n in 0..200 {
        let (client, second, file) = (n % 20, n / 20 * 4, n * n % 30);
        let time = format!("[01/Aug/1995:00:{:02}:{:02} -0400]", second / 60, second % 60);
        let _ =
            writeln!(log, "host{client} - - {time} \"GET /{file}?q HTTP/1.0\" 200 {}", file * 777);
    }
    log.push_str("host1 - - [01/Aug/1995:00:59:00 -0400] \"POST /1 HTTP/1.0\" 200 5\n");
    log.push_str("host1 - - [01/Aug/1995:00:59:00 -0400] \"GET /no HTTP/1.0\" 404 5\n");
    log
}

#[test]
fn a_site_is_made_of_a_log_and_the_log_replayed_against_it() {
    private_network();
    let site = Site::with("", "root @ROOT@/trace;");
    let (log_path, root) = (site.folder.path().join("log"), site.folder.path().join("trace"));
    std::fs::write(&log_path, log()).unwrap();
    let (log, root_text) = (log_path.to_str().unwrap(), root.to_str().unwrap());
    let made: Value =
        serde_json::from_slice(&command(&["trace", "site", "--json", log, root_text]).stdout)
            .unwrap();
    assert_eq!(
        (made["requests"].as_u64(), made["bad_lines"].as_u64()),
        (Some(200), Some(1)),
        "{made}"
    );
    assert_eq!(
        (made["other_methods"].as_u64(), made["other_statuses"].as_u64()),
        (Some(1), Some(1)),
        "{made}"
    );
    let again = command(&["trace", "site", log, root_text]);
    assert!(
        !again.status.success() && String::from_utf8_lossy(&again.stderr).contains("not empty")
    );

    let _server = Server::start(&site);
    let target = [
        "replay",
        log,
        "--target",
        "http://127.0.0.1/",
        "--target",
        "http://127.0.0.2/",
        "--site",
        root_text,
    ];
    for more in [
        &["--clients", "3", "--replayers", "2"][..],
        &["--speed", "40"],
        &["--rate", "100", "--seed", "3"],
    ] {
        let run = command(&[&target[..], &["--json"], more].concat());
        let report: Value =
            serde_json::from_slice(&run.stdout).unwrap_or_else(|_| panic!("{run:?}"));
        assert!(run.status.success() && report["clean"] == true, "{report:#}");
        assert_eq!(
            (report["replies"].as_u64(), report["trace"]["requests"].as_u64()),
            (Some(200), Some(200))
        );
        assert_eq!(
            (report["sessions"].as_u64(), report["errors"]["body"].as_u64()),
            (Some(20), Some(0))
        );
        assert!(
            report["latency"]["p999_us"].as_f64().unwrap() > 0.0
                && report["cpu_us_per_request"].as_f64().unwrap() > 0.0
        );
    }

    // Every file that is not empty is changed where nobody looks but the replayer.
    let files = output("find", &[root_text, "-type", "f", "-size", "+0"]);
    for file in files.lines() {
        let mut bytes = std::fs::read(file).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(file, bytes).unwrap();
    }
    let run = command(&target);
    let text = String::from_utf8_lossy(&run.stdout);
    assert!(
        run.status.code() == Some(1) && text.contains("ERRORS") && text.contains("is wrong"),
        "{text}"
    );
    std::fs::write(files.lines().next().unwrap(), "short").unwrap();
    let run = command(&target);
    assert!(
        String::from_utf8_lossy(&run.stderr).contains("was the site made from this log?"),
        "{run:?}"
    );
}

#[test]
fn what_makes_no_sense_is_refused_with_the_reason() {
    private_network();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    std::fs::write(&path, log()).unwrap();
    let log = path.to_str().unwrap();
    let target = "--target=http://127.0.0.1:9/";
    let cut = folder.path().join("cut");
    std::fs::write(&cut, [0; 50]).unwrap();
    for (arguments, phrases) in [
        (
            &["replay", log, target, "--writers", "1"][..],
            &["--target", "cannot be used with", "--writers"][..],
        ),
        (&["replay", log, target, "--synthetic"], &["cannot be used with", "--synthetic"]),
        (
            &["replay", log, target, "--speed", "2", "--rate", "2"],
            &["--speed", "cannot be used with", "--rate"],
        ),
        (&["replay", log, "--replayers", "2"], &["required", "--target"]),
        (&["replay", log, target, "--", "--memory", "1G"], &["--target", "cannot be used with"]),
        (&["replay", log, target, "--rate", "0"], &["--rate", "from 0.001"]),
        (
            &["replay", log, target, "--clients", "2", "--replayers", "3"],
            &["replayers", "connection"],
        ),
        (&["replay", log, "--clients", "2000"], &["clients", "--target"]),
        (&["replay", log, target], &["no connection to 127.0.0.1:9"]),
        (
            &["replay", cut.to_str().unwrap(), target],
            &["not a trace", "binary file", "name its format"],
        ),
        (&["replay", log, target, "--format", "tsv"], &["no request", "tabs"]),
        (&["trace", "site", "/no/such/log", "/no/such/folder"], &["/no/such/log"]),
    ] {
        let run = command(arguments);
        let text = String::from_utf8_lossy(&run.stderr);
        assert!(!run.status.success(), "{arguments:?}");
        assert!(phrases.iter().all(|phrase| text.contains(phrase)), "{arguments:?}: {text}");
    }
}
