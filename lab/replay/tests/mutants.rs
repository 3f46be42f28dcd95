//! The whole replay against small servers of known faults: what is honest passes, what is not is
//! caught.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nicache_replay::{Method, ReplayConfig, Report, Site, SyntheticConfig, replay, synthetic};

/// What a server does wrong.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// Keeps replies for this long.
    Keeps(Duration),
    /// Flips a bit in one reply of this many.
    Flips(u64),
    /// Gives one reply of this many the second half of an older version.
    Mixes(u64),
    /// Answers one request of this many with another file.
    Confuses(u64),
}

type Kept = HashMap<String, (Instant, u16, Vec<u8>, String)>;

struct Server {
    root: PathBuf,
    fault: Fault,
    replies: AtomicU64,
    kept: Mutex<Kept>,
}

impl Server {
    fn start(root: &Path, fault: Fault) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = Arc::new(Self {
            root: root.to_owned(),
            fault,
            replies: AtomicU64::new(1),
            kept: Mutex::default(),
        });
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = server.clone();
                std::thread::spawn(move || server.serve(stream));
            }
        });
        address
    }

    fn serve(&self, mut stream: TcpStream) -> Option<()> {
        stream.set_nodelay(true).ok()?;
        let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
        loop {
            let request = lines.next()?.ok()?;
            let mut number = String::new();
            for line in lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()) {
                if let Some(value) = line.strip_prefix("User-Agent: ") {
                    number = value.to_owned();
                }
            }
            let mut words = request.split(' ');
            let (method, target) = (words.next()?, words.next()?.to_owned());
            let (status, body, answered) = self.answer(&target, number);
            let head = format!(
                "HTTP/1.1 {status} x\r\nContent-Length: {}\r\nX-Robots-Tag: {answered}\r\n\r\n",
                body.len()
            );
            stream.write_all(head.as_bytes()).ok()?;
            if method == "GET" {
                stream.write_all(&body).ok()?;
            }
        }
    }

    fn answer(&self, target: &str, number: String) -> (u16, Vec<u8>, String) {
        let count = self.replies.fetch_add(1, Ordering::Relaxed);
        let is_turn = |every: u64| count.is_multiple_of(every);
        let mut kept = self.kept.lock().unwrap();
        let old = kept.get(target).cloned();
        if let (Fault::Keeps(time), Some((since, status, body, answered))) = (self.fault, &old)
            && since.elapsed() < time
        {
            return (*status, body.clone(), answered.clone());
        }
        let (status, mut body) = self.read(target);
        kept.insert(target.to_owned(), (Instant::now(), status, body.clone(), number.clone()));
        match (self.fault, old) {
            (Fault::Flips(every), _) if is_turn(every) && !body.is_empty() => {
                let at = count as usize * 31 % body.len();
                body[at] ^= 4;
            }
            (Fault::Mixes(every), Some((_, 200, old, _)))
                if is_turn(every) && old.len() == body.len() =>
            {
                let half = body.len() / 2;
                body[half..].copy_from_slice(&old[half..]);
            }
            (Fault::Confuses(every), _) if is_turn(every) => {
                if let Some((_, _, other, _)) =
                    kept.values().find(|(_, _, other, _)| *other != body)
                {
                    body = other.clone();
                }
            }
            _ => {}
        }
        (status, body, number)
    }

    /// Opened once and read at once, as an honest server does; a file that is cut meanwhile gives
    /// what is left.
    fn read(&self, target: &str) -> (u16, Vec<u8>) {
        let path = self.root.join(target.trim_start_matches('/'));
        // The tests run as root, who may read everything.
        use std::os::unix::fs::PermissionsExt;
        match std::fs::File::open(path) {
            Err(_) => (404, Vec::new()),
            Ok(file) if file.metadata().unwrap().permissions().mode() & 0o444 == 0 => {
                (403, Vec::new())
            }
            Ok(mut file) => {
                let mut body = Vec::new();
                std::io::Read::read_to_end(&mut file, &mut body).unwrap();
                (200, body)
            }
        }
    }
}

fn run(fault: Fault, excuse: bool) -> Report {
    let trace = synthetic(&SyntheticConfig {
        objects: 50,
        requests: 4000,
        bytes_max: 20_000,
        ..SyntheticConfig::default()
    });
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let root = folder.path().join("site");
    let site = Site::create(&root, &trace).unwrap();
    let config = ReplayConfig {
        server: Server::start(&root, fault),
        clients: 3,
        pipeline: 2,
        writers: 2,
        write_pause: Duration::from_millis(1),
        duration: None,
        rate: Some(2000.0),
        server_keeps_files_open: excuse,
        agents: 0,
        seed: 7,
    };
    let report = replay(&config, &trace, &site, |_, _, _| {}).unwrap();
    println!("{report}");
    assert!(report.replies > 500 && report.writes.len() == Method::ALL.len(), "{report}");
    report
}

#[test]
fn an_honest_server_passes() {
    let report = run(Fault::None, false);
    assert!(report.is_clean() && report.broken == 0 && report.hits == 0, "{report}");
    assert!(report.writes.values().all(|method| method.read_after >= method.writes), "{report}");
}

#[test]
fn a_cache_that_keeps_for_50_ms_is_caught() {
    let report = run(Fault::Keeps(Duration::from_millis(50)), false);
    assert!(report.stale > 50 && report.hits > 0 && report.corrupt == 0, "{report}");
    assert!(report.violations[0].contains("STALE"), "{report}");
}

#[test]
fn kept_replies_are_never_excused() {
    assert!(run(Fault::Keeps(Duration::from_millis(50)), true).stale > 50);
}

#[test]
fn a_flipped_bit_is_caught() {
    let report = run(Fault::Flips(50), false);
    assert!(report.corrupt + report.torn > 10 && report.stale == 0, "{report}");
}

#[test]
fn halves_of_two_versions_are_caught() {
    let report = run(Fault::Mixes(3), false);
    assert!(report.torn > 5 && report.corrupt == 0, "{report}");
}

#[test]
fn another_file_is_caught() {
    assert!(run(Fault::Confuses(50), false).corrupt > 10);
}
