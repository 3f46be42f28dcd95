//! `nicache forward` with less card memory than what waits in it.
//!
//! Datagrams wait for neighbours that nobody answers for, until the kernel is told where these are.
//! Meanwhile the card needs their places for others.

use std::net::UdpSocket;
use std::time::Duration;

use nicache_router::demo::file_byte;

use crate::common::{ip, uninterrupted};
use crate::forward::Forwarding;
use crate::forward_links::Net;

const FORWARDER_MAC: &str = "02:00:00:00:01:01";
const HOST_MAC: &str = "02:00:00:00:02:02";
/// Two entries of the card's cache each.
const DATAGRAM_BYTES: usize = 8000;
/// As many as may wait for one neighbour.
const FOR_EACH: usize = 3;
const NEIGHBOURS: usize = 10;
const ALL: usize = FOR_EACH * NEIGHBOURS;
const ROUNDS: usize = 10;

/// A forwarder with 64 entries, of which 32 are for what comes.
fn start(net: &Net, mode: &str) -> Forwarding {
    for (link, host) in [("one", &net.hosts[0]), ("two", &net.hosts[1])] {
        ip(&format!("link set {link} mtu 9000"));
        host.ip("link set eth0 mtu 9000");
    }
    ip(&format!("link set one address {FORWARDER_MAC}"));
    net.hosts[0].ip(format!("neigh replace 10.1.0.1 lladdr {FORWARDER_MAC} dev eth0"));
    net.hosts[1].ip(format!("link set eth0 address {HOST_MAC}"));
    // It does not say where it is (arp_ignore in the kernel's ip-sysctl).
    net.hosts[1].run(|| std::fs::write("/proc/sys/net/ipv4/conf/all/arp_ignore", "8").unwrap());
    net.start("", &["--mode", mode, "--memory", "256K", "--fast-path", "off"])
}

fn datagram(number: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        (0..DATAGRAM_BYTES).map(|at| file_byte(number * DATAGRAM_BYTES + at)).collect();
    bytes[..4].copy_from_slice(&(number as u32).to_be_bytes());
    bytes
}

/// Sends datagrams to neighbours that are known only when all have come. Returns how many of them
/// have arrived, each as it was sent.
fn round(net: &Net, sockets: &[UdpSocket; 2], round: usize) -> usize {
    let addresses = (0..NEIGHBOURS).map(|place| format!("10.2.0.{}", 100 + round * 10 + place));
    let addresses: Vec<String> = addresses.collect();
    for address in &addresses {
        net.hosts[1].ip(format!("address add {address}/32 dev eth0"));
    }
    let [source, sink] = sockets;
    for number in 0..ALL {
        let to = format!("{}:9", addresses[number % NEIGHBOURS]);
        source.send_to(&datagram(number), to).unwrap();
    }
    std::thread::sleep(Duration::from_millis(50));
    for address in &addresses {
        ip(&format!("neigh replace {address} lladdr {HOST_MAC} dev two nud permanent"));
    }
    let (mut bytes, mut came) = ([0; 2 * DATAGRAM_BYTES], 0);
    while came < ALL
        && let Ok(len) = uninterrupted(|| sink.recv(&mut bytes))
    {
        let number = u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize;
        assert!(bytes[..len] == datagram(number)[..], "{number} has other bytes");
        came += 1;
    }
    came
}

/// What the card has no room for is fetched, and arrives as it was sent; without that it is lost.
#[test]
fn what_is_spilled_arrives_as_it_was_sent() {
    for mode in ["spill", "adaptive", "direct"] {
        let net = Net::build();
        let source = net.hosts[0].run(|| UdpSocket::bind("10.1.0.2:0").unwrap());
        let sink = net.hosts[1].run(|| UdpSocket::bind("0.0.0.0:9").unwrap());
        sink.set_read_timeout(Some(Duration::from_millis(1500))).unwrap();
        let room = 4 << 20;
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&sink, room).unwrap();
        let sockets = [source, sink];
        let forwarding = start(&net, mode);
        assert_eq!(forwarding.status()["report"]["cache"]["entries"], 64);
        let counter = |name: &str| {
            forwarding.status()["report"]["counters"][name].as_u64().expect("a counter")
        };
        // On a busy machine neighbours are known too late: then what waits is given up.
        let is_shown = (0..ROUNDS).any(|number| {
            let came = round(&net, &sockets, number);
            if mode == "direct" { counter("lost") > 0 } else { came == ALL }
        });
        assert!(is_shown, "{mode}: {}", forwarding.status());
        assert_eq!(counter("lost") > 0, mode == "direct", "{mode}: {}", forwarding.status());
        if mode == "spill" {
            assert!(counter("spilled") > 0, "{}", forwarding.status());
        }
        assert_eq!(counter("refused"), 0, "{mode}");
        forwarding.stop();
    }
}
