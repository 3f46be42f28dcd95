//! What keeps the kernel from answering what the forwarder forwards.
//!
//! Both see every frame: packet sockets before this machine's own stack. Without a guard the stack
//! would reset connections that it does not know, and forward packets a second time. The rules sit
//! where a device's frames enter the stack, behind packet sockets, and let in only what is this
//! machine's own: answers of neighbours, and at its own addresses errors, answers to health checks
//! and the ports that the configuration keeps for it, unless the forwarder answers there. They
//! belong to the process that made them, and go with it.

use std::fmt::Write as _;

use nicache_forward::tuple::{Endpoint, Protocol};

use crate::config::{Kept, LinkPortKind, OWN_PORTS, Plan};

/// Messages of ICMPv6 that neighbours send (RFC 4861).
const DISCOVERY: &str = "icmpv6 type { 133, 134, 135, 136, 137 } accept; ";

/// Errors that connections at kept ports need, such as the MTU of their path (RFC 1191, RFC 8201).
/// The forwarder has its own before. Redirects and questions stay out.
const ERRORS: &str = "fib daddr type local icmp type { 3, 11, 12 } accept; \
                      fib daddr type local icmpv6 type { 1, 2, 3, 4 } accept; ";

/// The name of the table.
pub fn table_name(instance: &str) -> String {
    format!("nicache_{instance}")
}

/// Ports that stay with this machine on a link: those of its health checks, and those that the
/// configuration keeps.
pub fn kept<'a>(plan: &'a Plan, link: &'a str) -> impl Iterator<Item = Kept> + 'a {
    let own = Kept { protocol: Protocol::Tcp, ports: OWN_PORTS };
    let interfaces = plan.interfaces.iter().filter(move |interface| interface.link == link);
    std::iter::once(own).chain(interfaces.flat_map(|interface| interface.keep.iter().cloned()))
}

/// What the forwarder answers for at ports that are kept on a link.
pub fn answered<'a>(
    plan: &'a Plan,
    link: &'a str,
) -> impl Iterator<Item = (Protocol, Endpoint)> + 'a {
    let kept: Vec<Kept> = kept(plan, link).collect();
    forwarded(plan).filter(move |(protocol, endpoint)| {
        let mut kept = kept.iter().filter(|kept| kept.protocol == *protocol);
        kept.any(|kept| kept.ports.contains(&endpoint.port))
    })
}

/// What the forwarder answers for.
fn forwarded(plan: &Plan) -> impl Iterator<Item = (Protocol, Endpoint)> {
    let services = plan.config.services.iter();
    let ports = plan.config.forwarded.iter();
    let groups = plan.config.groups.iter();
    services
        .map(|service| (service.protocol, service.address))
        .chain(ports.map(|forwarded| (forwarded.protocol, forwarded.external)))
        .chain(groups.map(|group| (Protocol::Udp, group.address)))
}

/// The whole table as one line for `nft -i`, so it comes into force at once or not at all.
pub fn rules(instance: &str, plan: &Plan) -> String {
    let mut text = format!("table netdev {} {{ flags owner; ", table_name(instance));
    // What goes to a TAP's kernel side is what the forwarder has sent there.
    let shared = plan.links.iter().filter(|link| link.port != LinkPortKind::Tap);
    for (number, link) in shared.enumerate() {
        let _ = write!(
            text,
            "chain port{number} {{ type filter hook ingress device \"{}\" priority 0; policy drop; ether type arp accept; {DISCOVERY}{ERRORS}",
            link.name
        );
        for (protocol, Endpoint { address, port }) in answered(plan, &link.name) {
            let version = if address.is_ipv4() { "ip" } else { "ip6" };
            let _ = write!(text, "{version} daddr {address} {protocol} dport {port} drop; ");
        }
        for Kept { protocol, ports } in kept(plan, &link.name) {
            let (first, last) = (ports.start(), ports.end());
            let _ = write!(text, "fib daddr type local {protocol} dport {first}-{last} accept; ");
        }
        text.push_str("}; ");
    }
    text.push('}');
    text
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use nicache_namespaces::Namespace;
    use rustix::io::{Errno, read, retry_on_intr};

    use super::*;
    use crate::kernel::{Kernel, Link};

    #[test]
    fn a_chain_for_each_device_that_the_machine_shares() {
        let link = |name: &str, index: u8| Link {
            name: name.to_owned(),
            index: index.into(),
            mac: [2, 0, 0, 0, 0, index],
            mtu: 1500,
            is_up: true,
            is_ethernet: true,
            addresses: vec![([10, 0, index, 1].into(), 24)],
        };
        let text = "[[interface]]\nname = \"a\"\nkeep = [\"tcp/22\", \"udp/500-510\"]\n[[interface]]\nname = \"b\"\n\
                    [[interface]]\nname = \"a\"\nvlan = 3\naddresses = [\"10.3.0.1/24\"]\n\
                    [[interface]]\nname = \"t\"\nport = \"tap\"\naddresses = [\"10.4.0.1/24\"]";
        let plan = Plan::make(text, &[link("a", 1), link("b", 2)], 1).unwrap();
        let rules = rules("nic0", &plan);
        assert!(
            rules.starts_with("table netdev nicache_nic0 { flags owner; chain port0 ")
                && !rules.contains('\n')
        );
        assert_eq!(
            (rules.matches("chain ").count(), rules.matches("policy drop").count()),
            (2, 2),
            "{rules}"
        );
        assert!(
            rules.contains(
                "local tcp dport 22-22 accept; fib daddr type local udp dport 500-510 accept; "
            ),
            "{rules}"
        );
    }

    /// The machine is 10.1.0.1 and 10.2.0.1 between two stations. `None`: no namespaces here.
    struct World {
        machine: Namespace,
        client: Namespace,
        server: Namespace,
    }

    const LIMIT: Duration = Duration::from_secs(60);
    const MOMENT: Duration = Duration::from_millis(200);

    impl World {
        fn new() -> Option<Self> {
            let machine = Namespace::with_loopback()?;
            machine.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
            let station = |end: &str, net: u8| {
                let station = Namespace::with_loopback()?;
                station.veth("eth0", &machine, end);
                machine.ip(format!("address add 10.{net}.0.1/24 dev {end}"));
                station.ip(format!("address add 10.{net}.0.2/24 dev eth0"));
                station.ip(format!("route add default via 10.{net}.0.1"));
                Some(station)
            };
            let (client, server) = (station("left", 1)?, station("right", 2)?);
            Some(Self { machine, client, server })
        }

        /// From now on with the rules of a file, which stay.
        fn guard(&self, more: &str) {
            let text = format!(
                "[[interface]]\nname = \"left\"\nkeep = [\"udp/500-510\"]\n\
                 [[interface]]\nname = \"right\"\n{more}"
            );
            let links = self.machine.run(|| Kernel::open().unwrap().links().unwrap());
            let rules = rules("test", &Plan::make(&text, &links, 1).unwrap());
            // Those with an owner go with the program that made them.
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), rules.replace("flags owner; ", "")).unwrap();
            self.machine.command("nft", format!("-f {}", file.path().display()));
        }
    }

    fn bound(namespace: &Namespace, address: &'static str, limit: Duration) -> UdpSocket {
        let socket = namespace.run(move || UdpSocket::bind(address).unwrap());
        socket.set_read_timeout(Some(limit)).unwrap();
        socket
    }

    fn comes(from: &UdpSocket, to: &UdpSocket) -> bool {
        from.send_to(b"x", to.local_addr().unwrap()).unwrap();
        retry_on_intr(|| read(to, &mut [0; 8])).is_ok()
    }

    /// Only what is for this machine itself gets to its stack at a port that it keeps: not what it
    /// would forward, and not what the forwarder answers for.
    #[test]
    fn kept_ports_are_those_of_this_machine() {
        let Some(world) = World::new() else { return };
        let client = bound(&world.client, "10.1.0.2:4000", LIMIT);
        let kept = bound(&world.machine, "10.1.0.1:500", LIMIT);
        let service = bound(&world.machine, "10.2.0.1:505", LIMIT);
        let beyond = bound(&world.server, "10.2.0.2:500", LIMIT);
        assert!(comes(&client, &kept) && comes(&client, &service) && comes(&client, &beyond));
        world.guard(
            "[[service]]\nprotocol = \"udp\"\naddress = \"10.2.0.1:505\"\n[[service.back-end]]\naddress = \"10.2.0.2:505\"",
        );
        assert!(comes(&client, &kept));
        for socket in [&service, &beyond] {
            socket.set_read_timeout(Some(MOMENT)).unwrap();
        }
        assert!(!comes(&client, &beyond), "forwarded twice");
        assert!(!comes(&client, &service), "answered twice");
    }

    /// What speaks from a kept port hears of errors, such as the MTU of its path.
    #[test]
    fn errors_get_to_kept_ports() {
        let Some(world) = World::new() else { return };
        world.guard("");
        let kept = bound(&world.machine, "10.1.0.1:500", LIMIT);
        kept.connect("10.1.0.2:9").unwrap();
        kept.send(b"x").unwrap();
        let received = retry_on_intr(|| read(&kept, &mut [0; 8]));
        assert_eq!(received, Err(Errno::CONNREFUSED));
        let beyond = bound(&world.machine, "10.1.0.1:501", LIMIT);
        // A way through the client to a link that takes less.
        world.client.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
        world.client.ip("link add short mtu 1000 type veth peer name end");
        for command in ["link set short up", "link set end up", "address add 10.3.0.1/24 dev short"]
        {
            world.client.ip(command);
        }
        world.machine.ip("route add 10.3.0.0/24 via 10.1.0.2");
        beyond.connect("10.3.0.2:9").unwrap();
        let too_long = std::iter::repeat_with(|| {
            std::thread::sleep(Duration::from_millis(20));
            beyond.send(&[0; 1400]).err()
        });
        let error = too_long.take(200).flatten().next().expect("the path's MTU is heard of");
        assert_eq!(error.raw_os_error(), Some(Errno::MSGSIZE.raw_os_error()));
    }
}
