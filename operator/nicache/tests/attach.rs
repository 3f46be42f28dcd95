//! `nicache attach`: a card between two interfaces, in front of a server that runs already.
//!
//! Three network namespaces: a client's, the thread's own with the card, and a server's, joined by
//! two veths. Without a card nothing passes, because the one in the middle does not forward.
#![allow(unsafe_code)]

mod common;

use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use common::options::{ask_with_options, exchange};
use common::{
    EVENTUALLY, Nicache, Site, holds_after, holds_within, inside, ip, is_running, kill, output,
    pauses, private_network, start_in_own_network, status, uninterrupted, within,
};
use rustix::process::Signal;

/// How long things may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A network namespace with one end of a veth, whose other end is here.
struct Machine {
    process: Child,
}

impl Machine {
    /// `link` is the end here, `name` the one there; `last` is the last number of its addresses.
    fn connect(link: &str, name: &'static str, last: u8, queues: u8) -> Self {
        let process = start_in_own_network();
        let queues = format!("numrxqueues {queues} numtxqueues {queues}");
        ip(&format!(
            "link add {link} {queues} type veth peer name {name} {queues} netns {}",
            process.id()
        ));
        ip(&format!("link set {link} up"));
        let machine = Self { process };
        machine.run(move || {
            ip("link set lo up");
            ip(&format!("addr add 192.0.2.{last}/24 dev {name}"));
            ip(&format!("addr add 2001:db8::{last}/64 dev {name} nodad"));
            ip(&format!("link set {name} up"));
        });
        machine
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

struct Scene {
    client: Machine,
    server: Option<Machine>,
    nginx: Option<Child>,
    site: Site,
}

impl Scene {
    fn new() -> Self {
        Self::with_queues(1)
    }

    fn with_queues(queues: u8) -> Self {
        private_network();
        let (client, server) =
            (Machine::connect("w0", "c0", 2, queues), Machine::connect("h0", "s0", 1, queues));
        let site = Site::with("", "listen [::]:80; listen 8081; root @ROOT@/site;");
        let command = site.command();
        let nginx =
            server.run(move || Command::new(&command[0]).args(&command[1..]).spawn().unwrap());
        Self { client, server: Some(server), nginx: Some(nginx), site }
    }

    fn edit(&self, text: &str) {
        std::fs::write(self.site.folder.path().join("site/page.html"), text).unwrap();
    }

    /// A body, from a connection of its own, if there is one.
    fn curl(&self, url: &str) -> Option<Vec<u8>> {
        self.curl_within("10", url)
    }

    fn curl_within(&self, seconds: &'static str, url: &str) -> Option<Vec<u8>> {
        let url = url.to_owned();
        let output = self.client.run(move || {
            Command::new("curl")
                .args(["-sS", "-g", "-m", seconds, "--fail", &url])
                .output()
                .unwrap()
        });
        output.status.success().then_some(output.stdout)
    }

    fn wait_for_hits(&self, nicache: &Nicache, url: &str, body: &[u8]) {
        let hits = || status(nicache.name())["counters"]["hits"].as_u64();
        let before = hits();
        let hit = within(PATIENCE, || {
            assert!(self.curl(url)? == body, "another body of {url}");
            (hits() > before).then_some(())
        });
        assert!(hit.is_some(), "no hits of {url}: {}", status(nicache.name()));
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // Its workers end with it.
        if let Some(nginx) = &mut self.nginx {
            let _ = rustix::process::kill_process(
                rustix::process::Pid::from_child(nginx),
                Signal::TERM,
            );
            let _ = nginx.wait();
        }
    }
}

const PAGE: &str = "http://192.0.2.1/page.html";

fn serves(arguments: &[&str]) {
    serves_in(&Scene::new(), arguments);
}

fn serves_in(scene: &Scene, arguments: &[&str]) {
    assert_eq!(scene.curl_within("1", PAGE), None, "nobody forwards here yet");
    let mut nicache = Nicache::attach(&[&["--wire", "w0", "--host", "h0"], arguments].concat());
    assert!(nicache.status["watch_unavailable"].is_null(), "{}", nicache.status);
    // Nothing was tried in vain: this machine has all that is asked for.
    let said = nicache.log_text();
    assert!(!said.contains("the card uses packet sockets"), "{arguments:?}: {said}");
    for host in ["192.0.2.1", "[2001:db8::1]"] {
        let url = |path: &str| format!("http://{host}/{path}");
        scene.wait_for_hits(
            &nicache,
            &url("page.html"),
            &std::fs::read(scene.site.folder.path().join("site/page.html")).unwrap(),
        );
        scene.wait_for_hits(&nicache, &url("large"), &vec![b'x'; 3 << 20]);
        scene.edit(host);
        assert_eq!(scene.curl(&url("page.html")).as_deref(), Some(host.as_bytes()));
    }
    // What is not the service's passes in the kernel.
    assert_eq!(
        scene.curl("http://192.0.2.1:8081/page.html").as_deref(),
        Some(&b"[2001:db8::1]"[..])
    );
    let pinged = scene.client.run(|| Command::new("python3").args(["-c", PING]).output().unwrap());
    assert!(pinged.status.success(), "{}", String::from_utf8_lossy(&pinged.stderr));
}

/// On a machine's own network all of its programs are in the server's, whatever they are for.
#[test]
fn neighbors_that_use_io_uring() {
    let scene = Scene::new();
    let text = scene.site.folder.path().join("site/page.html").display().to_string();
    let start = |words: &[&str]| {
        let words = common::rings::command(words);
        scene.server.as_ref().unwrap().run(move || {
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            common::rings::Ring::start(command)
        })
    };
    let earlier = [start(&["wait"]), start(&["open", &text])];
    let nicache = Nicache::attach(&[
        "--wire",
        "w0",
        "--host",
        "h0",
        "--http-port",
        "80",
        "--http-port",
        "8090",
    ]);
    let changes = |to: &str| {
        scene.edit(to);
        scene.wait_for_hits(&nicache, PAGE, to.as_bytes());
    };
    changes("beside one that was there before");
    let later = [start(&["wait"]), start(&["open", &text]), start(&["serve", "7799", &text])];
    changes("beside one that came");
    drop((earlier, later));
    drop(start(&["once", "open", &text]));
    changes("after one that was there");
    // It may answer the card's clients, and so may decide who gets a file.
    let serving = start(&["serve", "8090", &text]);
    scene.edit("beside one that answers");
    let refused = || status(nicache.name())["counters"]["fill_refused_unseen"].as_u64().unwrap();
    let (hits, before) = (status(nicache.name())["counters"]["hits"].clone(), refused());
    for _ in 0..20 {
        assert_eq!(scene.curl(PAGE).as_deref(), Some(&b"beside one that answers"[..]));
    }
    assert!(refused() > before);
    assert_eq!(status(nicache.name())["counters"]["hits"], hits);
    drop(serving);
    changes("after one that answered");
}

/// With the card's handshake the server knows no connection before a miss; without it, numbers
/// differ after a hit.
#[test]
fn packets_with_options_belong_to_their_connections() {
    for arguments in
        [&["--handshake", "card"][..], &["--port", "xdp"], &["--l0", "--handshake", "card"]]
    {
        let scene = Scene::new();
        let nicache = Nicache::attach(&[&["--wire", "w0", "--host", "h0"], arguments].concat());
        let page = std::fs::read(scene.site.folder.path().join("site/page.html")).unwrap();
        for host in ["192.0.2.1", "2001:db8::1"] {
            let server: IpAddr = host.parse().unwrap();
            let named = if server.is_ipv6() { format!("[{host}]") } else { host.to_owned() };
            scene.wait_for_hits(&nicache, &format!("http://{named}/page.html"), &page);
            let get =
                |path: &str| format!("GET {path} HTTP/1.1\r\nHost: {named}\r\n\r\n").into_bytes();
            let requests = [
                get("/page.html"),
                get("/absent"),
                get("/page.html"),
                get("/absent"),
                get("/page.html"),
            ];
            let count = |name: &str| status(nicache.name())["counters"][name].as_u64().unwrap();
            let mut last = (0, 0);
            // A reply becomes a hit when it has been judged, which may be after the next request.
            let enough = within(Duration::from_secs(30), || {
                let (before, requests) = ((count("hits"), count("unwrapped")), requests.clone());
                let bodies = scene.client.run(move || ask_with_options(server, &requests));
                assert!(
                    [0, 2, 4].iter().all(|at| bodies[*at] == page),
                    "{host} {arguments:?}: {bodies:?}"
                );
                last = (count("hits") - before.0, count("unwrapped") - before.1);
                (last.0 >= 1 && last.1 > 5).then_some(())
            });
            assert!(
                enough.is_some(),
                "{host} {arguments:?}: {} hits, {} segments with options",
                last.0,
                last.1
            );
        }
    }
}

/// One echo request of 3000 bytes, in fragments.
const PING: &str = "
import socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
s.settimeout(5)
body = bytes(range(256)) * 12
def sum16(b):
    t = sum(struct.unpack('!%dH' % (len(b) // 2), b))
    while t >> 16: t = (t & 0xffff) + (t >> 16)
    return ~t & 0xffff
head = struct.pack('!BBHHH', 8, 0, 0, 77, 1)
head = struct.pack('!BBHHH', 8, 0, sum16(head + body), 77, 1)
s.sendto(head + body, ('192.0.2.1', 0))
while True:
    got = s.recv(65535)[20:]
    if got[0] == 0: break
assert got[8:] == body
";

#[test]
fn packet_sockets() {
    serves(&[]);
}

#[test]
fn packet_sockets_and_the_cards_handshake() {
    serves(&["--handshake", "card", "--queues", "2"]);
}

#[test]
fn xdp_sockets() {
    serves(&["--port", "xdp", "--handshake", "card"]);
}

#[test]
fn xdp_sockets_on_two_queues() {
    serves_in(&Scene::with_queues(2), &["--port", "xdp", "--handshake", "card", "--queues", "2"]);
}

/// Hits are answered by XDP, before packet sockets and before AF_XDP, and are never stale.
#[test]
fn hits_in_the_driver() {
    for arguments in [
        &[][..],
        &["--handshake", "card"],
        &["--port", "xdp"],
        &["--port", "xdp", "--handshake", "card"],
    ] {
        let scene = Scene::new();
        // A veth takes frames from its other end's XDP only if it has a receive queue of its own.
        scene.client.run(|| output("ethtool", &["-K", "c0", "gro", "on"]));
        let nicache =
            Nicache::attach(&[&["--wire", "w0", "--host", "h0", "--l0"], arguments].concat());
        let hits = || status(nicache.name())["counters"]["hits_l0"].as_u64().unwrap_or(0);
        for host in ["192.0.2.1", "[2001:db8::1]"] {
            let url = format!("http://{host}/page.html");
            // All on one connection.
            let get = |count: usize| {
                let urls = vec![url.clone(); count];
                scene.client.run(move || {
                    let output = Command::new("curl")
                        .args(["-sS", "-g", "-m", "20", "--fail"])
                        .args(urls)
                        .output();
                    let output = output.unwrap();
                    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                    output.stdout
                })
            };
            scene.edit("hello");
            let before = hits();
            let is_warm = within(PATIENCE, || {
                assert_eq!(get(20), b"hello".repeat(20));
                (hits() > before).then_some(())
            });
            assert!(
                is_warm.is_some(),
                "{arguments:?}: {}\n{}",
                status(nicache.name()),
                nicache.name()
            );
            let before = hits();
            let change = |version| {
                let body = format!("version {version}\n").repeat(1 + version % 12);
                scene.edit(&body);
                assert_eq!(String::from_utf8(get(15)).unwrap(), body.repeat(15), "{arguments:?}");
            };
            // After an edit a machine that is busy needs some requests until the page is kept
            // again.
            let are_enough = holds_after(40, change, || hits() > before + 60);
            assert!(are_enough, "{arguments:?}: {}", status(nicache.name()));
            // For which a veth has no room.
            scene.edit(&"long ".repeat(200));
            assert_eq!(get(30), "long ".repeat(200 * 30).as_bytes());
        }
        assert_eq!(status(nicache.name())["counters"]["l0_lost"], 0);
        // Another card has its own.
        let (pid, before) = (status(nicache.name())["card_pid"].as_u64().unwrap(), hits());
        kill(pid, Signal::KILL);
        scene.edit("edited");
        assert_eq!(within(PATIENCE, || scene.curl(PAGE)).as_deref(), Some(&b"edited"[..]));
        let again = || {
            let urls = vec![PAGE; 20];
            let output = scene
                .client
                .run(move || Command::new("curl").args(["-sS", "-m", "20"]).args(urls).output());
            assert_eq!(output.unwrap().stdout, b"edited".repeat(20));
            let said = common::command(&["status", "--json", "--name", nicache.name()]);
            let said: serde_json::Value = serde_json::from_slice(&said.stdout).ok()?;
            (said["card_pid"].as_u64()? != pid && said["counters"]["hits_l0"].as_u64()? > 0)
                .then_some(())
        };
        assert!(
            within(PATIENCE, again).is_some(),
            "{arguments:?}: {before}: {}",
            status(nicache.name())
        );
    }
}

/// The other end of the veth does not take what XDP sends: the card repeats all of it, and soon
/// does without L0.
#[test]
fn hits_in_the_driver_that_do_not_arrive() {
    let scene = Scene::new();
    scene.client.run(|| output("ethtool", &["-K", "c0", "gro", "off"]));
    let nicache = Nicache::attach(&["--wire", "w0", "--host", "h0", "--l0"]);
    scene.edit("hello");
    let paused = within(2 * PATIENCE, || {
        std::thread::scope(|clients| {
            for _ in 0..8 {
                clients.spawn(|| {
                    let get = || {
                        Command::new("curl")
                            .args(["-sS", "-m", "20"])
                            .args([PAGE; 5])
                            .output()
                            .unwrap()
                    };
                    assert_eq!(scene.client.run(get).stdout, b"hello".repeat(5));
                });
            }
        });
        (status(nicache.name())["counters"]["l0_pauses"].as_u64()? > 0).then_some(())
    });
    assert!(paused.is_some(), "{}", status(nicache.name()));
    assert_eq!(status(nicache.name())["counters"]["l0_lost"], 0);
}

/// `None` for the time without a card.
fn try_status(nicache: &Nicache) -> Option<serde_json::Value> {
    serde_json::from_slice(&common::command(&["status", "--json", "--name", nicache.name()]).stdout)
        .ok()
}

fn wait_for_another(nicache: &Nicache, pid: u64) {
    let another = || (try_status(nicache)?["card_pid"].as_u64()? != pid).then_some(());
    assert!(within(PATIENCE, another).is_some(), "no other card");
}

#[test]
fn a_dead_card_is_passed_by_and_replaced() {
    for arguments in [&[][..], &["--handshake", "card"], &["--port", "xdp"]] {
        let scene = Scene::new();
        let nicache = Nicache::attach(&[&["--wire", "w0", "--host", "h0"], arguments].concat());
        scene.wait_for_hits(&nicache, PAGE, b"hello from nginx\n");
        for signal in [Signal::KILL, Signal::STOP] {
            let pid = status(nicache.name())["card_pid"].as_u64().unwrap();
            kill(pid, signal);
            scene.edit("edited");
            assert_eq!(within(PATIENCE, || scene.curl(PAGE)).as_deref(), Some(&b"edited"[..]));
            wait_for_another(&nicache, pid);
            scene.wait_for_hits(&nicache, PAGE, b"edited");
            scene.edit("hello from nginx\n");
            assert_eq!(scene.curl(PAGE).as_deref(), Some(&b"hello from nginx\n"[..]));
        }
    }
}

/// Bytes that tell where they are.
fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32 / 4).flat_map(|word| word.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect()
}

/// Asks for a path on an open connection. `None`: the connection has ended, or is silent. What
/// comes must be a part of the right reply.
fn ask(stream: &mut TcpStream, path: &str, body: &[u8]) -> Option<()> {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).ok()?;
    let (mut got, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        let count = uninterrupted(|| stream.read(&mut buffer)).ok().filter(|&count| count > 0)?;
        got.extend(&buffer[..count]);
        const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\n";
        let beginning = HEAD.len().min(got.len());
        assert_eq!(
            got[..beginning],
            HEAD[..beginning],
            "{path}: {:?}",
            String::from_utf8_lossy(&got[..got.len().min(200)])
        );
        let Some(end) = got.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { continue };
        let part = &got[end + 4..];
        assert!(
            part.len() <= body.len() && *part == body[..part.len()],
            "{path}: wrong among {} bytes",
            part.len()
        );
        if part.len() == body.len() {
            return Some(());
        }
    }
}

/// Hits, which move the numbers of a connection, and large replies of the server in turn, until
/// `ended`; counts what comes.
fn ask_over_and_over(client: u32, body: &[u8], ended: &AtomicBool, count: &AtomicU32) {
    let mut replies = 0;
    while !ended.load(Ordering::Relaxed) {
        let address = "192.0.2.1:80".parse().unwrap();
        let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(2)) else {
            continue;
        };
        stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        while !ended.load(Ordering::Relaxed) {
            let all = (0..3)
                .try_for_each(|_| ask(&mut stream, "/page.html", b"hello from nginx\n"))
                .and_then(|()| ask(&mut stream, &format!("/pattern?{client}.{replies}"), body));
            if all.is_none() {
                break;
            }
            replies += 4;
            count.fetch_add(4, Ordering::Relaxed);
        }
    }
}

#[test]
fn no_connection_takes_wrong_bytes_when_cards_die() {
    let body: Arc<[u8]> = pattern(1 << 20).into();
    for arguments in [&[][..], &["--handshake", "card"], &["--port", "xdp"]] {
        let scene = Scene::new();
        std::fs::write(scene.site.folder.path().join("site/pattern"), &body).unwrap();
        let nicache = Nicache::attach(&[&["--wire", "w0", "--host", "h0"], arguments].concat());
        scene.wait_for_hits(&nicache, PAGE, b"hello from nginx\n");
        let (ended, replies) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let clients: Vec<_> = (0..4)
            .map(|client| {
                let (body, ended, count) =
                    (Arc::clone(&body), Arc::clone(&ended), Arc::clone(&replies));
                scene.client.run(move || {
                    std::thread::spawn(move || ask_over_and_over(client, &body, &ended, &count))
                })
            })
            .collect();
        for signal in [Signal::KILL, Signal::STOP, Signal::KILL] {
            let busy = || {
                let status = try_status(&nicache)?;
                (status["counters"]["hits"].as_u64()? > 50).then(|| status["card_pid"].as_u64())?
            };
            let pid = within(PATIENCE, busy).expect("hits come in");
            kill(pid, signal);
            wait_for_another(&nicache, pid);
        }
        let are_enough = holds_within(EVENTUALLY, || replies.load(Ordering::Relaxed) > 100);
        ended.store(true, Ordering::Relaxed);
        clients.into_iter().for_each(|client| client.join().expect("the right bytes"));
        assert!(are_enough, "{replies:?} replies");
    }
}

#[test]
fn with_all_processes_standing_still_the_server_is_reached() {
    let scene = Scene::new();
    let nicache = Nicache::attach(&["--wire", "w0", "--host", "h0"]);
    scene.wait_for_hits(&nicache, PAGE, b"hello from nginx\n");
    let processes: Vec<u64> = nicache.processes().into_iter().collect();
    processes.iter().for_each(|&pid| kill(pid, Signal::STOP));
    scene.edit("edited");
    assert_eq!(within(PATIENCE, || scene.curl(PAGE)).as_deref(), Some(&b"edited"[..]));
    scene.edit("edited again");
    assert_eq!(scene.curl(PAGE).as_deref(), Some(&b"edited again"[..]));
    processes.iter().for_each(|&pid| kill(pid, Signal::CONT));
    scene.wait_for_hits(&nicache, PAGE, b"edited again");
}

/// Whatever waits is interrupted all the time, also in the server.
#[test]
fn pauses_cost_nothing_but_time() {
    let scene = Scene::new();
    let nicache = Nicache::attach(&["--wire", "w0", "--host", "h0"]);
    scene.wait_for_hits(&nicache, PAGE, b"hello from nginx\n");
    let nginx = scene.nginx.as_ref().unwrap().id();
    let mut text = String::new();
    let mut edits = 0;
    pauses::during(&[nicache.process.id().into(), nginx.into()], || {
        edits += 1;
        text = format!("edited {edits} times\n");
        scene.edit(&text);
        let bodies = scene.client.run(|| {
            let address = "192.0.2.1:80".parse().unwrap();
            let mut stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let request = b"GET /page.html HTTP/1.1\r\nHost: a\r\n\r\n";
            [(); 20].map(|()| exchange(&mut stream, request))
        });
        for body in bodies {
            assert_eq!(String::from_utf8_lossy(&body), text);
        }
        status(nicache.name());
    });
    scene.wait_for_hits(&nicache, PAGE, text.as_bytes());
}

#[test]
fn nothing_is_left_behind() {
    let scene = Scene::new();
    for signal in [Signal::INT, Signal::KILL] {
        let mut nicache = Nicache::attach(&["--wire", "w0", "--host", "h0", "--port", "xdp"]);
        scene.wait_for_hits(&nicache, PAGE, b"hello from nginx\n");
        let processes = nicache.processes();
        nicache.signal(signal);
        assert!(nicache.wait(PATIENCE).is_some());
        let gone = within(PATIENCE, || processes.iter().all(|&pid| !is_running(pid)).then_some(()));
        assert!(gone.is_some(), "processes are left");
        let shown = || common::output("ip", &["-d", "link", "show"]);
        let clean = within(PATIENCE, || {
            let shown = shown();
            (!shown.contains("xdp")
                && !shown.contains("PROMISC")
                && !shown.contains("promiscuity 1"))
            .then_some(())
        });
        assert!(clean.is_some(), "{}", shown());
        assert_eq!(scene.curl_within("1", PAGE), None);
    }
    // And they can be taken once more.
    let nicache = Nicache::attach(&["--wire", "w0", "--host", "h0"]);
    scene.wait_for_hits(&nicache, PAGE, b"hello from nginx\n");
}

/// Traffic both ways, hits from the card, the line that says what is used instead, and no XDP
/// program while or after.
fn falls_back(scene: &Scene, wire: &str, arguments: &[&str], says: &[&str]) {
    // What an interface is made of may be promiscuous for it.
    let promiscuous =
        |shown: &str| shown.matches("promiscuity").count() - shown.matches("promiscuity 0").count();
    let before = promiscuous(&output("ip", &["-d", "link", "show"]));
    let mut nicache = Nicache::attach(&[&["--wire", wire, "--host", "h0"], arguments].concat());
    let log = nicache.log_text();
    for words in says {
        assert!(log.contains(words), "{wire} {arguments:?}: `{words}` is not in: {log}");
    }
    scene.edit("first");
    scene.wait_for_hits(&nicache, PAGE, b"first");
    scene.edit("second");
    assert_eq!(scene.curl(PAGE).as_deref(), Some(&b"second"[..]));
    assert_eq!(scene.curl("http://192.0.2.1:8081/page.html").as_deref(), Some(&b"second"[..]));
    let pinged = scene.client.run(|| Command::new("python3").args(["-c", PING]).output().unwrap());
    assert!(pinged.status.success(), "{}", String::from_utf8_lossy(&pinged.stderr));
    let shown = || output("ip", &["-d", "link", "show"]);
    assert!(!shown().contains("xdp"), "{arguments:?}: {}", shown());
    nicache.signal(Signal::KILL);
    assert!(nicache.wait(PATIENCE).is_some());
    let clean = within(PATIENCE, || (promiscuous(&shown()) == before).then_some(()));
    assert!(clean.is_some(), "{}", shown());
}

/// Whether the kernel makes such an interface.
fn is_made(arguments: &str) -> bool {
    let output = Command::new("ip").args(arguments.split_ascii_whitespace()).output().unwrap();
    if !output.status.success() {
        println!("skipped: ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    output.status.success()
}

/// Drivers without XDP programs of their own: the card uses packet sockets, and says so.
#[test]
fn interfaces_without_native_xdp() {
    for (make, wire) in [
        ("link add v0 link w0 type vlan id 5", "v0"),
        ("link add v0 link w0 type macvlan mode passthru", "v0"),
        ("link add v0 type bridge", "v0"),
    ] {
        for (arguments, says) in [
            (&[][..], &[][..]),
            (&["--port", "auto"], &[]),
            (
                &["--l0"],
                &[
                    "interface `v0` has no native XDP",
                    "the card uses packet sockets on v0",
                    "no --l0",
                ],
            ),
            (&["--port", "xdp"], &["interface `v0` has no native XDP", "as with --port packet"]),
            (
                &["--port", "xdp", "--l0"],
                &["interface `v0` has no native XDP", "as with --port packet"],
            ),
        ] {
            let scene = Scene::new();
            if !is_made(make) {
                break;
            }
            if make.contains("vlan id") {
                scene.client.run(|| {
                    ip("link add c5 link c0 type vlan id 5");
                    ip("addr flush dev c0");
                    ip("addr add 192.0.2.2/24 dev c5");
                    ip("link set c5 up");
                });
            }
            if make.contains("bridge") {
                ip("link set w0 master v0");
            }
            ip("link set v0 up");
            falls_back(&scene, wire, arguments, says);
        }
    }
}

/// A bond's own AF_XDP sockets hear nothing; a port of a bridge is a wire like others.
#[test]
fn bonds_and_ports_of_bridges() {
    for arguments in [&[][..], &["--l0"], &["--port", "xdp"], &["--port", "xdp", "--l0"]] {
        let scene = Scene::new();
        ip("link add br0 type bridge");
        ip("link set w0 master br0");
        ip("link set br0 up");
        let nicache = Nicache::attach(&[&["--wire", "w0", "--host", "h0"], arguments].concat());
        scene.edit("first");
        scene.wait_for_hits(&nicache, PAGE, b"first");
        drop(nicache);

        let scene = Scene::new();
        if !is_made("link add b0 type bond mode active-backup") {
            continue;
        }
        ip("link set w0 down");
        ip("link set w0 master b0");
        ip("link set b0 up");
        let nicache = Nicache::attach(&[&["--wire", "b0", "--host", "h0"], arguments].concat());
        scene.edit("first");
        scene.wait_for_hits(&nicache, PAGE, b"first");
    }
}

/// Each of the failures on the way leaves a link that works, and nothing attached.
#[test]
fn what_fails_is_detached() {
    // A queue that is not there.
    let arguments = ["--port", "xdp", "--queues", "2"];
    falls_back(&Scene::new(), "w0", &arguments, &["has no queue 1", "instead of AF_XDP"]);
    // L0 cannot be had, so its program at the driver is there for nothing.
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    falls_back(
        &Scene::new(),
        "w0",
        &["--l0", "--access-log", log.to_str().unwrap()],
        &["hits are not answered in the kernel"],
    );
}

#[test]
fn a_server_on_the_wire() {
    for arguments in [&[][..], &["--handshake", "card"], &["--port", "xdp"]] {
        private_network();
        let client = Machine::connect("w0", "c0", 2, 1);
        ip("addr add 192.0.2.3/24 dev w0");
        let site = Site::with("", "listen [::]:80; root @ROOT@/site;");
        let place = [
            "--wire",
            "w0",
            "--address",
            "192.0.2.1/24",
            "--address",
            "2001:db8::1/64",
            "--gateway",
            "192.0.2.2",
        ];
        let nicache = Nicache::start(&[&place, arguments].concat(), &site.command());
        assert_eq!(nicache.status["server_address"], "192.0.2.1");
        let scene = Scene { client, server: None, nginx: None, site };
        for host in ["192.0.2.1", "[2001:db8::1]"] {
            scene.edit("first");
            let url = format!("http://{host}/page.html");
            scene.wait_for_hits(&nicache, &url, b"first");
            scene.wait_for_hits(&nicache, &format!("http://{host}/large"), &vec![b'x'; 3 << 20]);
            scene.edit("second");
            assert_eq!(scene.curl(&url).as_deref(), Some(&b"second"[..]));
        }
        // This machine is on the same network, as before.
        let listener = std::net::TcpListener::bind("192.0.2.3:8080").unwrap();
        let connected = scene.client.run(|| std::net::TcpStream::connect("192.0.2.3:8080").is_ok());
        assert!(connected);
        drop(listener);
        let pid = status(nicache.name())["card_pid"].as_u64().unwrap();
        kill(pid, Signal::KILL);
        scene.edit("third");
        assert_eq!(within(PATIENCE, || scene.curl(PAGE)).as_deref(), Some(&b"third"[..]));
    }
}

/// Everybody on the internet knocks at a machine's sshd. For each it starts a program that changes
/// its root, and none of them has to do with the pages.
#[test]
fn who_knocks_at_sshd_voids_nothing() {
    const KNOCKS: u64 = 8;
    let scene = Scene::new();
    let folder = scene.site.folder.path().display().to_string();
    output("ssh-keygen", &["-q", "-N", "", "-t", "ed25519", "-f", &format!("{folder}/key")]);
    let start = format!(
        "mount -t tmpfs none /run; mkdir -m 755 /run/sshd; exec /usr/sbin/sshd -D -e -f /dev/null \
         -p 22 -h {folder}/key -o MaxStartups=100 -o UsePAM=no"
    );
    let server = scene.server.as_ref().unwrap();
    let mut sshd = server.run(move || {
        let mut unshare = Command::new("unshare");
        unshare.args(["-m", "sh", "-ec", &start]).stderr(Stdio::null()).spawn().unwrap()
    });
    let nicache = Nicache::attach(&["--wire", "w0", "--host", "h0"]);
    let knock = || {
        scene.client.run(|| {
            let mut stream = within(PATIENCE, || TcpStream::connect("192.0.2.1:22").ok()).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(b"SSH-2.0-knock\r\n").unwrap();
            let mut said = Vec::new();
            // What it offers comes from the program that has changed its root.
            while said.len() < 300 {
                let mut buffer = [0; 4096];
                let len = uninterrupted(|| stream.read(&mut buffer)).unwrap();
                assert!(len > 0, "{}", String::from_utf8_lossy(&said));
                said.extend_from_slice(&buffer[..len]);
            }
        });
    };
    knock();
    let hits = || status(nicache.name())["counters"]["hits"].as_u64().unwrap();
    let row = || {
        scene.wait_for_hits(&nicache, PAGE, b"hello from nginx\n");
        let before = hits();
        for _ in 0..KNOCKS {
            knock();
            scene.curl(PAGE);
        }
        hits() - before
    };
    // Other tests may void everything at the same moment.
    let mut rows = Vec::new();
    let stays = holds_within(EVENTUALLY, || {
        rows.push(row());
        rows.last().is_some_and(|hits| hits + 1 >= KNOCKS)
    });
    let _ = sshd.kill();
    sshd.wait().unwrap();
    assert!(stays, "{rows:?} hits of {KNOCKS} requests");
}

#[test]
fn mistakes_are_explained() {
    let _scene = Scene::new();
    for (arguments, says) in [
        (&["--wire", "w0"][..], "attach needs two interfaces"),
        (&["--wire", "w0", "--host", "nowhere"], "no interface `nowhere`"),
        (&["--wire", "w0", "--host", "w0"], "cannot be the same interface"),
        (&["--wire", "w0", "--host", "h0", "--publish", "0.0.0.0:80"], "belongs to `nicache run`"),
        (
            &["--wire", "w0", "--host", "h0", "--server-pid", "4000000"],
            "there is no process 4000000",
        ),
    ] {
        let output = common::command(&[&["attach"], arguments].concat());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(says), "{arguments:?}: {text}");
    }
}
