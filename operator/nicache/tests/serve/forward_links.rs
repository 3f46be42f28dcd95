//! `nicache forward` and its links: what they receive, what becomes of one that goes and comes, and
//! what is counted there.
//!
//! ```text
//!  10.1.0.2 ── one: the forwarder :two ── 10.2.0.2
//!                 three ── 10.3.0.2
//! ```

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nicache_namespaces::Namespace;
use nicache_router::demo::file_byte;
use rustix::process::Signal;

use crate::common::{
    NICACHE, SOON, Stop, curl, holds_within, ip, kill, output, private_network, uninterrupted,
    within,
};
use crate::forward::{Forwarding, LIMIT};

/// A host on each of the links, which are in the namespace of the test.
pub(crate) struct Net {
    folder: tempfile::TempDir,
    /// The hosts on `one`, `two`, `three`.
    pub(crate) hosts: [Namespace; 3],
}

const LINKS: [&str; 3] = ["one", "two", "three"];

impl Net {
    pub(crate) fn build() -> Self {
        private_network();
        let folder = tempfile::tempdir().unwrap();
        let hosts = LINKS.map(|_| Namespace::with_loopback().unwrap());
        let net = Self { folder, hosts };
        (0..LINKS.len()).for_each(|number| net.connect(number));
        net
    }

    /// Makes a link and its host's end.
    pub(crate) fn connect(&self, number: usize) {
        let (link, host, at) = (LINKS[number], &self.hosts[number], number + 1);
        ip(&format!("link add {link} type veth peer name eth0 netns {}", host.thread_id()));
        // AF_XDP is to see VLAN tags, from the moment on at which the link is taken back.
        output("ethtool", &["-K", link, "rxvlan", "off"]);
        ip(&format!("link set {link} addrgenmode none up"));
        ip(&format!("address add 10.{at}.0.1/24 dev {link}"));
        host.ip("link set eth0 addrgenmode none up");
        host.ip(format!("address add 10.{at}.0.2/24 dev eth0"));
        host.ip(format!("route add default via 10.{at}.0.1"));
    }

    /// The file of the forwarder, with its interfaces.
    pub(crate) fn write(&self, text: &str) -> String {
        let path = self.folder.path().join("forward.toml");
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Forwards between all of them.
    pub(crate) fn start(&self, more: &str, arguments: &[&str]) -> Forwarding {
        let file = self.write(&format!("{}{more}", interfaces()));
        Forwarding::start(&[&["--config", &*file], arguments].concat())
    }
}

/// All of them, by packet sockets. Connections from the first one to the others are translated.
pub(crate) fn interfaces() -> String {
    let masquerade = ["", "masquerade = true\n", "masquerade = true\n"];
    let both = LINKS.iter().zip(masquerade);
    both.map(|(link, more)| format!("[[interface]]\nname = \"{link}\"\n{more}")).collect()
}

/// How many want all multicast of a link, and how many everything.
fn memberships(link: &str) -> [u64; 2] {
    let text = output("ip", &["-d", "link", "show", "dev", link]);
    ["allmulti", "promiscuity"].map(|what| {
        let mut words = text.split_whitespace().skip_while(|word| *word != what);
        words.nth(1).and_then(|number| number.parse().ok()).expect("`ip -d link` shows it")
    })
}

/// Neighbours ask by multicast for addresses that only the file has, and network cards drop VLANs
/// that the kernel does not know.
#[test]
fn links_receive_multicast_and_vlans_of_the_file() {
    let net = Net::build();
    let vlan = "[[interface]]\nname = \"two\"\nvlan = 7\naddresses = [\"10.7.0.1/24\"]\n";
    let forwarding = net.start(vlan, &[]);
    assert_eq!(memberships("one"), [1, 0]);
    assert!(memberships("two")[1] > 0);
    forwarding.stop();
    for link in LINKS {
        assert!(holds_within(SOON, || memberships(link) == [0, 0]), "{link}");
    }
}

/// Sends datagrams to the host of `two` for so long.
fn send_datagrams(net: &Net, time: Duration) {
    let socket = net.hosts[0].run(|| UdpSocket::bind("10.1.0.2:0").unwrap());
    let began = Instant::now();
    while began.elapsed() < time {
        for _ in 0..20 {
            // The host at the other end may refuse them.
            let _ = socket.send_to(&[7; 1000], "10.2.0.2:9");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What is asked first after a silence is answered by rates of that silence.
#[test]
fn rates_do_not_outlive_the_traffic() {
    let net = Net::build();
    let sink = net.hosts[1].run(|| UdpSocket::bind("10.2.0.2:9").unwrap());
    let forwarding = net.start("", &["--fast-path", "off"]);
    let rate = || forwarding.status()["report"]["rates"]["frames"].as_f64().unwrap();
    let mut busy = 0.0;
    let is_busy = || {
        send_datagrams(&net, Duration::from_secs(3));
        busy = rate();
        busy > 1000.0
    };
    assert!(holds_within(LIMIT, is_busy), "{busy}");
    std::thread::sleep(Duration::from_secs(5));
    let silent = rate();
    assert!(silent < busy / 2.0, "{silent} frames/s after a silence, {busy} before");
    drop(sink);
    forwarding.stop();
}

/// Frames that find no room while the card does not come to receive them are told, with their
/// reason and their link.
#[test]
fn frames_that_found_no_room_are_told() {
    let net = Net::build();
    let sink = net.hosts[1].run(|| UdpSocket::bind("10.2.0.2:9").unwrap());
    let forwarding = net.start("", &["--fast-path", "off", "--admin", "0"]);
    send_datagrams(&net, Duration::from_millis(100));
    let card = forwarding.status()["card_pid"].as_u64().unwrap();
    kill(card, Signal::STOP);
    let socket = net.hosts[0].run(|| UdpSocket::bind("10.1.0.2:0").unwrap());
    // More than a link has room for.
    for _ in 0..60_000 {
        let _ = socket.send_to(&[7; 1000], "10.2.0.2:9");
    }
    kill(card, Signal::CONT);
    let overflow = || forwarding.status()["report"]["dropped"]["receive_overflow"].as_u64();
    let is_told = || {
        send_datagrams(&net, Duration::from_millis(50));
        overflow().unwrap_or(0) > 0
    };
    assert!(holds_within(LIMIT, is_told), "{}", forwarding.status());
    let now = forwarding.status();
    assert!(now["ports"][0]["receive_dropped"].as_u64().unwrap() > 0, "{now}");
    assert!(now["report"]["counters"]["card_sent"].as_u64().unwrap() > 0, "{now}");
    // A sample is told for a while.
    let mut metrics = String::new();
    let is_measured = || {
        metrics = curl(&format!("http://{}/metrics", now["admin"].as_str().unwrap()));
        let mut counts = metrics.lines().filter_map(|line| {
            line.strip_prefix("nicache_forward_dropped_total{reason=\"receive_overflow\"} ")
        });
        counts.any(|count| count != "0")
    };
    assert!(holds_within(LIMIT, is_measured), "{metrics}");
    for series in ["nicache_forward_card_send_failed_total ", "nicache_forward_card_untold_total "]
    {
        assert!(metrics.contains(series), "{series} in {metrics}");
    }
    let shown = output(NICACHE, &["status", "--name", &forwarding.name()]);
    assert!(shown.contains("port         one: "), "{shown}");
    drop(sink);
    forwarding.stop();
}

/// Serves the file to whoever connects, a part at a time: so many, and more until `is_over`.
/// Returns how many bytes these were.
fn serve_slowly(
    host: &Namespace,
    address: &'static str,
    is_over: &Arc<AtomicBool>,
) -> JoinHandle<usize> {
    let listener = host.run(move || TcpListener::bind(address).unwrap());
    let is_over = Arc::clone(is_over);
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut part = 0;
        while part < PARTS || !is_over.load(Ordering::Relaxed) {
            let bytes: Vec<u8> =
                (0..PART_BYTES).map(|at| file_byte(part * PART_BYTES + at)).collect();
            // The test says why it has ended.
            if stream.write_all(&bytes).is_err() {
                break;
            }
            part += 1;
            std::thread::sleep(Duration::from_millis(20));
        }
        part * PART_BYTES
    })
}

const PARTS: usize = 50;
const PART_BYTES: usize = 20_000;

/// Downloads all of it and compares; how many bytes have come is told meanwhile, and at the end.
fn download(host: &Namespace, address: &'static str) -> (JoinHandle<usize>, Arc<AtomicUsize>) {
    let mut stream = host.run(move || {
        let address = address.parse().unwrap();
        within(LIMIT, || TcpStream::connect_timeout(&address, Duration::from_secs(2)).ok())
            .expect("a connection")
    });
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let thread = std::thread::spawn(move || {
        let (mut at, mut part) = (0, vec![0; 64 * 1024]);
        loop {
            let len = uninterrupted(|| stream.read(&mut part)).unwrap();
            if len == 0 {
                return at;
            }
            assert!((0..len).all(|place| part[place] == file_byte(at + place)), "after {at} bytes");
            at += len;
            counted.store(at, Ordering::Relaxed);
        }
    });
    (thread, count)
}

fn gone(forwarding: &Forwarding, number: usize) -> Option<String> {
    forwarding.status()["ports"][number]["gone"].as_str().map(str::to_owned)
}

/// A link that goes takes nothing of the others with it, and is used again when it is there again,
/// with another number and MAC address.
#[test]
fn a_link_goes_and_comes_while_others_go_on() {
    for (port, fast_path) in [("packet", "auto"), ("packet", "off"), ("xdp", "auto")] {
        let net = Net::build();
        let text = interfaces().replace("\"three\"\n", &format!("\"three\"\nport = \"{port}\"\n"));
        let forwarding =
            Forwarding::start(&["--config", &net.write(&text), "--fast-path", fast_path]);
        let is_over = Arc::new(AtomicBool::new(false));
        // A failed assertion ends it, too.
        let end = Stop(&is_over);
        let serving = serve_slowly(&net.hosts[1], "10.2.0.2:80", &is_over);
        let (downloading, count) = download(&net.hosts[0], "10.2.0.2:80");
        assert!(holds_within(LIMIT, || count.load(Ordering::Relaxed) > 200_000));
        ip("link del three");
        let is_gone = || gone(&forwarding, 2).is_some();
        assert!(holds_within(LIMIT, is_gone), "{}", forwarding.status());
        let then = count.load(Ordering::Relaxed);
        assert!(holds_within(LIMIT, || count.load(Ordering::Relaxed) > then));
        let now = forwarding.status();
        assert_eq!(now["restarts"], 0, "{now}");
        let shown = output(NICACHE, &["status", "--name", &forwarding.name()]);
        assert!(shown.contains("(GONE: there is no interface of that name)"), "{shown}");
        // Card and forwarder begin without it, too.
        for who in ["card_pid", "forwarder_pid"] {
            let before = forwarding.status();
            kill(before[who].as_u64().unwrap(), Signal::KILL);
            let is_over = || forwarding.status()["restarts"] != before["restarts"];
            assert!(holds_within(LIMIT, is_over), "{who}");
        }
        // Without its address it is not what it was.
        net.connect(2);
        ip("address del 10.3.0.1/24 dev three");
        let lacks = || gone(&forwarding, 2).is_none_or(|why| why.contains("`ip address add 10.3"));
        assert!(holds_within(LIMIT, lacks), "{:?}", gone(&forwarding, 2));
        ip("address add 10.3.0.1/24 dev three");
        let is_back = || gone(&forwarding, 2).is_none();
        assert!(holds_within(LIMIT, is_back), "{}", forwarding.status());
        assert!(output("nft", &["list", "ruleset"]).matches("device \"three\"").count() > 0);
        // It is used, in both directions, and nothing of the rest was lost.
        drop(end);
        let again = serve_slowly(&net.hosts[2], "10.3.0.2:80", &is_over);
        let got = download(&net.hosts[0], "10.3.0.2:80").0.join().unwrap();
        assert_eq!(got, again.join().unwrap());
        assert_eq!(downloading.join().unwrap(), serving.join().unwrap());
        let now = forwarding.status();
        let fast = now["report"]["counters"]["fast_packets"].as_u64().unwrap();
        if port == "packet" {
            assert_eq!(fast > 0, fast_path == "auto", "{now}");
        }
        assert_eq!(now["ports"][2]["port"], port, "{now}");
        // Also a second time.
        ip("link del three");
        assert!(holds_within(LIMIT, is_gone), "{}", forwarding.status());
        net.connect(2);
        assert!(holds_within(LIMIT, is_back), "{}", forwarding.status());
        forwarding.stop();
    }
}
