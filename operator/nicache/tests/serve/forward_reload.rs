//! `nicache forward reload`: other rules for connections that are there.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use nicache_namespaces::Namespace;
use serde_json::Value;

use crate::common::{command, holds_within};
use crate::forward::{Forwarding, LIMIT};
use crate::forward_links::{Net, interfaces};

const SILENCE: Duration = Duration::from_millis(700);

/// A connection by the forwarder, both ends of it.
struct Connection {
    client: TcpStream,
    server: TcpStream,
}

impl Connection {
    fn open(client: &Namespace, listener: &TcpListener) -> Self {
        let address = listener.local_addr().unwrap();
        let client = client.run(move || TcpStream::connect_timeout(&address, LIMIT).unwrap());
        client.set_nodelay(true).unwrap();
        Self { client, server: listener.accept().unwrap().0 }
    }

    /// Whether a byte arrives in time.
    fn passes(&mut self, within: Duration) -> bool {
        let mut byte = [0];
        self.client.write_all(b"x").unwrap();
        self.server.set_read_timeout(Some(within)).unwrap();
        self.server.read_exact(&mut byte).is_ok()
    }
}

fn reload(forwarding: &Forwarding) -> Result<String, String> {
    let output = command(&["forward", "reload", "--json", "--name", &forwarding.name()]);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

fn counters(forwarding: &Forwarding) -> Value {
    forwarding.status()["report"]["counters"].clone()
}

/// With the fast path and without it, a rule that is new cuts a connection that is there, and
/// leaves another one alone.
#[test]
fn a_reload_cuts_connections_that_are_there() {
    for fast_path in ["auto", "off"] {
        let net = Net::build();
        let forwarding = net.start("", &["--fast-path", fast_path]);
        let listeners = [("10.2.0.2:80", 1), ("10.3.0.2:80", 2)].map(|(address, host)| {
            net.hosts[host].run(move || TcpListener::bind(address).unwrap())
        });
        let [mut cut, mut kept] =
            listeners.each_ref().map(|listener| Connection::open(&net.hosts[0], listener));
        for _ in 0..20 {
            assert!(cut.passes(LIMIT) && kept.passes(LIMIT));
        }
        if fast_path == "auto" {
            let is_fast = || {
                assert!(cut.passes(LIMIT) && kept.passes(LIMIT));
                counters(&forwarding)["fast_packets"].as_u64().unwrap() > 0
            };
            assert!(holds_within(LIMIT, is_fast), "{}", forwarding.status());
        }
        let drop = "[[rule]]\naction = \"drop\"\ndestination = \"10.2.0.2\"\n";
        // Nothing is changed by a file that is not right, or has something else in it.
        for (text, says) in [
            (format!("{}{drop}[[rule]]\naction = \"dorp\"\n", interfaces()), "dorp"),
            (format!("mode = \"copy\"\n{}{drop}", interfaces()), "another `mode`"),
            (
                format!(
                    "{}{drop}[[route]]\nto = \"10.9.0.0/16\"\nvia = \"10.3.0.2\"\n",
                    interfaces()
                ),
                "another `route`",
            ),
        ] {
            net.write(&text);
            let said = reload(&forwarding).unwrap_err();
            assert!(said.contains(says) && said.contains("nothing is changed"), "{said}");
            assert!(cut.passes(LIMIT));
        }
        net.write(&format!("{}{drop}", interfaces()));
        assert_eq!(reload(&forwarding).unwrap(), "{\"rules\":1}\n");
        assert!(!cut.passes(SILENCE), "a connection that a rule drops goes on");
        assert!(kept.passes(LIMIT));
        let now = forwarding.status();
        assert!(now["report"]["dropped"]["rule"].as_u64().unwrap() > 0, "{now}");
        assert_eq!(now["restarts"], 0, "{now}");
        // A forwarder that is started again has the rules of the file, too.
        let forwarder = now["forwarder_pid"].as_u64().unwrap();
        crate::common::kill(forwarder, rustix::process::Signal::KILL);
        assert!(holds_within(LIMIT, || forwarding.status()["restarts"] == 1));
        assert!(kept.passes(LIMIT) && !cut.passes(SILENCE));
        // Without the rule, what was sent meanwhile is sent again.
        net.write(&interfaces());
        assert_eq!(reload(&forwarding).unwrap(), "{\"rules\":0}\n");
        assert!(cut.passes(LIMIT) && kept.passes(LIMIT));
        forwarding.stop();
    }
}
