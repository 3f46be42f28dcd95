//! Clients behind a proxy: what it adds to their requests, and who sends it.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use nicache_cache::AgeBounds;
use nicache_coherence::Class;
use nicache_tcp::Time;

use crate::script::{SOURCE, Script};

const PROXY: [u8; 4] = [10, 0, 0, 9];
const AGENT: &str = "User-Agent: Desk/1\r\n";

/// What the host says to somebody who connects from an address and sends a head; `None`: 403.
type Says = fn([u8; 4], &str) -> Option<String>;

struct Site {
    script: Script,
    says: Says,
    heads: Rc<RefCell<Vec<String>>>,
    number: u32,
}

impl Site {
    fn new(says: Says) -> Self {
        let script = Script::with_ages(Class::Dynamic, AgeBounds::default());
        Self { script, says, heads: Rc::default(), number: 0 }
    }

    /// What somebody gets who connects from `address` with these header lines, and whether from the
    /// card.
    fn ask(&mut self, address: [u8; 4], fields: &str) -> (Option<String>, bool) {
        let request = format!("GET /page HTTP/1.1\r\nHost: a\r\n{AGENT}{fields}\r\n");
        self.ask_plainly(address, request.as_bytes())
    }

    fn ask_plainly(&mut self, address: [u8; 4], request: &[u8]) -> (Option<String>, bool) {
        let (says, heads, peer) = (self.says, Rc::clone(&self.heads), Rc::clone(&self.script.peer));
        let mut serve = |_: Time, head: &[u8]| {
            let head = String::from_utf8(head.to_vec()).expect("text");
            let answer = says(peer.get(), &head);
            heads.borrow_mut().push(head);
            let (status, body) =
                answer.map_or(("403 Forbidden", String::new()), |body| ("200 OK", body));
            let date = "Date: Tue, 14 Nov 2023 22:13:20 GMT";
            let reply = format!(
                "HTTP/1.1 {status}\r\n{date}\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            (Duration::from_millis(5), reply.into_bytes())
        };
        let (reply, is_hit) = self.script.visit(address, request, &mut serve);
        let text = String::from_utf8(reply).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        (head.contains(" 200 ").then(|| body.to_owned()), is_hit)
    }

    /// Another visitor behind the proxy each time, as Caddy and nginx pass it on, and a load
    /// balancer that counts.
    fn visit(&mut self, more: &str) -> (Option<String>, bool) {
        let fields = self.fields(more);
        self.ask(PROXY, &fields)
    }

    fn fields(&mut self, more: &str) -> String {
        self.number += 1;
        let (high, low, id) =
            (self.number / 250, self.number % 250 + 1, self.number.wrapping_mul(0x9e37_79b1));
        format!(
            "X-Forwarded-For: 198.18.{high}.{low}\r\nX-Real-IP: 198.18.{high}.{low}\r\nX-Request-Id: {id:08x}{:08x}\r\n{more}",
            id ^ 0x5555_0000
        )
    }

    fn own(&self) -> usize {
        self.heads.borrow().iter().filter(|head| head.contains("nicache/")).count()
    }
}

fn field<'a>(head: &'a str, name: &str) -> &'a str {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap_or_default()
}

/// How many of `count` visits are hits.
fn hits(site: &mut Site, count: usize, mut visit: impl FnMut(&mut Site) -> bool) -> usize {
    (0..count).filter(|_| visit(site)).count()
}

#[test]
fn pages_become_hits_behind_a_proxy() {
    let mut site = Site::new(|_, _| Some("for all".to_owned()));
    assert!(hits(&mut site, 40, |site| site.visit("X-Forwarded-Proto: https\r\n").1) >= 36);
    // Each through the proxy alone, and those who come directly as a class of their own.
    let direct = hits(&mut site, 10, |site| {
        site.number += 1;
        site.ask([10, 0, 1, site.number as u8], "X-Forwarded-Proto: https\r\n").1
    });
    assert!(direct == 0, "each of them may make the header up: {direct}");
    assert_eq!(site.script.card.counters().cache.executions_differed, 0);
}

#[test]
fn what_a_server_makes_links_of_is_in_the_key() {
    let mut site = Site::new(|_, head| {
        Some(format!("{}://{}", field(head, "X-Forwarded-Proto"), field(head, "X-Forwarded-Host")))
    });
    let kinds = [("http", "a"), ("https", "a"), ("https", "b")];
    for round in 0..40 {
        for (proto, host) in kinds {
            let (body, is_hit) =
                site.visit(&format!("X-Forwarded-Proto: {proto}\r\nX-Forwarded-Host: {host}\r\n"));
            assert_eq!(body.unwrap(), format!("{proto}://{host}"));
            assert!(is_hit || round < 5, "{proto} {host}, round {round}");
        }
    }
}

#[test]
fn who_repeats_something_of_the_request_is_never_shared() {
    let echoes: [Says; 4] = [
        |_, head| Some(field(head, "X-Request-Id").to_owned()),
        |_, head| Some(field(head, "X-Forwarded-For").to_owned()),
        |_, head| Some(field(head, "X-Real-IP").split('.').next_back()?.to_owned()),
        |_, head| Some(format!("trace {}", field(head, "traceparent").split('-').nth(1)?)),
    ];
    for says in echoes {
        let mut site = Site::new(says);
        for number in 0..60_u32 {
            // Spans of one trace at a time.
            let trace = format!(
                "traceparent: 00-{:032x}-{:016x}-01\r\n",
                number / 3 + 0x1234_5678,
                number + 0x9999_0000
            );
            let fields = site.fields(&trace);
            let own = says(PROXY, &fields);
            let (body, is_hit) = site.ask(PROXY, &fields);
            assert_eq!(body, own);
            assert!(!is_hit, "visit {number}");
        }
    }
}

#[test]
fn made_up_fields_gain_nothing() {
    // Says whom it takes the client for, as some do.
    let says: Says = |peer, head| {
        let said = field(head, "X-Client-IP");
        Some(if said.is_empty() {
            format!("hello {}", peer[3])
        } else {
            format!("hello {}", said.len())
        })
    };
    let mut site = Site::new(says);
    // One client is several, by what it says, and sends the same identifiers as the card, as far as
    // it can guess them.
    for number in 0..40 {
        let (body, _) =
            site.ask([10, 0, 0, 66], &format!("X-Client-IP: 203.0.113.{:03}\r\n", number + 100));
        assert_eq!(body.as_deref(), Some("hello 13"));
    }
    for number in 1..40 {
        let (body, is_hit) = site.ask([10, 0, 1, number], "");
        assert_eq!((body, is_hit), (Some(format!("hello {number}")), false));
        // Nor has anybody else who says so, by another way.
        assert!(!site.ask([10, 0, 1, number], "X-Client-IP: 203.0.113.200\r\n").1);
    }
}

#[test]
fn a_server_that_believes_its_proxy_alone() {
    let says: Says = |peer, head| {
        let proto = if peer == PROXY { field(head, "X-Forwarded-Proto") } else { "http" };
        Some(format!("links by {proto}"))
    };
    let mut site = Site::new(says);
    let mut count = 0;
    for number in 0..60 {
        // Somebody who makes it up comes first, and goes on.
        for _ in 0..2 {
            let (body, _) = site.ask(
                [10, 0, 0, 66],
                "X-Forwarded-For: 198.51.100.1\r\nX-Forwarded-Proto: https\r\n",
            );
            assert_eq!(body.as_deref(), Some("links by http"), "{number}");
        }
        let (body, is_hit) = site.visit("X-Forwarded-Proto: https\r\n");
        assert_eq!(body.as_deref(), Some("links by https"), "{number}");
        count += usize::from(is_hit);
    }
    assert!(count >= 50, "{count} hits");
    // The card asks from its own address: it finds that this says nothing, and leaves it.
    let before = site.own();
    for _ in 0..60 {
        site.visit("X-Forwarded-Proto: https\r\n");
        site.script.wait(Duration::from_millis(100));
    }
    assert_eq!(site.own(), before);
}

#[test]
fn a_server_that_lets_nobody_in_but_its_proxy() {
    let mut site = Site::new(|peer, _| (peer == PROXY).then(|| "inside".to_owned()));
    let count = hits(&mut site, 60, |site| {
        let (body, is_hit) = site.visit("");
        assert_eq!(body.as_deref(), Some("inside"));
        is_hit
    });
    assert!(count >= 50, "{count} hits");
    for number in 1..20 {
        assert_eq!(
            site.ask([10, 0, 1, number], "X-Forwarded-For: 198.51.100.1\r\n"),
            (None, false)
        );
        assert_eq!(site.ask([10, 0, 1, number], ""), (None, false));
    }
}

/// A proxy of the same machine connects from the card's address: then what the card is told is what
/// its visitors get.
#[test]
fn a_proxy_of_the_same_machine() {
    const OWN: [u8; 4] = [10, 0, 0, 3];
    let says: Says = |peer, head| {
        Some(format!(
            "links by {}",
            if peer == OWN { field(head, "X-Forwarded-Proto") } else { "http" }
        ))
    };
    let mut site = Site::new(says);
    for number in 0..300 {
        let fields = site.fields("X-Forwarded-Proto: https\r\n");
        // A port that is not a port of the card's.
        let (body, is_hit) = site.ask(OWN, &fields);
        assert_eq!(body.as_deref(), Some("links by https"));
        assert!(is_hit || number < 5, "{number}");
        if number % 20 == 0 {
            let (body, _) = site.ask(
                [10, 0, 0, 66],
                "X-Forwarded-For: 198.51.100.1\r\nX-Forwarded-Proto: https\r\n",
            );
            assert_eq!(body.as_deref(), Some("links by http"));
        }
        site.script.wait(Duration::from_millis(100));
    }
    assert!(site.own() >= 2, "{}", site.own());
}

/// A rule for the proxy's visitors that begins to hold with a change that leaves the page as it is
/// for the card.
#[test]
fn after_a_change_the_card_does_not_speak_for_the_proxy() {
    let mut site = Site::new(|_, _| Some("old".to_owned()));
    for _ in 0..30 {
        site.visit("");
        site.script.wait(Duration::from_millis(50));
    }
    assert!(site.visit("").1);
    site.says = |peer, _| Some(if peer == PROXY { "new" } else { "old" }.to_owned());
    site.script.table.record_change(SOURCE);
    *site.script.reinstatement.lock().unwrap() = nicache_coherence::Reinstatement::Gone;
    for round in 0..40 {
        let (body, _) = site.visit("");
        assert_eq!(body.as_deref(), Some("new"), "round {round}");
        site.script.wait(Duration::from_millis(250));
    }
}

/// An internal visitor gets what an external one does not.
#[test]
fn a_private_network_is_another_class() {
    let says: Says = |_, head| {
        Some(
            if field(head, "X-Real-IP").starts_with("192.168.") { "inside" } else { "outside" }
                .to_owned(),
        )
    };
    let mut site = Site::new(says);
    for number in 1..60 {
        let (body, _) = site.ask(PROXY, &format!("X-Real-IP: 192.168.0.{number}\r\n"));
        assert_eq!(body.as_deref(), Some("inside"));
        let (body, _) = site.ask(PROXY, &format!("X-Real-IP: 198.18.0.{number}\r\n"));
        assert_eq!(body.as_deref(), Some("outside"));
    }
}

#[test]
fn the_card_says_another_client_each_time() {
    let mut site = Site::new(|_, _| Some("for all".to_owned()));
    for _ in 0..200 {
        site.visit("X-Forwarded-Proto: https\r\nForwarded: for=198.18.0.1;proto=https\r\n");
        site.script.wait(Duration::from_millis(200));
    }
    let heads = site.heads.borrow();
    let own: Vec<&String> = heads.iter().filter(|head| head.contains("nicache/")).collect();
    assert!(own.len() >= 3, "{}", own.len());
    for head in &own {
        assert!(!head.contains("198.18."), "{head}");
        assert_eq!(field(head, "X-Forwarded-Proto"), "https");
        assert_eq!(field(head, "X-Request-Id").len(), 16, "{head}");
        assert!(
            field(head, "X-Forwarded-For")
                .parse::<std::net::Ipv4Addr>()
                .unwrap()
                .is_documentation()
        );
    }
    let ids: std::collections::HashSet<&str> =
        own.iter().map(|head| field(head, "X-Request-Id")).collect();
    assert_eq!(ids.len(), own.len());
}
