//! A real iSCSI target: Debian's tgtd over a file, in a network and a mount namespace of its own.
//!
//! For tests, for measurements, and for `nicache nfs --demo`. Nothing outside sees it, several can
//! run at once, and all of it ends with the [`Target`]: the namespaces belong to a child that waits
//! for the end of its input. A thread that wants to reach the target calls [`Target::enter`] first.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The target's name.
pub const NAME: &str = "iqn.2026-11.org.nicache:unit";

/// A name and a secret.
pub type Account = (String, String);

/// How the target is set up.
#[derive(Clone, Debug, Default)]
pub struct TargetOptions {
    /// Who may log in. None: anybody.
    pub incoming: Option<Account>,
    /// Who the target says it is (mutual CHAP).
    pub outgoing: Option<Account>,
    /// More ports on which it listens, beside 3260.
    pub ports: Vec<u16>,
}

/// A running target with unit 1 over a file.
#[derive(Debug)]
pub struct Target {
    image: PathBuf,
    options: TargetOptions,
    holder: Child,
    tgtd: Option<Child>,
}

/// What is missing on this machine to run a target, if anything.
pub fn missing() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("root");
    }
    let programs = ["tgtd", "tgtadm", "unshare", "nsenter", "setpriv", "ip"];
    let folders = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    programs
        .into_iter()
        .find(|program| !folders.iter().any(|folder| Path::new(folder).join(program).exists()))
}

impl Target {
    /// Starts a target over `image`, which exists and has the size of the unit.
    pub fn start(image: &Path, options: &TargetOptions) -> io::Result<Self> {
        let script = "ip link set lo up && mount -t tmpfs tmpfs /run && mkdir /run/tgtd && echo ready && exec cat";
        let mut holder = Command::new("unshare")
            .args(["--net", "--mount", "--propagation", "private", "sh", "-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C at a terminal is for whoever has started this, who ends it in order.
            .process_group(0)
            .spawn()?;
        let mut line = String::new();
        if let Some(output) = holder.stdout.as_mut() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let image = image.canonicalize()?;
        let mut target = Self { image, options: options.clone(), holder, tgtd: None };
        if line.trim() != "ready" {
            return Err(io::Error::other("the namespaces of the target could not be made"));
        }
        target.restart()?;
        Ok(target)
    }

    /// The unit's address, for a thread that entered.
    pub fn url(&self) -> String {
        format!("iscsi://127.0.0.1:3260/{NAME}/1")
    }

    /// Moves the calling thread, and those that it starts later, into the target's network.
    pub fn enter(&self) -> io::Result<()> {
        nicache_netns::enter(File::open(format!("/proc/{}/ns/net", self.holder.id()))?)
    }

    /// Ends the target as `kill -9` does.
    pub fn kill(&mut self) {
        if let Some(mut tgtd) = self.tgtd.take() {
            let _ = tgtd.kill();
            let _ = tgtd.wait();
        }
    }

    /// Stops the target where it is; connections stay open.
    pub fn pause(&self) -> io::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it go on.
    pub fn resume(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Ends the target if it runs, and starts it with the same unit.
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill();
        let mut portals = vec!["portal=127.0.0.1:3260".to_owned()];
        portals.extend(self.options.ports.iter().map(|port| format!("portal=127.0.0.1:{port}")));
        let mut command = self.inside("setpriv");
        command.args([
            "--pdeathsig",
            "KILL",
            "tgtd",
            "--foreground",
            "--iscsi",
            &portals.join(","),
        ]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        self.tgtd = Some(command.spawn()?);
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.administer("--op show --mode system").is_err() {
            if Instant::now() > deadline {
                return Err(io::Error::other("tgtd does not start"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.administer(&format!("--op new --mode target --tid 1 --targetname {NAME}"))?;
        let mut command = self.inside("tgtadm");
        command.args([
            "--lld",
            "iscsi",
            "--op",
            "new",
            "--mode",
            "logicalunit",
            "--tid",
            "1",
            "--lun",
            "1",
        ]);
        run(command.arg("--backing-store").arg(&self.image))?;
        for (account, is_outgoing) in
            [(&self.options.incoming, false), (&self.options.outgoing, true)]
        {
            let Some((user, password)) = account else { continue };
            let outgoing = if is_outgoing { "--outgoing" } else { "" };
            self.administer(&format!(
                "--op new --mode account --user {user} --password {password}"
            ))?;
            self.administer(&format!("--op bind --mode account --tid 1 --user {user} {outgoing}"))?;
        }
        self.administer("--op bind --mode target --tid 1 --initiator-address ALL")
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        let Some(pid) = self.tgtd.as_ref().and_then(|tgtd| Pid::from_raw(tgtd.id() as i32)) else {
            return Ok(());
        };
        Ok(kill_process(pid, signal)?)
    }

    fn inside(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args([&format!("--target={}", self.holder.id()), "--net", "--mount", program]);
        command
    }

    fn administer(&self, arguments: &str) -> io::Result<()> {
        run(self.inside("tgtadm").args(["--lld", "iscsi"]).args(arguments.split_whitespace()))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.kill();
        drop(self.holder.stdin.take());
        if let Some(mut output) = self.holder.stdout.take() {
            let _ = output.read_to_end(&mut Vec::new());
        }
        let _ = self.holder.wait();
    }
}

fn run(command: &mut Command) -> io::Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
