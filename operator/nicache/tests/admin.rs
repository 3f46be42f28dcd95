//! The admin port of a real `nicache run` and `nicache serve` under load: metrics, JSON, events,
//! the page in a browser.
#![allow(unsafe_code)]

mod common;
#[path = "../../../lab/report/tests/browser/devtools.rs"]
#[allow(dead_code)]
mod devtools;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{NICACHE, Nicache, SOON, Site, assert_fails, curl, output, private_network, within};
use devtools::Browser;
use serde_json::Value;

fn admin(nicache: &Nicache) -> String {
    nicache.status["admin"].as_str().unwrap().to_owned()
}

/// A client that asks for a page until it is dropped.
struct Load(std::process::Child);

impl Load {
    fn start(url: &str) -> Self {
        let mut command = Command::new("wrk");
        command
            .args(["-t", "1", "-c", "4", "-d", "120s", url])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self(command.spawn().expect("wrk is installed"))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Every client is told the same there.
fn plain_site() -> Site {
    Site::with("", "root @ROOT@/site;")
}

/// Series of the text format, with their labels, and their values.
fn series(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            line.rsplit_once(' ')
                .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
                .unwrap()
        })
        .collect()
}

fn metrics(admin: &str) -> BTreeMap<String, f64> {
    series(&curl(&format!("http://{admin}/metrics")))
}

const HITS: &str = "nicache_requests_total{card=\"0\",outcome=\"hit\"}";

#[test]
fn metrics_are_those_of_status() {
    private_network();
    let site = plain_site();
    let nicache = Nicache::start(&["--admin", "0", "--name", "metrics"], &site.command());
    let (admin, url) = (admin(&nicache), format!("http://{}/page.html", nicache.server()));
    let mut asked = 0;
    within(SOON, || {
        asked += 1;
        curl(&url);
        (common::status("metrics")["counters"]["hits"].as_u64() >= Some(5)).then_some(())
    })
    .expect("hits");
    // A request with a cookie passes.
    output("curl", &["-sS", "-H", "Cookie: a=b", "-o", "/dev/null", &url]);
    // The card asks for the page itself now and then, also between two looks.
    let same = [
        (HITS, "hits"),
        ("nicache_fills_total", "fills"),
        ("nicache_fills_stored_total", "fills_stored"),
    ];
    let found = within(SOON, || {
        let counters = common::status("metrics")["counters"].clone();
        let all = metrics(&admin);
        same.iter()
            .all(|(series, counter)| all[*series] == counters[*counter].as_f64().unwrap())
            .then_some((all, counters))
    });
    let (all, counters) =
        found.unwrap_or_else(|| panic!("{} {:?}", common::status("metrics"), metrics(&admin)));
    assert_eq!(all["nicache_up"], 1.0);
    assert_eq!(all["nicache_caching"], 1.0);
    within(SOON, || {
        (metrics(&admin)["nicache_bypasses_total{reason=\"cookie\"}"] == 1.0).then_some(())
    })
    .expect("a bypass");
    // Every counter is described.
    assert!(!all.keys().any(|name| name.starts_with("nicache_other")), "{all:?}");
    let memory = all["nicache_memory_bytes{card=\"0\"}"];
    assert_eq!(memory, counters["memory_bytes"].as_f64().unwrap());
    // The classes make up the total.
    let all = metrics(&admin);
    let classes: f64 = all
        .iter()
        .filter(|(name, _)| name.starts_with("nicache_bus_bytes_total"))
        .map(|(_, bytes)| bytes)
        .sum();
    assert_eq!(classes, all["nicache_bus_total_bytes_total"]);
    assert_eq!(curl(&format!("http://{admin}/healthz")), "ok\n");
    let text = output(
        "curl",
        &["-sS", "-H", "Accept: application/openmetrics-text", &format!("http://{admin}/metrics")],
    );
    assert!(
        text.ends_with("# EOF\n") && text.contains("# TYPE nicache_requests counter"),
        "{text}"
    );
}

#[test]
fn queues_are_told_apart_and_objects_are_known_by_their_use() {
    private_network();
    let site = plain_site();
    std::fs::write(site.folder.path().join("site/other.html"), "another page\n").unwrap();
    let nicache = Nicache::start(&["--admin", "0", "--queues", "2"], &site.command());
    let (admin, server) = (admin(&nicache), nicache.server());
    let _load = Load::start(&format!("http://{server}/page.html"));
    let status = |admin: &str| {
        serde_json::from_str::<Value>(&curl(&format!("http://{admin}/api/status"))).unwrap()
    };
    let hot = within(SOON, || {
        curl(&format!("http://{server}/other.html"));
        let sample = status(&admin);
        let first = sample["hottest"][0].clone();
        (first["target"] == "/page.html" && first["hits_per_s"].as_f64() > Some(100.0))
            .then_some(sample)
    });
    let sample = hot.unwrap_or_else(|| panic!("{}", status(&admin)["hottest"]));
    assert_eq!(sample["cards"].as_array().unwrap().len(), 2);
    assert_eq!(sample["hottest"][0]["host"], server.to_string());
    assert_eq!(sample["hottest"][0]["body_bytes"], 17);
}

#[test]
fn whoever_connects_does_not_disturb() {
    private_network();
    let site = plain_site();
    let nicache = Nicache::start(&["--admin", "0"], &site.command());
    let admin = admin(&nicache);
    let status_of = |arguments: &[&str]| {
        let mut all = vec!["-sS", "-m", "10", "-o", "/dev/null", "-w", "%{http_code}"];
        all.extend(arguments);
        output("curl", &all)
    };
    let url = format!("http://{admin}/metrics");
    assert_eq!(status_of(&["-X", "POST", "-d", "x=1", &url]), "405");
    assert_eq!(status_of(&[&format!("http://{admin}/api/purge")]), "404");
    // A page of another site whose name leads here.
    assert_eq!(status_of(&["-H", "Host: evil.example", &url]), "421");
    // More than there are places for, none of which says anything: others are answered once those
    // are given up.
    let silent: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(&admin).unwrap()).collect();
    assert_eq!(curl(&format!("http://{}/page.html", nicache.server())), "hello from nginx\n");
    assert_eq!(output("curl", &["-sS", "-m", "40", &format!("http://{admin}/healthz")]), "ok\n");
    drop(silent);
    // A head without an end.
    let mut endless = TcpStream::connect(&admin).unwrap();
    endless.set_read_timeout(Some(SOON)).unwrap();
    let junk = vec![b'a'; 1 << 20];
    let _ = endless.write_all(b"GET / HTTP/1.1\r\nX: ").and_then(|()| endless.write_all(&junk));
    let mut answer = Vec::new();
    let _ = endless.read_to_end(&mut answer);
    assert!(
        answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    // Events come each second, and more often for nobody.
    let mut stream = TcpStream::connect(&admin).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    write!(stream, "GET /api/events HTTP/1.1\r\nHost: {admin}\r\n\r\n").unwrap();
    let started = Instant::now();
    let events = BufReader::new(stream)
        .lines()
        .map_while(Result::ok)
        .filter(|line| line.starts_with("data: "));
    let samples: Vec<Value> =
        events.take(4).map(|line| serde_json::from_str(&line[6..]).unwrap()).collect();
    assert!(started.elapsed() >= Duration::from_secs(2));
    let times: Vec<u64> =
        samples.iter().map(|told| told["sample"]["uptime_ms"].as_u64().unwrap()).collect();
    assert!(times.is_sorted() && times[0] < times[3], "{times:?}");
    assert!(samples[3]["point"]["seconds"].as_f64().unwrap() > 0.5, "{}", samples[3]["point"]);
}

#[test]
fn it_is_for_this_machine_unless_that_is_said_twice() {
    private_network();
    let site = plain_site();
    let command = site.command();
    let with = |admin: &'static str| {
        let mut arguments = vec!["--admin", admin, "--"];
        arguments.extend(command.iter().map(String::as_str));
        arguments.iter().map(|argument| (*argument).to_owned()).collect::<Vec<_>>()
    };
    let arguments = with("0.0.0.0:9090");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    assert_fails(&arguments, &["0.0.0.0:9090 is not a loopback address", "--admin-anyone"]);
    assert_fails(&["--admin", "somewhere"], &["neither a port nor ADDR:PORT"]);
    let nicache = Nicache::start(&["--admin", "0.0.0.0:9191", "--admin-anyone"], &command);
    let gateway = nicache.status["gateway"].as_str().unwrap();
    assert_eq!(curl(&format!("http://{gateway}:9191/healthz")), "ok\n");
    // There it may have any name.
    let name = output(
        "curl",
        &["-sS", "-m", "10", "-H", "Host: cards.example", "http://127.0.0.1:9191/healthz"],
    );
    assert_eq!(name, "ok\n");
}

#[test]
fn the_page_shows_a_real_run_and_its_end() {
    private_network();
    let site = plain_site();
    let nicache = Nicache::start(&["--admin", "0", "--name", "shown"], &site.command());
    let admin = admin(&nicache);
    let load = Load::start(&format!("http://{}/page.html", nicache.server()));
    // A target that would be more than text if it were not shown as text. It is kept: the server
    // ignores the query.
    let hostile = "/page.html?&lt;b&gt;%3Cscript%3E';alert(1)//";
    let request = format!("GET {hostile} HTTP/1.1\r\nHost: {}\r\n\r\n", nicache.server());
    let mut client = TcpStream::connect((nicache.server(), 80)).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut browser = Browser::start();
    browser.look(1280, 900, "light");
    browser.visit(&format!("http://{admin}/"));
    let seen = within(SOON, || {
        client.write_all(request.as_bytes()).unwrap();
        let _ = client.read(&mut [0; 4096]);
        let rows = browser
            .value("[...document.querySelectorAll('#hot tbody th')].map((it) => it.textContent)");
        let ends = |row: &serde_json::Value, end| row.as_str().unwrap().ends_with(end);
        let rows = rows.as_array()?;
        // The load's page comes first, as soon as there has been some load.
        (ends(rows.first()?, "/page.html") && rows.iter().any(|row| ends(row, hostile)))
            .then_some(())
    });
    seen.expect("the target among the hottest");
    let tile = "[...document.querySelectorAll('#tiles .value')].map((it) => it.textContent)";
    within(SOON, || browser.value(tile)[1].as_str().unwrap().starts_with("100").then_some(()))
        .expect("a hit rate");
    assert_eq!(browser.text("document.title"), "shown – nicache");
    assert_eq!(browser.text("document.getElementById('state').textContent"), "Caching");
    if let Some(folder) = std::env::var_os("NICACHE_PICTURES") {
        std::thread::sleep(Duration::from_secs(45));
        let file = std::path::Path::new(&folder).join("run.base64");
        std::fs::write(file, browser.picture(true)).unwrap();
    }
    assert_eq!(browser.complaints(), Vec::<String>::new());
    drop(load);
    drop(nicache);
    let banner = "document.getElementById('banner').hidden ? '' : document.getElementById('banner').textContent";
    within(SOON, || browser.text(banner).contains("Connection lost").then_some(()))
        .expect("the banner");
}

#[test]
fn serve_has_one_too() {
    private_network();
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    std::fs::write(folder.path().join("page.html"), vec![b'x'; 20_000]).unwrap();
    let mut command = Command::new(NICACHE);
    command
        .args(["serve", "--json", "--admin", "0", "--name", "served"])
        .arg(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut process = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    let admin = ready["status"]["admin"].as_str().unwrap().to_owned();
    let url = format!("{}page.html", ready["status"]["urls"][0].as_str().unwrap());
    let text = within(SOON, || {
        curl(&url);
        let all = metrics(&admin);
        let found = all.iter().any(|(name, value)| {
            name.starts_with("nicache_block_lookups_total")
                && name.contains("\"hit\"")
                && *value > 0.0
        });
        found.then_some(all)
    });
    let all = text.unwrap_or_else(|| panic!("{:?}", metrics(&admin)));
    assert!(!all.keys().any(|name| name.starts_with("nicache_other")), "{all:?}");
    assert!(all["nicache_requests_total"] >= 1.0);
    let once =
        common::command(&["top", "--once", "--json", "--interval", "300ms", "--name", "served"]);
    assert!(once.status.success(), "{}", String::from_utf8_lossy(&once.stderr));
    let told: Value = serde_json::from_slice(&once.stdout).unwrap();
    assert_eq!(told["sample"]["mode"], "serve");
    let _ = process.kill();
    let _ = process.wait();
}
