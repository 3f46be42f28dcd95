//! `--publish` and `--share`.
#![allow(unsafe_code)]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use common::{
    Nicache, SOON, Site, assert_all_gone, curl, exchange, inside, ip, private_network, seen_client,
    start_in_own_network,
};
use rustix::process::Signal;

/// A second machine: a namespace with 192.0.2.2, joined by a wire to 192.0.2.1 in the thread's
/// namespace.
struct Machine {
    process: std::process::Child,
}

impl Machine {
    fn connect() -> Self {
        let process = start_in_own_network();
        ip(&format!("link add wire type veth peer name wire netns {}", process.id()));
        ip("addr add 192.0.2.1/24 dev wire");
        ip("link set wire up");
        inside(u64::from(process.id()), || {
            ip("link set lo up");
            ip("addr add 192.0.2.2/24 dev wire");
            ip("link set wire up");
        });
        Self { process }
    }

    fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        inside(u64::from(self.process.id()), work)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn ip_forward() -> String {
    // The setting of the calling thread's namespace; /proc/sys/net follows the thread that reads.
    std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap().trim().to_owned()
}

#[test]
fn published_to_other_machines_and_here() {
    private_network();
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "0").unwrap();
    let machine = Machine::connect();
    let site = Site::new();
    let arguments = [
        "--publish",
        "0.0.0.0:8080",
        "--publish",
        "192.0.2.1:9090:8081",
        "--publish",
        "127.0.0.1:7070",
    ];
    let mut nicache = Nicache::start(&arguments, &site.command());
    // The server sees the other machine's own address.
    assert_eq!(machine.run(|| seen_client("http://192.0.2.1:8080/page.html")), "192.0.2.2");
    assert_eq!(machine.run(|| seen_client("http://192.0.2.1:9090/page.html")), "192.0.2.2");
    assert_eq!(machine.run(|| curl("http://192.0.2.1:8080/large").len()), 3 << 20);
    for url in [
        "http://127.0.0.1:8080",
        "http://192.0.2.1:8080",
        "http://192.0.2.1:9090",
        "http://127.0.0.1:7070",
    ] {
        assert_eq!(curl(&format!("{url}/page.html")), "hello from nginx\n", "{url}");
    }
    // The server itself may use the published address, and reaches the other machine.
    let server = nicache.pid("server_pid");
    assert_eq!(inside(server, || curl("http://192.0.2.1:8080/page.html")), "hello from nginx\n");
    let listener = machine.run(|| TcpListener::bind("192.0.2.2:1234").unwrap());
    let accepted = std::thread::spawn(move || {
        let (mut stream, from) = listener.accept().unwrap();
        stream.write_all(b"hi").unwrap();
        from.ip().to_string()
    });
    assert_eq!(inside(server, || exchange("192.0.2.2:1234".parse().unwrap(), "")), "hi");
    assert_eq!(accepted.join().unwrap(), "192.0.2.1");
    assert_eq!(ip_forward(), "1");
    let processes = nicache.processes();
    nicache.signal(Signal::INT);
    assert!(nicache.wait(SOON).unwrap().success(), "{}", nicache.log_text());
    assert_all_gone(&processes);
    assert_eq!(ip_forward(), "0");
}

/// A router that tells of itself gives the machine its way out. Forwarding must not take that away.
#[test]
fn published_by_ipv6() {
    private_network();
    let setting = |name: &str| {
        std::fs::read_to_string(format!("/proc/sys/net/ipv6/conf/{name}"))
            .unwrap()
            .trim()
            .to_owned()
    };
    let machine = Machine::connect();
    ip("-6 addr add 2001:db8::1/64 dev wire nodad");
    machine.run(|| ip("-6 addr add 2001:db8::2/64 dev wire nodad"));
    let site = Site::with(
        "",
        "listen [::]:80; root @ROOT@/site; location /who { add_header X-Client $remote_addr; return 204; }",
    );
    let arguments = [
        "--publish",
        "[::]:8080",
        "--publish",
        "[2001:db8::1]:9090:80",
        "--publish",
        "127.0.0.1:7070",
    ];
    let mut nicache = Nicache::start(&arguments, &site.command());
    // The server sees the other machine's own address, and the card answers it.
    for port in [8080, 9090] {
        let url = format!("http://[2001:db8::1]:{port}");
        let again = format!("{url}/page.html");
        assert_eq!(
            machine.run(move || seen_client(&format!("{url}/who"))),
            "2001:db8::2",
            "{port}"
        );
        assert_eq!(machine.run(move || curl(&again)), "hello from nginx\n", "{port}");
    }
    let here = ["[::1]:8080", "[2001:db8::1]:8080", "[2001:db8::1]:9090", "127.0.0.1:7070"];
    for address in here {
        assert_eq!(curl(&format!("http://{address}/page.html")), "hello from nginx\n", "{address}");
    }
    let hits = || common::status(nicache.name())["counters"]["hits"].as_u64().unwrap();
    assert!(
        common::within(SOON, || {
            machine.run(|| curl("http://[2001:db8::1]:8080/page.html"));
            (hits() > 0).then_some(())
        })
        .is_some()
    );
    assert_eq!((setting("all/forwarding"), setting("wire/accept_ra")), ("1".into(), "2".into()));
    let processes = nicache.processes();
    nicache.signal(Signal::INT);
    assert!(nicache.wait(SOON).unwrap().success(), "{}", nicache.log_text());
    assert_all_gone(&processes);
    assert_eq!((setting("all/forwarding"), setting("wire/accept_ra")), ("0".into(), "1".into()));
}

#[test]
fn the_server_cannot_abuse_the_way_back_to_loopback() {
    private_network();
    let site = Site::new();
    let secret = TcpListener::bind("127.0.0.1:6379").unwrap();
    secret.set_nonblocking(true).unwrap();
    let nicache = Nicache::start(&["--publish", "127.0.0.1:8080"], &site.command());
    inside(nicache.pid("server_pid"), || {
        // What a hostile server with its own routing would do: send packets for 127.0.0.1 out to
        // the gateway.
        std::fs::write("/proc/sys/net/ipv4/conf/eth0/route_localnet", "1").unwrap();
        ip("addr del 127.0.0.1/8 dev lo");
        ip("route add 127.0.0.0/8 via $GW dev eth0".replace("$GW", &gateway()).as_str());
        let address: SocketAddr = "127.0.0.1:6379".parse().unwrap();
        assert!(
            std::net::TcpStream::connect_timeout(&address, Duration::from_millis(500)).is_err()
        );
    });
    assert!(secret.accept().is_err());
}

fn gateway() -> String {
    let routes = common::output("ip", &["route", "show", "default"]);
    routes.split_ascii_whitespace().nth(2).unwrap().to_owned()
}

#[test]
fn without_nft_a_relay_takes_over_and_says_so() {
    private_network();
    let machine = Machine::connect();
    let site = Site::new();
    // A PATH with nginx and without nft.
    let programs = tempfile::tempdir().unwrap();
    let nginx = common::output("sh", &["-c", "command -v nginx"]);
    std::os::unix::fs::symlink(nginx.trim(), programs.path().join("nginx")).unwrap();
    let mut nicache =
        Nicache::start_with(&["--publish", "0.0.0.0:8080"], &site.command(), |command| {
            command.env("PATH", programs.path());
        });
    let gateway = nicache.status["gateway"].as_str().unwrap().to_owned();
    assert_eq!(seen_client("http://127.0.0.1:8080/page.html"), gateway);
    assert_eq!(machine.run(|| seen_client("http://192.0.2.1:8080/page.html")), gateway);
    let log = nicache.log_text();
    assert!(log.contains("published by a relay") && log.contains("nft is not installed"), "{log}");
}

#[test]
fn a_published_port_that_is_taken_is_an_error() {
    private_network();
    let site = Site::new();
    let taken = TcpListener::bind("127.0.0.1:8080").unwrap();
    let command = site.command();
    let mut arguments = vec!["--publish", "127.0.0.1:8080", "--"];
    arguments.extend(command.iter().map(String::as_str));
    common::assert_fails(&arguments, &["127.0.0.1:8080", "taken by another program"]);
    arguments[1] = "198.51.100.1:80";
    common::assert_fails(&arguments, &["not an address of this machine"]);
    drop(taken);
    // While nicache runs, nobody else gets the port.
    let _nicache = Nicache::start(&["--publish", "127.0.0.1:8080"], &command);
    assert!(TcpListener::bind("127.0.0.1:8080").is_err());
}

#[test]
fn shared_ports_are_the_hosts() {
    private_network();
    let site = Site::new();
    let database = TcpListener::bind("127.0.0.1:5432").unwrap();
    std::thread::spawn(move || {
        for stream in database.incoming() {
            let mut stream = stream.unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            stream.write_all(text.to_uppercase().as_bytes()).unwrap();
        }
    });
    let nicache = Nicache::start(&["--share", "5432"], &site.command());
    let address: SocketAddr = "127.0.0.1:5432".parse().unwrap();
    let server = nicache.pid("server_pid");
    assert_eq!(inside(server, move || exchange(address, "select 1")), "SELECT 1");
    let large = "x".repeat(1 << 20);
    assert_eq!(inside(server, move || exchange(address, &large)).len(), 1 << 20);
}

/// A folder with an `nft` that does this first, and PATH with it in front.
fn before_nft(folder: &std::path::Path, first: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = std::env::var("PATH").unwrap();
    let script = folder.join("nft");
    std::fs::write(&script, format!("#!/bin/sh\n{first}\nPATH='{path}' exec nft \"$@\"\n"))
        .unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{path}", folder.display())
}

/// On a slow machine nft works for a while before it answers.
#[test]
fn an_nft_that_works_is_waited_for() {
    private_network();
    let site = Site::with("", "root @ROOT@/site;");
    let folder = tempfile::tempdir().unwrap();
    let path = before_nft(
        folder.path(),
        "while [ $(awk '{ print $14 }' /proc/$$/stat) -lt 600 ]; do i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done; done",
    );
    let nicache =
        Nicache::start_with(&["--publish", "127.0.0.1:8080"], &site.command(), |command| {
            command.env("PATH", path);
        });
    assert_eq!(curl("http://127.0.0.1:8080/page.html"), "hello from nginx\n");
    drop(nicache);
}

#[test]
fn without_an_answer_of_nft_a_relay_publishes() {
    private_network();
    let site = Site::with("", "root @ROOT@/site;");
    let folder = tempfile::tempdir().unwrap();
    let path = before_nft(folder.path(), "exec sleep 60");
    let mut nicache =
        Nicache::start_with(&["--publish", "127.0.0.1:8080"], &site.command(), |command| {
            command.env("PATH", path);
        });
    assert_eq!(curl("http://127.0.0.1:8080/page.html"), "hello from nginx\n");
    let log = nicache.log_text();
    assert!(log.contains("nft has not said for 5 s whether the rules are in force"), "{log}");
}
