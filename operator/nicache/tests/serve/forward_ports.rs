//! `nicache forward` at AF_XDP sockets and TAPs: curl at one end, nginx at the other.
//!
//! ```text
//!  client 10.1.0.2 ── left: the forwarder :right ── servers 192.0.2.2, 192.0.2.3 and behind them 203.0.113.9
//! ```

use std::fmt::Write as _;
use std::io::IoSlice;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nicache_namespaces::Namespace;
use nicache_port::{Burst, Offload, PacketConfig, PacketSocket, Port, Reception};
use nicache_router::demo::file_byte;
use rustix::process::Signal;
use serde_json::Value;

use crate::common::{
    SOON, assert_all_gone, family, holds_within, ip, kill, output, private_network, uninterrupted,
    within,
};
use crate::forward::{Forwarding, LIMIT};
use crate::forward_by_name::{Running, run, run_nginx};

const FILE_BYTES: usize = 6 << 20;
/// Where clients reach both back ends, by their own link.
const SERVICES: [&str; 2] = ["10.1.0.1:8000", "[fd01::1]:8000"];
/// A service whose back ends a busy machine has answer late refuses for a moment.
const CURL: [&str; 8] =
    ["-sS", "-g", "--fail", "--max-time", "60", "--retry", "5", "--retry-connrefused"];
const SERVERS: [&str; 4] = ["192.0.2.2", "192.0.2.3", "[fd02::2]", "[fd02::3]"];

fn nginx(namespace: &Namespace, folder: &Path) -> Running {
    let at = folder.display();
    let mut servers = String::new();
    for address in SERVERS.into_iter().chain(["203.0.113.9", "[fd03::9]"]) {
        let _ = writeln!(
            servers,
            "server {{ listen {address}:80; root {at}; location = /who {{ return 200 '{address} $remote_addr'; }} }}"
        );
    }
    run_nginx(namespace, folder, &servers)
}

/// Client, servers, and a folder with a file. The forwarder's interfaces are in the namespace of
/// the test.
struct Stage {
    client: Namespace,
    servers: Namespace,
    _nginx: Running,
    folder: tempfile::TempDir,
}

impl Stage {
    fn build() -> Self {
        private_network();
        let (client, servers) =
            (Namespace::with_loopback().unwrap(), Namespace::with_loopback().unwrap());
        for (namespace, end, net) in
            [(&client, "left", ["10.1.0", "fd01:"]), (&servers, "right", ["192.0.2", "fd02:"])]
        {
            let queues = "numrxqueues 2 numtxqueues 2";
            ip(&format!(
                "link add {end} {queues} type veth peer name eth0 {queues} netns {}",
                namespace.thread_id()
            ));
            ip(&format!("link set {end} addrgenmode none up"));
            ip(&format!("address add {}.1/24 dev {end}", net[0]));
            ip(&format!("address add {}:1/64 dev {end} nodad", net[1]));
            sees_tags(end);
            // The kernel at the other end is to write tags into frames.
            namespace.run(|| output("ethtool", &["-K", "eth0", "txvlan", "off"]));
            namespace.ip("link set eth0 addrgenmode none up");
        }
        for (address, gateway) in [("10.1.0.2/24", "10.1.0.1"), ("fd01::2/64", "fd01::1")] {
            client.ip(format!("address add {address} dev eth0 nodad"));
            client.ip(format!("route add default via {gateway}"));
        }
        for address in [
            "192.0.2.2/24",
            "192.0.2.3/24",
            "203.0.113.9/32",
            "fd02::2/64",
            "fd02::3/64",
            "fd03::9/128",
        ] {
            servers.ip(format!("address add {address} dev eth0 nodad"));
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(
            folder.path(),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .unwrap();
        std::fs::write(
            folder.path().join("file"),
            (0..FILE_BYTES).map(file_byte).collect::<Vec<u8>>(),
        )
        .unwrap();
        let nginx = nginx(&servers, folder.path());
        Self { client, servers, _nginx: nginx, folder }
    }

    /// A file with these `[[interface]]` tables; the second one is that toward the servers.
    fn start(&self, interfaces: &str) -> Forwarding {
        let path = self.folder.path().join("forward.toml");
        std::fs::write(&path, config(interfaces)).unwrap();
        Forwarding::start(&["--config", path.to_str().unwrap()])
    }

    /// Downloads the file and compares it.
    fn downloads(&self, client: Option<&Namespace>, host: &str) {
        let url = format!("http://{host}/file");
        let arguments = [&CURL[..], &[&url]].concat();
        let got = match client {
            Some(client) => run(client, "curl", &arguments),
            None => Command::new("curl").args(&arguments).output().unwrap(),
        };
        let said = String::from_utf8_lossy(&got.stderr);
        assert!(got.status.success(), "{url}: {said}");
        assert!(is_the_file(&got.stdout), "{url}: {} bytes, some of them wrong", got.stdout.len());
    }

    fn who(&self, client: &Namespace, host: &str) -> String {
        let url = format!("http://{host}/who");
        let got = run(client, "curl", &[&CURL[..], &[&url]].concat());
        assert!(got.status.success(), "{host}: {}", String::from_utf8_lossy(&got.stderr));
        String::from_utf8(got.stdout).unwrap()
    }

    /// By translation and by services, both versions of IP.
    fn all_ways(&self) {
        for host in [SERVERS[0], SERVERS[2], SERVICES[0], SERVICES[1]] {
            self.downloads(Some(&self.client), host);
        }
        assert!(self.who(&self.client, SERVERS[0]).ends_with(" 192.0.2.1"));
        assert!(self.who(&self.client, SERVERS[2]).ends_with(" fd02::1"));
        for (service, servers) in SERVICES.into_iter().zip([&SERVERS[..2], &SERVERS[2..]]) {
            let mut answers = Vec::new();
            // One that a busy machine has answer late is down for a moment.
            let have_all_answered = holds_within(LIMIT, || {
                answers = (0..40).map(|_| self.who(&self.client, service)).collect();
                servers.iter().all(|server| answers.iter().any(|who| who.starts_with(server)))
            });
            assert!(have_all_answered, "{answers:?}");
        }
    }
}

fn is_the_file(bytes: &[u8]) -> bool {
    bytes.len() == FILE_BYTES && bytes.iter().enumerate().all(|(at, byte)| *byte == file_byte(at))
}

/// AF_XDP sees VLAN tags on this interface.
fn sees_tags(interface: &str) {
    output("ethtool", &["-K", interface, "rxvlan", "off"]);
}

fn config(interfaces: &str) -> String {
    let mut text = format!("mode = \"spill\"\nmemory = \"1M\"\n{interfaces}");
    for (service, ours, servers) in
        [(SERVICES[0], "192.0.2.1", &SERVERS[..2]), (SERVICES[1], "fd02::1", &SERVERS[2..])]
    {
        let _ = write!(
            text,
            "[[service]]\nprotocol = \"tcp\"\naddress = \"{service}\"\nmasquerade = \"{ours}\"\n\
             check = {{ kind = \"http\", path = \"/who\", every = \"500ms\", timeout = \"400ms\" }}\n"
        );
        for server in servers {
            let _ = write!(text, "[[service.back-end]]\naddress = \"{server}:80\"\n");
        }
    }
    text
}

fn links(left: &str, right: &str) -> String {
    format!(
        "[[interface]]\nname = \"left\"\nport = \"{left}\"\nkeep = [\"tcp/7000\"]\n\
         [[interface]]\nname = \"right\"\nport = \"{right}\"\nmasquerade = true\n"
    )
}

/// Of each link in turn, and why it is not as wanted.
fn ports(forwarding: &Forwarding) -> Vec<(String, Option<String>)> {
    let now = forwarding.status();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let all = now["ports"].as_array().unwrap_or_else(|| panic!("{now}"));
    all.iter().map(|port| (text(&port["port"]).unwrap(), text(&port["instead"]))).collect()
}

fn counter(forwarding: &Forwarding, name: &str) -> u64 {
    forwarding.status()["report"]["counters"][name].as_u64().unwrap_or(0)
}

fn has_program(link: &str) -> bool {
    output("ip", &["link", "show", link]).contains("xdp")
}

fn is_there(link: &str) -> bool {
    std::fs::read_to_string("/proc/thread-self/net/dev").unwrap().contains(&format!("{link}:"))
}

/// Both links, and one of them; what goes by AF_XDP is not in the fast path, and is counted once.
#[test]
fn translation_and_services_over_af_xdp() {
    let stage = Stage::build();
    for (left, right) in [("xdp", "xdp"), ("xdp", "packet"), ("packet", "xdp")] {
        let forwarding = stage.start(&links(left, right));
        assert_eq!(ports(&forwarding), [(left.to_owned(), None), (right.to_owned(), None)]);
        assert_eq!(
            [has_program("left"), has_program("right")],
            [left, right].map(|port| port == "xdp")
        );
        stage.all_ways();
        counts_each_packet_once(&stage, &forwarding);
        the_same_port_here_and_elsewhere(&stage);
        let now = forwarding.status();
        let fast = now["fast_path"].as_str().unwrap();
        match (left, right) {
            ("xdp", "xdp") => assert!(fast.contains("no link has packet sockets"), "{fast}"),
            ("xdp", _) => assert!(fast.starts_with("on, off at left"), "{fast}"),
            _ => assert!(fast.starts_with("on, off at right"), "{fast}"),
        }
        for name in ["fast_entered", "fast_failed", "refused"] {
            assert_eq!(counter(&forwarding, name), 0, "{name}: {now}");
        }
        for (service, back_ends) in [(0, 2), (1, 2)] {
            // One that a busy machine has answer late is down for a moment.
            let are_up = || {
                let now = forwarding.status();
                let all = now["report"]["services"][service]["back_ends"].as_array()?.clone();
                let up = all.iter().filter(|back_end| back_end["health"] == "up").count();
                (up == back_ends).then_some(())
            };
            assert!(within(LIMIT, are_up).is_some(), "{}", forwarding.status());
        }
        forwarding.stop();
        assert!(!has_program("left") && !has_program("right"));
    }
}

/// A port that the file keeps for this machine is this machine's at its own addresses, also at one
/// that comes later; and another machine's is reached through the forwarder. So are the source
/// ports of health checks.
fn the_same_port_here_and_elsewhere(stage: &Stage) {
    ip("address add 10.1.0.77/24 dev left");
    for (address, port) in
        [("10.1.0.1", 7000), ("10.1.0.77", 7000), ("192.0.2.2", 7000), ("192.0.2.2", 950)]
    {
        let end: SocketAddr = format!("{address}:{port}").parse().unwrap();
        let listen = move || TcpListener::bind(end).unwrap();
        let kept = if address.starts_with("10.") { listen() } else { stage.servers.run(listen) };
        // The program at the link is told of a new address a moment later.
        let connects = || {
            let once = Duration::from_secs(1);
            stage.client.run(move || TcpStream::connect_timeout(&end, once)).ok()
        };
        assert!(within(LIMIT, connects).is_some(), "{end} cannot be reached");
        drop(kept.accept().unwrap());
    }
    ip("address del 10.1.0.77/24 dev left");
}

/// Datagrams there and back, each of which is counted once.
fn counts_each_packet_once(stage: &Stage, forwarding: &Forwarding) {
    const DATAGRAMS: u64 = 40;
    let echo = stage.servers.run(|| UdpSocket::bind("192.0.2.2:9").unwrap());
    let asking = stage.client.run(|| UdpSocket::bind("10.1.0.2:0").unwrap());
    for socket in [&echo, &asking] {
        socket.set_read_timeout(Some(LIMIT)).unwrap();
    }
    let mut buffer = [0; 2000];
    for turn in 0..DATAGRAMS {
        let datagram: Vec<u8> =
            (0..1 + 30 * turn as usize).map(|at| file_byte(at + turn as usize)).collect();
        asking.send_to(&datagram, "192.0.2.2:9").unwrap();
        let (len, from) = uninterrupted(|| echo.recv_from(&mut buffer)).unwrap();
        assert_eq!(buffer[..len], datagram);
        echo.send_to(&buffer[..len], from).unwrap();
        let len = uninterrupted(|| asking.recv(&mut buffer)).unwrap();
        assert_eq!(buffer[..len], datagram);
    }
    // None came twice.
    for socket in [&echo, &asking] {
        socket.set_nonblocking(true).unwrap();
        assert!(socket.recv(&mut buffer).is_err());
    }
    let port = asking.local_addr().unwrap();
    let now = forwarding.status();
    let flows = now["report"]["flows"].as_array().unwrap();
    let flow =
        flows.iter().find(|flow| flow["original"].as_str().unwrap().contains(&port.to_string()));
    let flow = flow.unwrap_or_else(|| panic!("{now}"));
    assert_eq!(flow["packets"], serde_json::json!([DATAGRAMS, DATAGRAMS]), "{flow}");
}

/// Connections between links with packet sockets are in the fast path, those by the link with
/// AF_XDP are not.
#[test]
fn the_fast_path_leaves_out_links_with_af_xdp() {
    let stage = Stage::build();
    let third = Namespace::with_loopback().unwrap();
    ip(&format!("link add third type veth peer name eth0 netns {}", third.thread_id()));
    ip("link set third addrgenmode none up");
    ip("address add 10.3.0.1/24 dev third");
    third.ip("link set eth0 addrgenmode none up");
    third.ip("address add 10.3.0.2/24 dev eth0");
    third.ip("route add default via 10.3.0.1");
    let interfaces = format!("{}[[interface]]\nname = \"third\"\n", links("xdp", "packet"));
    let forwarding = stage.start(&interfaces);
    stage.all_ways();
    assert_eq!(counter(&forwarding, "fast_entered"), 0);
    // How many of a connection's packets the kernel forwards depends on when it enters.
    let is_fast = holds_within(LIMIT, || {
        stage.downloads(Some(&third), SERVERS[0]);
        counter(&forwarding, "fast_entered") > 0 && counter(&forwarding, "fast_packets") > 100
    });
    assert!(is_fast, "{}", forwarding.status());
    assert_eq!((counter(&forwarding, "fast_failed"), counter(&forwarding, "fast_unsent")), (0, 0));
    forwarding.stop();
}

/// Tagged and untagged frames of one link are two interfaces.
#[test]
fn a_vlan_over_af_xdp() {
    let stage = Stage::build();
    let (switch, tagged) =
        (Namespace::with_loopback().unwrap(), Namespace::with_loopback().unwrap());
    // Between the client and `left` there is a switch now, at which the other client's frames get a
    // tag.
    stage.client.ip("link del eth0");
    ip(&format!("link add left type veth peer name trunk netns {}", switch.thread_id()));
    ip("link set left addrgenmode none up");
    ip("address add 10.1.0.1/24 dev left");
    ip("address add fd01::1/64 dev left nodad");
    sees_tags("left");
    switch.ip("link set trunk addrgenmode none up");
    for (client, port, nets) in
        [(&stage.client, "plain", ["10.1.0", "fd01:"]), (&tagged, "tagged", ["10.7.0", "fd07:"])]
    {
        client.veth("eth0", &switch, port);
        // Frames are plain when the switch has them.
        client.run(|| {
            output(
                "ethtool",
                &["-K", "eth0", "tx", "off", "tso", "off", "gso", "off", "txvlan", "off"],
            )
        });
        for (net, len) in nets.into_iter().zip([24, 64]) {
            let separator = if len == 24 { "." } else { ":" };
            client.ip(format!("address add {net}{separator}2/{len} dev eth0 nodad"));
            client.ip(format!("route add default via {net}{separator}1"));
        }
    }
    let _switch = Switch::start(&switch);
    let vlan = "[[interface]]\nname = \"left\"\nvlan = 7\nport = \"xdp\"\naddresses = [\"10.7.0.1/24\", \"fd07::1/64\"]\n\
                [[rule]]\naction = \"drop\"\ninterface = \"left\"\ndestination = \"192.0.2.3/32\"\n\
                [[rule]]\naction = \"drop\"\ninterface = \"left\"\ndestination = \"fd02::3/128\"\n";
    let forwarding = stage.start(&format!("{}{vlan}", links("xdp", "xdp")));
    assert_eq!(ports(&forwarding), vec![("xdp".to_owned(), None); 2]);
    for (client, host) in [
        (&stage.client, SERVERS[0]),
        (&tagged, SERVERS[1]),
        (&stage.client, SERVERS[2]),
        (&tagged, SERVERS[3]),
    ] {
        stage.downloads(Some(client), host);
    }
    // By rules of the untagged interface, which do not hold for the other one.
    assert_eq!(forwarding.status()["report"]["dropped"]["rule"], 0);
    let refused = run(
        &stage.client,
        "curl",
        &["-sS", "--max-time", "1", &format!("http://{}/who", SERVERS[1])],
    );
    assert!(!refused.status.success());
    assert!(forwarding.status()["report"]["dropped"]["rule"].as_u64().unwrap() > 0);
    forwarding.stop();
}

/// Passes frames between a trunk and two ports, of which one is of VLAN 7.
struct Switch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Switch {
    const TAG: [u8; 4] = [0x81, 0, 0, 7];

    fn start(namespace: &Namespace) -> Self {
        let mut ports = namespace.run(|| {
            let config =
                PacketConfig { reception: Reception::Promiscuous, ..PacketConfig::default() };
            ["trunk", "plain", "tagged"]
                .map(|name| PacketSocket::open(name, 1, &config).unwrap().remove(0))
        });
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut burst = Burst::new(64);
            while !stopped.load(Ordering::Relaxed) {
                let mut count = 0;
                for from in 0..ports.len() {
                    count += ports[from].receive(&mut burst).unwrap();
                    for frame in &burst {
                        let data = frame.data();
                        let (to, parts) = match from {
                            0 if data[12..16] == Self::TAG => (2, [&data[..12], &[], &data[16..]]),
                            0 => (1, [&data[..12], &[], &data[12..]]),
                            1 => (0, [&data[..12], &[], &data[12..]]),
                            _ => (0, [&data[..12], &Self::TAG, &data[12..]]),
                        };
                        // What finds no room is lost, as in any switch.
                        let _ = ports[to].send(&parts.map(IoSlice::new), Offload::default());
                    }
                    ports.iter_mut().for_each(|port| port.flush().unwrap());
                }
                if count == 0 {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Curl goes on whoever is killed, and nothing is left of program and sockets, also when the
/// supervisor is.
#[test]
fn af_xdp_goes_and_comes_with_its_card() {
    let stage = Stage::build();
    stage.client.run(|| std::fs::write("/proc/sys/net/ipv4/tcp_rmem", "4096 16384 65536").unwrap());
    let forwarding = stage.start(&links("xdp", "xdp"));
    outlives(&stage, &forwarding, SERVERS[0], 4);
    outlives(&stage, &forwarding, SERVICES[0], 2);
    assert_eq!(ports(&forwarding), vec![("xdp".to_owned(), None); 2]);
    assert!(has_program("left") && has_program("right"));
    let processes = family(forwarding.pid());
    kill(forwarding.pid(), Signal::KILL);
    assert_all_gone(&processes);
    let is_clean = || (!has_program("left") && !has_program("right")).then_some(());
    within(SOON, is_clean).expect("the programs are gone");
    drop(forwarding);
    // All is free for the next one.
    let again = stage.start(&links("xdp", "xdp"));
    assert_eq!(ports(&again), vec![("xdp".to_owned(), None); 2]);
    stage.downloads(Some(&stage.client), SERVERS[0]);
    again.stop();
}

/// A slow download, meanwhile card and forwarder are killed in turn.
fn outlives(stage: &Stage, forwarding: &Forwarding, host: &str, kills: u64) {
    let url = format!("http://{host}/file");
    let before = forwarding.status()["restarts"].as_u64().unwrap();
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-g", "--fail", "--max-time", "300", "--limit-rate", "600K", &url]);
    curl.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = stage.client.run(move || curl.spawn().unwrap());
    let downloading = std::thread::spawn(move || child.wait_with_output().unwrap());
    for number in 0..kills {
        std::thread::sleep(Duration::from_millis(700));
        assert!(!downloading.is_finished(), "it was over too early to be of use");
        let now = forwarding.status();
        kill(
            now[["card_pid", "forwarder_pid"][number as usize % 2]].as_u64().unwrap(),
            Signal::KILL,
        );
        let is_over =
            || (forwarding.status()["restarts"].as_u64()? > before + number).then_some(());
        within(LIMIT, is_over).expect("it is started again");
    }
    let got = downloading.join().unwrap();
    assert!(got.status.success(), "{}", String::from_utf8_lossy(&got.stderr));
    assert!(is_the_file(&got.stdout), "{} bytes, some of them wrong", got.stdout.len());
}

/// What AF_XDP cannot be had on has packet sockets, and says why.
#[test]
fn a_link_without_native_xdp_has_packet_sockets() {
    let stage = Stage::build();
    // The servers are behind a bridge, which runs no XDP programs.
    ip("link set right name port");
    ip("link add right type bridge");
    ip("link set port master right up");
    ip("address flush dev port");
    ip("link set right addrgenmode none up");
    ip("address add 192.0.2.1/24 dev right");
    ip("address add fd02::1/64 dev right nodad");
    let forwarding = stage.start(&links("xdp", "xdp"));
    let [(left, None), (right, Some(why))] = &ports(&forwarding)[..] else {
        panic!("{:?}", ports(&forwarding))
    };
    assert_eq!((&**left, &**right), ("xdp", "packet"));
    assert!(why.contains("no native XDP"), "{why}");
    let shown = output(crate::common::NICACHE, &["status", "--name", &forwarding.name()]);
    assert!(shown.contains("left xdp (2 queues)") && shown.contains("right packet ("), "{shown}");
    stage.all_ways();
    forwarding.stop();
    // Tags that the driver takes out would not be seen.
    output("ethtool", &["-K", "left", "rxvlan", "on"]);
    let forwarding = stage.start(&links("xdp", "packet"));
    let [(left, Some(why)), ..] = &ports(&forwarding)[..] else {
        panic!("{:?}", ports(&forwarding))
    };
    assert!(left == "packet" && why.contains("`ethtool -K left rxvlan off`"), "{why}");
    assert_eq!(forwarding.status()["fast_path"], "on");
    stage.all_ways();
    forwarding.stop();
}

/// This machine is a station at the other end of a TAP, which comes and goes with nicache.
#[test]
fn a_tap_for_this_machine() {
    let stage = Stage::build();
    let tap = |right: &str| {
        format!(
            "[[interface]]\nname = \"guests\"\nport = \"tap\"\naddresses = [\"10.1.0.1/24\", \"fd01::1/64\"]\n\
             machine-addresses = [\"10.1.0.8/24\", \"fd01::8/64\"]\nmtu = 4000\n\
             [[interface]]\nname = \"right\"\nport = \"{right}\"\nmasquerade = true\n\
             [[route]]\nto = \"203.0.113.0/24\"\nvia = \"192.0.2.2\"\n[[route]]\nto = \"fd03::/64\"\nvia = \"fd02::2\"\n"
        )
    };
    // The net of the clients is this machine's now.
    ip("link del left");
    let path = stage.folder.path().join("check.toml");
    std::fs::write(&path, config(&tap("xdp"))).unwrap();
    let check = output(crate::common::NICACHE, &["forward", "check", path.to_str().unwrap()]);
    assert!(
        check.contains("mtu 4000, on a TAP that nicache makes") && check.contains("by AF_XDP"),
        "{check}"
    );
    assert!(!is_there("guests"));
    for right in ["packet", "xdp"] {
        let forwarding = stage.start(&tap(right));
        assert_eq!(ports(&forwarding), [("tap".to_owned(), None), (right.to_owned(), None)]);
        let link = output("ip", &["address", "show", "guests"]);
        assert!(
            link.contains("mtu 4000")
                && link.contains("10.1.0.8/24")
                && link.contains("fd01::8/64"),
            "{link}"
        );
        // What the kernel knows by the TAP is not the forwarder's own way.
        ip("route add 203.0.113.9/32 via 10.1.0.1");
        ip("route add fd03::9/128 via fd01::1");
        for host in [SERVICES[0], SERVICES[1], "203.0.113.9", "[fd03::9]"] {
            stage.downloads(None, host);
        }
        let now = forwarding.status();
        kill(now["card_pid"].as_u64().unwrap(), Signal::KILL);
        for host in [SERVICES[0], "[fd03::9]"] {
            stage.downloads(None, host);
        }
        let now = forwarding.status();
        assert!(now["restarts"] == 1 && is_there("guests"), "{now}");
        for name in ["fast_entered", "fast_failed", "refused"] {
            assert_eq!(counter(&forwarding, name), 0, "{name}: {now}");
        }
        if right == "packet" {
            forwarding.stop();
        } else {
            let processes = family(forwarding.pid());
            kill(forwarding.pid(), Signal::KILL);
            assert_all_gone(&processes);
        }
        within(SOON, || (!is_there("guests")).then_some(())).expect("the TAP is gone");
        within(SOON, || (!has_program("right")).then_some(())).expect("the program is gone");
    }
}
