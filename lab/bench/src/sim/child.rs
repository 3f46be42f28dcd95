//! Runs a program and tells what it needed.

use std::io::Read;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

/// Between two looks at the program's memory.
const PAUSE: Duration = Duration::from_millis(5);
/// Looks of which the largest counts: the last ones may see it give back what it had.
const SAMPLES: usize = 10;

/// A program that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// What it wrote.
    pub stdout: String,
    /// Processor time of it and its threads, in seconds.
    pub cpu_s: f64,
    /// Memory of its own that it had shortly before its end, in bytes. Files that it had mapped do
    /// not count.
    pub memory_bytes: u64,
}

/// Runs a program to its end.
///
/// # Errors
/// It cannot be started, or fails.
pub(super) fn run(mut command: Command) -> Result<Ended> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {name}"))?;
    let pid = Pid::from_child(&child);
    let (mut out, mut err) =
        (child.stdout.take().context("no output")?, child.stderr.take().context("no output")?);
    let stdout = thread::spawn(move || {
        let mut text = String::new();
        out.read_to_string(&mut text).map(|_| text)
    });
    let stderr = thread::spawn(move || {
        let mut text = String::new();
        err.read_to_string(&mut text).map(|_| text)
    });
    let mut samples = [0; SAMPLES];
    let mut at = 0;
    // Its times stay to be read until it is waited for.
    while waitid(
        WaitId::Pid(pid),
        WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT,
    )?
    .is_none()
    {
        samples[at % SAMPLES] = own_memory(pid).unwrap_or(0);
        at += 1;
        thread::sleep(PAUSE);
    }
    let cpu_s = cpu_s(pid)?;
    let status = child.wait()?;
    let stdout = stdout.join().map_err(|_| anyhow::anyhow!("cannot read what {name} writes"))??;
    let stderr = stderr.join().map_err(|_| anyhow::anyhow!("cannot read what {name} writes"))??;
    if !status.success() {
        bail!("{name} failed ({status}): {}", stderr.trim());
    }
    Ok(Ended { stdout, cpu_s, memory_bytes: samples.into_iter().max().unwrap_or(0) })
}

/// Anonymous memory now.
fn own_memory(pid: Pid) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024)
}

/// User and system time (proc(5), stat, fields 14 and 15).
fn cpu_s(pid: Pid) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()))?;
    let rest = text.rsplit_once(')').context("/proc does not say how the process is")?.1;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks =
        |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).context("no times");
    Ok((ticks(11)? + ticks(12)?) / rustix::param::clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_needs_is_told() {
        let mut command = Command::new("sh");
        command.args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo done"]);
        let ended = run(command).unwrap();
        assert_eq!(ended.stdout, "done\n");
        assert!(ended.cpu_s > 0.0 && ended.memory_bytes > 0, "{ended:?}");
        assert!(run(Command::new("false")).unwrap_err().to_string().contains("failed"));
        assert!(run(Command::new("/no/such")).is_err());
    }
}
