//! A server behind a card, requests as they are written, and replies without what may differ.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use super::common::{Nicache, Site, bypass, private_network, status};

/// Requests until a hit is due.
const ROUNDS: usize = 40;

/// A server with files, and nicache around it.
pub(crate) struct Stage {
    pub site: Site,
    pub nicache: Nicache,
}

/// A reply as it came.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub head: String,
    pub body: Vec<u8>,
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body = String::from_utf8_lossy(&self.body[..self.body.len().min(300)]).into_owned();
        write!(f, "{}\n{} bytes: {body:?}", self.head, self.body.len())
    }
}

impl Reply {
    pub(crate) fn status(&self) -> u16 {
        self.head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Without dates of the moment, and with one boundary for all.
    pub(crate) fn plain(mut self) -> Self {
        if let Some(boundary) =
            self.field("content-type").and_then(|kind| kind.split("boundary=").nth(1))
        {
            let boundary = boundary.to_owned();
            self.head = self.head.replace(&boundary, &"b".repeat(boundary.len()));
            let mut at = 0;
            while let Some(found) = find(&self.body[at..], boundary.as_bytes()) {
                self.body[at + found..at + found + boundary.len()].fill(b'b');
                at += found;
            }
        }
        let lines = self.head.lines().map(|line| match line.split_once(": ") {
            Some((name @ ("Date" | "Expires"), _)) => format!("{name}: -"),
            // Apache counts them.
            Some(("Keep-Alive", _)) => "Keep-Alive: -".to_owned(),
            _ => line.to_owned(),
        });
        self.head = lines.collect::<Vec<_>>().join("\n");
        self
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

impl Stage {
    /// nginx with these directives for the `http` block and for its server.
    pub(crate) fn nginx(options: &[&str], http: &str, server: &str) -> Self {
        private_network();
        let http = format!(
            "types {{ text/html html; text/plain txt; application/octet-stream bin; }} {http}"
        );
        let site = Site::with(&http, &format!("root @ROOT@/site; {server}"));
        Self::files(&site);
        let nicache = Nicache::start(options, &site.command());
        Self { site, nicache }
    }

    /// Apache with these directives. `None`: it is not installed.
    pub(crate) fn apache(options: &[&str], directives: &str) -> Option<Self> {
        if !is_there("apache2") {
            return None;
        }
        private_network();
        let site = Site::new();
        Self::files(&site);
        let root = site.folder.path().display().to_string();
        let modules = "/usr/lib/apache2/modules";
        let configuration = format!(
            "ServerRoot {root}\nDefaultRuntimeDir {root}\nPidFile {root}/apache.pid\nErrorLog {root}/error.log\n\
             Listen 80\nServerName files\nUser www-data\nGroup www-data\n\
             LoadModule mpm_event_module {modules}/mod_mpm_event.so\nLoadModule authz_core_module {modules}/mod_authz_core.so\n\
             LoadModule mime_module {modules}/mod_mime.so\nLoadModule deflate_module {modules}/mod_deflate.so\n\
             LoadModule filter_module {modules}/mod_filter.so\nTypesConfig /etc/mime.types\nDocumentRoot {root}/site\n{directives}\n"
        );
        let file = site.folder.path().join("apache.conf");
        std::fs::write(&file, configuration).unwrap();
        let server = ["apache2", "-f", file.to_str().unwrap(), "-DFOREGROUND"].map(str::to_owned);
        let nicache = Nicache::start(options, &server);
        Some(Self { site, nicache })
    }

    /// Node with a script. `None`: it is not installed.
    pub(crate) fn node(options: &[&str], script: &str) -> Option<Self> {
        if !is_there("node") {
            return None;
        }
        private_network();
        let site = Site::new();
        Self::files(&site);
        let file = site.folder.path().join("server.js");
        let root = site.folder.path().join("site");
        std::fs::write(&file, script.replace("@ROOT@", root.to_str().unwrap())).unwrap();
        let nicache =
            Nicache::start(options, &["node".to_owned(), file.to_str().unwrap().to_owned()]);
        Some(Self { site, nicache })
    }

    fn files(site: &Site) {
        let root = site.folder.path().join("site");
        for (name, len) in
            [("small.txt", 1000), ("one.txt", 1), ("empty.txt", 0), ("big.bin", 300_000)]
        {
            std::fs::write(root.join(name), text(len)).unwrap();
            let long_ago = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_577_836_800);
            std::fs::File::options()
                .write(true)
                .open(root.join(name))
                .unwrap()
                .set_modified(long_ago)
                .unwrap();
        }
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.site.folder.path().join("site").join(name)
    }

    pub(crate) fn connect(&self) -> Connection {
        let stream = TcpStream::connect((self.nicache.server(), 80)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Connection { stream: BufReader::new(stream) }
    }

    /// One request on a connection of its own. `fields` end each with a line break.
    pub(crate) fn ask(&self, method: &str, path: &str, fields: &str) -> Reply {
        self.connect().ask(&format!("{method} {path} HTTP/1.1\r\nHost: files\r\n{fields}\r\n"))
    }

    pub(crate) fn bypass(&self, on: bool) {
        bypass(self.nicache.name(), on);
    }

    pub(crate) fn counter(&self, name: &str) -> u64 {
        status(self.nicache.name())["counters"][name]
            .as_u64()
            .unwrap_or_else(|| panic!("no counter {name}"))
    }

    /// What the server itself answers.
    pub(crate) fn direct(&self, method: &str, path: &str, fields: &str) -> Reply {
        self.bypass(true);
        let reply = self.ask(method, path, fields).plain();
        self.bypass(false);
        reply
    }

    /// Asks through the card until there was a hit, if one is `due`, and otherwise a few times;
    /// every reply must be the server's own.
    pub(crate) fn same(&self, method: &str, path: &str, fields: &str, due: bool) -> Reply {
        let direct = self.direct(method, path, fields);
        let mut hits = 0;
        for round in 0..ROUNDS {
            if round >= 3 && (!due || hits > 0) {
                break;
            }
            // A conditional request stores nothing, and other processes may purge what was stored.
            self.ask("GET", path, &plain_fields(fields));
            if method == "HEAD" {
                // Its 304 is learned from that of a GET.
                std::thread::sleep(Duration::from_millis(20));
                self.ask("GET", path, fields);
            }
            std::thread::sleep(Duration::from_millis(30));
            let before = self.counter("hits");
            let through = self.ask(method, path, fields).plain();
            assert_eq!(through, direct, "{method} {path} {fields} round {round}");
            let was_hit = self.counter("hits") > before;
            assert!(due || !was_hit, "a hit: {method} {path} {fields}{through:?}");
            hits += usize::from(was_hit);
        }
        assert!(
            !due || hits > 0,
            "no hit: {method} {path} {fields}{}",
            status(self.nicache.name())
        );
        direct
    }
}

/// The request's fields that choose the variant.
fn plain_fields(fields: &str) -> String {
    let chooses = |line: &&str| ["Accept", "Connection"].iter().any(|name| line.starts_with(name));
    fields.split_inclusive("\r\n").filter(chooses).collect()
}

/// A connection that goes on.
pub(crate) struct Connection {
    pub stream: BufReader<TcpStream>,
}

impl Connection {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// Sends a request, and reads its reply.
    pub(crate) fn ask(&mut self, request: &str) -> Reply {
        self.send(request.as_bytes());
        self.reply(request.starts_with("HEAD"))
    }

    /// Reads one reply, interim or final.
    pub(crate) fn reply(&mut self, is_head: bool) -> Reply {
        let mut head = String::new();
        loop {
            let mut line = String::new();
            assert!(self.stream.read_line(&mut line).unwrap() > 0, "closed after {head:?}");
            if line == "\r\n" {
                break;
            }
            head += &line.replace('\r', "");
        }
        let mut reply = Reply { head, body: Vec::new() };
        let status = reply.status();
        if is_head || status < 200 || status == 204 || status == 304 {
        } else if reply.field("transfer-encoding") == Some("chunked") {
            loop {
                let mut line = String::new();
                self.stream.read_line(&mut line).unwrap();
                let len =
                    usize::from_str_radix(line.trim().split(';').next().unwrap(), 16).unwrap();
                if len == 0 {
                    break;
                }
                let mut chunk = vec![0; len + 2];
                self.stream.read_exact(&mut chunk).unwrap();
                reply.body.extend_from_slice(&chunk[..len]);
            }
            // Trailers join the head.
            loop {
                let mut line = String::new();
                self.stream.read_line(&mut line).unwrap();
                if line == "\r\n" {
                    break;
                }
                reply.head += &line.replace('\r', "");
            }
        } else if let Some(len) = reply.field("content-length") {
            reply.body = vec![0; len.parse().unwrap()];
            self.stream.read_exact(&mut reply.body).unwrap();
        } else {
            self.stream.read_to_end(&mut reply.body).unwrap();
        }
        reply
    }
}

/// Text without pattern.
pub(crate) fn text(len: usize) -> Vec<u8> {
    let mut state = len as u64 | 1;
    let next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b'a' + (state >> 33) as u8 % 26
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Is the program there? If not, says so; tools/setup installs all of them.
pub(crate) fn is_there(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin";
    let there = path.split(':').any(|folder| Path::new(folder).join(program).exists());
    if !there {
        println!("skipped: {program} is not installed (tools/setup test)");
    }
    there
}
