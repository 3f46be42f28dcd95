//! Hits over what networks there are: IPv6, VLANs, paths that are narrower than their ends.
#![allow(unsafe_code)]

mod common;

use std::io::IoSlice;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nicache_port::{Burst, Checksum, Offload, PacketConfig, PacketSocket, Port, Reception};

use common::options::{ask_with_options, exchange};
use common::{
    EVENTUALLY, Nicache, Site, holds_within, inside, ip, output, private_network, seen_client,
    start_in_own_network, status, within,
};

/// A site at both versions of IP.
fn site() -> Site {
    Site::with(
        "",
        "listen [::]:80; root @ROOT@/site; location /who { add_header X-Client $remote_addr; return 204; }",
    )
}

fn hits(nicache: &Nicache) -> u64 {
    status(nicache.name())["counters"]["hits"].as_u64().unwrap()
}

/// Fetches until the card answers; every body must be this.
fn fetch_until_hit(nicache: &Nicache, url: &str, body: &[u8], fetch: impl Fn(&str) -> Vec<u8>) {
    let before = hits(nicache);
    let is_hit = holds_within(EVENTUALLY, || {
        assert!(fetch(url) == body, "another body of {url}");
        hits(nicache) > before
    });
    assert!(is_hit, "no hit of {url}: {}", status(nicache.name()));
}

fn curl(url: &str) -> Vec<u8> {
    output("curl", &["-sS", "-g", "-m", "60", "--fail", url]).into_bytes()
}

fn large() -> Vec<u8> {
    vec![b'x'; 3 << 20]
}

#[test]
fn hits_over_ipv6_with_either_handshake() {
    private_network();
    for handshake in ["pass-through", "card"] {
        let site = site();
        let nicache = Nicache::start(&["--handshake", handshake], &site.command());
        let server = nicache.status["server_address6"].as_str().unwrap();
        let url = |path: &str| format!("http://[{server}]/{path}");
        fetch_until_hit(&nicache, &url("page.html"), b"hello from nginx\n", curl);
        fetch_until_hit(&nicache, &url("large"), &large(), curl);
        // The next one after a write is new, over both versions.
        std::fs::write(site.folder.path().join("site/page.html"), "edited\n").unwrap();
        assert_eq!(curl(&url("page.html")), b"edited\n");
        assert_eq!(curl(&format!("http://{}/page.html", nicache.server())), b"edited\n");
        let client = seen_client(&url("who"));
        assert!(client.starts_with("fd6e:"), "{client}");
    }
}

/// What a switch does between an access port and a trunk: frames get tags on one way, and lose them
/// on the other. Ends with the value.
struct Tagger {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Tagger {
    /// Between `plain` and `trunk` in the thread's namespace.
    fn start(plain: &str, trunk: &str, tags: &'static [u8]) -> Self {
        let all = PacketConfig { reception: Reception::Promiscuous, ..PacketConfig::default() };
        let mut ports =
            [plain, trunk].map(|name| PacketSocket::open(name, 1, &all).unwrap().remove(0));
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut burst = Burst::new(8);
            while !stopped.load(Ordering::Relaxed) {
                let [plain, trunk] = &mut ports;
                let mut count = plain.receive(&mut burst).unwrap();
                for frame in &burst {
                    let (addresses, rest) = frame.data().split_at(12);
                    let parts = [IoSlice::new(addresses), IoSlice::new(tags), IoSlice::new(rest)];
                    let _ = trunk.send(&parts, moved(frame.offload(), tags.len() as i16));
                }
                count += trunk.receive(&mut burst).unwrap();
                for frame in burst.iter().filter(|frame| frame.data()[12..].starts_with(tags)) {
                    let (addresses, rest) = frame.data().split_at(12);
                    let parts = [IoSlice::new(addresses), IoSlice::new(&rest[tags.len()..])];
                    let _ = plain.send(&parts, moved(frame.offload(), -(tags.len() as i16)));
                }
                ports.iter_mut().for_each(|port| port.flush().unwrap());
                if count == 0 {
                    let files: Vec<_> =
                        ports.iter().filter_map(nicache_port::Port::wait_fd).collect();
                    nicache_port::wait(&files, Some(Duration::from_millis(50))).unwrap();
                }
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

/// What a frame's offload says if headers begin so many bytes later.
fn moved(mut offload: Offload, by: i16) -> Offload {
    if let Checksum::Partial { start, .. } = &mut offload.checksum {
        *start = start.wrapping_add_signed(by);
    }
    if let Some(gso) = &mut offload.gso {
        gso.header_len = gso.header_len.wrapping_add_signed(by);
    }
    offload
}

impl Drop for Tagger {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().unwrap().join();
    }
}

/// An interface with addresses whose other end is a tagger's.
fn access_port(end: u8) {
    ip("link add access type veth peer name port");
    ip("link set port up");
    // Room for two tags: the kernel sends no frame on a trunk that is longer than its MTU and one
    // tag.
    ip("link set access up mtu 1492");
    ip(&format!("addr add 192.0.2.{end}/24 dev access"));
    ip(&format!("addr add 2001:db8:2::{end}/64 dev access nodad"));
}

#[test]
fn hits_in_vlans() {
    let cases: [(&str, &'static [u8]); 3] = [
        ("pass-through", &[0x81, 0, 0, 7]),
        ("card", &[0x81, 0, 0x20, 7]),
        ("card", &[0x88, 0xa8, 0, 9, 0x81, 0, 0, 7]),
    ];
    for (handshake, tags) in cases {
        private_network();
        access_port(1);
        let site = site();
        let nicache = Nicache::start(&["--handshake", handshake], &site.command());
        let _client = Tagger::start("port", nicache.status["interface"].as_str().unwrap(), tags);
        let _server = inside(nicache.pid("server_pid"), move || {
            access_port(2);
            Tagger::start("port", "eth0", tags)
        });
        for server in ["192.0.2.2", "[2001:db8:2::2]"] {
            fetch_until_hit(
                &nicache,
                &format!("http://{server}/page.html"),
                b"hello from nginx\n",
                curl,
            );
            fetch_until_hit(&nicache, &format!("http://{server}/large"), &large(), curl);
        }
    }
}

/// A machine behind a link that carries less than both ends think.
struct Behind {
    process: Child,
}

impl Behind {
    fn connect(mtu: u32) -> Self {
        let process = start_in_own_network();
        ip(&format!("link add narrow type veth peer name wire netns {}", process.id()));
        ip("addr add 192.0.2.1/24 dev narrow");
        ip("addr add 2001:db8::1/64 dev narrow nodad");
        ip(&format!("link set narrow up mtu {mtu}"));
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
        inside(u64::from(process.id()), || {
            ip("addr add 192.0.2.2/24 dev wire");
            ip("addr add 2001:db8::2/64 dev wire nodad");
            ip("link set wire up");
            ip("route add default via 192.0.2.1");
            ip("-6 route add default via 2001:db8::1");
        });
        Self { process }
    }

    fn curl(&self, url: &str) -> Vec<u8> {
        let url = url.to_owned();
        inside(u64::from(self.process.id()), move || curl(&url))
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn routers_are_obeyed() {
    private_network();
    let behind = Behind::connect(1300);
    for handshake in ["pass-through", "card"] {
        let site = site();
        let nicache = Nicache::start(&["--handshake", handshake], &site.command());
        let (server, server6) =
            (nicache.server().to_string(), nicache.status["server_address6"].as_str().unwrap());
        for server in [server, format!("[{server6}]")] {
            let obeyed = || status(nicache.name())["counters"]["too_big_obeyed"].as_u64().unwrap();
            let before = obeyed();
            fetch_until_hit(&nicache, &format!("http://{server}/large"), &large(), |url| {
                behind.curl(url)
            });
            assert!(obeyed() > before, "no router has said anything: {server}");
        }
    }
}

fn unwrapped(nicache: &Nicache) -> u64 {
    status(nicache.name())["counters"]["unwrapped"].as_u64().unwrap()
}

/// Some miss (the first, too: the server has not answered this kind of client before), some are
/// hits, on one connection: its numbers at the server are not those of the client, or the server
/// does not know it at all. A reply becomes a hit when it has been judged, which may be after the
/// next request: other connections are tried then.
#[test]
fn packets_with_options_belong_to_their_connections() {
    private_network();
    for handshake in ["pass-through", "card"] {
        let site = site();
        let nicache = Nicache::start(&["--handshake", handshake], &site.command());
        let server6: std::net::IpAddr =
            nicache.status["server_address6"].as_str().unwrap().parse().unwrap();
        for server in [nicache.server().into(), server6] {
            let host = if server.is_ipv6() { format!("[{server}]") } else { server.to_string() };
            fetch_until_hit(
                &nicache,
                &format!("http://{host}/page.html"),
                b"hello from nginx\n",
                curl,
            );
            let get =
                |path: &str| format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes();
            let requests = [
                get("/page.html"),
                get("/absent"),
                get("/page.html"),
                get("/absent?"),
                get("/page.html"),
            ];
            let mut last = (0, 0);
            let enough = within(Duration::from_secs(30), || {
                let before = (hits(&nicache), unwrapped(&nicache));
                let bodies = ask_with_options(server, &requests);
                for at in [0, 2, 4] {
                    assert_eq!(bodies[at], b"hello from nginx\n", "{server} {handshake} {at}");
                }
                last = (hits(&nicache) - before.0, unwrapped(&nicache) - before.1);
                (last.0 >= 2 && last.1 > 5).then_some(())
            });
            assert!(
                enough.is_some(),
                "{server} {handshake}: {} hits, {} segments with options",
                last.0,
                last.1
            );
        }
    }
}

/// A client whose packets may be cut on the way, behind a router whose next link is narrow.
#[test]
fn fragments_belong_to_their_connections() {
    private_network();
    let behind = Behind::connect(1500);
    for handshake in ["pass-through", "card"] {
        let site = site();
        let nicache = Nicache::start(&["--handshake", handshake], &site.command());
        ip(&format!("link set {} mtu 700", nicache.status["interface"].as_str().unwrap()));
        let server = nicache.server();
        fetch_until_hit(
            &nicache,
            &format!("http://{server}/page.html"),
            b"hello from nginx\n",
            curl,
        );
        let pad = "p".repeat(1500);
        let get = |path: &str| {
            format!("GET {path} HTTP/1.1\r\nHost: {server}\r\nAccept: text/{pad}\r\n\r\n")
                .into_bytes()
        };
        let mut post =
            format!("POST /other HTTP/1.1\r\nHost: {server}\r\nContent-Length: 300000\r\n\r\n")
                .into_bytes();
        post.extend_from_slice(&[b'x'; 300_000]);
        let page = || get("/page.html");
        let requests = [page(), get("/absent"), page(), post, page(), page(), page(), page()];
        let mut last = (0, 0);
        let enough = within(Duration::from_secs(30), || {
            let before = (hits(&nicache), unwrapped(&nicache));
            let requests = requests.clone();
            let bodies = inside(u64::from(behind.process.id()), move || {
                std::fs::write("/proc/sys/net/ipv4/ip_no_pmtu_disc", "1").unwrap();
                let mut stream = std::net::TcpStream::connect((server, 80)).unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                requests.map(|request| exchange(&mut stream, &request))
            });
            for at in [0, 2, 4, 5, 6, 7] {
                assert_eq!(bodies[at], b"hello from nginx\n", "{handshake} {at}");
            }
            last = (hits(&nicache) - before.0, unwrapped(&nicache) - before.1);
            (last.0 >= 2 && last.1 > 200).then_some(())
        });
        assert!(enough.is_some(), "{handshake}: {} hits, {} segments in fragments", last.0, last.1);
    }
}
