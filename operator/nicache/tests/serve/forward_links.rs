//! `nicache forward` and its links: what they receive, what becomes of one that goes and comes, and
//! what is counted there.
//!
//! ```text
//!  10.1.0.2 ── one: the forwarder :two ── 10.2.0.2
//!                 three ── 10.3.0.2
//! ```

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use nicache_namespaces::Namespace;
use rustix::process::Signal;

use crate::common::{NICACHE, SOON, curl, holds_within, ip, kill, output, private_network};
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

/// Neighbours ask by multicast for addresses that only the file has, and network cards leave away
/// VLANs that the kernel does not know.
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
    send_datagrams(&net, Duration::from_secs(3));
    let busy = rate();
    assert!(busy > 1000.0, "{busy}");
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
