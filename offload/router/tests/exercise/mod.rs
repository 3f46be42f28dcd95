//! What the fuzz targets and the replay of their corpora have in common.

#![allow(dead_code, reason = "not all who use this use all of it")]

use nicache_forward::Forwarder;
use nicache_router::config::Plan;
use nicache_router::keep::decode;
use nicache_router::kernel::Link;
use nicache_tcp::Time;

fn links() -> Vec<Link> {
    let link = |name: &str, index: u32, address: &str| Link {
        name: name.to_owned(),
        index,
        mac: [2, 0, 0, 0, 0, index as u8],
        mtu: 1500,
        is_up: true,
        is_ethernet: true,
        addresses: vec![(address.parse().unwrap(), 24)],
    };
    vec![link("eth0", 2, "10.1.0.1"), link("eth1", 3, "192.0.2.1")]
}

/// A file's text: an error with a line of the file, or a plan that a forwarder is made of.
pub(crate) fn configuration(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Plan::make(text, &links(), 1) {
        Err(error) => {
            let lines = text.split('\n').count();
            assert!((1..=lines).contains(&error.line), "{error}");
            assert!(!error.message.is_empty());
        }
        Ok(mut plan) => {
            // Memory is not what is looked at here.
            plan.config.limits.connections = plan.config.limits.connections.min(64);
            plan.config.limits.opening = plan.config.limits.opening.min(16);
            let _ = Forwarder::new(plan.config, Time::ZERO);
        }
    }
}

const FILE: &str = r#"
connections = 64
[[interface]]
name = "eth0"
[[interface]]
name = "eth1"
masquerade = true
[[service]]
protocol = "tcp"
address = "10.1.0.1:443"
by = "sni"
[[service.back-end]]
address = "192.0.2.2:443"
"#;

/// Records of connections, each behind its length: what another forwarder has left. What is taken
/// over can be kept again, and means the same.
pub(crate) fn snapshot(mut bytes: &[u8]) {
    let plan = Plan::make(FILE, &links(), 1).unwrap();
    let mut forwarder = Forwarder::new(plan.config, Time::ZERO).unwrap();
    forwarder.remember_changes();
    while let [len, rest @ ..] = bytes {
        let (record, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        bytes = rest;
        let Some(saved) = decode(record) else { continue };
        if !forwarder.restore(&saved, Time::ZERO) {
            continue;
        }
        let mut kept = Vec::new();
        while let Some(id) = forwarder.poll_changed() {
            kept.extend(forwarder.save(id));
        }
        let is_answered = |kept: &nicache_forward::saved::Saved| {
            (kept.original, kept.splice) == (saved.original, saved.splice)
        };
        assert!(kept.is_empty() || kept.iter().all(is_answered), "{kept:?}");
    }
    assert!(forwarder.connections().len() <= 64);
    forwarder.expire(Time(u64::MAX / 2));
}
