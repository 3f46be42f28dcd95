//! Heads as real applications write them: what they say of the moment or in an odd form keeps no
//! page from being kept, and what is asked about it is for the server to answer.

use std::time::{Duration, Instant};

use crate::check::Cases;
use crate::stage::{Setup, Stage};

/// The status of the reply to a request on this condition.
fn status_if(stage: &Stage, url: &str, condition: &str) -> u16 {
    stage.client().request("GET", url, &[("If-Modified-Since", condition)], b"").unwrap().status
}

fn last_modified(stage: &Stage, url: &str) -> String {
    stage.client().get(url).unwrap().header("last-modified").unwrap().to_owned()
}

/// Visitors ask for several seconds: how many of them the card has answered, in percent.
fn hits_of(stage: &Stage, url: &str) -> u64 {
    let (begun, before, mut asked) = (Instant::now(), stage.counter("hits_dynamic"), 0);
    let mut client = stage.client();
    while begun.elapsed() < Duration::from_secs(5) {
        client.get(url).unwrap();
        asked += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    (stage.counter("hits_dynamic") - before) * 100 / asked
}

#[test]
fn heads_of_applications() {
    let mut stage = Stage::start(&Setup::default(), |_| {});
    let mut cases = Cases::default();
    let page = |name: &str, head: &str| {
        stage.write(&format!("data/{name}"), "one");
        stage.script(
            &format!("{name}.php"),
            &format!("<?php $f = '@FOLDER@/data/{name}'; clearstatcache(); {head} readfile($f);"),
        );
    };
    cases.run("the page was modified just now, always", || {
        page("now", "header('Last-Modified: ' . gmdate('D, d M Y H:i:s') . ' GMT');");
        stage.change("/now.php", "two", || stage.write("data/now", "two"));
        stage.warm("/now.php");
        let differed = stage.counter("executions_differed");
        let hits = hits_of(&stage, "/now.php");
        assert!(hits >= 50, "{hits} % of the visitors got it from the card");
        assert_eq!(stage.counter("executions_differed"), differed);
        // PHP does not look at the condition.
        let told = last_modified(&stage, "/now.php");
        assert_eq!(status_if(&stage, "/now.php", &told), 200);
        stage.change("/now.php", "three", || stage.write("data/now", "three"));
    });
    cases.run("the page was modified just now, and says so from then on", || {
        page(
            "then",
            "header('Last-Modified: ' . gmdate('D, d M Y H:i:s', filemtime($f)) . ' GMT');",
        );
        for text in ["two", "three"] {
            stage.change("/then.php", text, || stage.write("data/then", text));
            let told = last_modified(&stage, "/then.php");
            stage.warm("/then.php");
            std::thread::sleep(Duration::from_millis(1100));
            assert_eq!(last_modified(&stage, "/then.php"), told);
        }
    });
    cases.run("a date in another form", || {
        page(
            "form",
            "$at = gmdate('r', filemtime($f)); header('Last-Modified: ' . $at);
            if (@$_SERVER['HTTP_IF_MODIFIED_SINCE'] == $at) { http_response_code(304); exit; }",
        );
        stage.change("/form.php", "two", || stage.write("data/form", "two"));
        stage.warm("/form.php");
        let told = last_modified(&stage, "/form.php");
        assert!(told.ends_with("+0000"), "{told}");
        assert_eq!(status_if(&stage, "/form.php", &told), 304);
        // Within the second, too, the server knows no better.
        std::thread::sleep(Duration::from_millis(1100));
        stage.change("/form.php", "three", || stage.write("data/form", "three"));
        assert_eq!(status_if(&stage, "/form.php", &told), 200);
    });
    let fields = [
        ("checks", "header('Cache-Control: post-check=0, pre-check=0', false);"),
        (
            "twice",
            "header('Cache-Control: max-age=5'); header('Cache-Control: public, max-age=5', false);",
        ),
        ("empty", "header('Cache-Control: , must-understand,'); header('Vary: ,Accept-Encoding');"),
    ];
    for (name, head) in fields {
        cases.run(name, || {
            page(name, head);
            let url = format!("/{name}.php");
            stage.change(&url, "two", || stage.write(&format!("data/{name}"), "two"));
        });
    }
    cases.end(&mut stage);
}
