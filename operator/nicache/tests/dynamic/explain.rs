//! `nicache why` and `nicache who`: what a page depends on, why it is not kept, and what depends on
//! a source.

use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::check::{Cases, eventually};
use crate::common::{NICACHE, within};
use crate::stage::{Database, Setup, Stage};

fn nicache(stage: &Stage, arguments: &[&str]) -> String {
    let output = Command::new(NICACHE)
        .args(arguments)
        .args(["--name", stage.nicache.name()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn json(stage: &Stage, arguments: &[&str]) -> Value {
    serde_json::from_str(&nicache(stage, &[arguments, &["--json"]].concat())).unwrap()
}

fn targets(report: &Value) -> Vec<&str> {
    report["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["target"].as_str().unwrap())
        .collect()
}

/// For what is certain to come, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

/// What `why` says of a page that is kept. Another test may void it before it is asked.
fn why_kept(stage: &Stage, page: &str) -> Value {
    let mut report = Value::Null;
    let is_kept = || {
        stage.get(page);
        report = json(stage, &["why", page]);
        (targets(&report["page"]) == [page]).then_some(())
    };
    let is_kept = within(PATIENCE, is_kept).is_some();
    assert!(is_kept, "{report:#}");
    report
}

/// Dynamic pages, and a file.
fn warm(stage: &Stage, pages: &[&str]) {
    pages.iter().for_each(|page| drop(stage.warm(page)));
    let is_stored = || {
        stage.get("/static.html");
        (!targets(&json(stage, &["why", "/static.html"])["page"]).is_empty()).then_some(())
    };
    assert!(within(PATIENCE, is_stored).is_some(), "the file is never kept");
}

/// `--compare` asks the server itself, whose replies the card only has digests of.
#[test]
fn where_replies_differ() {
    let stage = Stage::start(&Setup::default(), |_| {});
    stage.script(
        "random.php",
        r#"<?php header('X-Number: ' . random_int(0, PHP_INT_MAX));
        printf("<form>\n<input value=\"%s\"> the same\n", bin2hex(random_bytes(8)));"#,
    );
    let text = nicache(&stage, &["why", "/random.php", "--compare"]);
    for part in [
        "to curl's request",
        "differ",
        "behind `<input value=\"",
        r#"masks = ["value=\"*\""]"#,
        r#"mask-headers = ["x-number"]"#,
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let server = format!("{}", stage.address());
    let compared =
        json(&stage, &["why", "/random.php", "--compare", "--server", &server, "-H", "X-Y: z"]);
    assert_eq!(compared["compared"]["headers"].as_array().unwrap().len(), 1, "{compared:#}");
    assert!(compared["page"].is_object(), "{compared:#}");
    let url = format!("http://{server}/static.html");
    let text = nicache(&stage, &["why", &url, "--compare"]);
    assert!(text.contains("are the same"), "{text}");
    let nowhere = Command::new(NICACHE)
        .args([
            "why",
            "/random.php",
            "--compare",
            "--server",
            "127.0.0.1:1",
            "--name",
            stage.nicache.name(),
        ])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&nowhere.stderr);
    assert!(!nowhere.status.success() && said.contains("does not answer at 127.0.0.1:1"), "{said}");
}

#[test]
fn pages_and_sources() {
    let mut stage =
        Stage::start(&Setup { database: Database::MariaDb, ..Setup::default() }, |_| {});
    let mut cases = Cases::default();
    stage.sql(
        "CREATE TABLE shown (id INT PRIMARY KEY, text VARCHAR(20)); INSERT INTO shown VALUES (1, 'one'), (2, 'two')",
    );
    let sql = "$db = new mysqli(null, 'site', 'site', 'site', 0, '@FOLDER@/run/mariadb.sock');";
    let row = "echo $db->query('SELECT text FROM shown WHERE id = ' . (int) $_GET['id'])->fetch_row()[0];";
    stage.script("row.php", &format!("<?php {sql} {row}"));
    stage.script(
        "plain.php",
        "<?php echo is_file('@FOLDER@/data/missing') ? 'there' : 'not there';",
    );
    stage.write("site/static.html", "static");
    cases.run("what a page depends on", || {
        // Rows of a table are told apart once its columns are known.
        let mut report = Value::Null;
        stage.wait_until(|| {
            warm(&stage, &["/row.php?id=1", "/row.php?id=2", "/plain.php"]);
            report = why_kept(&stage, "/row.php?id=1");
            let is_known = report["sources"][0]["tables"][0] == "site.shown where id = 1";
            if !is_known {
                nicache(&stage, &["purge", "/row.php?id=1"]);
            }
            is_known
        });
        let entry = &report["page"]["entries"][0];
        assert_eq!(entry["class"], "dynamic");
        assert!(entry["left_ms"].as_u64().is_some_and(|left| left <= 1000), "{entry}");
        let sources = &report["sources"][0];
        let paths: Vec<&str> = sources["paths"]
            .as_array()
            .unwrap()
            .iter()
            .map(|path| path["path"].as_str().unwrap())
            .collect();
        assert!(paths.iter().any(|path| path.ends_with("/site/row.php")), "{paths:?}");
        assert!(sources["retained"].as_u64() > Some(0));

        let report = why_kept(&stage, "/plain.php");
        let paths = report["sources"][0]["paths"].as_array().unwrap();
        let missing =
            paths.iter().find(|path| path["path"].as_str().unwrap().ends_with("/data/missing"));
        assert_eq!(missing.unwrap()["used"], "missing", "{report:#}");
        // Another test may just have mounted something: then it is looked at with its next request.
        let mut text = String::new();
        let is_told = || {
            stage.get("/static.html");
            text = nicache(&stage, &["why", "/static.html"]);
            let is_told =
                text.contains("static, 6 bytes of body: ") && text.contains("(T, as earned: ");
            is_told.then_some(())
        };
        let is_told = within(PATIENCE, is_told);
        assert!(is_told.is_some(), "{text}");
    });
    cases.run("why it is not there", || {
        stage.script("private.php", "<?php header('Cache-Control: private'); echo 1;");
        stage.script("writes.php", "<?php file_put_contents('@FOLDER@/tmp/x', rand()); echo 1;");
        stage.script("clock.php", "<?php echo hrtime(true);");
        for (page, reason) in [
            ("/private.php", "fill_not_shared_private"),
            ("/writes.php", "fill_refused_wrote"),
            ("/none.php", "fill_not_shared_status"),
        ] {
            let url = format!("http://{}{page}", stage.nicache.server());
            let last = || {
                stage.get(page);
                std::thread::sleep(Duration::from_millis(50));
                json(&stage, &["why", &url])["page"]["last"].as_str().unwrap_or_default().to_owned()
            };
            // A script that was just written is not settled yet.
            let is_right = || (last() == reason).then_some(());
            assert!(within(PATIENCE, is_right).is_some(), "{page}: {}", last());
        }
        let text = nicache(&stage, &["why", "/writes.php"]);
        assert!(
            text.contains("not in card memory") && text.contains("changed a file or a row"),
            "{text}"
        );
        (0..20).for_each(|_| drop(stage.get("/clock.php")));
        let report = json(&stage, &["why", "/clock.php"]);
        assert!(
            targets(&report["page"]).is_empty() && report["page"]["last"].is_string(),
            "{report:#}"
        );
        let text = nicache(&stage, &["why", "/never-asked.php"]);
        assert!(text.contains("ask for it twice"), "{text}");
    });
    cases.run("what real clients' requests meet", || {
        let address = stage.nicache.server();
        let visit = |number: u32, more: &[(&str, &str)]| {
            let from = format!("198.51.100.{}", number % 250 + 1);
            let own = [
                ("User-Agent", "curl/8.5.0"),
                ("Accept", "*/*"),
                ("X-Forwarded-For", from.as_str()),
            ];
            let says = [("X-Forwarded-Proto", "https"), ("X-Forwarded-Host", "shop.example")];
            let headers = [&own[..], &says, more].concat();
            stage
                .client()
                .naming("shop.example")
                .request("GET", "/plain.php", &headers, &[])
                .unwrap()
        };
        // A proxy that ends TLS is in front.
        let url = "https://shop.example/plain.php";
        let (mut number, mut text) = (0, String::new());
        let curl_meets = || {
            number += 1;
            visit(number, &[]);
            let report = json(&stage, &["why", url]);
            let curl = report["page"]["asked"][1].clone();
            assert_eq!(curl["title"], "curl's", "{report:#}");
            text = nicache(&stage, &["why", url]);
            let is_told = text.contains("curl's request is answered by the card");
            (curl["meets"] == "hit" && is_told).then_some(report)
        };
        let report = within(PATIENCE, curl_meets);
        let report = report.unwrap_or_else(|| panic!("behind a proxy, nothing is kept: {text}"));
        let request = report["page"]["entries"][0]["request"].to_string();
        assert!(request.contains("X-Forwarded-Proto: https"), "{report:#}");
        assert!(text.contains("a browser's request goes to the server"), "{text}");
        // Requests that are given.
        let own = format!("http://{address}/plain.php");
        let ask = |more: &[&str]| nicache(&stage, &[&["why", &own], more].concat());
        assert!(
            ask(&["-H", "Cookie: sid=1"])
                .contains("because it carries a cookie, so the page may be for one client")
        );
        assert!(
            ask(&["-H", "Upgrade: websocket"]).contains("because it asks for another protocol")
        );
        // A kind of client that the page was never given to, or that has never come.
        assert!(
            ask(&["-H", "Accept: text/odd"]).contains("this request goes to the server"),
            "{}",
            ask(&[])
        );
        for odd in [&["--http10"][..], &["-H", "Connection: close"]] {
            assert!(
                ask(odd).contains("this request goes to the server: no reply to it is kept"),
                "{odd:?}: {}",
                ask(odd)
            );
        }
        // What went to the server, and why.
        visit(1, &[("Authorization", "Basic eDp5")]);
        let text = nicache(&stage, &["why", url]);
        assert!(
            text.contains("a client's request went to the server, because it carries a user name"),
            "{text}"
        );
        let purge = |what: &str| json(&stage, &["purge", what])["purged"].as_u64().unwrap();
        assert_eq!(purge("https://other.example/*"), 0);
        let is_purged = || {
            visit(2, &[]);
            let of_other = nicache(&stage, &["purge", "https://other.example/plain.php"]);
            of_other.contains("it is kept for") && purge("https://shop.example/pl*") > 0
        };
        assert!(eventually(is_purged), "{}", nicache(&stage, &["why", url]));
        assert_eq!(purge(url), 0);
        assert!(
            nicache(&stage, &["why", url]).contains("has been dropped since"),
            "{}",
            nicache(&stage, &["why", url])
        );
    });
    cases.run("what depends on a source", || {
        warm(&stage, &["/row.php?id=1", "/plain.php"]);
        let who = |source: &str| json(&stage, &["who", source]);
        let of_table = who("site.shown");
        assert!(targets(&of_table).contains(&"/row.php?id=1"), "{of_table:#}");
        assert!(!targets(&of_table).contains(&"/plain.php"), "{of_table:#}");
        assert!(targets(&who("site.other")).is_empty());
        let folder = stage.folder.display();
        let of_file = who(&format!("{folder}/site/static.html"));
        assert_eq!(
            (targets(&of_file), &of_file["every_dynamic"]),
            (vec!["/static.html"], &Value::Bool(false))
        );
        let of_missing = who(&format!("{folder}/data/missing"));
        assert_eq!(targets(&of_missing), ["/plain.php"], "{of_missing:#}");
        let of_script = who(&format!("{folder}/site/plain.php"));
        assert_eq!(of_script["every_dynamic"], true, "{of_script:#}");
        assert!(nicache(&stage, &["who", "/etc/hostname"]).contains("no page in card memory"));
    });
    cases.run("a reload of the server and of the programs beside it", || {
        warm(&stage, &["/row.php?id=1"]);
        stage.nicache.signal(Signal::HUP);
        // Less than the minute for which a file that nobody reads again keeps everything from being
        // kept.
        std::thread::sleep(Duration::from_millis(300));
        assert!(
            stage.try_warm("/row.php?id=1", Duration::from_secs(40)).is_some(),
            "nothing is kept after a reload"
        );
    });
    cases.end(&mut stage);
}
