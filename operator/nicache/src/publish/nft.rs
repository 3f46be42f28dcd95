//! The nftables table and the `nft` process that owns it.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::scene::Scene;
use crate::vitals::{LOOK_EVERY, Patience};

/// Where destinations are translated (`dstnat`).
const DESTINATION_PRIORITY: i32 = -100;

/// How long nft may stand still before it has answered.
const STILL: Duration = Duration::from_secs(5);

/// A running `nft` that owns the table. Dropping it removes the table.
#[derive(Debug)]
pub(crate) struct Nft {
    process: Child,
    pidfd: OwnedFd,
    input: Option<ChildStdin>,
}

impl Nft {
    /// Starts `nft`, gives it the rules and waits until they are in force.
    pub(crate) fn start(scene: &Scene<'_>) -> Result<Self> {
        let name = table_name(scene.interface);
        // A kernel without translation of IPv6 is asked for it only where it is needed.
        if scene.mappings.iter().any(|mapping| mapping.address.is_ipv6()) {
            return Self::own(
                &format!("{}; {}", rules(scene), rules6(scene)),
                &format!("ip6 {name}"),
            );
        }
        Self::own(&rules(scene), &format!("ip {name}"))
    }

    /// Starts `nft`, gives it the rules of a table, in one line, and waits until they are in force.
    /// `table`: the table's family and name, in the calling thread's network namespace.
    pub(crate) fn own(rules: &str, table: &str) -> Result<Self> {
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
        let mut nft = Self { process, pidfd, input };
        nft.command(rules)?;
        nft.confirm(&output, table)?;
        Ok(nft)
    }

    /// Whether the process is gone, and the rules with it.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.process.try_wait(), Ok(None))
    }

    fn command(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().context("nft has no input")?;
        writeln!(input, "{line}").and_then(|()| input.flush()).context("nft ended")
    }

    /// Asks for the table; `nft` handles lines in order, so either an error or the table comes.
    fn confirm(&mut self, output: &mpsc::Receiver<String>, table: &str) -> Result<()> {
        self.command(&format!("list table {table}"))?;
        let mut patience = Patience::with(self.process.id(), STILL).while_it_works();
        loop {
            let line = match output.recv_timeout(LOOK_EVERY) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) if !patience.is_over() => continue,
                Err(RecvTimeoutError::Timeout) => {
                    bail!(
                        "nft has not said for {} s whether the rules are in force",
                        STILL.as_secs()
                    )
                }
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("nft ended before it said whether the rules are in force")
                }
            };
            // What it is given it may say again, all in one line.
            if line.starts_with(&format!("table {table} {{")) && !line.contains("type ") {
                return Ok(());
            }
            if line.contains("Error") || line.contains("not permitted") {
                bail!(
                    "nft refused the rules ({}): this needs CAP_NET_ADMIN and a kernel with nf_tables",
                    line.trim()
                );
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
                // Nobody asks any longer, but a full pipe would stop nft.
                continue;
            }
        }
    });
}

fn table_name(interface: &str) -> String {
    format!("nicache_{interface}")
}

/// The whole table of IPv4 as one line, so it comes into force at once or not at all.
fn rules(scene: &Scene<'_>) -> String {
    let Scene { interface, subnet, outgoing, .. } = scene;
    let server = subnet.server();
    let mut source = format!("oifname \"{interface}\" ip saddr 127.0.0.0/8 masquerade; ");
    // The server calling itself by a published address must get its replies through here, too.
    let _ = write!(source, "oifname \"{interface}\" ip saddr {server} masquerade; ");
    if *outgoing {
        let _ = write!(source, "oifname != \"{interface}\" ip saddr {server} masquerade; ");
    }
    // route_localnet lets replies for 127.0.0.1 in from the server; nothing that the server begins
    // may use that.
    let guard = format!(
        "iifname \"{interface}\" ip daddr 127.0.0.0/8 ct state != {{ established, related }} drop; "
    );
    table("ip", scene, &source, &chain("guard", "filter hook input priority 0", &guard))
}

/// The whole table of IPv6 as one line, so it comes into force at once or not at all. What comes
/// from ::1 is not translated.
fn rules6(scene: &Scene<'_>) -> String {
    let Scene { interface, subnet, outgoing, .. } = scene;
    let server = subnet.server6();
    let mut source = format!("oifname \"{interface}\" ip6 saddr {server} masquerade; ");
    if *outgoing {
        let _ = write!(source, "oifname != \"{interface}\" ip6 saddr {server} masquerade; ");
    }
    table("ip6", scene, &source, "")
}

/// A table of this family, with what it does to sources and further chains.
fn table(family: &str, scene: &Scene<'_>, source: &str, more: &str) -> String {
    let Scene { interface, subnet, mappings, card, one_of, .. } = scene;
    let priority = DESTINATION_PRIORITY + i32::try_from(*card).unwrap_or(0);
    let turn = if *one_of > 1 { format!("numgen inc mod {one_of} == 0 ") } else { String::new() };
    let mine = mappings.iter().filter(|mapping| mapping.address.is_ipv4() == (family == "ip"));
    let translate = mine.fold(String::new(), |mut all, mapping| {
        let (to, port) = (destination(mapping.address.ip()), mapping.address.port());
        let _ = write!(all, "{to} tcp dport {port} {turn}dnat to {}; ", mapping.server(*subnet));
        all
    });
    let chains = [
        chain("published", &format!("nat hook prerouting priority {priority}"), &translate),
        chain("published_here", &format!("nat hook output priority {priority}"), &translate),
        chain("source", "nat hook postrouting priority 100", source),
    ];
    format!("table {family} {} {{ flags owner; {}{more}}}", table_name(interface), chains.concat())
}

fn chain(name: &str, hook: &str, body: &str) -> String {
    format!("chain {name} {{ type {hook}; policy accept; {body}}}; ")
}

fn destination(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => "fib daddr type local".to_owned(),
        IpAddr::V4(ip) => format!("ip daddr {ip}"),
        IpAddr::V6(ip) if ip.is_unspecified() => "ip6 daddr != ::1 fib daddr type local".to_owned(),
        // Those to ::1 go by a relay.
        IpAddr::V6(ip) => format!("ip6 daddr != ::1 ip6 daddr {ip}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publish::scene::Mapping;

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
        assert_eq!(
            text.matches("ip daddr 127.0.0.1 tcp dport 8080 dnat to 10.77.0.2:80").count(),
            2
        );
        assert!(!text.contains("oifname !=") && !text.contains('\n'));
        let all = [Mapping { address: "0.0.0.0:80".parse().unwrap(), server_port: 80 }];
        let text = rules(&Scene { mappings: &all, outgoing: true, ..scene });
        assert!(
            text.contains("fib daddr type local tcp dport 80")
                && text.contains("oifname != \"nic0\"")
        );
    }
    #[test]
    fn rules_for_ipv6() {
        let mapping = |text: &str| Mapping { address: text.parse().unwrap(), server_port: 80 };
        let mappings = [mapping("[2001:db8::1]:8080"), mapping("[::]:81"), mapping("0.0.0.0:82")];
        let scene = Scene {
            interface: "nic0",
            subnet: "10.77.0.0/30".parse().unwrap(),
            mappings: &mappings,
            outgoing: true,
            card: 0,
            one_of: 1,
        };
        let text = rules6(&scene);
        assert!(
            text.starts_with("table ip6 nicache_nic0 { flags owner;") && !text.contains('\n'),
            "{text}"
        );
        let server = scene.subnet.server6();
        assert_eq!(
            text.matches(&format!("ip6 daddr 2001:db8::1 tcp dport 8080 dnat to [{server}]:80"))
                .count(),
            2
        );
        assert!(
            text.contains("fib daddr type local tcp dport 81") && !text.contains("dport 82"),
            "{text}"
        );
        assert!(!rules(&scene).contains("dport 81"));
    }
}
