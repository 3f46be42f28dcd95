//! Fills from a real, unmodified nginx in a network namespace of its own. Skipped where nginx is
//! not installed.

mod common;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{directory_on_ext4, slot};
use nicache_coherence::{FillRequest, RefusalReason, RevisionTable, Stamp, Verdict};
use nicache_namespaces::{enter, enter_private, of_this_thread};
use nicache_watch::{KernelWatcher, Registrar};
use tempfile::TempDir;

/// The web server's port: what is sent there is said to its clients.
const PORT: u16 = 8080;

struct Nginx {
    root: TempDir,
    server: Child,
    /// The test's own network, and nginx's.
    outside: File,
    inside: File,
    table: Arc<RevisionTable>,
    registrar: Registrar,
    _watcher: KernelWatcher,
}

/// A request that is on its way.
struct Request {
    stream: TcpStream,
    stamp: Stamp,
    forwarded_ns: u64,
    lost: u64,
    path: PathBuf,
}

impl Nginx {
    fn start(options: &str) -> Option<Self> {
        let binary = ["/usr/sbin/nginx", "/usr/local/sbin/nginx"]
            .into_iter()
            .find(|path| Path::new(path).exists())?;
        let root = directory_on_ext4();
        let at = root.path().display();
        fs::create_dir(root.path().join("site")).unwrap();
        fs::set_permissions(root.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        let settings = format!(
            "user root; worker_processes 2; daemon off; pid {at}/pid; error_log {at}/error;
             events {{ worker_connections 1024; }}
             http {{ access_log off; sendfile on; client_body_temp_path {at}/t1; proxy_temp_path {at}/t2;
               fastcgi_temp_path {at}/t3; uwsgi_temp_path {at}/t4; scgi_temp_path {at}/t5; {options}
               server {{ listen 127.0.0.1:{PORT}; root {at}/site; }} }}"
        );
        fs::write(root.path().join("nginx.conf"), settings).unwrap();
        let outside = of_this_thread().unwrap();
        enter_private();
        let inside = of_this_thread().unwrap();
        let mut command = Command::new(binary);
        command.arg("-p").arg(root.path()).arg("-c").arg(root.path().join("nginx.conf"));
        let server = command.stderr(Stdio::null()).spawn().unwrap();
        enter(&outside).unwrap();
        let mut nginx = {
            let watcher = KernelWatcher::load(0).unwrap();
            let table = Arc::new(watcher.table().unwrap());
            let witness = Box::new(watcher.witness().unwrap());
            let registrar = Registrar::new(table.clone(), witness);
            Self { root, server, outside, inside, table, registrar, _watcher: watcher }
        };
        let pid: u32 = nginx.wait_for(|nginx| {
            let pid =
                fs::read_to_string(nginx.root.path().join("pid")).ok()?.trim().parse().ok()?;
            nginx.connect().ok().map(|_| pid)
        });
        let netns = fs::metadata(format!("/proc/{pid}/ns/net")).unwrap().ino() as u32;
        nginx.table.set_service_ports(&[PORT]);
        nginx.table.set_server_netns(netns);
        Some(nginx)
    }

    /// A connection of somebody who does not belong to the server.
    fn connect(&self) -> io::Result<TcpStream> {
        enter(&self.inside).unwrap();
        let stream = TcpStream::connect(("127.0.0.1", PORT));
        enter(&self.outside).unwrap();
        stream
    }

    fn wait_for<T>(&mut self, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        for _ in 0..500 {
            if let Some(found) = look(self) {
                return found;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("nginx has not come up: {:?}", fs::read_to_string(self.root.path().join("error")));
    }

    /// A page whose first reading is over, as far as that moves the access time.
    fn write(&self, name: &str, body: &[u8]) -> PathBuf {
        let path = self.root.path().join("site").join(name);
        fs::write(&path, body).unwrap();
        loop {
            fs::read(&path).unwrap();
            let stat = fs::metadata(&path).unwrap();
            if (stat.atime(), stat.atime_nsec()) > (stat.ctime(), stat.ctime_nsec()) {
                return path;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn forward(&self, path: &Path) -> Request {
        self.forward_by(self.connect().unwrap(), path)
    }

    fn forward_by(&self, mut stream: TcpStream, path: &Path) -> Request {
        let (stamp, lost, forwarded_ns) =
            (self.table.advance_clock(), self.table.lost(), nicache_clock::monotonic_ns());
        let name = path.file_name().unwrap().to_str().unwrap();
        write!(stream, "GET /{name} HTTP/1.1\r\nHost: site\r\nConnection: close\r\n\r\n").unwrap();
        Request { stream, stamp, forwarded_ns, lost, path: path.to_owned() }
    }

    fn finish(&mut self, mut request: Request) -> (Vec<u8>, Verdict) {
        let mut reply = Vec::new();
        request.stream.read_to_end(&mut reply).unwrap();
        let finished_ns = nicache_clock::monotonic_ns();
        let head = reply.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
        assert!(reply.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&reply[..head]));
        let body = reply.split_off(head);
        let request = FillRequest {
            id: 1,
            stamp: request.stamp,
            asked: self.table.advance_clock(),
            forwarded_ns: request.forwarded_ns,
            finished_ns,
            lost: request.lost,
            body_len: body.len() as u64,
            body_hash: *blake3::hash(&body).as_bytes(),
            last_modified: Some(fs::metadata(&request.path).unwrap().mtime() as u64),
            may_be_static: true,
            may_be_dynamic: false,
            previous: None,
            client: std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 1),
            target: b"/",
        };
        let mut resolver = self.registrar.resolver();
        let verdict = self.registrar.judge(&request, &mut resolver).verdict;
        (body, verdict)
    }

    fn fill_once(&mut self, path: &Path) -> (Vec<u8>, Verdict) {
        let request = self.forward(path);
        self.finish(request)
    }

    /// Until nothing changes meanwhile: other tests make directories beside this one's, and the
    /// first reading of a file that has just been changed sets its access time.
    fn fill(&mut self, path: &Path) -> (Vec<u8>, Verdict) {
        for _ in 0..50 {
            let (body, verdict) = self.fill_once(path);
            if verdict != Verdict::Refused(RefusalReason::Changed) {
                return (body, verdict);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("something changes all the time")
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Its master takes its workers along.
        if let Ok(pid) = fs::read_to_string(self.root.path().join("pid"))
            && let Some(pid) = pid.trim().parse().ok().and_then(rustix::process::Pid::from_raw)
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        std::thread::sleep(Duration::from_millis(50));
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

macro_rules! nginx_or_skip {
    ($options:expr) => {
        match Nginx::start($options) {
            Some(nginx) => nginx,
            None => return eprintln!("skipped: nginx is not installed"),
        }
    };
}

#[test]
fn a_page_is_stored_and_an_edit_voids_it() {
    let mut nginx = nginx_or_skip!("");
    let page = nginx.write("page", b"version 1");
    let (body, verdict) = nginx.fill(&page);
    assert_eq!(body, b"version 1");
    let Verdict::Stored { sources, .. } = verdict else { panic!("{verdict:?}") };
    assert!(sources.as_slice().contains(&slot(&page)));
    let stamp = nginx.table.clock();
    assert!(nginx.table.is_unchanged(sources.as_slice(), stamp));
    let fresh = nginx.write("fresh", b"version 2");
    fs::rename(fresh, &page).unwrap();
    assert!(!nginx.table.is_unchanged(sources.as_slice(), stamp));
    assert_eq!(nginx.fill_once(&page).0, b"version 2");
    let (body, verdict) = nginx.fill(&page);
    assert_eq!(body, b"version 2");
    assert!(matches!(verdict, Verdict::Stored { .. }), "{verdict:?}");
}

/// A program beside nginx that talks all the time. In a network of the server's own it may be what
/// decides; in one that others use, too, it takes no requests and has nothing to do with whoever
/// does.
#[test]
fn a_program_beside_the_server_that_talks_all_the_time() {
    let mut nginx = nginx_or_skip!("");
    let page = nginx.write("page", b"version 1");
    let stop = Arc::new(AtomicBool::new(false));
    let (inside, stopped) = (nginx.inside.try_clone().unwrap(), Arc::clone(&stop));
    let talker = std::thread::spawn(move || {
        enter(&inside).unwrap();
        let (from, to) =
            (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        from.connect(to.local_addr().unwrap()).unwrap();
        while !stopped.load(Ordering::Relaxed) {
            from.send(b"something").unwrap();
            std::thread::sleep(Duration::from_micros(20));
        }
    });
    std::thread::sleep(Duration::from_millis(100));
    // It may have no CPU for a while.
    let begun = std::time::Instant::now();
    while nginx.fill(&page).1 != Verdict::Refused(RefusalReason::Decided) {
        assert!(begun.elapsed() < Duration::from_secs(20), "nobody hears the program");
    }
    nginx.registrar.handle_older_server();
    let verdicts: Vec<Verdict> = (0..100).map(|_| nginx.fill(&page).1).collect();
    stop.store(true, Ordering::Relaxed);
    talker.join().unwrap();
    assert!(
        verdicts.iter().all(|verdict| matches!(verdict, Verdict::Stored { .. })),
        "{verdicts:?}"
    );
}

#[test]
fn what_nginx_keeps_open_is_not_trusted() {
    let mut nginx =
        nginx_or_skip!("open_file_cache max=100 inactive=60s; open_file_cache_valid 60s;");
    // Each worker looks once, and something may change at that moment.
    let (verdicts, stored) = (0..20)
        .map(|number| {
            let page = nginx.write(&format!("page-{number}"), b"version 1");
            let verdicts: Vec<Verdict> = (0..20).map(|_| nginx.fill(&page).1).collect();
            let is_stored = |verdict: &&Verdict| matches!(verdict, Verdict::Stored { .. });
            let stored = verdicts.iter().filter(is_stored).count();
            (verdicts, stored)
        })
        .find(|(_, stored)| *stored > 0)
        .expect("never stored");
    assert!(stored <= 2, "{verdicts:?}");
    assert!(verdicts.contains(&Verdict::Refused(RefusalReason::NotLookedUp)));
}

#[test]
fn many_requests_at_once_are_filled() {
    let mut nginx = nginx_or_skip!("");
    let pages: Vec<_> =
        (0..100).map(|n| nginx.write(&format!("page-{n}"), &vec![b'x'; 1000 + n])).collect();
    // A file's last seconds of change are over, see registrar.rs.
    std::thread::sleep(Duration::from_millis(3_100));
    let (mut stored, begun) = (0, std::time::Instant::now());
    while stored < 100 && begun.elapsed() < Duration::from_secs(120) {
        // Who enters the server's network is one of its processes, which voids what is under way.
        let streams: Vec<_> = pages.iter().map(|_| nginx.connect().unwrap()).collect();
        let forward = |(page, stream): (&PathBuf, _)| nginx.forward_by(stream, page);
        let requests: Vec<_> = pages.iter().zip(streams).map(forward).collect();
        let start = std::time::Instant::now();
        let verdicts: Vec<_> =
            requests.into_iter().map(|request| nginx.finish(request).1).collect();
        stored =
            verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Stored { .. })).count();
        println!("{stored} of 100 stored, {:?} each", start.elapsed() / 100);
    }
    assert_eq!(stored, 100, "{:?}", nginx.registrar.counters());
}
