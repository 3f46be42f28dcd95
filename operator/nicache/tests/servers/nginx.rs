//! nginx: sendfile, without it, and with descriptors that it keeps.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use nicache_coherence::Rule;

use super::common::within;
use super::site::Folder;
use super::stage::{Stage, Traits, get};
use super::{cases, edits};

const SENDFILE: &str = "sendfile on;";
const KEEPS: &str = "sendfile on; open_file_cache max=1000 inactive=60s; open_file_cache_valid 1s; open_file_cache_errors on;";

fn command(folder: &Folder, http: &str) -> Vec<String> {
    let file = folder.write(
        "nginx.conf",
        &format!(
            "worker_processes 2; user www-data; pid @FOLDER@/pid; error_log @FOLDER@/error.log;
             events {{}}
             http {{
               access_log off; types {{ text/html html; text/plain txt; application/octet-stream bin; }}
               client_body_temp_path @FOLDER@/t1; proxy_temp_path @FOLDER@/t2; fastcgi_temp_path @FOLDER@/t3;
               uwsgi_temp_path @FOLDER@/t4; scgi_temp_path @FOLDER@/t5;
               gzip_static on; gzip_vary on; {http}
               server {{ listen 80; root @FOLDER@/site; }}
             }}"
        ),
    );
    ["nginx", "-c", &file, "-g", "daemon off;"].map(str::to_owned).to_vec()
}

fn stage(name: &'static str, options: &[&str], http: &str) -> Stage {
    let traits = Traits { keeps_files: http == KEEPS, ..Traits::default() };
    Stage::new(name, traits, options, |folder| command(folder, http))
}

#[test]
fn with_sendfile() {
    let stage = stage("nginx", &[], SENDFILE);
    cases::check(&stage);
    edits::check(&stage);
}

#[test]
fn with_sendfile_and_the_card_s_handshake() {
    let stage = stage("nginx", &["--handshake", "card"], SENDFILE);
    cases::check(&stage);
    edits::check(&stage);
}

#[test]
fn without_sendfile() {
    let stage = stage("nginx, no sendfile", &[], "sendfile off;");
    cases::check(&stage);
    edits::check(&stage);
}

#[test]
fn with_open_file_cache() {
    let stage = stage("nginx, open_file_cache", &[], KEEPS);
    cases::check(&stage);
    edits::check(&stage);
}

#[test]
fn reloaded() {
    let stage = stage("nginx", &[], SENDFILE);
    let configuration = command(&stage.folder, SENDFILE)[2].clone();
    edits::reload(&stage, || {
        let text = std::fs::read_to_string(&configuration).unwrap();
        let text = text.replace("listen 80;", "listen 80; add_header X-Frame-Options DENY always;");
        std::fs::write(&configuration, text).unwrap();
    });
}

/// Asks for the page for so long. How many of the replies were hits?
fn ask_for(stage: &Stage, request: &[u8], time: Duration) -> u64 {
    let (before, start) = (stage.hits(), Instant::now());
    while start.elapsed() < time {
        stage.ask(request);
        stage.settle();
    }
    stage.hits() - before
}

/// nginx with `open_file_cache` looks for the file that it has open and does not open it again:
/// that it looks says nothing about whether it may still read it.
#[test]
fn what_may_no_longer_be_read_is_not_kept_of_a_server_that_has_it_open() {
    // Longer than nginx goes without a look.
    let while_looks = Duration::from_millis(2500);
    for (http, off) in [
        (KEEPS, None),
        (&KEEPS.replace("sendfile on", "sendfile off"), None),
        (KEEPS, Some(Rule::Opened)),
    ] {
        let traits = Traits { keeps_files: true, ..Traits::default() };
        let stage = Stage::without(off, "nginx", traits, &[], |folder| command(folder, http));
        stage.folder.put("page.txt", b"for everybody");
        let file = stage.folder.path("page.txt");
        let set_mode =
            |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let request = get("/page.txt", "");
        assert!(edits::warm_at_last(&stage, &request), "{:?}", stage.counters());
        set_mode(0o000);
        if off.is_some() {
            let is_hit = || (ask_for(&stage, &request, while_looks) > 0).then_some(());
            let is_hit = within(edits::PATIENCE, is_hit).is_some();
            assert!(is_hit, "nobody notices that the rule is off");
            continue;
        }
        let hits = ask_for(&stage, &request, while_looks);
        assert_eq!(hits, 0, "{:?}", stage.counters());
        // Another file in its place is opened.
        std::fs::remove_file(&file).unwrap();
        stage.folder.put("page.txt", b"for everybody again");
        assert!(edits::warm_at_last(&stage, &request), "{:?}", stage.counters());
    }
}

/// nginx with `open_file_cache` sends what it has open with nothing to be seen of it, and what is
/// looked up at that moment may be a copy with the same bytes and time, for another request.
#[test]
fn a_copy_that_another_request_looks_up_is_not_taken_for_what_is_sent() {
    const KEEPS_LONG: &str =
        "sendfile on; open_file_cache max=1000 inactive=600s; open_file_cache_valid 600s;";
    const ROUNDS: usize = 60;
    let old_replies = |off| {
        let traits = Traits { keeps_files: true, ..Traits::default() };
        let stage = Stage::without(off, "nginx", traits, &[], |folder| command(folder, KEEPS_LONG));
        stage.folder.put("kept.txt", b"the old bytes of both");
        let file = stage.folder.path("kept.txt");
        let time = std::fs::metadata(&file).unwrap().modified().unwrap();
        // Both workers have it.
        (0..40).for_each(|_| drop(stage.ask_beside(&get("/kept.txt", ""))));
        let kept = |round| get(&format!("/kept.txt?{round}"), "");
        let copy = |round| format!("copy{round}.txt");
        for name in (0..ROUNDS).map(copy) {
            stage.folder.put(&name, b"the old bytes of both");
            let copy = std::fs::File::open(stage.folder.path(&name)).unwrap();
            copy.set_modified(time).unwrap();
            // The first reading sets the access time.
            std::thread::sleep(Duration::from_millis(20));
            std::fs::read(stage.folder.path(&name)).unwrap();
        }
        for round in 0..ROUNDS {
            let (mut one, mut other) = (stage.through(), stage.through());
            one.send(&kept(round));
            other.send(&get(&format!("/{}", copy(round)), ""));
            one.reply(false);
            other.reply(false);
            stage.settle();
        }
        std::fs::write(&file, b"the new bytes of this").unwrap();
        let is_old = |round: &usize| stage.ask(&kept(*round)).body.starts_with(b"the old");
        let old = (0..ROUNDS).filter(is_old).count();
        println!("{off:?}: {old} of {ROUNDS} old");
        assert!(stage.ask_beside(&kept(0)).body.starts_with(b"the new"));
        old
    };
    assert_eq!(old_replies(None), 0);
    let is_noticed = (0..3).any(|_| old_replies(Some(Rule::Copies)) > 0);
    assert!(is_noticed, "nobody notices that the rule is off");
}
