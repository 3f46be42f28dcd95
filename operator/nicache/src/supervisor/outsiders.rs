//! PHP-FPM that was started before nicache, as a service of the machine: it is told to begin anew,
//! so what it keeps in its memory is known.
//!
//! The watcher tells of the processes that the server has asked ([`ToWatch::Outsiders`]). PHP-FPM
//! reloads at SIGUSR2: its first process replaces itself, and its sockets stay, but a request that
//! one of its processes is at may be cut off. To prevent that, the server is stopped for a few
//! milliseconds at a moment at which all of PHP-FPM's processes wait for a connection; what clients
//! send meanwhile waits in sockets. Before the server is stopped, the relays to PHP-FPM's ports let
//! nobody through and are empty: what is in them would come to PHP-FPM afterwards.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use nicache_watch::is_php_fpm;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use super::listening::ports_of;
use super::watch_link::WatchLink;
use crate::inquiry::{FromWatch, ToWatch};
use crate::processes::{
    begun, children_of, command_of, is_stopped, parent_of, pid, processes, processes_in,
};
use crate::share::Share;

/// Between two questions to the watcher, and between two looks whether all wait.
const ASK_EVERY: Duration = Duration::from_millis(250);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How long a moment without requests is waited for.
const IDLE_WITHIN: Duration = Duration::from_secs(60);
/// After how long it is said that it keeps connections, if it does.
const KEPT_WITHIN: Duration = Duration::from_secs(5);
/// How long the relays may take to become empty, and the server's processes to stop.
const EMPTY_WITHIN: Duration = Duration::from_millis(20);
const STOPPED_WITHIN: Duration = Duration::from_millis(50);
/// How long the processes that were there may take to end, and the server waits for that: one that
/// has not ended would take a request, and then end. It is a few milliseconds where the machine is
/// not overloaded.
const GONE_WITHIN: Duration = Duration::from_secs(5);
/// Numbers of accept(2) and accept4(2) on x86-64.
const ACCEPTS: [&str; 2] = ["43", "288"];
/// The number of read(2), and what PHP-FPM reads first of a request: the header of a record.
const READ: &str = "0";
const HEADER_BYTES: &str = "0x8";

/// Tells those that the watcher names, from a thread of its own.
///
/// `server_netns` is the inode number of the server's network namespace, `units` those whose
/// programs are followed, `shares` what the server reaches of this machine. Without `reload` it is
/// only said what to do.
///
/// # Errors
/// No thread can be started.
pub(super) fn start(
    link: Arc<WatchLink>,
    server_netns: u64,
    units: Vec<String>,
    shares: Vec<Share>,
    reload: bool,
) -> Result<()> {
    let mut outsiders = Outsiders { server_netns, shares, reload, known: HashMap::new() };
    let body = move || {
        let mut earlier = members_of(&units);
        for unit in &units {
            announce_unit(unit, &earlier);
        }
        earlier.retain(|(process, _)| is_of_php_fpm(*process));
        let mut named: Vec<u32> = earlier.into_iter().map(|(process, _)| process).collect();
        loop {
            std::thread::sleep(ASK_EVERY);
            let Ok(FromWatch::Outsiders { processes }) =
                link.ask(&ToWatch::Outsiders, Duration::from_secs(2))
            else {
                continue;
            };
            // Whoever is followed by its unit is so once the watcher knows the name.
            named.extend(processes);
            for process in std::mem::take(&mut named) {
                if let Some(master) = master_of(process) {
                    outsiders.handle(master);
                }
            }
        }
    };
    std::thread::Builder::new().name("outsiders".into()).spawn(body)?;
    Ok(())
}

struct Outsiders {
    server_netns: u64,
    shares: Vec<Share>,
    reload: bool,
    /// By first process.
    known: HashMap<u32, Known>,
}

/// One that has been seen.
#[derive(Clone, Copy)]
struct Known {
    /// In clock ticks since the start of the machine: a process's number may be another's later.
    begun: u64,
    since: Instant,
    done: bool,
    /// It is said that it keeps connections.
    is_said: bool,
}

impl Outsiders {
    fn handle(&mut self, master: u32) {
        let Some(begun) = begun(master) else { return };
        let fresh = Known { begun, since: Instant::now(), done: false, is_said: false };
        let known = self.known.entry(master).or_insert(fresh);
        if known.begun != begun {
            *known = fresh;
        }
        if known.done {
            return;
        }
        let what = describe(master);
        if !self.reload {
            known.done = true;
            tracing::warn!(
                "{what} was started before nicache: its pages are kept once it is reloaded, {}",
                advice(master)
            );
            return;
        }
        let until = Instant::now() + 20 * LOOK_EVERY;
        while Instant::now() < until {
            match reload_if_idle(master, self.server_netns, &self.shares) {
                Ok(true) => {
                    tracing::info!(
                        "{what} was started before nicache: it was reloaded while it had no request, and its pages are kept from now on"
                    );
                    known.done = true;
                    return;
                }
                Ok(false) => std::thread::sleep(LOOK_EVERY),
                Err(error) => {
                    tracing::warn!(
                        "{what} cannot be reloaded ({error}): its pages are kept once it is, {}",
                        advice(master)
                    );
                    known.done = true;
                    return;
                }
            }
        }
        if known.since.elapsed() > KEPT_WITHIN && !known.is_said && keeps_connections(master) {
            known.is_said = true;
            tracing::warn!(
                "{what} was started before nicache, and keeps connections open (`fastcgi_keep_conn on`), so nobody can tell whether it is at a \
                 request: its pages are kept once it is reloaded, {}",
                advice(master)
            );
        }
        if known.since.elapsed() > IDLE_WITHIN {
            known.done = true;
            if !known.is_said {
                tracing::warn!(
                    "{what} was started before nicache, and has had no moment without requests for {} s: its pages are kept once it is reloaded, {}",
                    IDLE_WITHIN.as_secs(),
                    advice(master)
                );
            }
        }
    }
}

/// Reloads PHP-FPM unless one of its processes is at a request.
fn reload_if_idle(master: u32, server_netns: u64, shares: &[Share]) -> Result<bool> {
    if !is_idle(master) {
        return Ok(false);
    }
    let process: OwnedFd = pidfd_open(pid(master)?, PidfdFlags::empty())?;
    let ports = ports_of(master);
    let relays = shares.iter().filter(|share| ports.contains(&share.port));
    let closed: Option<Vec<_>> =
        relays.map(|share| share.gate.close_when_empty(EMPTY_WITHIN)).collect();
    let Some(_closed) = closed else { return Ok(false) };
    let stopped = Stopped::new(server_netns);
    if !stopped.wait(server_netns, STOPPED_WITHIN) {
        return Ok(false);
    }
    let children = children_of(master);
    if !is_idle(master) {
        return Ok(false);
    }
    pidfd_send_signal(&process, Signal::USR2)?;
    let until = Instant::now() + GONE_WITHIN;
    while Instant::now() < until && children.iter().any(|&child| parent_of(child) == Some(master)) {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(true)
}

/// The processes in a network, told to stop until this is dropped.
struct Stopped(Vec<Pid>);

impl Stopped {
    fn new(netns: u64) -> Self {
        let inside = processes_in(netns).filter_map(|process| pid(process).ok());
        Self(inside.filter(|&process| kill_process(process, Signal::STOP).is_ok()).collect())
    }

    /// Do all in the network stand still, within that time? Until then they may be about to
    /// connect.
    fn wait(&self, netns: u64, within: Duration) -> bool {
        let until = Instant::now() + within;
        self.0.iter().all(|process| {
            let process = process.as_raw_nonzero().get().unsigned_abs();
            while !is_stopped(process) {
                if Instant::now() >= until {
                    return false;
                }
                std::thread::sleep(Duration::from_micros(200));
            }
            true
        }) && self.are_all(netns)
    }

    /// Is there no other process in the network, that one of these has started before it stood
    /// still?
    fn are_all(&self, netns: u64) -> bool {
        processes_in(netns)
            .filter_map(|process| pid(process).ok())
            .all(|process| self.0.contains(&process))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for &process in &self.0 {
            let _ = kill_process(process, Signal::CONT);
        }
    }
}

/// Do all that answer wait for a connection?
fn is_idle(master: u32) -> bool {
    let waits = |child: &u32| {
        let call = std::fs::read_to_string(format!("/proc/{child}/syscall")).unwrap_or_default();
        ACCEPTS.contains(&call.split(' ').next().unwrap_or_default())
    };
    children_of(master).iter().all(waits)
}

/// Does one of them wait for what comes next on a connection that it has? It may be the next
/// request, or more of this one: that looks the same.
fn keeps_connections(master: u32) -> bool {
    children_of(master).iter().any(|child| {
        let call = std::fs::read_to_string(format!("/proc/{child}/syscall")).unwrap_or_default();
        let words: Vec<&str> = call.split(' ').collect();
        words.first() == Some(&READ) && words.get(3) == Some(&HEADER_BYTES)
    })
}

/// The first process of the PHP-FPM that a process belongs to.
fn master_of(process: u32) -> Option<u32> {
    let name = command_of(process)?;
    let parent = parent_of(process)?;
    let is_child = command_of(parent).is_some_and(|command| command == name);
    Some(if is_child { parent } else { process })
}

fn is_of_php_fpm(process: u32) -> bool {
    command_of(process).is_some_and(|command| is_php_fpm(&command))
}

/// The unit that a process is of: the innermost service of its control group.
fn unit_of(process: u32) -> Option<String> {
    let path = group_of(process)?;
    let mut parts = path.rsplit('/');
    parts
        .clone()
        .find(|part| part.ends_with(".service"))
        .or_else(|| parts.next())
        .map(str::to_owned)
}

/// The path of a process's control group (version 2).
fn group_of(process: u32) -> Option<String> {
    let groups = std::fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?;
    groups.lines().find_map(|line| line.strip_prefix("0::")).map(str::to_owned)
}

/// The processes of these units, and of which they are. A unit may divide its programs among groups
/// below its own.
fn members_of(units: &[String]) -> Vec<(u32, String)> {
    let unit = |process| {
        let path = group_of(process)?;
        let unit = path.split('/').find(|part| units.iter().any(|unit| unit == part))?;
        Some((process, unit.to_owned()))
    };
    processes().filter_map(unit).collect()
}

fn announce_unit(unit: &str, running: &[(u32, String)]) {
    if running.iter().all(|(_, of)| of != unit) {
        tracing::info!("no program of the unit {unit} runs: they are followed from their start on");
    }
    let others = running.iter().filter(|(process, of)| of == unit && !is_of_php_fpm(*process));
    if others.count() > 0 {
        tracing::warn!(
            "the unit {unit} runs already, and what its programs have in their memory is not known: their pages are kept once it is started again, \
             by `systemctl restart {unit}`"
        );
    }
}

fn describe(master: u32) -> String {
    let command = command_of(master).unwrap_or_else(|| "PHP-FPM".to_owned());
    match unit_of(master).filter(|unit| unit.ends_with(".service")) {
        Some(unit) => format!("{command} (process {master}, unit {unit})"),
        None => format!("{command} (process {master})"),
    }
}

fn advice(master: u32) -> String {
    match unit_of(master).filter(|unit| unit.ends_with(".service")) {
        Some(unit) => format!("by `systemctl reload {unit}`"),
        None => format!("by `kill -USR2 {master}`"),
    }
}
