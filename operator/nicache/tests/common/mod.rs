//! A private network namespace per test, `nicache run` inside it, and a look at what is left
//! afterwards.
//!
//! The calling thread of a test moves into a namespace of its own, so tests run at once without
//! seeing each other. They need root.
#![allow(dead_code, reason = "each test file uses a part of this")]

pub(crate) mod options;
pub(crate) mod pauses;
pub(crate) mod rings;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

#[allow(unused_imports, reason = "each test file uses a part of this")]
use nicache::control::{Answer, Question, Request, Response};
#[allow(unused_imports, reason = "each test file uses a part of this")]
pub(crate) use nicache_namespaces::{enter_private as private_network, inside};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// The program. Tests of `nicache-lab` have it beside that, where `cargo build -p nicache` (or a
/// build of all) puts it.
pub(crate) const NICACHE: &str =
    match (option_env!("CARGO_BIN_EXE_nicache"), option_env!("CARGO_BIN_EXE_nicache-lab")) {
        (Some(own), _) => own,
        (None, Some(lab)) => lab.split_at(lab.len() - "-lab".len()).0,
        (None, None) => panic!("a test of nicache or of nicache-lab"),
    };
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(120);
/// What takes moments takes no longer on a machine that is busy: only what hangs does.
pub(crate) const SOON: Duration = Duration::from_secs(20);
/// What other tests can spoil is tried again for so long: they void what is kept, and take the
/// processors.
pub(crate) const EVENTUALLY: Duration = Duration::from_secs(120);

/// Runs `ip` with these arguments in the thread's namespace.
pub(crate) fn ip(arguments: &str) {
    nicache_namespaces::ip(arguments);
}

/// An nginx configuration: port 80 and port 8081 serve `site`, and every reply names the client as
/// the server sees it.
pub(crate) struct Site {
    pub folder: TempDir,
}

impl Site {
    pub(crate) fn new() -> Self {
        Self::with("", "listen 8081; root @ROOT@/site; add_header X-Client $remote_addr always;")
    }

    /// With directives for the `http` block and for the server on port 80. `@ROOT@` stands for the
    /// test's folder.
    pub(crate) fn with(http: &str, server: &str) -> Self {
        let folder =
            tempfile::Builder::new().prefix("nicache-test-").tempdir_in("/var/tmp").unwrap();
        std::fs::set_permissions(
            folder.path(),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .unwrap();
        let root = folder.path().display();
        std::fs::create_dir(folder.path().join("site")).unwrap();
        std::fs::write(folder.path().join("site/page.html"), "hello from nginx\n").unwrap();
        std::fs::write(folder.path().join("site/large"), vec![b'x'; 3 << 20]).unwrap();
        let configuration = format!(
            "worker_processes 2; pid {root}/pid; error_log stderr warn;
             events {{}}
             http {{
               access_log {root}/access.log;
               client_body_temp_path {root}/t1; proxy_temp_path {root}/t2; fastcgi_temp_path {root}/t3;
               uwsgi_temp_path {root}/t4; scgi_temp_path {root}/t5;
               {http}
               server {{ listen 80; {server} }}
             }}"
        );
        let configuration = configuration.replace("@ROOT@", &root.to_string());
        std::fs::write(folder.path().join("nginx.conf"), configuration).unwrap();
        Self { folder }
    }

    pub(crate) fn command(&self) -> Vec<String> {
        let folder = self.folder.path().to_str().unwrap().to_owned();
        let configuration = format!("{folder}/nginx.conf");
        ["nginx", "-p", &folder, "-c", &configuration, "-g", "daemon off;"]
            .map(str::to_owned)
            .to_vec()
    }
}

/// Options of a card with few connections, where the test does not say how many: all of its memory
/// is touched at the start, and a suite starts hundreds.
fn small(arguments: &[&str]) -> &'static [&'static str] {
    let is_said = arguments.iter().any(|argument| argument.starts_with("--connections"));
    if is_said { &[] } else { &["--connections", "4096"] }
}

/// The same for what is kept, where that is small.
pub(crate) const SMALL_PAGES: [&str; 2] = ["--memory", "16M"];

/// A `nicache run` that is ready. Dropping it kills it.
pub(crate) struct Nicache {
    pub process: Child,
    /// The `status` of the ready event.
    pub status: Value,
    pub log: mpsc::Receiver<String>,
    seen: Vec<String>,
}

impl Nicache {
    pub(crate) fn start(arguments: &[&str], server: &[String]) -> Self {
        Self::start_with(arguments, server, |_| {})
    }

    /// Starts it and waits until it is ready; panics with its log if it fails.
    pub(crate) fn start_with(
        arguments: &[&str],
        server: &[String],
        adjust: impl FnOnce(&mut Command),
    ) -> Self {
        let mut command = Command::new(NICACHE);
        command.args(["run", "--json"]).args(small(arguments)).args(arguments);
        if !server.is_empty() {
            command.arg("--").args(server);
        }
        adjust(&mut command);
        Self::launch(command)
    }

    /// A `nicache attach` that is ready.
    pub(crate) fn attach(arguments: &[&str]) -> Self {
        let mut command = Command::new(NICACHE);
        command.args(["attach", "--json"]).args(small(arguments)).args(arguments);
        Self::launch(command)
    }

    fn launch(mut command: Command) -> Self {
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
        // The server's own output comes between.
        let events =
            stdout.lines().map_while(Result::ok).filter(|line| line.starts_with("{\"event\""));
        std::thread::spawn(move || events.for_each(|line| drop(first.send(line))));
        let mut nicache = Self { process, status: Value::Null, log, seen: Vec::new() };
        match ready.recv_timeout(START_TIMEOUT) {
            Ok(line) => {
                let event: Value = serde_json::from_str(&line).unwrap();
                assert_eq!(event["event"], "ready", "{line}\n{}", nicache.log_text());
                nicache.status = event["status"].clone();
            }
            Err(_) => panic!("not ready:\n{}", nicache.log_text()),
        }
        nicache
    }

    pub(crate) fn name(&self) -> &str {
        self.status["name"].as_str().unwrap()
    }

    pub(crate) fn server(&self) -> Ipv4Addr {
        self.status["server_address"].as_str().unwrap().parse().unwrap()
    }

    pub(crate) fn pid(&self, of: &str) -> u64 {
        self.status[of].as_u64().unwrap()
    }

    /// Everything logged so far.
    pub(crate) fn log_text(&mut self) -> String {
        let until = Instant::now() + Duration::from_secs(2);
        while let Ok(line) = self.log.recv_timeout(Duration::from_millis(200)) {
            self.seen.push(line);
            if Instant::now() > until {
                break;
            }
        }
        self.seen.join("\n")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(u64::from(self.process.id()), signal);
    }

    pub(crate) fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        within(limit, || self.process.try_wait().unwrap())
    }

    /// All processes of this nicache, the server's workers included.
    pub(crate) fn processes(&self) -> BTreeSet<u64> {
        family(self.process.id().into())
    }
}

/// A process and all its descendants.
pub(crate) fn family(pid: u64) -> BTreeSet<u64> {
    let mut all = BTreeSet::new();
    collect_family(pid, &mut all);
    all
}

impl Drop for Nicache {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn collect_family(pid: u64, all: &mut BTreeSet<u64>) {
    if !all.insert(pid) {
        return;
    }
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    for thread in threads {
        let children = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        for child in children.split_ascii_whitespace() {
            collect_family(child.parse().unwrap(), all);
        }
    }
}

pub(crate) fn kill(pid: u64, signal: Signal) {
    assert!(kill_if_there(pid, signal), "there is no process {pid}");
}

/// Sends a signal to a process that may end at any time. Is it there?
pub(crate) fn kill_if_there(pid: u64, signal: Signal) -> bool {
    match kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal) {
        Ok(()) => true,
        Err(rustix::io::Errno::SRCH) => false,
        Err(error) => panic!("process {pid}: {error}"),
    }
}

/// Whether a process runs; one that is dead but not yet collected by its new parent does not.
pub(crate) fn is_running(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| !rest.trim().is_empty() && !rest.trim_start().starts_with(['Z', 'X']))
}

/// Somebody watches who is not this one.
pub(crate) fn another_watcher(name: &str, pid: u64) -> Option<u64> {
    let status = status(name);
    let other = status["watch_pid"].as_u64().filter(|&other| other != 0 && other != pid)?;
    status["watch_unavailable"].is_null().then_some(other)
}

/// Tells threads to end, also if something fails.
pub(crate) struct Stop<'a>(pub &'a std::sync::atomic::AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Makes a call again that was interrupted. One with a time limit is, even if this process has only
/// stood still for a moment.
pub(crate) fn uninterrupted<T>(mut call: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Polls until `look` gives something.
pub(crate) fn within<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() > deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Polls until it holds. Does it?
pub(crate) fn holds_within(limit: Duration, mut look: impl FnMut() -> bool) -> bool {
    within(limit, || look().then_some(())).is_some()
}

/// Does it hold after so many rounds, or after some more? However slow the machine is, there are
/// that many.
pub(crate) fn holds_after(
    rounds: usize,
    mut round: impl FnMut(usize),
    mut look: impl FnMut() -> bool,
) -> bool {
    (0..rounds).for_each(&mut round);
    let mut more = rounds..;
    holds_within(EVENTUALLY, || {
        let holds = look();
        if !holds {
            round(more.next().unwrap());
        }
        holds
    })
}

/// A process with a network namespace of its own, which ends with its standard input.
pub(crate) fn start_in_own_network() -> Child {
    let process = Command::new("unshare")
        .args(["-n", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let here = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
    let there = format!("/proc/{}/ns/net", process.id());
    let is_apart = || std::fs::read_link(&there).is_ok_and(|there| there != here);
    assert!(holds_within(SOON, is_apart), "no network namespace of its own");
    process
}

/// Waits for the end of all `processes`, of the interface and of the translation table in the
/// thread's namespace.
pub(crate) fn assert_all_gone(processes: &BTreeSet<u64>) {
    let left = || -> Vec<String> {
        let mut left: Vec<String> =
            processes.iter().filter(|pid| is_running(**pid)).map(|pid| describe(*pid)).collect();
        let devices = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        left.extend(
            devices.lines().filter(|line| line.trim_start().starts_with("nic")).map(str::to_owned),
        );
        let tables = output("nft", &["list", "tables"]);
        left.extend(tables.lines().map(str::to_owned));
        left
    };
    assert!(holds_within(SOON, || left().is_empty()), "left after {SOON:?}: {:?}", left());
}

fn describe(pid: u64) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    format!("process {pid} {}", name.replace('\0', " "))
}

/// Standard output of a program that must succeed.
pub(crate) fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let error = String::from_utf8_lossy(&output.stderr);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{program} {arguments:?}: {} {error}{said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// A load of wrk with these arguments.
pub(crate) fn wrk(arguments: &[&str]) -> Command {
    let mut command = Command::new("wrk");
    // By default, a reply that takes longer than 2 s is an error to it.
    command.args(["--timeout", "60s"]).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// Waits for the end of a load none of whose requests has failed; returns what wrk says.
pub(crate) fn end_wrk(load: Child) -> String {
    let output = load.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "wrk: {} {said}", output.status);
    assert!(!said.contains("Socket errors") && !said.contains("Non-2xx"), "{said}");
    said
}

/// Body fetched by curl from the thread's namespace.
pub(crate) fn curl(url: &str) -> String {
    output("curl", &["-sS", "-m", "60", "--fail", url])
}

/// The client address that the server saw, by the test site's own header.
pub(crate) fn seen_client(url: &str) -> String {
    let head = output("curl", &["-sS", "-m", "60", "-D", "-", "-o", "/dev/null", url]);
    let line = head.lines().find_map(|line| line.strip_prefix("X-Client: "));
    line.unwrap_or_else(|| panic!("no X-Client in {head}")).trim().to_owned()
}

/// Sends a line and the end, reads all there is.
pub(crate) fn exchange(address: SocketAddr, text: &str) -> String {
    let stream = say(address, text);
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    all_of(stream)
}

/// Sends a request after which the server closes, reads all there is. A server may take the
/// client's end for its leave.
pub(crate) fn ask_once(address: SocketAddr, request: &str) -> String {
    all_of(say(address, request))
}

fn say(address: SocketAddr, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect_timeout(&address, SOON).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

fn all_of(mut stream: TcpStream) -> String {
    stream.set_read_timeout(Some(SOON)).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// What `status --json` says of a running nicache: the same question, asked without a process,
/// because tests ask it thousands of times.
pub(crate) fn status(name: &str) -> Value {
    match nicache::control::ask(Some(name), &Request::Status) {
        Ok(Response::Status(status)) => serde_json::to_value(status).unwrap(),
        Ok(Response::Serve(status)) => serde_json::to_value(status).unwrap(),
        Ok(Response::Nfs(figures)) => serde_json::to_value(figures).unwrap(),
        Ok(Response::Forward(status)) => serde_json::to_value(status).unwrap(),
        Ok(other) => panic!("{other:?} is not a status"),
        Err(error) => panic!("{error:#}"),
    }
}

/// What `bypass on` and `bypass off` do.
pub(crate) fn bypass(name: &str, on: bool) {
    let question = Question::Bypass { on };
    let answer = nicache::control::ask(Some(name), &Request::Card { question });
    assert_eq!(answer.unwrap(), Response::Card { answer: Answer::Bypass { on } });
}

/// A `nicache` command that ends by itself.
pub(crate) fn command(arguments: &[&str]) -> Output {
    Command::new(NICACHE).args(arguments).stdin(Stdio::null()).output().expect("nicache")
}

/// Asserts that `nicache run` with these arguments fails, saying all of `phrases`.
pub(crate) fn assert_fails(arguments: &[&str], phrases: &[&str]) {
    assert_fails_with(arguments, phrases, |_| {});
}

pub(crate) fn assert_fails_with(
    arguments: &[&str],
    phrases: &[&str],
    adjust: impl FnOnce(&mut Command),
) {
    let mut command = Command::new(NICACHE);
    command.arg("run").args(arguments).stdin(Stdio::null());
    adjust(&mut command);
    let output = command.output().expect("nicache");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "it did not fail: {text}");
    for phrase in phrases {
        assert!(text.contains(phrase), "`{phrase}` is not in: {text}");
    }
    let devices = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    assert!(!devices.contains("nic"), "an interface is left: {devices}");
}

/// Whether a file exists, waited for.
pub(crate) fn exists_within(path: &Path, limit: Duration) -> bool {
    within(limit, || path.exists().then_some(())).is_some()
}
