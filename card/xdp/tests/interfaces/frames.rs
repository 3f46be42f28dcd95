//! Frames of all kinds, each with where it belongs. Lengths and checksums are right as far as the
//! programs look at them: not at all.

/// A frame and whether it is the card's if it comes from the wire (for port 80) or the host (from
/// port 80).
pub(crate) struct Case {
    pub name: String,
    pub frame: Vec<u8>,
    pub is_cards: bool,
}

/// The ends of a connection as they are on the wire: addresses and ports.
#[derive(Clone, Copy)]
struct Ends {
    from: u8,
    to: u8,
    from_port: u16,
    to_port: u16,
}

const TCP: u8 = 6;
const UDP: u8 = 17;

fn ethernet(to: u8, from: u8, tags: &[u8], ethertype: u16) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from][..], tags, &ethertype.to_be_bytes()].concat()
}

fn ipv4(ends: Ends, protocol: u8, options: usize, fragment: u16) -> Vec<u8> {
    let mut header = vec![0x45 + options as u8, 0, 0, 200, 0, 7];
    header.extend(fragment.to_be_bytes());
    header.extend([64, protocol, 0, 0, 10, 77, 0, ends.from, 10, 77, 0, ends.to]);
    header.extend(vec![1; 4 * options]);
    header
}

fn ipv6(ends: Ends, next: u8, extension: Option<u8>) -> Vec<u8> {
    let address = |host: u8| [0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host];
    let mut header = vec![0x60, 0, 0, 0, 0, 160, extension.unwrap_or(next), 64];
    header.extend(address(ends.from));
    header.extend(address(ends.to));
    if extension.is_some() {
        header.extend([next, 0, 1, 4, 0, 0, 0, 0]);
    }
    header
}

fn ports(ends: Ends) -> Vec<u8> {
    [ends.from_port.to_be_bytes(), ends.to_port.to_be_bytes()].concat()
}

fn error(kind: u8) -> Vec<u8> {
    vec![kind, 4, 0, 0, 0, 0, 5, 120]
}

/// The cases from the client (1) to the server (2), or the other way.
pub(crate) fn cases(from_host: bool) -> Vec<Case> {
    let there = |service: u16| Ends { from: 1, to: 2, from_port: 40_000, to_port: service };
    let back = |service: u16| Ends { from: 2, to: 1, from_port: service, to_port: 40_000 };
    // As on this side, and what an error on this side quotes.
    let own = |service| if from_host { back(service) } else { there(service) };
    let quoted = |service| if from_host { there(service) } else { back(service) };
    let wrong = |service| if from_host { there(service) } else { back(service) };
    let (to, from) = if from_host { (1, 2) } else { (2, 1) };
    let mut cases = Vec::new();
    let mut add = |name: &str, tags: &[u8], ethertype: u16, parts: &[Vec<u8>], is_cards: bool| {
        let number = cases.len() as u16;
        let mut frame = ethernet(to, from, tags, ethertype);
        parts.iter().for_each(|part| frame.extend(part));
        // A mark to know it by.
        frame.extend([0xca; 60]);
        frame.extend(number.to_be_bytes());
        cases.push(Case { name: name.into(), frame, is_cards });
    };
    let tag = [0x81, 0, 0, 7];
    let two = [0x88, 0xa8, 0, 9, 0x81, 0, 0, 7];
    let three = [0x88, 0xa8, 0, 9, 0x81, 0, 0, 7, 0x81, 0, 0, 8];
    for (tags, name, few) in [
        (&[][..], "", true),
        (&tag, "vlan ", true),
        (&two, "qinq ", true),
        (&three, "3 tags ", false),
    ] {
        let is = |cards: bool| cards && few;
        let mut ip4 = |what: &str, parts: &[Vec<u8>], cards: bool| {
            add(&format!("{name}ipv4 {what}"), tags, 0x0800, parts, is(cards));
        };
        ip4("service", &[ipv4(own(80), TCP, 0, 0x4000), ports(own(80))], true);
        ip4("service of one address", &[ipv4(own(81), TCP, 0, 0), ports(own(81))], true);
        ip4("service of another address", &[ipv4(own(82), TCP, 0, 0), ports(own(82))], false);
        ip4("other port", &[ipv4(own(443), TCP, 0, 0), ports(own(443))], false);
        ip4("other end", &[ipv4(wrong(80), TCP, 0, 0), ports(wrong(80))], false);
        ip4("udp", &[ipv4(own(80), UDP, 0, 0), ports(own(80))], false);
        ip4("options", &[ipv4(own(80), TCP, 1, 0), ports(own(80))], true);
        ip4("options of another port", &[ipv4(own(443), TCP, 1, 0), ports(own(443))], false);
        ip4("options of udp", &[ipv4(own(80), UDP, 1, 0), ports(own(80))], false);
        ip4("first fragment", &[ipv4(own(80), TCP, 0, 0x2000), ports(own(80))], true);
        ip4("first fragment with options", &[ipv4(own(80), TCP, 10, 0x2000), ports(own(80))], true);
        ip4("later fragment", &[ipv4(own(80), TCP, 0, 0x0010), ports(own(80))], true);
        ip4(
            "fragment of another",
            &[ipv4(Ends { to: 9, from: 9, ..own(80) }, TCP, 0, 0x0010), ports(own(80))],
            false,
        );
        ip4("fragment of udp", &[ipv4(own(80), UDP, 0, 0x0010), ports(own(80))], false);
        for (kind, cards) in [(3, true), (11, true), (12, true), (8, false), (0, false), (5, false)]
        {
            let parts = [
                ipv4(own(0), 1, 0, 0),
                error(kind),
                ipv4(quoted(80), TCP, 0, 0),
                ports(quoted(80)),
            ];
            ip4(&format!("icmp {kind} about service"), &parts, cards);
        }
        let about = |inner: Vec<u8>, service| {
            [ipv4(own(0), 1, 0, 0), error(3), inner, ports(quoted(service))]
        };
        ip4("icmp about other port", &about(ipv4(quoted(443), TCP, 0, 0), 443), false);
        ip4("icmp about udp", &about(ipv4(quoted(80), UDP, 0, 0), 80), false);
        ip4("icmp about first fragment", &about(ipv4(quoted(80), TCP, 0, 0x2000), 80), true);
        ip4("icmp about later fragment", &about(ipv4(quoted(80), TCP, 0, 0x0010), 80), false);
        ip4("icmp about icmp", &about(ipv4(quoted(80), 1, 0, 0), 80), false);

        let mut ip6 = |what: &str, parts: &[Vec<u8>], cards: bool| {
            add(&format!("{name}ipv6 {what}"), tags, 0x86dd, parts, is(cards));
        };
        ip6("service", &[ipv6(own(80), TCP, None), ports(own(80))], true);
        ip6("service of one address", &[ipv6(own(83), TCP, None), ports(own(83))], true);
        ip6("service of an ipv4 address", &[ipv6(own(81), TCP, None), ports(own(81))], false);
        ip6("other port", &[ipv6(own(443), TCP, None), ports(own(443))], false);
        ip6("hop-by-hop options", &[ipv6(own(80), TCP, Some(0)), ports(own(80))], true);
        ip6("destination options", &[ipv6(own(80), TCP, Some(60)), ports(own(80))], true);
        ip6(
            "destination options of another port",
            &[ipv6(own(443), TCP, Some(60)), ports(own(443))],
            false,
        );
        ip6("a route", &[ipv6(own(80), TCP, Some(43)), ports(own(80))], false);
        // Behind the first header another one (its place is 1 byte and 4 of padding: not the
        // first).
        ip6("later fragment of another", &[ipv6(own(80), TCP, Some(44)), ports(own(80))], false);
        let fragment = |place: u16| {
            let place = place.to_be_bytes();
            [
                ipv6(own(80), 44, Some(60)),
                vec![TCP, 0, place[0], place[1], 0, 0, 0, 7],
                ports(own(80)),
            ]
        };
        ip6("fragment that is all", &fragment(0), true);
        ip6("first fragment", &fragment(1), true);
        ip6("later fragment", &fragment(16), true);
        for (kind, cards) in
            [(1, true), (2, true), (3, true), (4, true), (128, false), (135, false)]
        {
            let parts = [
                ipv6(own(0), 58, None),
                error(kind),
                ipv6(quoted(80), TCP, None),
                ports(quoted(80)),
            ];
            ip6(&format!("icmpv6 {kind} about service"), &parts, cards);
        }
        let parts =
            [ipv6(own(0), 58, None), error(2), ipv6(quoted(443), TCP, None), ports(quoted(443))];
        ip6("icmpv6 about other port", &parts, false);
        add(
            &format!("{name}ipv4 in the wrong version"),
            tags,
            0x86dd,
            &[ipv4(own(80), TCP, 0, 0), ports(own(80))],
            false,
        );
        add(&format!("{name}arp"), tags, 0x0806, &[vec![0, 1, 8, 0, 6, 4, 0, 1]], false);
    }
    cases
}

/// The number of the case that a frame is of, if it is one.
pub(crate) fn number(frame: &[u8]) -> Option<usize> {
    let (rest, number) = frame.split_last_chunk::<2>()?;
    rest.ends_with(&[0xca; 60]).then(|| usize::from(u16::from_be_bytes(*number)))
}
