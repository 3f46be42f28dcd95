//! Files that are sent because something else decided so: a row, a token, a guard.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nicache_applications::Client;

use crate::check::Cases;
use crate::common::SOON;
use crate::stage::{Database, Setup, Stage};

const NGINX: &str = "
        location /protected/ { internal; alias @FOLDER@/data/; }
        location /guarded/ { auth_request /guard.php; alias @FOLDER@/data/; }
        location /asks-first/ { error_page 404 = /first.php; alias @FOLDER@/data/none/; }";
const CONNECT: &str =
    "mysqli_report(MYSQLI_REPORT_OFF); $db = @new mysqli('@HOST@', 'site', 'site', 'site', 0, @SOCKET@);
    $allowed = fn($name) => $db->query(\"SELECT allowed FROM permits WHERE name = '$name'\")->fetch_row()[0];";

fn status_of(client: &mut Client, url: &str) -> u16 {
    client.get(url).unwrap().status
}

/// Asks until the card answers, or for a while: a page that is never kept is not wrong.
fn is_kept(stage: &Stage, url: &str) -> bool {
    let mut client = stage.client();
    let deadline = Instant::now() + SOON;
    while Instant::now() < deadline {
        let before = stage.counter("hits");
        (0..3).for_each(|_| assert_eq!(status_of(&mut client, url), 200, "{url}"));
        if stage.counter("hits") >= before + 3 {
            return true;
        }
        std::thread::sleep(Duration::from_millis(15));
    }
    false
}

fn permit(stage: &Stage, name: &str, is_allowed: bool) {
    stage.sql(&format!("REPLACE INTO permits VALUES ('{name}', {})", u8::from(is_allowed)));
}

/// Nobody gets the file once that is taken back, and everybody once it is given.
fn follows(stage: &Stage, name: &str, url: &str) {
    permit(stage, name, true);
    let mut kept = 0;
    for round in 0..3 {
        kept += u32::from(is_kept(stage, url));
        permit(stage, name, false);
        let taken = Instant::now();
        let mut client = stage.client();
        while taken.elapsed() < Duration::from_millis(500) {
            let status = status_of(&mut client, url);
            assert_eq!(
                status,
                403,
                "{url}: round {round}, {:?} after it was taken back",
                taken.elapsed()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        permit(stage, name, true);
        assert_eq!(status_of(&mut client, url), 200, "{url}: round {round}");
    }
    println!("  {url}: kept {kept} times of 3");
    assert!(kept >= 2, "{url}: kept {kept} times of 3");
}

#[test]
fn files_that_something_else_decides_about() {
    let setup = Setup { database: Database::MariaDb, nginx: NGINX, ..Setup::default() };
    let mut stage = Stage::start(&setup, |_| {});
    stage.write("data/report.txt", &"a report of some length. ".repeat(40));
    stage.sql(
        "CREATE TABLE permits (name VARCHAR(20) PRIMARY KEY, allowed INT); CREATE TABLE tokens (name INT PRIMARY KEY)",
    );
    let mut cases = Cases::default();
    cases.run("a row, and nginx sends the file", || {
        let then = "header('X-Accel-Redirect: /protected/report.txt');";
        let text =
            format!("<?php {CONNECT} if ($allowed('accel')) {then} else http_response_code(403);");
        stage.script("accel.php", &text);
        follows(&stage, "accel", "/accel.php");
    });
    cases.run("a row, and the script sends the file", || {
        let text = format!(
            "<?php {CONNECT} if (!$allowed('readfile')) {{ http_response_code(403); exit; }} $f = '@FOLDER@/data/report.txt';
            header('Content-Type: text/plain'); header('Last-Modified: ' . gmdate('D, d M Y H:i:s', filemtime($f)) . ' GMT');
            header('Content-Length: ' . filesize($f)); readfile($f);"
        );
        stage.script("readfile.php", &text);
        follows(&stage, "readfile", "/readfile.php");
    });
    cases.run("a guard", || {
        stage.script(
            "guard.php",
            &format!("<?php {CONNECT} http_response_code($allowed('guard') ? 204 : 403);"),
        );
        follows(&stage, "guard", "/guarded/report.txt");
    });
    cases.run("a script that is asked when there is no file", || {
        let then = "header('X-Accel-Redirect: /protected/report.txt');";
        let text =
            format!("<?php {CONNECT} if ($allowed('first')) {then} else http_response_code(403);");
        stage.script("first.php", &text);
        follows(&stage, "first", "/asks-first/report.txt");
    });
    cases.run("a link that can be used once", || {
        let then = "header('X-Accel-Redirect: /protected/report.txt');";
        let text = format!(
            "<?php {CONNECT} $db->query('DELETE FROM tokens WHERE name = ' . (int) $_GET['t']);
            if ($db->affected_rows > 0) {then} else http_response_code(410);"
        );
        stage.script("once.php", &text);
        for token in 0..20 {
            stage.sql(&format!("INSERT INTO tokens VALUES ({token})"));
            let url = format!("/once.php?t={token}");
            let statuses = [0; 4].map(|_| status_of(&mut stage.client(), &url));
            assert_eq!(statuses, [200, 410, 410, 410], "token {token}");
        }
    });
    cases.end(&mut stage);
}

/// What clients of another port get is not a question that the server asks, and nothing that
/// decides for others.
#[test]
fn clients_of_another_service() {
    let setup = Setup { nginx: "listen 8081; listen [::]:8081;", ..Setup::default() };
    let mut stage = Stage::start(&setup, |_| {});
    stage.write("site/file.txt", "a file");
    stage.script("page.php", "<?php echo 'a page';");
    let mut other = stage.address();
    other.set_port(8081);
    let is_over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..3)
        .map(|_| {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || {
                let (mut client, mut replies) = (Client::new(other), 0u64);
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(client.get("/file.txt").unwrap().status, 200);
                    replies += 1;
                }
                replies
            })
        })
        .collect();
    let mut cases = Cases::default();
    cases.run("pages and files are kept", || {
        assert!(is_kept(&stage, "/file.txt"));
        assert_eq!(stage.counter("hits_dynamic"), 0, "the file is a file");
        assert!(is_kept(&stage, "/page.php"));
        assert_eq!(stage.counter("fill_refused_unwatched_peer"), 0);
    });
    is_over.store(true, Ordering::Relaxed);
    let replies: u64 = clients.into_iter().map(|client| client.join().unwrap()).sum();
    assert!(replies > 0);
    cases.end(&mut stage);
}
