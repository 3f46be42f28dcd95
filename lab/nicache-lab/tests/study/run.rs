//! Runs the program.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// One of the traces beside the checkout.
pub(crate) fn trace(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces").join(name);
    assert!(path.exists(), "{} is not there", path.display());
    path
}

pub(crate) fn nicache<A: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = A>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nicache-lab"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Runs it with these words and traces, and reads its JSON.
pub(crate) fn json(words: &str, traces: &[&Path]) -> Value {
    let output = nicache(
        words.split_whitespace().map(PathBuf::from).chain(traces.iter().map(PathBuf::from)),
    );
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "nicache {words}: {errors}");
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("nicache {words}: {error}"))
}

/// Runs it with these words and a trace on standard input, and reads its JSON.
pub(crate) fn json_of_input(words: &str, input: &[u8]) -> Value {
    let mut child = Command::new(env!("CARGO_BIN_EXE_nicache-lab"))
        .args(words.split_whitespace())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Hits by size of the curve of a policy.
pub(crate) fn hits(json: &Value, policy: &str) -> Vec<u64> {
    let curves = json["curves"].as_array().unwrap();
    let curve = curves
        .iter()
        .find(|curve| curve["choice"] == policy)
        .unwrap_or_else(|| panic!("no {policy}"));
    curve["points"]
        .as_array()
        .unwrap()
        .iter()
        .map(|point| point["hits"].as_u64().unwrap())
        .collect()
}
