//! A running `nicache serve` of a folder.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{
    NICACHE, SOON, START_TIMEOUT, family, kill, private_network, status, uninterrupted, within,
};

/// A folder on disk that everybody may read.
pub(crate) fn folder() -> TempDir {
    let folder = tempfile::Builder::new().prefix("nicache-serve-").tempdir_in("/var/tmp").unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    folder
}

/// Bytes that differ at every place.
pub(crate) fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Dropping it kills it.
pub(crate) struct Serving {
    process: Child,
    /// The `status` of the ready event.
    pub status: Value,
    log: mpsc::Receiver<String>,
}

impl Serving {
    /// In a network namespace of the test's own.
    pub(crate) fn start(root: &Path, arguments: &[&str]) -> Self {
        private_network();
        let mut command = Command::new(NICACHE);
        command.args(["serve", "--json"]).args(arguments).arg(root);
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("nicache");
        let (lines, log) = mpsc::channel();
        let stderr = BufReader::new(process.stderr.take().unwrap());
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).for_each(|line| drop(lines.send(line)));
        });
        let (first, ready) = mpsc::channel();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).for_each(|line| drop(first.send(line)));
        });
        let mut serving = Self { process, status: Value::Null, log };
        match ready.recv_timeout(START_TIMEOUT) {
            Ok(line) => {
                let event: Value = serde_json::from_str(&line).unwrap();
                assert_eq!(event["event"], "ready", "{line}");
                serving.status = event["status"].clone();
            }
            Err(_) => panic!("not ready:\n{}", serving.log_text()),
        }
        serving
    }

    pub(crate) fn log_text(&self) -> String {
        let mut lines = Vec::new();
        while let Ok(line) = self.log.recv_timeout(Duration::from_millis(200)) {
            lines.push(line);
        }
        lines.join("\n")
    }

    pub(crate) fn name(&self) -> &str {
        self.status["name"].as_str().unwrap()
    }

    pub(crate) fn pid(&self) -> u64 {
        self.process.id().into()
    }

    /// With the slash.
    pub(crate) fn url(&self, card: usize) -> String {
        self.status["urls"][card].as_str().unwrap().to_owned()
    }

    pub(crate) fn address(&self, card: usize) -> SocketAddr {
        let url = self.url(card);
        format!("{}:80", url.trim_start_matches("http://").trim_end_matches('/')).parse().unwrap()
    }

    pub(crate) fn now(&self) -> Value {
        status(self.name())
    }

    /// A counter of the host.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        self.now()["report"]["counters"][name]
            .as_u64()
            .unwrap_or_else(|| panic!("no counter {name}"))
    }

    /// Ends it as Ctrl-C does, and returns its processes and whether it ended well.
    pub(crate) fn stop(mut self) -> (std::collections::BTreeSet<u64>, bool) {
        let processes = family(self.process.id().into());
        kill(self.process.id().into(), Signal::INT);
        let ended = within(SOON, || self.process.try_wait().unwrap());
        (processes, ended.is_some_and(|status| status.success()))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A reply in pieces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Reply {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines
            .filter(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
            .next()
    }
}

/// A connection that stays open.
pub(crate) struct Client {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Client {
    pub(crate) fn open(address: SocketAddr) -> Self {
        Self::try_open(address).unwrap()
    }

    pub(crate) fn try_open(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, SOON)?;
        stream.set_read_timeout(Some(SOON))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, read: Vec::new() })
    }

    pub(crate) fn send(&mut self, text: &str) -> std::io::Result<()> {
        self.stream.write_all(text.as_bytes())
    }

    /// Waits until the next reply has begun to come.
    pub(crate) fn wait(&mut self) -> std::io::Result<()> {
        if self.read.is_empty() { self.more() } else { Ok(()) }
    }

    fn more(&mut self) -> std::io::Result<()> {
        let mut some = [0; 65_536];
        match uninterrupted(|| self.stream.read(&mut some))? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            len => {
                self.read.extend_from_slice(&some[..len]);
                Ok(())
            }
        }
    }

    /// The next reply; one without a length ends with its head.
    pub(crate) fn receive(&mut self, is_head: bool) -> std::io::Result<Reply> {
        let end = loop {
            match self.read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                Some(at) => break at + 4,
                None => self.more()?,
            }
        };
        let head = String::from_utf8(self.read.drain(..end).collect()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut reply = Reply { status, head, body: Vec::new() };
        let len = reply.field("content-length").map_or(0, |len| len.parse().unwrap());
        if !is_head {
            while self.read.len() < len {
                self.more()?;
            }
            reply.body = self.read.drain(..len).collect();
        }
        Ok(reply)
    }

    /// The next bytes.
    pub(crate) fn take(&mut self, len: usize) -> Vec<u8> {
        while self.read.len() < len {
            self.more().unwrap();
        }
        self.read.drain(..len).collect()
    }

    /// What comes until the other side closes.
    pub(crate) fn rest(&mut self) -> std::io::Result<Vec<u8>> {
        let mut rest = std::mem::take(&mut self.read);
        self.stream.read_to_end(&mut rest)?;
        Ok(rest)
    }

    pub(crate) fn try_get(&mut self, path: &str, fields: &str) -> std::io::Result<Reply> {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n{fields}\r\n"))?;
        self.receive(false)
    }

    pub(crate) fn get(&mut self, path: &str, fields: &str) -> Reply {
        self.try_get(path, fields).unwrap_or_else(|error| panic!("GET {path}: {error}"))
    }
}

/// A folder with a file.
pub(crate) fn with_file(name: &str, content: &[u8]) -> (TempDir, PathBuf) {
    let folder = folder();
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    (folder, path)
}
