//! Benchmarks at their smallest: each starts its subjects, measures, and tells what came out as
//! JSON. Figures are not looked at here.

use std::process::Command;

use serde_json::Value;

const LABORATORY: &str = env!("CARGO_BIN_EXE_nicache-lab");

/// Runs a benchmark; what it tells.
fn bench(arguments: &[&str]) -> Value {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test makes network namespaces: run it as root"
    );
    let mut command = Command::new(LABORATORY);
    let output = command.arg("bench").args(arguments).arg("--json").output().expect("nicache-lab");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// What all measurements have in this field, without repetitions.
fn all<'a>(report: &'a Value, list: &str, field: &str) -> Vec<&'a str> {
    let rows = report[list].as_array().unwrap_or_else(|| panic!("no {list}: {report}"));
    let mut all: Vec<&str> =
        rows.iter().map(|row| row[field].as_str().unwrap_or_else(|| panic!("{row}"))).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn nfs() {
    let report = bench(&["nfs", "--quick", "--only", "GETATTR", "--folder", "/var/tmp"]);
    let subjects: Vec<String> = report["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| row["subject"].to_string())
        .collect();
    // Ganesha is there if its packages are.
    let missing = report["setting"]["missing"].as_array().expect("a list");
    assert_eq!(subjects.len() + missing.len(), 4, "{subjects:?} {missing:?}");
    assert!(missing.iter().all(|why| why.to_string().contains("not installed")), "{missing:?}");
}

#[test]
fn forward() {
    for subject in ["nftables", "tc-BPF balancer", "nicache, fast path", "nicache, adaptive"] {
        let report = bench(&["forward", "--rounds", "1", "--seconds", "1", "--only", subject]);
        assert_eq!(all(&report, "rows", "subject"), [subject]);
        assert_eq!(all(&report, "rows", "load").len(), 4, "{subject}");
    }
}

#[test]
fn yocum() {
    let report = bench(&["yocum", "--packets", "1000", "--milliseconds", "100"]);
    assert_eq!(all(&report, "streams", "mode"), ["adaptive", "copy", "direct", "pcache", "spill"]);
}
