//! The client: `wrk`, and single requests to look at a reply before anything is measured.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nicache_netns::Namespace;
use nicache_reply::{Method, WholeReader};
use serde::Deserialize;

use super::cpu::Cpus;

/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Most bytes of a body that is looked at.
const BODY_BYTES_MAX: usize = 16 << 20;

/// Tells the totals as one line of JSON. It has no per-request hook, so `wrk` sends prepared bytes
/// as it does without a script.
const SCRIPT: &str = r#"done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    '\nRESULT {"requests":%d,"microseconds":%d,"bytes":%d,"p50_us":%d,"p99_us":%d,"connect":%d,"read":%d,"write":%d,"status":%d,"timeout":%d}\n',
    summary.requests, summary.duration, summary.bytes, latency:percentile(50), latency:percentile(99),
    e.connect, e.read, e.write, e.status, e.timeout))
end
"#;

/// What `wrk` counted.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Totals {
    /// Replies.
    pub requests: u64,
    /// Measured time.
    pub microseconds: u64,
    /// Bytes of the replies with their heads.
    pub bytes: u64,
    /// Median latency.
    pub p50_us: u64,
    /// 99th percentile of the latency.
    pub p99_us: u64,
    connect: u64,
    read: u64,
    write: u64,
    status: u64,
    timeout: u64,
}

impl Totals {
    /// Nothing went wrong, and every reply had at least `body_bytes`.
    fn check(&self, body_bytes: u64) -> Result<()> {
        ensure!(
            self.connect + self.read + self.write + self.timeout == 0,
            "wrk saw socket errors: connect {}, read {}, write {}, timeout {}",
            self.connect,
            self.read,
            self.write,
            self.timeout
        );
        ensure!(self.status == 0, "{} replies were not successful", self.status);
        ensure!(self.requests > 0, "not one request was answered");
        ensure!(
            self.bytes >= self.requests * body_bytes,
            "{} replies of {body_bytes} bytes, but only {} bytes came",
            self.requests,
            self.bytes
        );
        Ok(())
    }
}

/// `wrk` with its script.
#[derive(Debug)]
pub(crate) struct Client {
    script: PathBuf,
    cpus: Cpus,
}

impl Client {
    /// A client on `cpus`, with a thread on each, that keeps its script in `folder`.
    ///
    /// # Errors
    /// The script cannot be written.
    pub(crate) fn new(folder: &Path, cpus: impl Into<Cpus>) -> Result<Self> {
        let script = folder.join("totals.lua");
        std::fs::write(&script, SCRIPT)?;
        Ok(Self { script, cpus: cpus.into() })
    }

    /// Asks for one object over and over.
    ///
    /// # Errors
    /// `wrk` failed, or saw errors, or the replies were too short.
    pub(crate) fn run(
        &self,
        namespace: &Namespace,
        url: &str,
        body_bytes: u64,
        connections: u32,
        close: bool,
        seconds: u32,
    ) -> Result<Totals> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "taskset", "-c", &self.cpus.list(), "wrk"]);
        command.args(["-t", &self.cpus.count().to_string(), "-c", &connections.to_string()]);
        command.args(["-d", &seconds.to_string(), "--timeout", "5", "-s"]);
        command.arg(&self.script);
        if close {
            command.args(["-H", "Connection: close"]);
        }
        // Ctrl-C is for the benchmark: a measurement that is cut off is none.
        command.arg(url).process_group(0);
        let output = namespace.run(move || command.output()).context("cannot start wrk")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let Some(line) = text.lines().find_map(|line| line.strip_prefix("RESULT ")) else {
            bail!("wrk failed: {}{}", text.trim(), String::from_utf8_lossy(&output.stderr).trim());
        };
        let totals: Totals =
            serde_json::from_str(line).with_context(|| format!("wrk said: {line}"))?;
        totals.check(body_bytes)?;
        Ok(totals)
    }
}

/// Gets one object with the same request that `wrk` sends; returns the head of the reply and the
/// body.
///
/// # Errors
/// No connection, no reply in time, or no success.
pub(crate) fn get(
    namespace: &Namespace,
    server: Ipv4Addr,
    path: &str,
    close: bool,
) -> Result<(Vec<u8>, Vec<u8>)> {
    let connection = if close { "Connection: close\r\n" } else { "" };
    let request = format!("GET {path} HTTP/1.1\r\nHost: {server}\r\n{connection}\r\n");
    namespace.run(move || {
        let mut stream =
            TcpStream::connect_timeout(&SocketAddrV4::new(server, 80).into(), TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(request.as_bytes())?;
        read_reply(&mut stream)
    })
}

fn read_reply(stream: &mut impl Read) -> Result<(Vec<u8>, Vec<u8>)> {
    let mut reader = WholeReader::new(BODY_BYTES_MAX);
    let mut piece = [0; 64 * 1024];
    loop {
        if let Some(reply) = reader.next(Method::Get)? {
            ensure!(
                reply.status == 200,
                "the reply is not a success: {}",
                String::from_utf8_lossy(reply.head).lines().next().unwrap_or_default()
            );
            return Ok((reply.head.to_vec(), reply.body.to_vec()));
        }
        let got = match stream.read(&mut piece) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            read => read.context("no reply")?,
        };
        ensure!(got > 0, "the connection ended within a reply");
        reader.space().extend_from_slice(&piece[..got]);
    }
}

#[cfg(test)]
mod tests {
    use nicache_reply::field;

    use super::*;

    fn totals() -> Totals {
        let line = r#"{"requests":10,"microseconds":1000,"bytes":2500,"p50_us":3,"p99_us":9,"connect":0,"read":0,"write":0,"status":0,"timeout":0}"#;
        serde_json::from_str(line).unwrap()
    }

    #[test]
    fn errors_and_short_replies_are_noticed() {
        assert!(totals().check(250).is_ok());
        assert!(totals().check(251).is_err());
        assert!(Totals { read: 1, ..totals() }.check(1).is_err());
        assert!(Totals { status: 1, ..totals() }.check(1).is_err());
        assert!(Totals { requests: 0, ..totals() }.check(1).is_err());
    }

    #[test]
    fn a_reply_is_read_to_its_end() {
        let reply = b"HTTP/1.1 200 OK\r\nX-Varnish: 5 3\r\nContent-Length: 4\r\n\r\nbody";
        let (head, body) = read_reply(&mut &reply[..]).unwrap();
        assert_eq!(body, b"body");
        assert_eq!(field(&head, "x-varnish"), Some(&b"5 3"[..]));
        assert!(read_reply(&mut &reply[..reply.len() - 1]).is_err());
        assert!(
            read_reply(&mut &b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"[..]).is_err()
        );
    }
}
