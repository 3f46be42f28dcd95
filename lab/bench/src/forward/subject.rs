//! What stands between client and server.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use nicache_forward::modes::Mode;

use super::balancer;
use super::ground::{Ground, Load, SERVER, SERVICE};

/// A subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// The kernel's IP forwarding, without translation.
    Kernel,
    /// nftables: both addresses translated.
    Nftables,
    /// HAProxy, copying.
    Haproxy,
    /// HAProxy with `splice`.
    HaproxySplice,
    /// A program at tc that translates both addresses of this one service, and knows no
    /// connections.
    Balancer,
    /// nicache: both addresses translated, by descriptors.
    Nicache(Mode),
    /// nicache with its fast path.
    NicacheFast,
}

impl Subject {
    /// All of them.
    pub(super) fn all() -> Vec<Self> {
        let others = [
            Self::Kernel,
            Self::Nftables,
            Self::Balancer,
            Self::NicacheFast,
            Self::Haproxy,
            Self::HaproxySplice,
        ];
        others.into_iter().chain(Mode::ALL.map(Subject::Nicache)).collect()
    }

    /// The subject's name in tables.
    pub(super) fn label(self) -> String {
        match self {
            Self::Kernel => "IP forwarding".to_owned(),
            Self::Nftables => "nftables".to_owned(),
            Self::Haproxy => "HAProxy".to_owned(),
            Self::HaproxySplice => "HAProxy, splice".to_owned(),
            Self::Balancer => "tc-BPF balancer".to_owned(),
            Self::Nicache(mode) => format!("nicache, {mode}"),
            Self::NicacheFast => "nicache, fast path".to_owned(),
        }
    }

    /// Whether it can carry that.
    pub(super) fn carries(self, load: Load) -> bool {
        load != Load::Udp || !matches!(self, Self::Haproxy | Self::HaproxySplice)
    }

    /// What clients connect to.
    pub(super) fn target(self) -> &'static str {
        if self == Self::Kernel { SERVER } else { SERVICE }
    }

    /// Puts it between them.
    pub(super) fn start(self, ground: &Ground, nicache: &Path, folder: &Path) -> Result<Standing> {
        match self {
            Self::Kernel => {
                forward(ground, true)?;
                Ok(Standing { process: None, is_in_kernel: true })
            }
            Self::Nftables => {
                let rules = format!(
                    "add table ip bench\nadd chain ip bench in {{ type nat hook prerouting priority -100; }}\n\
                     add chain ip bench out {{ type nat hook postrouting priority 100; }}\n\
                     add rule ip bench in ip daddr 10.201.1.1 tcp dport 5001 dnat to {SERVER}\n\
                     add rule ip bench in ip daddr 10.201.1.1 udp dport 5001 dnat to {SERVER}\n\
                     add rule ip bench out oifname right masquerade\n"
                );
                let path = folder.join("rules.nft");
                std::fs::write(&path, rules)?;
                forward(ground, true)?;
                nft(ground, &["-f", path.to_str().context("a path that is text")?])?;
                Ok(Standing { process: None, is_in_kernel: true })
            }
            Self::Haproxy | Self::HaproxySplice => {
                let splice = if self == Self::HaproxySplice { "option splice-auto" } else { "" };
                let path = folder.join("haproxy.cfg");
                std::fs::write(
                    &path,
                    format!(
                        "global\n  nbthread 1\n  maxconn 1000\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n\
                         listen bench\n  bind {SERVICE}\n  {splice}\n  server one {SERVER}\n"
                    ),
                )?;
                let process = spawn(
                    ground,
                    "haproxy",
                    &["-db", "-q", "-f", path.to_str().context("a path that is text")?],
                    false,
                )?;
                Ok(Standing { process: Some(process), is_in_kernel: false })
            }
            Self::Balancer => {
                balancer::start(ground, folder)?;
                Ok(Standing { process: None, is_in_kernel: true })
            }
            Self::Nicache(_) | Self::NicacheFast => {
                let (mode, fast_path) = match self {
                    Self::Nicache(mode) => (mode, "off"),
                    _ => (Mode::Adaptive, "auto"),
                };
                let path = folder.join("forward.toml");
                let service = |protocol: &str| {
                    format!(
                        "[[service]]\nprotocol = \"{protocol}\"\naddress = \"{SERVICE}\"\nmasquerade = \"10.201.2.1\"\n\
                         [[service.back-end]]\naddress = \"{SERVER}\"\n"
                    )
                };
                let text = format!(
                    "mode = \"{mode}\"\nmemory = \"16M\"\n[[interface]]\nname = \"left\"\n[[interface]]\nname = \"right\"\n{}{}",
                    service("tcp"),
                    service("udp")
                );
                std::fs::write(&path, text)?;
                let program = nicache.to_str().context("a path that is text")?;
                let path = path.to_str().context("a path that is text")?;
                let process = spawn(
                    ground,
                    program,
                    &["forward", "--json", "--fast-path", fast_path, "--config", path],
                    true,
                )?;
                Ok(Standing { process: Some(process), is_in_kernel: false })
            }
        }
    }
}

/// A subject at work.
pub(super) struct Standing {
    process: Option<Child>,
    is_in_kernel: bool,
}

impl Standing {
    /// Its process, if it has one.
    pub(super) fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// Takes it away.
    pub(super) fn stop(mut self, ground: &Ground) -> Result<()> {
        if let Some(process) = &mut self.process {
            let pid = rustix::process::Pid::from_child(process);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
            process.wait()?;
        }
        if self.is_in_kernel {
            forward(ground, false)?;
            nft(ground, &["flush", "ruleset"])?;
            balancer::stop(ground);
        }
        Ok(())
    }
}

fn forward(ground: &Ground, is_on: bool) -> Result<()> {
    let text = if is_on { "1" } else { "0" };
    Ok(ground.middle.run(move || std::fs::write("/proc/sys/net/ipv4/ip_forward", text))?)
}

fn nft(ground: &Ground, arguments: &[&str]) -> Result<()> {
    let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
    let output = ground
        .middle
        .run(move || Command::new("nft").args(arguments).output())
        .context("nft is needed")?;
    if !output.status.success() {
        bail!("nft: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Starts a program in the middle; `announces`: and waits for its first line.
fn spawn(ground: &Ground, program: &str, arguments: &[&str], announces: bool) -> Result<Child> {
    let name = program.to_owned();
    let program = name.clone();
    let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
    let mut process = ground
        .middle
        .run(move || {
            let mut command = Command::new(program);
            command.args(arguments).stdin(Stdio::null()).stdout(if announces {
                Stdio::piped()
            } else {
                Stdio::null()
            });
            command.spawn()
        })
        .with_context(|| format!("{name} is needed"))?;
    if announces && let Some(output) = process.stdout.take() {
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        if !line.contains("ready") {
            bail!("{name} did not start");
        }
    }
    Ok(process)
}
