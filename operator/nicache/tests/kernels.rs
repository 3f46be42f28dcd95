//! Every program for the kernel is taken by the kernels that users have, as the declared table
//! says; and none costs the verifier much.

mod common;

use std::path::PathBuf;
use std::process::Command;

use common::NICACHE;

/// What the verifier may go through for one program; it gives up at a million.
const VERIFIED_MAX: u64 = 200_000;

fn tool(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tools/kernels").join(name)
}

/// Boots a stock kernel in QEMU with `nicache check` as all that it does, and compares that with
/// tools/kernels/features.
fn takes_every_program(kernel: &str) {
    if Command::new("qemu-system-x86_64").arg("--version").output().is_err() {
        println!(
            "skipped: there is no qemu-system-x86_64 to boot Linux {kernel} with (Debian's package qemu-system-x86)"
        );
        return;
    }
    let fetched = Command::new(tool("fetch")).args(["--initrd-only", kernel]).output().unwrap();
    if !fetched.status.success() {
        let why = String::from_utf8_lossy(&fetched.stderr);
        println!("skipped: Debian's package of Linux {kernel} is not available here: {why}");
        return;
    }
    let boot = Command::new(tool("boot"))
        .args([kernel, "check"])
        .env("BINARY", NICACHE)
        .env("LIMIT", "300")
        .output();
    let boot = boot.unwrap();
    let log = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(log.path(), &boot.stdout).unwrap();
    let compare = Command::new("python3")
        .arg(tool("check.py"))
        .arg(tool("features"))
        .arg(kernel)
        .stdin(std::fs::File::open(log.path()).unwrap())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&compare.stdout);
    let console = String::from_utf8_lossy(&boot.stdout);
    let errors = String::from_utf8_lossy(&compare.stderr);
    let qemu = String::from_utf8_lossy(&boot.stderr);
    assert!(
        compare.status.success(),
        "{said}{errors}{qemu}\n{}",
        console.chars().take(4000).collect::<String>()
    );
    println!("{said}");
}

#[test]
fn linux_6_1_takes_every_program() {
    takes_every_program("6.1");
}

#[test]
fn linux_6_12_takes_every_program() {
    takes_every_program("6.12");
}

#[test]
fn this_kernels_verifier_is_not_kept_long() {
    let output = Command::new(NICACHE).args(["check", "--json"]).output().unwrap();
    let check: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let programs = check["programs"].as_array().unwrap();
    // One of the two ways to see system calls.
    let is_of_calls = |name: &serde_json::Value| name == "sys_exit" || name == "do_sys_openat2";
    assert!(programs.iter().any(|program| is_of_calls(&program["program"])), "{check}");
    for program in programs {
        let verified = program["verified"].as_u64().unwrap();
        println!("{} {verified}", program["program"]);
        assert!(program["refused"].is_null(), "{program}");
        assert!(verified <= VERIFIED_MAX, "{program}");
    }
}
