//! The nftables table and the `nft` process that owns it.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::Scene;

/// Where destinations are translated (`dstnat`).
const DESTINATION_PRIORITY: i32 = -100;

const START_TIMEOUT: Duration = Duration::from_secs(5);

/// A running `nft` that owns the table. Dropping it removes the table.
#[derive(Debug)]
pub struct Nft {
    process: Child,
    pidfd: OwnedFd,
    input: Option<ChildStdin>,
}

impl Nft {
    /// Starts `nft`, gives it the rules and waits until they are in force.
    pub fn start(scene: &Scene<'_>) -> Result<Nft> {
        Nft::own(&rules(scene), &format!("ip {}", table_name(scene.interface)))
    }

    /// The same with the rules of a table, in one line, and the table's family and name. It is the table of the calling thread's network namespace.
    pub fn own(rules: &str, table: &str) -> Result<Nft> {
        let spawned = Command::new("nft")
            .arg("-i")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Out of reach of the terminal's Ctrl-C: the rules stay until the server has ended.
            .process_group(0)
            .spawn();
        let mut process = spawned.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                anyhow!("the program nft is not installed (package nftables)")
            }
            _ => anyhow!("cannot start nft: {error}"),
        })?;
        let pidfd = pidfd_open(Pid::from_child(&process), PidfdFlags::empty())?;
        let input = process.stdin.take();
        let (lines, output) = mpsc::channel();
        forward_lines(process.stdout.take().context("nft has no output")?, lines.clone());
        forward_lines(process.stderr.take().context("nft has no output")?, lines);
        let mut nft = Nft { process, pidfd, input };
        nft.command(rules)?;
        nft.confirm(&output, table)?;
        Ok(nft)
    }

    /// Whether the process is gone, and the rules with it.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.process.try_wait(), Ok(None))
    }

    fn command(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().context("nft has no input")?;
        writeln!(input, "{line}").and_then(|()| input.flush()).context("nft ended")
    }

    /// Asks for the table; `nft` handles lines in order, so either an error or the table comes.
    fn confirm(&mut self, output: &mpsc::Receiver<String>, table: &str) -> Result<()> {
        self.command(&format!("list table {table}"))?;
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let line = output.recv_timeout(deadline.saturating_duration_since(Instant::now()));
            let line = line.map_err(|_| anyhow!("nft did not say whether the rules are in force"))?;
            // What it is given it may say again, all in one line.
            if line.starts_with(&format!("table {table} {{")) && !line.contains("type ") {
                return Ok(());
            }
            if line.contains("Error") || line.contains("not permitted") {
                bail!("nft refused the rules ({}): this needs CAP_NET_ADMIN and a kernel with nf_tables", line.trim());
            }
        }
    }
}

impl AsFd for Nft {
    /// Readable once the process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

impl Drop for Nft {
    fn drop(&mut self) {
        // End of input ends nft; killing it removes the table just as well and cannot hang.
        self.input.take();
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn forward_lines(source: impl std::io::Read + Send + 'static, lines: mpsc::Sender<String>) {
    std::thread::spawn(move || {
        for line in BufReader::new(source).lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                // Nobody asks any more, but a full pipe would stop nft.
                continue;
            }
        }
    });
}

fn table_name(interface: &str) -> String {
    format!("nicache_{interface}")
}

/// The whole table as one line, so that it comes into force at once or not at all.
fn rules(scene: &Scene<'_>) -> String {
    let Scene { interface, subnet, mappings, outgoing, card, one_of } = scene;
    let priority = DESTINATION_PRIORITY + i32::try_from(*card).unwrap_or(0);
    let server = subnet.server();
    let translate: String = mappings.iter().fold(String::new(), |mut all, mapping| {
        let to = destination(*mapping.address.ip());
        let turn = if *one_of > 1 { format!("numgen inc mod {one_of} == 0 ") } else { String::new() };
        let (port, server_port) = (mapping.address.port(), mapping.server_port);
        let _ = write!(all, "{to} tcp dport {port} {turn}dnat to {server}:{server_port}; ");
        all
    });
    let mut text = format!("table ip {} {{ flags owner; ", table_name(interface));
    let mut chain = |name: &str, hook: &str, body: &str| {
        let _ = write!(text, "chain {name} {{ type {hook}; policy accept; {body}}}; ");
    };
    chain("published", &format!("nat hook prerouting priority {priority}"), &translate);
    chain("published_here", &format!("nat hook output priority {priority}"), &translate);
    let mut source = format!("oifname \"{interface}\" ip saddr 127.0.0.0/8 masquerade; ");
    // The server calling itself by a published address must get its replies through here, too.
    let _ = write!(source, "oifname \"{interface}\" ip saddr {server} masquerade; ");
    if *outgoing {
        let _ = write!(source, "oifname != \"{interface}\" ip saddr {server} masquerade; ");
    }
    chain("source", "nat hook postrouting priority 100", &source);
    // route_localnet lets replies for 127.0.0.1 in from the server; nothing that the server begins may use that.
    let guard = format!("iifname \"{interface}\" ip daddr 127.0.0.0/8 ct state != {{ established, related }} drop; ");
    chain("guard", "filter hook input priority 0", &guard);
    text.push('}');
    text
}

fn destination(ip: Ipv4Addr) -> String {
    if ip.is_unspecified() { "fib daddr type local".to_owned() } else { format!("ip daddr {ip}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publish::Mapping;

    #[test]
    fn rules_for_one_port() {
        let mappings = [Mapping { address: "127.0.0.1:8080".parse().unwrap(), server_port: 80 }];
        let scene = Scene {
            interface: "nic0",
            subnet: "10.77.0.0/30".parse().unwrap(),
            mappings: &mappings,
            outgoing: false,
            card: 0,
            one_of: 1,
        };
        let text = rules(&scene);
        assert!(text.starts_with("table ip nicache_nic0 { flags owner;"), "{text}");
        assert_eq!(text.matches("ip daddr 127.0.0.1 tcp dport 8080 dnat to 10.77.0.2:80").count(), 2);
        assert!(!text.contains("oifname !=") && !text.contains('\n'));
        let all = [Mapping { address: "0.0.0.0:80".parse().unwrap(), server_port: 80 }];
        let text = rules(&Scene { mappings: &all, outgoing: true, ..scene });
        assert!(text.contains("fib daddr type local tcp dport 80") && text.contains("oifname != \"nic0\""));
    }
}
