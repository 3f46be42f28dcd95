//! The kernel's routes, links and neighbours, as the forwarder follows them.

use std::collections::{HashMap, HashSet};
use std::io;

use nicache_forward::prefix::Prefix;
use nicache_forward::routes::{Route, Routes};
use nicache_tcp::Time;

use super::Router;
use crate::config::{Interfaced, LinkPortKind, Plan, is_link_local};
use crate::kernel::{KernelNeighbour, KernelRoute, Knowledge, Link};

impl Router {
    /// Reads the kernel's tables, and hands them to the forwarder.
    pub(super) fn read_tables(&mut self, now: Time) -> io::Result<()> {
        let links = self.kernel.links()?;
        let known = if self.plan.kernel_routes { self.kernel.routes()? } else { Vec::new() };
        self.forwarder.set_routes(routes(&self.plan, &links, known));
        for (number, interface) in self.plan.interfaces.iter().enumerate() {
            let Some(link) = link_of(interface, &links) else { continue };
            if link.mtu > 0 {
                let mtu = interface.mtu.map_or(link.mtu, |wanted| wanted.min(link.mtu));
                self.forwarder.set_mtu(number, mtu);
            }
            // That of a TAP is its other end's.
            if link.mac != [0; 6] && !is_tap(&self.plan, link.index) {
                self.forwarder.set_mac(number, link.mac);
            }
        }
        let mut permanent = HashSet::new();
        for KernelNeighbour { index, address, mac, knowledge } in self.kernel.neighbours()? {
            let Some(interface) = interface_of(&self.plan, index) else { continue };
            if address.is_multicast() {
                continue;
            }
            match knowledge {
                Knowledge::Permanent => {
                    permanent.insert((interface, address));
                    self.forwarder.set_neighbour(interface, address, mac);
                }
                Knowledge::Confirmed => {
                    self.forwarder.learn_neighbour(interface, address, mac, now);
                }
                // One that is gone, or has another MAC address by now, stays so in the kernel.
                Knowledge::Old => self.forwarder.hint_neighbour(interface, address, mac, now),
            }
        }
        for (interface, address) in self.permanent.difference(&permanent) {
            self.forwarder.forget_neighbour(*interface, *address);
        }
        self.permanent = permanent;
        Ok(())
    }
}

/// Whether a kernel's interface is a TAP of the plan: what the kernel knows by it, it knows as the
/// station at the other end.
fn is_tap(plan: &Plan, index: u32) -> bool {
    plan.links.iter().any(|link| link.index == index && link.port == LinkPortKind::Tap)
}

/// The forwarder's interface that the kernel means by a number.
fn interface_of(plan: &Plan, index: u32) -> Option<usize> {
    let mut interfaces = plan.interfaces.iter();
    interfaces.position(|interface| {
        interface.vlan.is_none() && interface.index == index && !is_tap(plan, index)
    })
}

/// The kernel's link on which an interface is.
fn link_of<'a>(interface: &Interfaced, links: &'a [Link]) -> Option<&'a Link> {
    links.iter().find(|link| link.index == interface.index)
}

/// The forwarder's ways: those to its links, the kernel's by its interfaces, and the file's, of
/// which the last counts. A link that is down leads nowhere, so other ways to the same addresses
/// take its place.
///
/// What the kernel reaches by other interfaces, or throws away, leads nowhere: it must not go
/// where a shorter prefix leads.
fn routes(plan: &Plan, links: &[Link], mut known: Vec<KernelRoute>) -> Routes {
    known.retain(|route| route.index.is_none_or(|index| !is_tap(plan, index)));
    // Of several with the same prefix the kernel takes the one with the lowest metric.
    known.sort_by_key(|route| std::cmp::Reverse(route.metric));
    let known: HashMap<Prefix, KernelRoute> =
        known.into_iter().map(|route| (route.to, route)).collect();
    let ours = |route: &KernelRoute| {
        let interface = interface_of(plan, route.index?)?;
        Some(Route { to: route.to, interface, gateway: route.gateway })
    };
    let is_up = |number: usize| {
        let Some(interface) = plan.interfaces.get(number) else { return false };
        // The other end of a TAP may be in another namespace, and leads somewhere all the same.
        is_tap(plan, interface.index) || link_of(interface, links).is_some_and(|link| link.is_up)
    };
    let mut routes = Routes::default();
    for route in known.values().filter(|route| ours(route).is_none()) {
        routes.add_nowhere(route.to);
    }
    for number in (0..plan.interfaces.len()).filter(|number| is_up(*number)) {
        routes_of_link(plan, number, links).for_each(|route| routes.add(route));
    }
    known.values().filter_map(ours).for_each(|route| routes.add(route));
    let written = plan.config.routes.iter().filter(|route| is_up(route.interface));
    written.for_each(|route| routes.add(*route));
    routes
}

/// The ways to addresses on a link itself: of the addresses that the kernel has there now, if the
/// file says none.
fn routes_of_link<'a>(
    plan: &'a Plan,
    number: usize,
    links: &'a [Link],
) -> impl Iterator<Item = Route> + 'a {
    let named = &plan.interfaces[number];
    let addresses = match link_of(named, links).filter(|_| named.has_own_addresses) {
        Some(link) => &link.addresses,
        None => &plan.config.interfaces[number].addresses,
    };
    // Those of a link alone lead nowhere.
    addresses.iter().filter(|(address, _)| !is_link_local(*address)).filter_map(
        move |(address, len)| {
            let to = Prefix::new(*address, *len)?;
            Some(Route { to, interface: number, gateway: None })
        },
    )
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use nicache_namespaces::Namespace;

    use super::*;
    use crate::kernel::Kernel;

    /// A router in a namespace with the links `in`, `out` and `tun`, of which the first two are
    /// the forwarder's.
    fn router(file: &str) -> Option<(Namespace, Router)> {
        let namespace = Namespace::with_loopback()?;
        for (name, address) in
            [("in", "10.1.0.1/24"), ("out", "192.0.2.1/24"), ("tun", "10.66.0.1/24")]
        {
            namespace.ip(format!("link add {name} type veth peer name {name}-end"));
            namespace.ip(format!("link set {name} addrgenmode none up"));
            namespace.ip(format!("link set {name}-end addrgenmode none up"));
            namespace.ip(format!("address add {address} dev {name}"));
        }
        namespace.ip("route add default via 192.0.2.254");
        let (kernel, links) = namespace.run(|| {
            let mut kernel = Kernel::open().unwrap();
            let links: Vec<Link> = kernel.links().unwrap();
            (kernel, links)
        });
        let plan = Plan::make(file, &links, 1).unwrap();
        let mut router = Router::new(plan, kernel, None, Time::ZERO).unwrap();
        router.read_tables(Time::ZERO).unwrap();
        Some((namespace, router))
    }

    const FILE: &str =
        "[[interface]]\nname = \"in\"\n[[interface]]\nname = \"out\"\nmasquerade = true\n";

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// The interface that leads to an address, and the router there.
    fn way(router: &Router, to: &str) -> Option<(usize, Option<IpAddr>)> {
        let route = router.forwarder.routes().find(address(to))?;
        Some((route.interface, route.gateway))
    }

    /// What the kernel throws away, or sends by a tunnel, does not leave by the default route.
    #[test]
    fn what_goes_elsewhere_does_not_follow_shorter_prefixes() {
        let vlan = "[[interface]]\nname = \"in\"\nvlan = 7\naddresses = [\"10.66.0.9/24\"]\n\
                    [[route]]\nto = \"10.9.5.0/24\"\nvia = \"10.1.0.5\"\n";
        let Some((namespace, mut router)) = router(&format!("{FILE}{vlan}")) else { return };
        let default = Some((1, Some(address("192.0.2.254"))));
        for to in ["10.9.0.1", "10.10.0.1", "10.11.0.1", "10.12.0.1", "10.13.0.1"] {
            assert_eq!(way(&router, to), default);
        }
        for command in [
            "route add blackhole 10.9.0.0/16",
            "route add unreachable 10.10.0.0/16",
            "route add prohibit 10.11.0.0/16",
            "route add 10.12.0.0/16 dev tun",
            "route add 10.13.0.0/16 dev tun metric 5",
            "route add 10.13.0.0/16 via 10.1.0.13 metric 4",
            "route add 10.9.4.0/24 via 10.1.0.4",
        ] {
            namespace.ip(command);
        }
        router.read_tables(Time::ZERO).unwrap();
        for to in ["10.9.0.1", "10.10.0.1", "10.11.0.1", "10.12.0.1"] {
            assert_eq!(way(&router, to), None, "{to}");
        }
        assert_eq!(way(&router, "10.13.0.1"), Some((0, Some(address("10.1.0.13")))));
        assert_eq!(way(&router, "10.9.4.1"), Some((0, Some(address("10.1.0.4")))));
        // The file counts before the kernel.
        assert_eq!(way(&router, "10.9.5.1"), Some((0, Some(address("10.1.0.5")))));
        assert_eq!(way(&router, "10.66.0.2"), Some((2, None)));
        namespace.ip("route del 10.12.0.0/16");
        router.read_tables(Time::ZERO).unwrap();
        assert_eq!(way(&router, "10.12.0.1"), default);
    }

    /// What the kernel has heard of some time ago does not count as heard of now.
    #[test]
    fn an_old_neighbour_of_the_kernel_is_not_believed_for_long() {
        let Some((namespace, mut router)) = router(FILE) else { return };
        namespace.ip("neighbour add 10.1.0.8 lladdr 2:0:0:0:0:8 dev in nud reachable");
        namespace.ip("neighbour add 10.1.0.7 lladdr 2:0:0:0:0:7 dev in nud stale");
        let at = |seconds: u64| Time::from_millis(1_000_000 + seconds * 1000);
        let mac = |router: &mut Router, last: u8, seconds| {
            router.read_tables(at(seconds)).unwrap();
            router.forwarder.look_for([10, 1, 0, last].into(), at(seconds));
            router.forwarder.neighbours().find(0, [10, 1, 0, last].into())
        };
        assert_eq!(mac(&mut router, 7, 0), Some([2, 0, 0, 0, 0, 7]));
        assert_eq!(mac(&mut router, 8, 0), Some([2, 0, 0, 0, 0, 8]));
        // It is gone, and the kernel's table is read again and again.
        assert_eq!(mac(&mut router, 7, 50), Some([2, 0, 0, 0, 0, 7]));
        assert_eq!((mac(&mut router, 7, 70), mac(&mut router, 7, 71)), (None, None));
        // It has another network card, and has said so.
        router.forwarder.learn_neighbour(0, [10, 1, 0, 7].into(), [4; 6], at(72));
        assert_eq!(mac(&mut router, 7, 73), Some([4; 6]));
    }

    /// A link gets another MAC address, takes longer packets, loses its address, and goes down.
    #[test]
    fn links_are_followed() {
        let vlan =
            "[[interface]]\nname = \"in\"\nvlan = 7\naddresses = [\"10.7.0.1/24\"]\nmtu = 1400\n";
        let Some((namespace, mut router)) = router(&format!("{FILE}{vlan}")) else { return };
        let now = Time::ZERO;
        namespace.ip("link set in address 02:00:00:00:00:77 mtu 9000");
        router.read_tables(now).unwrap();
        let seen: Vec<_> = router
            .forwarder
            .interfaces()
            .iter()
            .map(|interface| (interface.mac == [2, 0, 0, 0, 0, 0x77], interface.mtu))
            .collect();
        assert_eq!(seen, [(true, 9000), (false, 1500), (true, 1400)]);

        // The connected networks also have another way.
        namespace.ip("route add 10.1.0.0/24 via 192.0.2.7 metric 700");
        namespace.ip("route add 10.7.0.0/24 via 192.0.2.7 metric 700");
        let backup = Some((1, Some(address("192.0.2.7"))));
        router.read_tables(now).unwrap();
        assert_eq!(way(&router, "10.1.0.9"), Some((0, None)));
        namespace.ip("address del 10.1.0.1/24 dev in");
        router.read_tables(now).unwrap();
        assert_eq!(way(&router, "10.1.0.9"), backup);
        namespace.ip("address add 10.1.0.1/24 dev in");
        router.read_tables(now).unwrap();
        assert_eq!(way(&router, "10.1.0.9"), Some((0, None)));
        namespace.ip("link set in down");
        router.read_tables(now).unwrap();
        assert_eq!((way(&router, "10.1.0.9"), way(&router, "10.7.0.9")), (backup, backup));
        namespace.ip("link set in up");
        router.read_tables(now).unwrap();
        assert_eq!(way(&router, "10.1.0.9"), Some((0, None)));
    }

    /// Without the kernel's routes those to its links are there, as long as the links are.
    #[test]
    fn links_are_followed_without_the_kernels_routes() {
        let file = format!("kernel-routes = false\n{FILE}");
        let Some((namespace, mut router)) = router(&file) else { return };
        assert_eq!((way(&router, "10.1.0.9"), way(&router, "10.9.0.1")), (Some((0, None)), None));
        namespace.ip("link set in down");
        router.read_tables(Time::ZERO).unwrap();
        assert_eq!(way(&router, "10.1.0.9"), None);
    }

    /// The kernel's end of a TAP may be in another namespace; and what the kernel knows by it, it
    /// knows as the station there.
    #[test]
    fn a_tap_leads_to_its_link_wherever_that_is() {
        let tap = Link {
            name: "guests".to_owned(),
            index: 9,
            mac: [6, 0, 0, 0, 0, 8],
            mtu: 1500,
            is_up: true,
            is_ethernet: true,
            addresses: Vec::new(),
        };
        let file =
            "[[interface]]\nname = \"guests\"\nport = \"tap\"\naddresses = [\"10.8.0.1/24\"]";
        let plan = Plan::make(file, &[tap], 1).unwrap();
        let known = KernelRoute {
            to: "0.0.0.0/0".parse().unwrap(),
            index: Some(9),
            gateway: Some(address("10.8.0.1")),
            metric: 0,
        };
        let routes = routes(&plan, &[], vec![known]);
        let to: Vec<String> = routes.iter().map(|route| route.to.to_string()).collect();
        assert_eq!(to, ["10.8.0.0/24"]);
    }
}
