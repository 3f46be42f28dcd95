//! A process that runs a site and is killed takes the site's programs with it.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{prepare, private_network};
use nicache_applications::{Application, Running};

/// Set for the process that is killed: this program again.
const VICTIM: &str = "NICACHE_TEST_VICTIM";

#[test]
fn programs_die_with_the_process_that_runs_them() {
    private_network();
    if std::env::var_os(VICTIM).is_some() {
        let site = prepare(Application::PhpPage);
        let _running = Running::start(&site).unwrap();
        println!("\nrunning in {}", site.folder().display());
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--nocapture"]).env(VICTIM, "").stdout(Stdio::piped());
    let mut victim = command.spawn().unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines().map_while(Result::ok);
    let folder =
        lines.filter_map(|line| line.strip_prefix("running in ").map(str::to_owned)).next();
    let folder = folder.expect("the site runs");
    assert!(commands_with(&folder).len() >= 3, "{:?}", commands_with(&folder));
    victim.kill().unwrap();
    victim.wait().unwrap();
    let begun = Instant::now();
    while !commands_with(&folder).is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(10), "left: {:?}", commands_with(&folder));
        std::thread::sleep(Duration::from_millis(20));
    }
    // The next site of the kind, which may be a test beside this, would remove it.
    let _ = std::fs::remove_dir_all(folder);
}

/// Command lines of all processes that name the folder.
fn commands_with(folder: &str) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes
        .filter_map(|process| std::fs::read_to_string(process.path().join("cmdline")).ok());
    lines.map(|line| line.replace('\0', " ")).filter(|line| line.contains(folder)).collect()
}
