//! Who serves: nicache in each of its ways, and NFS-Ganesha on the same ext4 on the same unit. Each
//! is a process of its own, in the target's network.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nicache_gateway::{CopyMode, Figures};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::peer;

/// How long a subject may take to start or to end.
const PATIENCE: Duration = Duration::from_secs(120);

/// A file server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// `nicache nfs`.
    Nicache(CopyMode),
    /// NFS-Ganesha with FSAL_VFS; the device gives what the unit has, without keys and cache.
    Ganesha,
}

impl Subject {
    /// The subject's name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nicache(mode) => mode.name(),
            Self::Ganesha => "ganesha",
        }
    }
}

/// What all subjects are given.
pub(super) struct Ground<'a> {
    /// The nicache program.
    pub nicache: &'a Path,
    /// The program that has the peer as a command.
    pub laboratory: &'a Path,
    /// The unit.
    pub url: String,
    /// For files of a subject.
    pub folder: PathBuf,
    /// Bytes of nicache's cache.
    pub memory_bytes: u64,
    /// The CPU that it runs on.
    pub cpu: usize,
}

/// A subject that serves.
pub(super) struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    subject: Subject,
    name: String,
    nicache: PathBuf,
    log: PathBuf,
    /// Where NFS is.
    pub nfs: SocketAddr,
    /// Where MOUNT is.
    pub mount: SocketAddr,
    /// The export.
    pub export: &'static str,
    processes: Vec<u32>,
}

impl Running {
    /// Starts a subject and waits until it serves. `mkfs`: on an empty unit.
    pub(super) fn start(subject: Subject, ground: &Ground<'_>, mkfs: bool) -> Result<Self> {
        let name = format!("bench-{}", std::process::id());
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "taskset", "-c", &ground.cpu.to_string()]);
        match subject {
            Subject::Nicache(mode) => {
                command.arg(ground.nicache).args([
                    "nfs",
                    &ground.url,
                    "--json",
                    "--name",
                    &name,
                    "--measurement",
                ]);
                command.args([
                    "--export",
                    "/data *(rw,no_root_squash,insecure)",
                    "--listen",
                    "127.0.0.1:0",
                ]);
                command.args(["--copy", mode.name(), "--memory", &ground.memory_bytes.to_string()]);
                command.arg("--state").arg(ground.folder.join("state"));
                if mkfs {
                    command.arg("--mkfs");
                }
            }
            Subject::Ganesha => {
                command.args(["unshare", "--mount", "--propagation", "private"]);
                command
                    .arg(ground.laboratory)
                    .args(["bench", "nfs-peer", &ground.url])
                    .args([ground.folder.as_path(), ground.nicache]);
            }
        }
        let log = std::fs::File::create(ground.folder.join("log"))?;
        // Ctrl-C is for the benchmark, which ends its programs.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).process_group(0);
        let mut child = command.spawn().context("cannot start a subject")?;
        let stdin = child.stdin.take();
        let output = child.stdout.take().context("no output")?;
        let first = BufReader::new(output)
            .lines()
            .map_while(Result::ok)
            .find(|line| line.starts_with(['{', 'r']));
        let Some(line) = first else {
            let _ = child.kill();
            let _ = child.wait();
            let words = std::fs::read_to_string(ground.folder.join("log")).unwrap_or_default();
            bail!(
                "{} does not start: {}",
                subject.name(),
                words.lines().last().unwrap_or("it says nothing")
            );
        };
        let here = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut running = Self {
            processes: vec![child.id()],
            child,
            stdin,
            subject,
            name,
            nicache: ground.nicache.to_owned(),
            log: ground.folder.join("log"),
            nfs: here(peer::NFS_PORT),
            mount: here(peer::MOUNT_PORT),
            export: "/data",
        };
        match subject {
            Subject::Nicache(_) => {
                #[derive(Deserialize)]
                struct Serving {
                    addresses: Vec<SocketAddr>,
                }
                let serving: Serving =
                    serde_json::from_str(&line).context("the first line of nicache nfs")?;
                running.nfs = *serving.addresses.first().context("nicache nfs listens nowhere")?;
                running.mount = running.nfs;
            }
            Subject::Ganesha => {
                let pid = line.strip_prefix("ready ").and_then(|pid| pid.parse().ok());
                running.processes.push(pid.context("the peer begins with something else")?);
            }
        }
        Ok(running)
    }

    /// CPU time so far.
    pub(super) fn cpu_time(&self) -> Result<Duration> {
        let mut nanoseconds = 0;
        for process in &self.processes {
            for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
                let text =
                    std::fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
                nanoseconds +=
                    text.split(' ').next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
            }
        }
        Ok(Duration::from_nanos(nanoseconds))
    }

    /// What nicache says of itself.
    pub(super) fn figures(&self) -> Option<Figures> {
        if self.subject == Subject::Ganesha {
            return None;
        }
        let output = Command::new(&self.nicache)
            .args(["status", "--json", "--name", &self.name])
            .output()
            .ok()?;
        serde_json::from_slice(&output.stdout).ok()
    }

    /// Ends it in order.
    pub(super) fn stop(mut self) -> Result<()> {
        match self.subject {
            Subject::Nicache(_) => {
                let pid = Pid::from_raw(self.child.id() as i32)
                    .context("the server's process has no number")?;
                kill_process(pid, Signal::INT)?;
            }
            Subject::Ganesha => {
                if let Some(mut stdin) = self.stdin.take() {
                    let _ = stdin.write_all(b"\n");
                }
            }
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    let words = std::fs::read_to_string(&self.log).unwrap_or_default();
                    let last = words.lines().last().unwrap_or("it says nothing");
                    bail!("{} ended with {status}: {last}", self.subject.name())
                }
                None if Instant::now() > deadline => bail!("{} does not end", self.subject.name()),
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
