//! What is for one client is never shown to another.

use std::process::Command;

use crate::check::{Cases, eventually};
use crate::common::ip;
use crate::stage::{Setup, Stage};

/// Visitors at other addresses than the machine's own, which is that of the card's requests, too.
const VISITORS: [&str; 3] = ["198.51.100.7", "198.51.100.8", "203.0.113.9"];

fn stage() -> Stage {
    stage_with(&Setup::default())
}

fn stage_with(setup: &Setup) -> Stage {
    let stage = Stage::start(setup, |_| {});
    for visitor in VISITORS {
        ip(&format!("address add {visitor}/32 dev lo"));
    }
    stage
}

/// Fetches a page as somebody else.
fn fetch(stage: &Stage, from: Option<&str>, headers: &[&str], path: &str) -> String {
    let mut command = Command::new("curl");
    // The same headers as others send, so the key is the same.
    command.args(["-sS", "-m", "10", "-H", "Accept:", "-H", "User-Agent:"]);
    if let Some(from) = from {
        command.args(["--interface", from]);
    }
    for header in headers {
        command.args(["-H", header]);
    }
    let output = command.arg(format!("http://{}{path}", stage.address())).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn visitors() {
    visitors_of(&Setup::default());
}

/// No visitor gets another one's page, with any setup.
pub(crate) fn visitors_of(setup: &Setup) {
    let mut stage = stage_with(setup);
    let mut cases = Cases::default();
    cases.run("a page for all is kept for visitors, too", || {
        stage.script("all.php", "<?php echo 'for all';");
        let visit = || {
            for visitor in VISITORS.repeat(10) {
                assert_eq!(fetch(&stage, Some(visitor), &[], "/all.php"), "for all");
            }
            stage.counter("hits_dynamic") > 0
        };
        assert!(eventually(visit), "it is never kept");
    });
    cases.run("cookies that are set and read", || {
        stage.script("sets.php", "<?php setcookie('seen', '1'); echo 'set';");
        assert!(stage.try_warm("/sets.php", std::time::Duration::from_secs(2)).is_none());
        stage.script("cookie.php", "<?php echo 'for ', $_COOKIE['name'] ?? 'nobody';");
        stage.warm("/cookie.php");
        for name in ["ann", "bob", "ann", "bob"] {
            assert_eq!(
                fetch(&stage, None, &[&format!("Cookie: name={name}")], "/cookie.php"),
                format!("for {name}")
            );
            assert_eq!(fetch(&stage, Some(VISITORS[0]), &[], "/cookie.php"), "for nobody");
        }
    });
    cases.run("authorization", || {
        stage.script("user.php", "<?php echo 'for ', $_SERVER['PHP_AUTH_USER'] ?? 'nobody';");
        stage.warm("/user.php");
        for (user, header) in
            [("ann", "Authorization: Basic YW5uOng="), ("bob", "Authorization: Basic Ym9iOng=")]
                .repeat(3)
        {
            assert_eq!(fetch(&stage, None, &[header], "/user.php"), format!("for {user}"));
            assert_eq!(fetch(&stage, Some(VISITORS[1]), &[], "/user.php"), "for nobody");
        }
    });
    cases.run("forms", || {
        stage.script("form.php", "<?php echo $_SERVER['REQUEST_METHOD'], ' ', $_POST['a'] ?? '';");
        stage.warm("/form.php");
        let mut client = stage.client();
        for value in ["1", "2", "1", "2"] {
            assert_eq!(
                client.post_form("/form.php", &[("a", value)]).unwrap().text(),
                format!("POST {value}")
            );
            assert_eq!(client.get("/form.php").unwrap().text(), "GET ");
        }
    });
    cases.run("other headers", || {
        stage.script(
            "header.php",
            "<?php echo $_SERVER['HTTP_X_THEME'] ?? 'none', ' ', $_SERVER['HTTP_HOST'];",
        );
        stage.warm("/header.php");
        for theme in ["dark", "light"] {
            assert!(
                fetch(&stage, None, &[&format!("X-Theme: {theme}")], "/header.php")
                    .starts_with(theme)
            );
            assert!(fetch(&stage, None, &[], "/header.php").starts_with("none"));
        }
        for host in ["a.example", "b.example"].repeat(4) {
            assert!(
                fetch(&stage, None, &[&format!("Host: {host}")], "/header.php").ends_with(host)
            );
        }
        stage.script("query.php", "<?php echo $_GET['q'] ?? '';");
        stage.warm("/query.php?q=1");
        assert_eq!(stage.get("/query.php?q=2"), "2");
        assert_eq!(stage.get("/query.php"), "");
    });
    cases.run("addresses of visitors", || {
        stage.script("address.php", "<?php echo 'you are ', $_SERVER['REMOTE_ADDR'];");
        for round in 0..60 {
            let visitor = VISITORS[round % 3];
            assert_eq!(
                fetch(&stage, Some(visitor), &[], "/address.php"),
                format!("you are {visitor}")
            );
        }
    });
    cases.run("what the server says that it depends on", || {
        let script = "<?php header('Vary: Accept-Language, User-Agent'); echo $_SERVER['HTTP_ACCEPT_LANGUAGE'], $_SERVER['HTTP_USER_AGENT'];";
        stage.script("vary.php", script);
        for round in 0..60 {
            let language = ["de", "en", "fr"][round % 3];
            let agent = ["phone", "desk"][round % 2];
            let headers = [format!("Accept-Language: {language}"), format!("User-Agent: {agent}")];
            let page = fetch(&stage, None, &[&headers[0], &headers[1]], "/vary.php");
            assert_eq!(page, format!("{language}{agent}"));
        }
    });
    cases.run("sessions", || {
        stage.script("session.php", "<?php session_start(); $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1; echo session_id(), ' ', $_SESSION['n'];");
        let mut seen = std::collections::HashSet::new();
        for round in 0..12 {
            let page = fetch(&stage, Some(VISITORS[round % 3]), &[], "/session.php");
            assert!(seen.insert(page.clone()), "somebody else's session: {page}");
        }
        // Two of them go on with theirs.
        let ids: Vec<String> =
            seen.iter().take(2).map(|page| page.split(' ').next().unwrap().to_owned()).collect();
        for count in 2..6 {
            for id in &ids {
                let page = fetch(&stage, Some(VISITORS[0]), &[&format!("Cookie: PHPSESSID={id}")],
                    "/session.php");
                assert_eq!(page, format!("{id} {count}"));
            }
        }
    });
    cases.end(&mut stage);
}

/// One visitor's session is not a reason to keep no page for the others.
#[test]
fn a_session_beside_other_pages() {
    let mut stage = stage();
    let mut cases = Cases::default();
    cases.run("a page for all", || {
        stage.script(
            "session.php",
            "<?php session_start(); $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1; echo $_SESSION['n'];",
        );
        stage.script("all.php", "<?php echo 'for all';");
        assert_eq!(fetch(&stage, None, &["Cookie: PHPSESSID=0123456789abcdef0123456789"], "/session.php"), "1");
        assert_eq!(fetch(&stage, None, &["Cookie: PHPSESSID=0123456789abcdef0123456789"], "/session.php"), "2");
        stage.warm("/all.php");
    });
    cases.end(&mut stage);
}

/// The card asks from the machine's own address, as a client on the machine does. Then the two
/// agree about a page that is different for everybody else.
#[test]
fn a_client_on_the_machine_itself() {
    let mut stage = stage();
    let mut cases = Cases::default();
    cases.run("address of the machine", || {
        stage.script("address.php", "<?php echo 'you are ', $_SERVER['REMOTE_ADDR'];");
        // It may be kept, for the machine itself.
        stage.try_warm("/address.php", std::time::Duration::from_secs(2));
        for round in 0..40 {
            let visitor = VISITORS[round % 3];
            assert_eq!(
                fetch(&stage, Some(visitor), &[], "/address.php"),
                format!("you are {visitor}")
            );
        }
    });
    cases.end(&mut stage);
}

/// Most visitors get one page and some another, by a header that the server does not name in
/// `Vary`.
#[test]
fn headers_that_the_server_does_not_name() {
    headers_that_the_server_does_not_name_of(&Setup::default());
}

/// Most visitors get one page and some another, by a header that the server does not name in
/// `Vary`, with any setup.
pub(crate) fn headers_that_the_server_does_not_name_of(setup: &Setup) {
    let mut stage = stage_with(setup);
    let mut cases = Cases::default();
    let cases_of = [
        (
            "agent",
            "preg_match('/Mobile/', $_SERVER['HTTP_USER_AGENT'] ?? '')",
            "User-Agent: Mobile",
        ),
        (
            "language",
            "str_starts_with($_SERVER['HTTP_ACCEPT_LANGUAGE'] ?? '', 'de')",
            "Accept-Language: de",
        ),
        ("referer", "($_SERVER['HTTP_REFERER'] ?? '') != ''", "Referer: http://a.example/"),
    ];
    for (name, condition, header) in cases_of {
        cases.run(name, || {
            stage.script(
                &format!("{name}.php"),
                &format!("<?php echo {condition} ? 'special' : 'usual';"),
            );
            let url = format!("/{name}.php");
            // The card asks as another kind of client, and does not keep what is not the same for
            // it.
            stage.try_warm(&url, std::time::Duration::from_secs(2));
            for _ in 0..20 {
                assert_eq!(fetch(&stage, Some(VISITORS[1]), &[], &url), "usual");
                assert_eq!(fetch(&stage, Some(VISITORS[0]), &[header], &url), "special");
            }
        });
    }
    cases.end(&mut stage);
}
