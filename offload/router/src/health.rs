//! Whether back ends answer: TCP connections and HTTP requests of this machine's own, one thread
//! for all.
//!
//! They come from ports that masquerading never gives out, so their answers are let in to this
//! machine's stack ([`crate::guard`]). A check ends with a reset, which leaves nothing in either
//! stack's tables.
//!
//! The first answer decides at once; afterwards it takes several of one kind to change a back end's
//! health.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nicache_bus::Doorbell;
use nicache_forward::services::Chosen;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::config::{Check, CheckWay, OWN_PORTS};

/// Bytes of an answer that are looked at.
const ANSWER_BYTES_MAX: usize = 512;

/// A back end does otherwise than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The back end.
    pub chosen: Chosen,
    /// It answers.
    pub is_up: bool,
    /// What the last check came to, for people.
    pub reason: String,
}

#[derive(Debug)]
enum Step {
    Resting,
    Connecting(TcpStream),
    Reading(TcpStream, Vec<u8>),
}

#[derive(Debug)]
struct Probe {
    check: Check,
    step: Step,
    /// The end of the rest, or of the patience.
    due: Instant,
    begun: Instant,
    port: u16,
    is_up: Option<bool>,
    /// Answers in a row that contradict it.
    against: u32,
}

/// Checks until `stop` rings. `tell` hears of each change, and of each back end's first answer.
///
/// # Errors
/// What the system says of waiting.
pub fn run(checks: Vec<Check>, stop: &Doorbell, mut tell: impl FnMut(Verdict)) -> io::Result<()> {
    let start = Instant::now();
    let count = checks.len().max(1) as u32;
    let mut probes: Vec<Probe> = checks
        .into_iter()
        .enumerate()
        .map(|(number, check)| Probe {
            // Spread over the first tenth of their time.
            due: start + check.every / 10 * number as u32 / count,
            begun: start,
            port: OWN_PORTS.start() + (number * 7 % OWN_PORTS.len()) as u16,
            step: Step::Resting,
            check,
            is_up: None,
            against: 0,
        })
        .collect();
    loop {
        let now = Instant::now();
        let due = probes.iter().map(|probe| probe.due).min();
        let wait = due.map(|due| due.saturating_duration_since(now));
        let limit = wait.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        let (mut files, mut waiting) = (vec![PollFd::new(stop, PollFlags::IN)], Vec::new());
        for (number, probe) in probes.iter().enumerate() {
            match &probe.step {
                Step::Resting => continue,
                Step::Connecting(stream) => files.push(PollFd::new(stream, PollFlags::OUT)),
                Step::Reading(stream, _) => files.push(PollFd::new(stream, PollFlags::IN)),
            }
            waiting.push(number);
        }
        match poll(&mut files, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !files[0].revents().is_empty() {
            return Ok(());
        }
        let ready: Vec<usize> = files[1..]
            .iter()
            .zip(waiting)
            .filter(|(file, _)| !file.revents().is_empty())
            .map(|(_, probe)| probe)
            .collect();
        drop(files);
        let now = Instant::now();
        for number in ready {
            probes[number].advance(now).into_iter().for_each(&mut tell);
        }
        for probe in &mut probes {
            if probe.due <= now {
                probe.expire(now).into_iter().for_each(&mut tell);
            }
        }
    }
}

impl Probe {
    /// The time is up: for the next check, or for an answer.
    fn expire(&mut self, now: Instant) -> Option<Verdict> {
        match std::mem::replace(&mut self.step, Step::Resting) {
            Step::Resting => {
                self.begun = now;
                self.due = now + self.check.timeout;
                match self.connect() {
                    Ok(stream) => self.step = Step::Connecting(stream),
                    Err(error) => return self.judge(Err(error.to_string()), now),
                }
                None
            }
            Step::Connecting(_) => {
                self.judge(Err(format!("no connection within {:?}", self.check.timeout)), now)
            }
            Step::Reading(..) => {
                self.judge(Err(format!("no answer within {:?}", self.check.timeout)), now)
            }
        }
    }

    fn connect(&mut self) -> io::Result<TcpStream> {
        let target = self.check.target;
        let (family, from): (_, std::net::IpAddr) = match target {
            SocketAddr::V4(_) => (AddressFamily::INET, Ipv4Addr::UNSPECIFIED.into()),
            SocketAddr::V6(_) => (AddressFamily::INET6, Ipv6Addr::UNSPECIFIED.into()),
        };
        for _ in OWN_PORTS {
            self.port =
                if self.port >= *OWN_PORTS.end() { *OWN_PORTS.start() } else { self.port + 1 };
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
            sockopt::set_socket_reuseaddr(&socket, true)?;
            sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
            match rustix::net::bind(&socket, &SocketAddr::new(from, self.port)) {
                Ok(()) => {}
                Err(Errno::ADDRINUSE) => continue,
                Err(error) => return Err(error.into()),
            }
            match rustix::net::connect(&socket, &target) {
                Ok(()) | Err(Errno::INPROGRESS) => return Ok(stream(socket)),
                Err(Errno::ADDRNOTAVAIL | Errno::ADDRINUSE) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "all ports of health checks are in use on this machine",
        ))
    }

    /// Something came.
    fn advance(&mut self, now: Instant) -> Option<Verdict> {
        match std::mem::replace(&mut self.step, Step::Resting) {
            Step::Resting => None,
            Step::Connecting(mut stream) => match sockopt::socket_error(stream.as_fd()) {
                Ok(Err(error)) | Err(error) => {
                    self.judge(Err(io::Error::from(error).to_string()), now)
                }
                Ok(Ok(())) => match &self.check.way {
                    CheckWay::Tcp => self.judge(Ok("it accepts connections".to_owned()), now),
                    CheckWay::Http { path, host, .. } => {
                        let request = format!(
                            "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: nicache-check\r\nConnection: close\r\n\r\n"
                        );
                        // A fresh connection has room for it.
                        match stream.write_all(request.as_bytes()) {
                            Ok(()) => {
                                self.step = Step::Reading(stream, Vec::new());
                                None
                            }
                            Err(error) => self.judge(Err(error.to_string()), now),
                        }
                    }
                },
            },
            Step::Reading(mut stream, mut answer) => {
                let mut bytes = [0; ANSWER_BYTES_MAX];
                match stream.read(&mut bytes) {
                    Ok(0) => self.judge(Err("it closed without an answer".to_owned()), now),
                    Ok(count) => {
                        answer.extend_from_slice(&bytes[..count]);
                        match self.status(&answer) {
                            Some(outcome) => self.judge(outcome, now),
                            None => {
                                self.step = Step::Reading(stream, answer);
                                None
                            }
                        }
                    }
                    Err(error)
                        if matches!(
                            error.kind(),
                            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                        ) =>
                    {
                        self.step = Step::Reading(stream, answer);
                        None
                    }
                    Err(error) => self.judge(Err(error.to_string()), now),
                }
            }
        }
    }

    /// What an answer says, as soon as its first line is there.
    fn status(&self, answer: &[u8]) -> Option<Result<String, String>> {
        let CheckWay::Http { status: wanted, .. } = &self.check.way else { return None };
        if !answer.contains(&b'\n') && answer.len() < ANSWER_BYTES_MAX {
            return None;
        }
        let line =
            String::from_utf8_lossy(answer.split(|byte| *byte == b'\r' || *byte == b'\n').next()?)
                .into_owned();
        let status =
            line.strip_prefix("HTTP/").and_then(|rest| rest.split(' ').nth(1)?.parse::<u16>().ok());
        Some(match (status, wanted) {
            (None, _) => Err("what it says is not HTTP".to_owned()),
            (Some(status), Some(wanted)) if status == *wanted => Ok(format!("it answers {status}")),
            (Some(status), None) if (200..400).contains(&status) => {
                Ok(format!("it answers {status}"))
            }
            (Some(status), _) => Err(format!("it answers {status}")),
        })
    }

    fn judge(&mut self, outcome: Result<String, String>, now: Instant) -> Option<Verdict> {
        self.step = Step::Resting;
        self.due = (self.begun + self.check.every).max(now);
        let (is_good, reason) = match outcome {
            Ok(reason) => (true, reason),
            Err(reason) => (false, reason),
        };
        if self.is_up == Some(is_good) {
            self.against = 0;
            return None;
        }
        self.against += 1;
        let needed = if is_good { self.check.rise } else { self.check.fall };
        if self.is_up.is_some() && self.against < needed {
            return None;
        }
        (self.is_up, self.against) = (Some(is_good), 0);
        Some(Verdict { chosen: self.check.chosen, is_up: is_good, reason })
    }
}

fn stream(socket: OwnedFd) -> TcpStream {
    TcpStream::from(socket)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::mpsc;

    use super::*;
    use nicache_namespaces::Namespace;

    fn check(number: u16, target: SocketAddr, way: CheckWay) -> Check {
        let chosen = Chosen { service: 0, back_end: number };
        let (every, timeout) = (Duration::from_millis(20), Duration::from_secs(20));
        Check { chosen, target, way, every, timeout, rise: 2, fall: 2 }
    }

    /// Answers requests with these statuses in turn, the last one for good.
    fn server(listener: TcpListener, statuses: &'static [u16]) {
        std::thread::spawn(move || {
            let mut statuses = statuses.iter().chain(std::iter::repeat(statuses.last().unwrap()));
            for mut stream in listener.incoming().flatten() {
                let _ = stream.read(&mut [0; 1000]);
                let status = statuses.next().unwrap();
                let _ = write!(stream, "HTTP/1.1 {status} Some Words\r\nContent-Length: 0\r\n\r\n");
            }
        });
    }

    #[test]
    fn up_and_down_and_not_at_once() {
        let Some(namespace) = Namespace::with_loopback() else { return };
        let (told, heard) = mpsc::channel();
        let stop = std::sync::Arc::new(Doorbell::new().unwrap());
        let bell = std::sync::Arc::clone(&stop);
        let thread = namespace.run(move || {
            let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
            let (fine, fails, plain) = (listen(), listen(), listen());
            let [first, second, last] =
                [&fine, &fails, &plain].map(|listener| listener.local_addr().unwrap());
            // A port that is never given to who asks for any.
            let closed = "127.0.0.1:1".parse().unwrap();
            server(fine, &[200]);
            // One bad answer among good ones changes nothing; two do, and two good ones change it
            // back.
            server(fails, &[200, 500, 200, 500, 500, 204]);
            let http = || CheckWay::Http { path: "/".into(), host: "x".into(), status: None };
            let mut checks: Vec<Check> = [first, second, closed, last]
                .into_iter()
                .enumerate()
                .map(|(number, target)| check(number as u16, target, http()))
                .collect();
            checks[3].way = CheckWay::Tcp;
            std::thread::spawn(move || {
                let _plain = plain;
                run(checks, &bell, |verdict| told.send(verdict).unwrap()).unwrap();
            })
        });
        let mut seen: Vec<Vec<bool>> = vec![Vec::new(); 4];
        while seen.iter().map(Vec::len).sum::<usize>() < 6 {
            let verdict = heard.recv_timeout(Duration::from_secs(60)).unwrap();
            seen[usize::from(verdict.chosen.back_end)].push(verdict.is_up);
        }
        assert_eq!(seen, [vec![true], vec![true, false, true], vec![false], vec![true]]);
        stop.ring();
        thread.join().unwrap();
    }
}
