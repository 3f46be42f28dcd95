//! What keeps the kernel from answering what the forwarder forwards.
//!
//! Both see every frame: packet sockets before this machine's own stack. Without a guard the stack
//! would reset connections that it does not know, and forward packets a second time. The rules sit
//! where a device's frames enter the stack, behind packet sockets, and let in only what is this
//! machine's own: answers of neighbours, answers to health checks, and the ports that the
//! configuration keeps for it. They belong to the process that made them, and go with it.

use std::fmt::Write as _;

use nicache_forward::tuple::Protocol;

use crate::config::{Kept, LinkPortKind, OWN_PORTS, Plan};

/// Messages of ICMPv6 that neighbours send (RFC 4861).
const DISCOVERY: &str = "icmpv6 type { 133, 134, 135, 136, 137 } accept; ";

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

/// The whole table as one line for `nft -i`, so it comes into force at once or not at all.
pub fn rules(instance: &str, plan: &Plan) -> String {
    let mut text = format!("table netdev {} {{ flags owner; ", table_name(instance));
    // What goes to a TAP's kernel side is what the forwarder has sent there.
    let shared = plan.links.iter().filter(|link| link.port != LinkPortKind::Tap);
    for (number, link) in shared.enumerate() {
        let _ = write!(
            text,
            "chain port{number} {{ type filter hook ingress device \"{}\" priority 0; policy drop; ether type arp accept; {DISCOVERY}",
            link.name
        );
        for kept in kept(plan, &link.name) {
            let _ = write!(
                text,
                "{} dport {}-{} accept; ",
                kept.protocol,
                kept.ports.start(),
                kept.ports.end()
            );
        }
        text.push_str("}; ");
    }
    text.push('}');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Link;

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
        assert!(rules.contains("tcp dport 22-22 accept; udp dport 500-510 accept; "), "{rules}");
    }
}
