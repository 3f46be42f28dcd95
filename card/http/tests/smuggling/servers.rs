//! Real servers that tell what they take a request for, each a process of its own on a port of the
//! loopback of a network that is the test's own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nicache_namespaces::enter_private;

/// How long a server may take to start, and to say anything at all to a request.
const START: Duration = Duration::from_secs(20);
const SILENCE: Duration = Duration::from_secs(3);

/// A server that runs until it is dropped.
pub(crate) struct Server {
    pub name: &'static str,
    port: u16,
    process: Child,
    _folder: tempfile::TempDir,
}

/// One reply, as far as it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub status: u16,
    /// What the server took the request for: method, target, Host, and its bytes of content if the
    /// server counts them.
    pub echo: Option<(String, String, String, Option<u64>)>,
}

/// What came of a conversation.
#[derive(Clone, Debug)]
pub(crate) struct Talk {
    pub answers: Vec<Answer>,
    /// The server ended the connection.
    pub is_closed: bool,
}

/// All servers that are there, in a new network that the calling thread enters. Says which are not.
pub(crate) fn start_all() -> Vec<Server> {
    enter_private();
    let servers: Vec<Server> = [nginx(), apache(), node(), go()].into_iter().flatten().collect();
    assert!(!servers.is_empty(), "no server to compare with (tools/setup test)");
    servers
}

fn program(names: &[&str]) -> Option<String> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/usr/local/go/bin";
    let found = names.iter().find_map(|name| {
        path.split(':').map(|folder| Path::new(folder).join(name)).find(|file| file.exists())
    });
    if found.is_none() {
        println!("not compared: {} is not installed (tools/setup test)", names[0]);
    }
    Some(found?.to_str()?.to_owned())
}

/// A process that ends with the thread that made it.
fn spawn(program: &str, arguments: &[&str]) -> Child {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", program]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().expect("setpriv of util-linux")
}

fn nginx() -> Option<Server> {
    let program = program(&["nginx"])?;
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().display().to_string();
    let port = 8001;
    let configuration = format!(
        "daemon off; master_process off; error_log {root}/error.log; pid {root}/pid;
         events {{ worker_connections 256; }}
         http {{
           access_log off; client_body_temp_path {root}/body; proxy_temp_path {root}/proxy;
           fastcgi_temp_path {root}/fastcgi; uwsgi_temp_path {root}/uwsgi; scgi_temp_path {root}/scgi;
           server {{
             listen 127.0.0.1:{port};
             location / {{ add_header X-Echo '$request_method $request_uri $http_host' always; return 200; }}
           }}
         }}"
    );
    let file = folder.path().join("nginx.conf");
    std::fs::write(&file, configuration).unwrap();
    let process =
        spawn(&program, &["-e", &format!("{root}/error.log"), "-c", file.to_str().unwrap()]);
    Some(Server { name: "nginx", port, process, _folder: folder }.wait())
}

fn apache() -> Option<Server> {
    let program = program(&["apache2"])?;
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().display().to_string();
    let port = 8002;
    let modules = "/usr/lib/apache2/modules";
    let configuration = format!(
        "ServerRoot {root}
         DefaultRuntimeDir {root}
         PidFile {root}/pid
         ErrorLog {root}/error.log
         Listen 127.0.0.1:{port}
         ServerName echo
         LoadModule mpm_event_module {modules}/mod_mpm_event.so
         LoadModule authz_core_module {modules}/mod_authz_core.so
         LoadModule headers_module {modules}/mod_headers.so
         TraceEnable off
         KeepAliveTimeout 5
         MaxKeepAliveRequests 0
         Header always set X-Echo \"expr=%{{REQUEST_METHOD}} %{{THE_REQUEST}} %{{HTTP:Host}}\"
         DocumentRoot {root}\n"
    );
    let file = folder.path().join("apache.conf");
    std::fs::write(&file, configuration).unwrap();
    let process = spawn(&program, &["-X", "-f", file.to_str().unwrap()]);
    Some(Server { name: "Apache", port, process, _folder: folder }.wait())
}

fn node() -> Option<Server> {
    let program = program(&["node"])?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/smuggling/server.js");
    let process = spawn(&program, &[script.to_str().unwrap()]);
    Some(Server { name: "Node", port: 0, process, _folder: tempfile::tempdir().unwrap() }.told())
}

fn go() -> Option<Server> {
    let program = program(&["go"])?;
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/smuggling/server.go");
    let binary = folder.path().join("server");
    let mut build = Command::new(program);
    build.args(["build", "-o", binary.to_str().unwrap(), source.to_str().unwrap()]);
    build.env("GOFLAGS", "-mod=mod").env("GOPROXY", "off");
    if std::env::var_os("HOME").is_none() {
        build.env("GOCACHE", folder.path().join("cache"));
    }
    let output = build.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let process = spawn(binary.to_str().unwrap(), &[]);
    Some(Server { name: "Go", port: 0, process, _folder: folder }.told())
}

impl Server {
    /// Waits until it listens.
    fn wait(mut self) -> Self {
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(
                begun.elapsed() < START,
                "{} does not listen: {:?}",
                self.name,
                self.process.try_wait()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        self
    }

    /// Reads its port from its standard output.
    fn told(mut self) -> Self {
        let mut line = String::new();
        BufReader::new(self.process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.port = line.trim().parse().unwrap_or_else(|_| panic!("{} says {line:?}", self.name));
        self
    }

    /// Sends the bytes in one piece, and reads until as many `replies` have come, the server
    /// closes, or it says nothing for a while. `heads`: which replies have no content, because they
    /// are to HEAD.
    pub(crate) fn talk(&self, bytes: &[u8], heads: &[bool]) -> Talk {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(SILENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        // A server that refuses the beginning may close before it has all.
        let _ = stream.write_all(bytes);
        let mut got = Vec::new();
        let mut is_closed = false;
        let mut buffer = [0; 16_384];
        loop {
            let answers = parse(&got, heads);
            if answers.len() >= heads.len() && is_closed {
                return Talk { answers, is_closed };
            }
            match stream.read(&mut buffer) {
                Ok(0) => is_closed = true,
                Ok(len) => got.extend_from_slice(&buffer[..len]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                    is_closed = true;
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return Talk { answers, is_closed },
            }
            if is_closed {
                return Talk { answers: parse(&got, heads), is_closed };
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The whole replies at the start of the bytes.
fn parse(mut bytes: &[u8], heads: &[bool]) -> Vec<Answer> {
    let mut answers = Vec::new();
    while let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let status: u16 =
            head.split(' ').nth(1).and_then(|status| status.get(..3)?.parse().ok()).unwrap_or(0);
        let field = |name: &str| {
            let mut lines = head.split("\r\n").filter_map(|line| line.split_once(": "));
            lines
                .find(|(known, _)| known.eq_ignore_ascii_case(name))
                .map(|(_, value)| value.to_owned())
        };
        bytes = &bytes[end + 4..];
        if status < 200 && status > 0 {
            continue;
        }
        let is_head = heads.get(answers.len()).copied().unwrap_or(false);
        if !is_head && status != 204 && status != 304 {
            match field("content-length") {
                Some(len) => {
                    let len: usize = len.parse().unwrap_or(0);
                    let Some(rest) = bytes.get(len..) else { break };
                    bytes = rest;
                }
                // Pages of errors that end with the connection, or have chunks.
                None => bytes = after_page(bytes),
            }
        }
        answers.push(Answer { status, echo: field("x-echo").as_deref().and_then(echo) });
    }
    answers
}

fn after_page(bytes: &[u8]) -> &[u8] {
    bytes.windows(7).position(|window| window == b"HTTP/1.").map_or(&[], |at| &bytes[at..])
}

/// nginx: method, target, Host. Apache: method, request line (method, target, version), Host. Node,
/// Go: method, target, Host, content.
fn echo(value: &str) -> Option<(String, String, String, Option<u64>)> {
    let words: Vec<&str> = value.split(' ').collect();
    let host = |at: usize| {
        words.get(at).filter(|host| **host != "(none)").copied().unwrap_or_default().to_owned()
    };
    let is_apache =
        words.len() > 3 && words.get(3).is_some_and(|version| version.starts_with("HTTP/"));
    let (target, host, content) = match is_apache {
        true => (words.get(2)?, host(4), None),
        false => (words.get(1)?, host(2), words.get(3).and_then(|content| content.parse().ok())),
    };
    Some((words.first()?.to_string(), target.to_string(), host, content))
}
