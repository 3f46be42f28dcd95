//! docs/servers.md says what is a hit, and is compared with what was seen.

use std::collections::BTreeMap;
use std::sync::LazyLock;

const DOCUMENT: &str = include_str!("../../../../docs/servers.md");
const HIT: &str = "hit";
/// The row of a file like those that are edited.
pub(crate) const SMALL_FILE: &str = "small file";
/// It depends on moments that no test has in its hand.
const AT_TIMES: &str = "at times";

/// What became of a case.
pub(crate) struct Outcome {
    pub server: &'static str,
    pub case: &'static str,
    pub hit: bool,
    pub status: u16,
    /// Counters of reasons that moved meanwhile.
    pub reasons: Vec<String>,
}

/// The cells of the table whose head begins with `request`: server and case, and what it says.
static CELLS: LazyLock<BTreeMap<(String, String), String>> = LazyLock::new(|| {
    let row = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let mut lines = DOCUMENT.lines().skip_while(|line| !line.starts_with("| request |"));
    let servers = row(lines.next().expect("a table of requests"));
    let mut cells = BTreeMap::new();
    for line in lines.skip(1).take_while(|line| line.starts_with('|')) {
        let row = row(line);
        assert_eq!(row.len(), servers.len(), "docs/servers.md: {line}");
        for (server, cell) in servers.iter().zip(&row).skip(1) {
            cells.insert((server.clone(), row[0].clone()), cell.clone());
        }
    }
    cells
});

/// Does the document say that the card answers such requests of this server?
pub(crate) fn says_hit(server: &str, case: &str) -> bool {
    CELLS.get(&(server.to_owned(), case.to_owned())).is_some_and(|cell| cell == HIT)
}

/// Fails with all differences between the document and what was seen.
pub(crate) fn compare(seen: &[Outcome]) {
    let mut differences = String::new();
    for outcome in seen {
        let Outcome { server, case, hit, status, reasons } = outcome;
        let now = if *hit { HIT.to_owned() } else { status.to_string() };
        println!("{server} | {case} | {now} | {}", reasons.join(" "));
        let said = CELLS
            .get(&((*server).to_owned(), (*case).to_owned()))
            .map_or("nothing", String::as_str);
        if said != now && said != AT_TIMES {
            differences += &format!(
                "{server}, {case}: {now} ({}), docs/servers.md says {said}\n",
                reasons.join(" ")
            );
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

/// Fails if fewer edits than most have met a kept reply of a server whose files are hits, or any
/// where none are. `others`: those that have not, each with why.
pub(crate) fn compare_edits(server: &str, kept: usize, others: &[String]) {
    let edits = kept + others.len();
    // A file that is not there is a hit for some servers only, and other processes may purge what
    // was stored.
    let due = if says_hit(server, SMALL_FILE) { edits * 2 / 3 } else { 0 };
    assert!(kept >= due, "{server}: only {kept} of {edits} edits met a kept reply: {others:?}");
}
