//! `nicache prove`: a site behind the card is proved right; the same site behind a cache that does
//! get stale is not.
#![allow(unsafe_code)]

#[path = "../../../operator/nicache/tests/common/mod.rs"]
mod common;

use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use common::{NICACHE, Nicache, Site, kill, private_network, within};
use rustix::process::Signal;
use serde_json::Value;

/// Shows a version. The file is put there by the first edit.
const DIRECTIVES: &str = "root @ROOT@/site;";

/// Renames a new file over the one that shows the version.
fn edit(site: &Site) -> String {
    let folder = site.folder.path().join("site");
    let folder = folder.display();
    format!(
        "version: echo \"<p>version=$NICACHE_VERSION</p>\" > {folder}/new && mv {folder}/new {folder}/page.html"
    )
}

fn prove(url: &str, edit: &str, more: &[&str]) -> Output {
    start(url, edit, more).wait_with_output().unwrap()
}

fn start(url: &str, edit: &str, more: &[&str]) -> Child {
    Command::new(NICACHE)
        .args(["prove", "--url", url, "--pages", "/page.html", "--edit", edit, "--json"])
        .args(more)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn report_of(output: &Output) -> Value {
    let error = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout);
    let report = serde_json::from_str(&text)
        .unwrap_or_else(|_| panic!("no report: {} {error}{text}", output.status));
    println!("{report:#}");
    report
}

fn number(report: &Value, pointer: &str) -> u64 {
    report.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

#[test]
fn a_file_behind_the_card_is_never_stale() {
    private_network();
    let site = Site::with("", DIRECTIVES);
    let nicache = Nicache::start(&[], &site.command());
    let url = format!("http://{}/", nicache.server());
    let more =
        ["--name", nicache.name(), "--replies", "20000", "--edits", "30", "--expect-hits=any"];
    let output = prove(&url, &edit(&site), &more);
    let report = report_of(&output);
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    assert_eq!(report["outcome"], "proven", "{report:#}");
    assert!(
        number(&report, "/replies") >= 20_000 && number(&report, "/subjects/0/edits") >= 30,
        "{report:#}"
    );
    assert!(number(&report, "/card/hits") > 1000, "{report:#}");
    // Every connection has had a last look.
    assert_eq!(number(&report, "/last_replies"), 64, "{report:#}");
}

#[test]
fn a_file_is_no_dynamic_page() {
    private_network();
    let site = Site::with("", DIRECTIVES);
    let nicache = Nicache::start(&[], &site.command());
    let url = format!("http://{}/", nicache.server());
    let output = prove(
        &url,
        &edit(&site),
        &["--name", nicache.name(), "--replies", "2000", "--edits", "3", "--expect-hits"],
    );
    let report = report_of(&output);
    assert_eq!(output.status.code(), Some(2), "{report:#}");
    assert!(
        report["reasons"][0].as_str().is_some_and(|reason| reason.contains("hits_dynamic")),
        "{report:#}"
    );
}

/// An nginx in the thread's network namespace. Dropping it kills it, workers included.
struct Nginx(Child);

impl Nginx {
    fn start(site: &Site) -> Self {
        let command = site.command();
        // In a PID namespace of its own, so no worker outlives it, whatever becomes of the
        // test.
        let child = Command::new("unshare")
            .args(["--pid", "--fork", "--kill-child"])
            .args(&command)
            .stdin(Stdio::null())
            .spawn()
            .expect("unshare is installed");
        let nginx = Self(child);
        let is_up = || std::net::TcpStream::connect("127.0.0.1:80").ok();
        within(Duration::from_secs(20), is_up).expect("nginx is up");
        nginx
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_file_behind_a_cache_of_one_second_is_stale() {
    private_network();
    let cache = "proxy_cache_path @ROOT@/cache keys_zone=pages:1m;
        server { listen 8080; root @ROOT@/site; }";
    let proxy = "location / { proxy_pass http://127.0.0.1:8080; proxy_cache pages; proxy_cache_valid 200 1s; }";
    let site = Site::with(cache, proxy);
    std::fs::write(site.folder.path().join("site/page.html"), "version=7\n").unwrap();
    let _nginx = Nginx::start(&site);
    let more = [
        "--direct",
        "http://127.0.0.1:8080/",
        "--replies",
        "2000",
        "--edits",
        "25",
        "--quiet",
        "3s",
    ];
    let output = prove("http://127.0.0.1/", &edit(&site), &more);
    let report = report_of(&output);
    assert_eq!(output.status.code(), Some(1), "{report:#}");
    assert_eq!(report["outcome"], "violated", "{report:#}");
    assert!(number(&report, "/breaches/stale") > 100, "{report:#}");
    // The file is right in the end, and the server that has no cache was never wrong.
    assert_eq!(number(&report, "/breaches/never_updated"), 0, "{report:#}");
    assert_eq!(report["direct_breaches"], serde_json::json!({}), "{report:#}");
    assert!(number(&report, "/direct_replies") > 100, "{report:#}");
    // It counts up from what was there.
    assert_eq!(number(&report, "/subjects/0/first_version"), 8, "{report:#}");
    let described = &report["described"][0];
    assert_eq!(described["breach"], "stale", "{report:#}");
    assert!(
        described["excerpt"].as_str().is_some_and(|bytes| bytes.contains("version=")),
        "{report:#}"
    );
}

#[test]
fn ctrl_c_ends_a_run_with_its_report() {
    private_network();
    let site = Site::with("", DIRECTIVES);
    let _nginx = Nginx::start(&site);
    let edited = site.folder.path().join("site/edited");
    // The first edit is made before there is a run, the next one during it.
    let command = format!("{}; echo >> {}", edit(&site), edited.display());
    let mut child = start("http://127.0.0.1/", &command, &["--duration", "60m"]);
    let is_running = || std::fs::read(&edited).is_ok_and(|lines| lines.len() > 2).then_some(());
    let was_running = within(Duration::from_secs(30), is_running);
    kill(child.id().into(), Signal::INT);
    let ended = within(Duration::from_secs(60), || child.try_wait().unwrap());
    if ended.is_none() {
        let _ = child.kill();
    }
    let output = child.wait_with_output().unwrap();
    assert!(
        was_running.is_some() && ended.is_some(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report = report_of(&output);
    assert_eq!(
        (output.status.code(), number(&report, "/last_replies")),
        (Some(0), 64),
        "{report:#}"
    );
}

#[test]
fn a_run_that_could_not_be_is_no_proof() {
    private_network();
    let site = Site::with("", DIRECTIVES);
    let said = |edit: &str, more: &[&str]| {
        let output = prove("http://127.0.0.1/", edit, more);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let refused = said(&edit(&site), &[]);
    assert!(refused.contains("/page.html could not be read from 127.0.0.1:80"), "{refused}");
    let _nginx = Nginx::start(&site);
    let missing = said(&edit(&site), &["--pages", "/missing"]);
    assert!(missing.contains("/missing answers 404"), "{missing}");
    let unnamed = said(&edit(&site), &["--name", "nobody"]);
    assert!(unnamed.contains("no nicache named `nobody`"), "{unnamed}");
    let failing = said("version: echo no disk >&2; exit 1", &[]);
    assert!(
        failing.contains("first edit of `version`") && failing.contains("no disk"),
        "{failing}"
    );
    let without = said("other: true", &[]);
    assert!(without.contains("none of the markers") && without.contains("--marker"), "{without}");
}
