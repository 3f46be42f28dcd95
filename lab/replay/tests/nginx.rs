//! The trace replayer against nginx, with a site made from the head of a real log.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nicache_namespaces::enter_private;
use nicache_replay::replayer::{Demand, Plan, ReplayerConfig, ReplayerReport, ServerAddress, run};
use nicache_replay::{SessionConfig, StaticSite, Trace};
use rustix::process::{Pid, Signal, kill_process};

const LINES: usize = 4000;

/// nginx in a network of its own, which the calling thread has entered.
struct Nginx {
    process: Child,
    address: SocketAddr,
}

impl Nginx {
    fn start(folder: &Path, root: &Path) -> Self {
        enter_private();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080));
        let (path, text, root) = (folder.join("nginx.conf"), folder.display(), root.display());
        let configuration = format!(
            "worker_processes 1; pid {text}/pid; error_log {text}/error.log;
             events {{ worker_connections 1024; }}
             http {{
               access_log off; sendfile on; keepalive_requests 20;
               client_body_temp_path {text}/t1; proxy_temp_path {text}/t2; fastcgi_temp_path {text}/t3;
               uwsgi_temp_path {text}/t4; scgi_temp_path {text}/t5;
               server {{ listen {address}; root \"{root}\"; }}
             }}\n"
        );
        std::fs::write(&path, configuration).unwrap();
        let mut process = Command::new("nginx")
            .args([
                "-p".as_ref(),
                folder,
                "-c".as_ref(),
                &path,
                "-g".as_ref(),
                "daemon off;".as_ref(),
            ])
            .stderr(Stdio::null())
            .spawn()
            .expect("nginx is installed");
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(20) && process.try_wait().unwrap().is_none() {
            if TcpStream::connect(address).is_ok() {
                return Self { process, address };
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("nginx does not start: see {text}/error.log")
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.process);
        // It may have ended by itself; the wait tells.
        let _ = kill_process(pid, Signal::TERM);
        let _ = self.process.wait();
    }
}

/// The head of the EPA log, or something like it where that is not to be had.
fn trace(folder: &Path) -> Trace {
    let log = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces/epa-http.txt.zst");
    let head = folder.join("head.log");
    let mut file = std::fs::File::create(&head).unwrap();
    if let Ok(packed) = std::fs::File::open(&log) {
        let lines = BufReader::new(zstd::Decoder::new(packed).unwrap()).split(b'\n');
        for line in lines.take(LINES).map(Result::unwrap) {
            file.write_all(&line).unwrap();
            file.write_all(b"\n").unwrap();
        }
    } else {
        println!("{} is not there; made up instead", log.display());
        for line in 0..LINES {
            let (host, second, object) = (line * 7 % 300, line / 60, line * line % 211);
            let time = format!("[29:23:{:02}:{:02}]", second / 60 % 60, second % 60);
            writeln!(
                file,
                "host{host} {time} \"GET /{object} HTTP/1.0\" 200 {}",
                object * object * 3
            )
            .unwrap();
        }
    }
    Trace::open(&head, None).unwrap()
}

fn replayed(trace: &Trace, address: SocketAddr, demand: Demand) -> ReplayerReport {
    let target = ServerAddress { host: address.to_string(), address };
    let config = ReplayerConfig {
        targets: vec![target],
        sources: Vec::new(),
        clients: 32,
        replayers: 2,
        demand,
        duration: None,
        seed: 1,
    };
    let plan = Plan::new(trace, &SessionConfig::default());
    let report = run(&plan, &config, &mut |_| {}).unwrap();
    println!("{report}");
    report
}

#[test]
fn every_body_of_the_log_s_head_is_right_in_both_modes_and_a_changed_byte_is_found() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let (trace, root) = (trace(folder.path()), folder.path().join("site"));
    StaticSite::create(&root, &trace).unwrap();
    StaticSite::check(&root, &trace).unwrap();
    let nginx = Nginx::start(folder.path(), &root);
    let gets = trace.requests.iter().filter(|request| !request.head);
    let bytes: u64 = gets.clone().map(|request| trace.objects[request.object as usize].bytes).sum();
    let span = trace.requests.iter().map(|request| request.second).max().unwrap()
        - trace.requests[0].second;
    for demand in [
        Demand::Infinite,
        Demand::Log { speed: span as f64 },
        Demand::Rate { sessions_per_second: 2000.0 },
    ] {
        let report = replayed(&trace, nginx.address, demand);
        assert!(report.is_clean(), "{demand:?}: {report}");
        assert_eq!(
            (report.replies as usize, report.body_bytes),
            (trace.requests.len(), bytes),
            "{demand:?}"
        );
    }

    let mut counts = vec![0u64; trace.objects.len()];
    gets.for_each(|request| counts[request.object as usize] += 1);
    let object = (0..counts.len())
        .filter(|&object| trace.objects[object].bytes > 0)
        .max_by_key(|&o| counts[o])
        .unwrap();
    let target = StaticSite::target(trace.objects[object].id);
    let file =
        std::fs::File::options().read(true).write(true).open(root.join(&target[1..])).unwrap();
    let (at, mut byte) = (trace.objects[object].bytes * 2 / 3, [0]);
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x20], at).unwrap();
    let report = replayed(&trace, nginx.address, Demand::Infinite);
    assert_eq!((report.errors.body, report.errors.total()), (counts[object], counts[object]));
    assert_eq!(report.problems[0], format!("{target}: byte {at} is wrong"));
    assert!(!report.is_clean());
}
