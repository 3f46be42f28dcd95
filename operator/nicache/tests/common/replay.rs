//! `nicache replay` against a site that a test's nginx serves behind a test's nicache.

use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::common::{EVENTUALLY, NICACHE, Nicache, Site, within};

/// nginx whose document root is the replay's, and which tells what request it worked on.
pub(crate) fn replay_site(http: &str) -> Site {
    // Errors are a part of the replay, and logging them to the console is not.
    let http = format!("error_log @ROOT@/error.log crit; {http}");
    Site::with(&http, "root @ROOT@/replay; add_header X-Robots-Tag $http_user_agent always;")
}

/// Starts `nicache replay` for these.
pub(crate) fn start_replay(site: &Site, nicache: &Nicache, arguments: &[&str]) -> Child {
    let url = format!("http://{}/", nicache.server());
    Command::new(NICACHE)
        .args(["replay", "--json", "--name", nicache.name(), "--url", &url, "--site"])
        .arg(site.folder.path().join("replay"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Polls until `look` gives something. `None`: the replay has ended before.
#[allow(dead_code, reason = "not for every test")]
pub(crate) fn during<T>(replay: &mut Child, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let look = || match look() {
        None => replay.try_wait().unwrap().map(|_| None),
        found => Some(found),
    };
    within(EVENTUALLY, look).expect("a replay ends")
}

/// Runs `test` with the seconds of a replay that has to go on until the test has done its part. On
/// a busy machine that part takes longer: if the replay was over too early, another one is longer.
#[allow(dead_code, reason = "not for every test")]
pub(crate) fn with_replay_that_lasts(seconds: [u64; 2], test: impl FnMut(u64) -> bool) {
    assert!(seconds.into_iter().any(test), "the replay was over too early: {seconds:?} s");
}

/// Its report.
pub(crate) fn report_of(replay: Child) -> Value {
    let output = replay.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text)
        .unwrap_or_else(|_| panic!("no report: {} {error}{text}", output.status))
}

/// A number in a report.
pub(crate) fn number(report: &Value, name: &str) -> u64 {
    let field = name.split('.').fold(report, |value, key| &value[key]);
    field.as_u64().unwrap_or(0)
}

/// No reply was older than a finished write, of several versions, or wrong.
pub(crate) fn assert_coherent(report: &Value) {
    for wrong in ["stale", "torn", "corrupt"] {
        assert_eq!(number(report, wrong), 0, "{wrong}: {report:#}");
    }
}

/// Has each way to write met a kept reply, and was it read behind it?
#[allow(dead_code, reason = "not for every test")]
pub(crate) fn each_write_met_a_kept_reply(report: &Value) -> bool {
    report["writes"]
        .as_object()
        .unwrap()
        .values()
        .all(|counted| number(counted, "cached_before") > 0 && number(counted, "read_after") > 0)
}
