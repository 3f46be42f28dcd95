//! Clients whom the server tells apart without saying so: by where they come from, by language, by
//! kind of program, by how they spell its name.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use nicache_applications::{Client, Reply};
use nicache_coherence::Rule;
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl,
};

use crate::check::{Cases, eventually};
use crate::common::{self, Nicache, private_network, within};
use crate::explain::json;
use crate::stage::{Setup, Stage};

const NGINX: &str = "
        location /images/ {
            valid_referers none server_names ~shop\\.example;
            if ($invalid_referer) { return 403; }
            alias @FOLDER@/data/;
        }
        location /spoken/ {
            set $language en;
            if ($http_accept_language ~* ^de) { set $language de; }
            rewrite ^/spoken/(.*)$ /$language/$1 last;
        }
        location /en/ { internal; alias @FOLDER@/data/en/; }
        location /de/ { internal; alias @FOLDER@/data/de/; }";

const BROWSER: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0";
const PHONE: &str = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.1 Mobile/15E148 Safari/604.1";

/// For what is certain to come, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(150);

type Fields = &'static [(&'static str, &'static str)];

fn ask(client: &mut Client, url: &str, fields: Fields) -> Reply {
    client.request("GET", url, fields, &[]).unwrap()
}

/// Asks until the card answers these, and says whether it did. Every reply has what `is_right`
/// wants.
fn is_kept(stage: &Stage, url: &str, fields: Fields, is_right: impl Fn(&Reply) -> bool) -> bool {
    let mut client = stage.client();
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let before = stage.counter("hits");
        for _ in 0..3 {
            let reply = ask(&mut client, url, fields);
            assert!(is_right(&reply), "{url} {fields:?}: {} {}", reply.status, reply.text());
        }
        if stage.counter("hits") >= before + 3 {
            return true;
        }
        std::thread::sleep(Duration::from_millis(15));
    }
    false
}

/// Each of these groups of clients gets its own answer, from the card too, whoever came first.
fn each_its_own(stage: &Stage, url: &str, groups: &[(Fields, &str)]) {
    for round in 0..2 {
        for (fields, answer) in groups {
            // The first one of a group never has the answer of another.
            let reply = ask(&mut stage.client(), url, fields);
            assert_eq!(reply.text(), *answer, "{url} {fields:?}, round {round}");
        }
        for (fields, answer) in groups {
            let kept = is_kept(stage, url, fields, |reply| reply.text() == *answer);
            assert!(kept, "{url} {fields:?}: the card never answers");
        }
    }
}

fn start(without: Option<Rule>) -> Stage {
    let stage = Stage::start(&Setup { nginx: NGINX, without, ..Setup::default() }, |_| {});
    stage.write("data/shoe.txt", &"a shoe. ".repeat(50));
    stage
}

/// How many of twelve from elsewhere get what is for the shop's own visitors.
fn hotlinkers(stage: &Stage) -> usize {
    const OWN: Fields = &[("Referer", "http://shop.example/shoes")];
    const EVIL: Fields = &[("Referer", "http://evil.example/")];
    assert!(is_kept(stage, "/images/shoe.txt", &[], |reply| reply.status == 200));
    assert!(is_kept(stage, "/images/shoe.txt", OWN, |reply| reply.status == 200));
    let statuses = [0; 12].map(|_| ask(&mut stage.client(), "/images/shoe.txt", EVIL).status);
    // They change nothing for the others.
    assert!(is_kept(stage, "/images/shoe.txt", OWN, |reply| reply.status == 200));
    statuses.iter().filter(|status| **status != 403).count()
}

#[test]
fn clients_who_differ() {
    let mut stage = start(None);
    let mut cases = Cases::default();
    cases.run("hotlink protection", || assert_eq!(hotlinkers(&stage), 0));
    // Both get the same bytes, each because of another file that is not there.
    cases.run("what decides for one is not what decides for the other", || {
        const GERMAN: Fields = &[("Accept-Language", "de")];
        const ENGLISH: Fields = &[("Accept-Language", "en")];
        stage.make_folder("data/closed");
        stage.script(
            "notice.php",
            "<?php $is_german = str_starts_with($_SERVER['HTTP_ACCEPT_LANGUAGE'] ?? '', 'de');
            echo file_exists('@FOLDER@/data/closed/' . ($is_german ? 'de' : 'en')) ? 'closed' : 'open';",
        );
        let says = |fields: Fields, text: &str| {
            assert!(
                is_kept(&stage, "/notice.php", fields, |reply| reply.text() == text),
                "{fields:?}: the card never answers"
            );
        };
        for round in 0..4 {
            // Whoever came last, and whoever it is closed for.
            for fields in if round % 2 == 0 { [GERMAN, ENGLISH] } else { [ENGLISH, GERMAN] } {
                says(fields, "open");
            }
            // An operator is told of what decides for either.
            let is_told = || {
                let report = json(&stage, &["why", "/notice.php"]).to_string();
                let of = |name| report.contains(&format!("/data/closed/{name}\""));
                let is_told = of("de") && of("en");
                if !is_told {
                    [GERMAN, ENGLISH].iter().for_each(|fields| says(fields, "open"));
                }
                is_told
            };
            assert!(eventually(is_told), "{}", json(&stage, &["why", "/notice.php"]));
            let (changed, name) = if round / 2 == 0 { (GERMAN, "de") } else { (ENGLISH, "en") };
            let other = if round / 2 == 0 { ENGLISH } else { GERMAN };
            stage.write(&format!("data/closed/{name}"), "");
            for (fields, text) in [(changed, "closed"), (other, "open"), (changed, "closed")] {
                let reply = ask(&mut stage.client(), "/notice.php", fields);
                assert_eq!(reply.text(), text, "round {round}, {fields:?}");
            }
            says(other, "open");
            says(changed, "closed");
            stage.remove(&format!("data/closed/{name}"));
        }
    });
    cases.run("files by language", || {
        ["data/en", "data/de"].iter().for_each(|folder| stage.make_folder(folder));
        stage.write("data/en/hello.txt", "hello");
        stage.write("data/de/hello.txt", "hallo");
        let german: Fields = &[("Accept-Language", "de-DE,de;q=0.9,en;q=0.5")];
        let english: Fields = &[("Accept-Language", "en-US,en;q=0.9")];
        each_its_own(
            &stage,
            "/spoken/hello.txt",
            &[(&[], "hello"), (german, "hallo"), (english, "hello")],
        );
    });
    cases.run("pages by language, browser and origin", || {
        let answer = |by: &str| format!("<?php echo {by} ?? '' ? 'special' : 'general';");
        for (page, by, special) in [
            (
                "language.php",
                "preg_match('/^de/', $_SERVER['HTTP_ACCEPT_LANGUAGE'] ?? '')",
                &[("Accept-Language", "de")],
            ),
            (
                "phone.php",
                "preg_match('/Mobile/', $_SERVER['HTTP_USER_AGENT'] ?? '')",
                &[("User-Agent", PHONE)],
            ),
            (
                "hint.php",
                "preg_match('/1/', $_SERVER['HTTP_SEC_CH_UA_MOBILE'] ?? '')",
                &[("Sec-CH-UA-Mobile", "?1")],
            ),
            (
                "site.php",
                "preg_match('/cross/', $_SERVER['HTTP_SEC_FETCH_SITE'] ?? '')",
                &[("Sec-Fetch-Site", "cross-site")],
            ),
            (
                "origin.php",
                "preg_match('/evil/', $_SERVER['HTTP_REFERER'] ?? '')",
                &[("Referer", "http://evil.example/a")],
            ),
        ] as [(&str, &str, Fields); 5]
        {
            stage.script(page, &answer(by));
            let browser: Fields = &[
                ("User-Agent", BROWSER),
                ("Accept-Language", "en"),
                ("Referer", "http://shop.example/"),
            ];
            each_its_own(
                &stage,
                &format!("/{page}"),
                &[(&[], "general"), (special, "special"), (browser, "general")],
            );
        }
    });
    cases.end(&mut stage);
}

/// A client that writes the name in a way of its own does not write it for others. PHP's own server
/// hands it to the script as it is; nginx writes it small.
#[test]
fn the_spelling_of_the_servers_name() {
    private_network();
    let folder =
        tempfile::Builder::new().prefix("nicache-dynamic-").tempdir_in("/var/lib").unwrap();
    std::fs::write(
        folder.path().join("links.php"),
        "<?php echo 'http://', $_SERVER['HTTP_HOST'], '/';",
    )
    .unwrap();
    let words =
        ["php", "-S", "0.0.0.0:80", "-t", folder.path().to_str().unwrap()].map(str::to_owned);
    let nicache = Nicache::start(&[], &words);
    let address = std::net::SocketAddr::from((nicache.server(), 80));
    assert!(within(PATIENCE, || Client::new(address).get("/links.php").ok()).is_some());
    let ask = |host: &str| Client::new(address).naming(host).get("/links.php").unwrap().text();
    let hits = || common::status(nicache.name())["counters"]["hits_dynamic"].as_u64().unwrap();
    for first in ["SHOP.example", "shop.example:80", "shop.example."] {
        let (before, begun) = (hits(), Instant::now());
        for round in 0.. {
            if round >= 40 && hits() > before + 20 {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "{} hits", hits() - before);
            for host in [first, "shop.example"] {
                assert_eq!(ask(host), format!("http://{host}/"), "round {round}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn without_classes() {
    let stage = start(Some(Rule::Classes));
    assert!(eventually(|| hotlinkers(&stage) > 0), "nobody notices that the rule is off");
}

/// Who asks whether the connection still lives while a page takes its time is not cut off, whoever
/// answers the handshake.
#[test]
fn probes_while_a_page_takes_its_time() {
    for handshake in ["pass-through", "card"] {
        let options: &'static [&'static str] = if handshake == "card" {
            &["--handshake", "card"]
        } else {
            &["--handshake", "pass-through"]
        };
        let stage = Stage::start(&Setup { options, ..Setup::default() }, |_| {});
        stage.script("slow.php", "<?php sleep(5); echo 'slow';");
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(stage.address())?;
            // Given up after 3 s without an answer.
            set_socket_keepalive(&stream, true)?;
            set_tcp_keepidle(&stream, Duration::from_secs(1))?;
            set_tcp_keepintvl(&stream, Duration::from_secs(1))?;
            set_tcp_keepcnt(&stream, 2)?;
            stream.write_all(b"GET /slow.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
            let mut reply = String::new();
            stream.read_to_string(&mut reply)?;
            Ok(reply)
        };
        // On a busy machine the card itself may stand still for as long.
        let is_answered = (0..3).any(|_| {
            let reply = ask();
            let is_whole = reply.as_ref().is_ok_and(|reply| reply.contains("slow"));
            if !is_whole {
                println!("{handshake}: {reply:?}");
            }
            is_whole
        });
        assert!(is_answered, "{handshake}: the connection is given up each time");
    }
}
