use super::*;
use crate::kernel::Link;

fn links() -> Vec<Link> {
    let link = |name: &str, index: u32, address: &str| Link {
        name: name.to_owned(),
        index,
        mac: [2, 0, 0, 0, 0, index as u8],
        mtu: 1500,
        is_up: true,
        is_ethernet: name != "tun0",
        addresses: vec![(address.parse().unwrap(), 24)],
    };
    vec![link("eth0", 2, "10.1.0.1"), link("eth1", 3, "192.0.2.1"), link("tun0", 4, "10.9.0.1")]
}

const WHOLE: &str = r#"
mode = "direct"
memory = "8M"

[[interface]]
name = "eth0"
keep = ["tcp/22"]

[[interface]]
name = "eth0"
vlan = 7
addresses = ["10.7.0.1/24"]

[[interface]]
name = "eth1"
masquerade = true

[[route]]
to = "0.0.0.0/0"
via = "192.0.2.254"

[[port-forward]]
protocol = "tcp"
from = "192.0.2.1:2222"
to = "10.1.0.5:22"

[[service]]
name = "web"
protocol = "tcp"
address = "192.0.2.1:80"
check = { kind = "http", path = "/health", every = "500ms" }
  [[service.back-end]]
  address = "10.1.0.11:8080"
  weight = 3
  [[service.back-end]]
  address = "10.1.0.12:8080"

[[rule]]
action = "limit"
rate = "1M"
interface = "eth0.7"
"#;

#[test]
fn a_whole_file() {
    let plan = Plan::make(WHOLE, &links(), 1).unwrap();
    assert_eq!((plan.links.len(), plan.interfaces.len(), plan.memory), (2, 3, 8 << 20));
    assert_eq!(plan.config.interfaces[1].tags.bytes(), [0x81, 0, 0, 7]);
    assert_eq!(plan.config.interfaces[2].masquerade, [0]);
    assert_eq!(plan.config.routes[0].interface, 2);
    assert_eq!((plan.checks.len(), plan.checks[1].target.port()), (2, 8080));
    assert_eq!(plan.config.services[0].back_ends[0].weight, 3);
    assert_eq!(plan.config.rules[0].interface, Some(1));
}

/// Each error names its line, shows it, and says what to do.
#[test]
fn errors_name_line_and_key() {
    let cases = [
        ("name = \"eth0\"\nkeep = [\"tcp/22\"]", "nam = \"eth0\"", 6, "unknown field `nam`"),
        ("mode = \"direct\"", "mode = \"fast\"", 2, "copy, pcache, direct, spill or adaptive"),
        ("name = \"eth1\"", "name = \"eth7\"", 15, "it has eth0, eth1, tun0"),
        ("name = \"eth1\"", "name = \"tun0\"", 15, "not an Ethernet interface"),
        ("vlan = 7", "vlan = 5000", 11, "from 1 to 4094"),
        ("10.7.0.1/24", "10.7.0.1", 12, "such as 10.1.0.1/24"),
        ("192.0.2.254", "198.51.100.1", 18, "no interface has an address beside"),
        ("10.1.0.5:22", "[2001:db8::1]:22", 25, "another version of IP"),
        ("10.1.0.12:8080", "10.1.0.11:8080", 36, "there twice"),
        ("every = \"500ms\"", "every = \"5\"", 31, "such as 500ms"),
        ("rate = \"1M\"\n", "", 38, "write rate = \"10M\""),
        ("\"eth0.7\"", "\"eth9\"", 41, "it has eth0, eth0.7, eth1"),
        ("memory = \"8M\"", "memory = \"1K\"", 3, "from 256K to 2G"),
        ("masquerade = true", "masquerade = true\nkeep = [\"tcp/8000\"]", 16, "with others"),
        ("masquerade = true", "masquerade = 7", 16, "true, false or a list"),
        ("vlan = 7", "vlan = 7\nport = \"xdp\"", 12, "has port = \"packet\" in another"),
        ("keep = [\"tcp/22\"]", "port = \"afxdp\"", 7, "write packet, xdp or tap"),
        ("keep = [\"tcp/22\"]", "machine-addresses = [\"10.1.0.9/24\"]", 7, "for port = \"tap\""),
    ];
    for (old, new, line, message) in cases {
        assert!(WHOLE.contains(old), "{old}");
        let error = Plan::make(&WHOLE.replacen(old, new, 1), &links(), 1).unwrap_err();
        assert!(
            error.line == line && error.message.contains(message) && !error.text.is_empty(),
            "{new}: {error}"
        );
    }
    let error = Plan::make("", &links(), 1).unwrap_err();
    assert!(error.to_string().contains("[[interface]]"), "{error}");
}

const TAP: &str = r#"
[[interface]]
name = "guests"
port = "tap"
addresses = ["10.8.0.1/24"]
machine-addresses = ["10.8.0.2/24", "fd08::2/64"]

[[interface]]
name = "guests"
port = "tap"
vlan = 4
addresses = ["10.4.0.1/24"]
mtu = 4000

[[interface]]
name = "eth0"
port = "xdp"
"#;

/// A TAP need not be there: what it is to be like follows from all that is on it.
#[test]
fn a_tap_to_be_made() {
    let plan = Plan::make(TAP, &links(), 1).unwrap();
    let tap = TapPlan {
        mtu: 4000,
        addresses: vec![("10.8.0.2".parse().unwrap(), 24), ("fd08::2".parse().unwrap(), 64)],
    };
    let made = |name: &str, index, port, tap| Linking { name: name.into(), index, port, tap };
    assert_eq!(
        plan.links,
        [made("guests", 0, LinkPortKind::Tap, Some(tap)), made("eth0", 2, LinkPortKind::Xdp, None)]
    );
    assert_eq!((plan.config.interfaces[0].mtu, plan.config.interfaces[1].mtu), (4000, 4000));
    // Once it is there: beside the kernel's own address, and with none of those that the kernel
    // has.
    let mut with_it = links();
    with_it.push(Link {
        name: "guests".into(),
        index: 9,
        mac: [6, 0, 0, 0, 0, 8],
        mtu: 4000,
        ..with_it[0].clone()
    });
    let plan = Plan::make(TAP, &with_it, 1).unwrap();
    assert_eq!((plan.links[0].index, plan.config.interfaces[0].mac), (9, [6, 0, 0, 0, 0, 9]));
    assert_eq!(plan.config.interfaces[0].addresses, [("10.8.0.1".parse().unwrap(), 24)]);
    for (old, new, line, message) in [
        ("addresses = [\"10.8.0.1/24\"]", "", 2, "no address"),
        ("\"10.8.0.2/24\"", "\"10.8.0.1/24\"", 6, "the forwarder has this address"),
        ("mtu = 4000", "mtu = 65536", 13, "9216 at most"),
        ("mtu = 4000", "machine-addresses = [\"10.4.0.2/24\"]", 13, "type vlan"),
        ("mtu = 4000", "keep = [\"tcp/22\"]", 9, "its own end"),
        ("name = \"guests\"", "name = \"guests-of-this-house\"", 3, "1 to 15 bytes"),
    ] {
        assert!(TAP.contains(old), "{old}");
        let error = Plan::make(&TAP.replacen(old, new, 1), &links(), 1).unwrap_err();
        assert!(error.line == line && error.message.contains(message), "{new}: {error}");
    }
}

const BY_NAME: &str = r#"
[[interface]]
name = "eth0"

[[service]]
name = "sites"
protocol = "tcp"
address = "10.1.0.1:443"
by = "sni"
proxy-protocol = "v2"
  [[service.back-end]]
  address = "10.1.0.11:443"
  names = ["shop.example", "*.shop.example"]
  [[service.back-end]]
  address = "10.1.0.12:443"
"#;

#[test]
fn a_service_by_name() {
    use nicache_forward::first_bytes::name::Name;
    let plan = Plan::make(BY_NAME, &links(), 1).unwrap();
    let by_name = plan.config.services[0].by_name.as_ref().unwrap();
    assert!(by_name.proxy_protocol && by_name.by.to_string() == "sni");
    let set = |text: &str| by_name.names.find(Name::new(text.as_bytes()).as_ref()).unwrap();
    assert_eq!(
        (set("a.shop.example"), by_name.names.sets()[usize::from(set("x.example"))].clone()),
        (set("shop.example"), vec![1])
    );
    for (old, new, line, message) in [
        ("by = \"sni\"", "by = \"path\"", 9, "unknown variant"),
        ("by = \"sni\"\n", "", 12, "names are for a service with by"),
        ("by = \"sni\"\nproxy", "proxy", 12, "names are for"),
        ("protocol = \"tcp\"", "protocol = \"udp\"", 9, "only a service of TCP"),
        ("\"v2\"", "\"v1\"", 10, "write v2"),
        ("\"*.shop.example\"", "\"*\"", 13, "such as shop.example"),
        ("\"*.shop.example\"", "\"SHOP.example.\"", 13, "the name twice"),
    ] {
        assert!(BY_NAME.contains(old), "{old}");
        let error = Plan::make(&BY_NAME.replacen(old, new, 1), &links(), 1).unwrap_err();
        assert!(
            error.line == line && error.message.contains(message) && !error.text.is_empty(),
            "{new}: {error}"
        );
    }
    let lonely = BY_NAME
        .replace("by = \"sni\"\n", "")
        .replace("names = [\"shop.example\", \"*.shop.example\"]", "");
    let error = Plan::make(&lonely, &links(), 1).unwrap_err();
    assert!(
        error.line == 9 && error.message.contains("see their clients' own addresses"),
        "{error}"
    );
}

const ENDPOINTS: &str = r#"
[[interface]]
name = "eth0"

[[interface]]
name = "eth1"
masquerade = ["192.0.2.9"]

[[interface]]
name = "eth0"
vlan = 7
addresses = ["10.7.0.1/24"]
masquerade = ["10.7.0.1"]

[[port-forward]]
protocol = "udp"
from = "192.0.2.1:53"
to = "10.1.0.5:53"

[[service]]
protocol = "udp"
address = "192.0.2.1:54"
  [[service.back-end]]
  address = "10.1.0.6:54"

[[service]]
protocol = "tcp"
address = "192.0.2.1:55"
  [[service.back-end]]
  address = "10.1.0.6:55"

[[fan-out]]
address = "192.0.2.1:56"
to = ["10.1.0.7:56", "10.1.0.8:56"]

[[fan-out]]
address = "192.0.2.1:57"
to = ["10.1.0.7:57"]
"#;

/// Nothing is there twice, and nothing leads to what the forwarder itself answers for: an error
/// names both places.
#[test]
fn nothing_answers_at_one_endpoint_twice() {
    let mut plan = Plan::make(ENDPOINTS, &links(), 1).unwrap();
    assert_eq!((plan.config.groups.len(), plan.config.externals.len()), (2, 3));
    for (old, new, line, message) in [
        ("192.0.2.1:57", "192.0.2.1:56", 37, "[[fan-out]] in line 33"),
        ("192.0.2.1:57", "192.0.2.1:54", 37, "[[service]] in line 22"),
        ("192.0.2.1:56", "192.0.2.1:53", 33, "[[port-forward]] in line 17"),
        ("192.0.2.1:54", "192.0.2.1:53", 22, "[[port-forward]] in line 17"),
        ("10.1.0.6:54", "192.0.2.1:54", 24, "[[service]] in line 22"),
        ("10.1.0.6:54", "192.0.2.1:57", 24, "[[fan-out]] in line 37"),
        ("10.1.0.5:53", "192.0.2.1:53", 18, "[[port-forward]] in line 17"),
        ("10.1.0.8:56", "192.0.2.1:56", 34, "[[fan-out]] in line 33"),
        ("10.7.0.1/24", "10.1.0.1/24", 12, "`eth0` has the address 10.1.0.1, too"),
        (
            "masquerade = [\"10.7.0.1\"]",
            "masquerade = [\"192.0.2.9\"]\nports = \"2000-3000\"",
            13,
            "line 7 masquerades",
        ),
        (
            "masquerade = [\"10.7.0.1\"]",
            "masquerade = [\"192.0.2.9\"]\nopen-mappings = true",
            13,
            "line 7 masquerades",
        ),
    ] {
        assert!(ENDPOINTS.contains(old), "{old}");
        let error = Plan::make(&ENDPOINTS.replacen(old, new, 1), &links(), 1).unwrap_err();
        assert!(error.line == line && error.message.contains(message), "{new}: {error}");
    }
    // TCP and UDP are two things, and one address may be masqueraded with at two interfaces.
    for (old, new) in [
        ("192.0.2.1:55", "192.0.2.1:54"),
        ("10.1.0.6:55", "192.0.2.1:54"),
        ("masquerade = [\"10.7.0.1\"]", "masquerade = [\"192.0.2.9\"]"),
    ] {
        plan = Plan::make(&ENDPOINTS.replacen(old, new, 1), &links(), 1).unwrap();
    }
    assert_eq!(plan.config.interfaces[1].masquerade, plan.config.interfaces[2].masquerade);
    // Another VLAN has the written address.
    let more = format!(
        "{ENDPOINTS}\n[[interface]]\nname = \"eth1\"\nvlan = 8\naddresses = [\"10.7.0.1/24\"]\n"
    );
    let error = Plan::make(&more, &links(), 1).unwrap_err();
    assert!(error.line == 43 && error.message.contains("`eth0.7` (line 12)"), "{error}");
}

/// What this machine keeps at its own addresses nothing else answers at, and it is not given out.
#[test]
fn what_is_kept_is_nobody_elses() {
    let file = |keep: &str, more: &str| {
        let text = format!(
            "[[interface]]\nname = \"eth0\"\nkeep = [\"{keep}\"]\n[[interface]]\nname = \"eth1\"\n{more}"
        );
        Plan::make(&text, &links(), 1)
    };
    let service = |address: &str| {
        format!(
            "[[service]]\nprotocol = \"tcp\"\naddress = \"{address}\"\nmasquerade = \"10.1.0.1\"\n\
             [[service.back-end]]\naddress = \"10.1.0.11:80\""
        )
    };
    let port = |from: &str| {
        format!("[[port-forward]]\nprotocol = \"tcp\"\nfrom = \"{from}\"\nto = \"10.1.0.12:80\"")
    };
    for (more, message) in [
        (
            service("10.1.0.1:8022"),
            "ports 8022-8022 of 10.1.0.1 stay with this machine (keep of `eth0`)",
        ),
        (
            service("192.0.2.1:993"),
            "ports 900-999 of 192.0.2.1 stay with this machine (health checks)",
        ),
        (port("10.1.0.1:8022"), "give this [[port-forward]] another port"),
        (port("10.9.0.1:900"), "(health checks)"),
    ] {
        let error = file("tcp/8022", &more).unwrap_err();
        assert!((6..=8).contains(&error.line) && error.message.contains(message), "{error}");
    }
    // Addresses that this machine does not have, or keeps nothing at, are free.
    for more in [service("192.0.2.1:8022"), service("192.0.2.99:993"), port("192.0.2.1:8022")] {
        file("tcp/8022", &more).unwrap();
    }
    let plan = file("tcp/8022", &service("192.0.2.1:80")).unwrap();
    assert_eq!(plan.config.externals[0].ports, 8023..=65_535);
    let error = file("tcp/1000-65535", &service("192.0.2.1:80")).unwrap_err();
    assert!(error.line == 9 && error.message.contains("all ports of 10.1.0.1"), "{error}");
}

#[test]
fn any_text_is_an_error_or_a_plan() {
    for cut in 0..WHOLE.len() {
        let _ = Plan::make(&WHOLE[..cut], &links(), 1);
        let _ = Plan::make(&WHOLE[cut..], &links(), 1);
    }
    for cut in 0..BY_NAME.len() {
        let _ = Plan::make(&BY_NAME[..cut], &links(), 1);
    }
}
