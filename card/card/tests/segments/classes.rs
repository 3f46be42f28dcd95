//! Classes of clients: an entry answers those that the server has answered, and the card asks as
//! they would.

use std::cell::RefCell;
use std::time::Duration;

use nicache_cache::AgeBounds;
use nicache_coherence::{Class, Reinstatement};
use nicache_tcp::Time;

use crate::script::{SOURCE, Script};

/// A server that answers by a header of the request, and what it was asked.
struct Site {
    script: Script,
    says: fn(&str) -> Option<&'static str>,
    heads: RefCell<Vec<String>>,
    visits: u8,
}

impl Site {
    fn new(class: Class, says: fn(&str) -> Option<&'static str>) -> Self {
        let script = Script::with_ages(class, AgeBounds::default());
        Self { script, says, heads: RefCell::default(), visits: 0 }
    }

    /// What a client with these header lines gets, and whether from the card; `None`: it is
    /// refused.
    fn visit(&mut self, fields: &str) -> (Option<String>, bool) {
        self.visits = self.visits.wrapping_add(1);
        let request = format!("GET /page HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let (says, heads) = (self.says, &self.heads);
        let mut serve = |_: Time, head: &[u8]| {
            let head = String::from_utf8(head.to_vec()).expect("text");
            let answer = says(&head);
            heads.borrow_mut().push(head);
            let (status, body) = answer.map_or(("403 Forbidden", ""), |body| ("200 OK", body));
            let date = "Date: Tue, 14 Nov 2023 22:13:20 GMT";
            let reply = format!(
                "HTTP/1.1 {status}\r\n{date}\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            (Duration::from_millis(5), reply.into_bytes())
        };
        let (reply, is_hit) =
            self.script.visit([10, 0, 1, self.visits], request.as_bytes(), &mut serve);
        let text = String::from_utf8(reply).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        (head.contains(" 200 ").then(|| body.to_owned()), is_hit)
    }

    /// Visits until the card answers: how many it took, and what it answers.
    fn settle(&mut self, fields: &str) -> (usize, String) {
        let found = (1..12).find_map(|visits| {
            let (body, is_hit) = self.visit(fields);
            Some((visits, body.expect("not refused"))).filter(|_| is_hit)
        });
        found.expect("the card answers")
    }
}

const OWN: &str = "Referer: http://a/x\r\n";
const EVIL: &str = "Referer: http://evil.example/\r\n";
const PHONE: &str = "User-Agent: Phone/1\r\n";
const DESK: &str = "User-Agent: Desk/1\r\n";

#[test]
fn who_is_refused_is_never_answered_by_the_card() {
    for class in [Class::Static, Class::Dynamic] {
        let mut site = Site::new(class, |head| (!head.contains("evil")).then_some("for friends"));
        site.settle("");
        site.settle(OWN);
        for _ in 0..12 {
            assert_eq!(site.visit(EVIL), (None, false));
            assert!(site.visit(OWN).1, "the others still have it");
        }
    }
}

#[test]
fn a_class_that_gets_the_same_costs_one_request() {
    for class in [Class::Static, Class::Dynamic] {
        let mut site = Site::new(class, |_| Some("for all"));
        site.settle("");
        for fields in [OWN, EVIL, PHONE, DESK] {
            assert_eq!(site.settle(fields).0, 2, "{fields}");
        }
        // In each trait by itself.
        assert!(site.visit(&format!("{EVIL}{PHONE}")).1);
        assert_eq!(site.script.card.counters().cache.classes_split, 0);
        assert_eq!(site.script.card.counters().cache.executions_differed, 0);
    }
}

#[test]
fn where_a_class_gets_something_else_the_key_gets_it() {
    for class in [Class::Static, Class::Dynamic] {
        let mut site =
            Site::new(class, |head| Some(if head.contains("Phone") { "small" } else { "large" }));
        assert_eq!(site.settle(DESK).1, "large");
        for _ in 0..3 {
            assert_eq!(site.visit(PHONE).0.as_deref(), Some("small"));
            assert_eq!(site.visit(DESK).0.as_deref(), Some("large"));
        }
        assert_eq!(site.settle(PHONE).1, "small");
        assert_eq!(site.settle(DESK).1, "large");
        assert_eq!(site.settle("").1, "large");
        assert!(site.visit(PHONE).1 && site.visit(DESK).1);
        assert!(site.script.card.counters().cache.classes_split >= 1);
        assert_eq!(site.script.card.counters().cache.executions_differed, 0);
    }
}

#[test]
fn whoever_comes_first_decides_for_nobody_else() {
    for class in [Class::Static, Class::Dynamic] {
        let mut site =
            Site::new(class, |head| Some(if head.contains("Phone") { "small" } else { "large" }));
        for _ in 0..20 {
            assert_eq!(site.visit(PHONE).0.as_deref(), Some("small"));
            assert_eq!(site.visit(DESK).0.as_deref(), Some("large"));
        }
        assert!(site.visit(PHONE).1 && site.visit(DESK).1);
    }
}

#[test]
fn the_card_asks_as_each_class_in_turn() {
    let mut site = Site::new(Class::Dynamic, |_| Some("for all"));
    for fields in [OWN, EVIL, PHONE, DESK] {
        site.settle(fields);
    }
    site.heads.borrow_mut().clear();
    for _ in 0..300 {
        site.visit(OWN);
        site.script.wait(Duration::from_millis(200));
    }
    let own: Vec<String> =
        site.heads.borrow().iter().filter(|head| head.contains("nicache/")).cloned().collect();
    for fields in [EVIL, "User-Agent: Phone/1 nicache/", "User-Agent: Desk/1 nicache/"] {
        assert!(own.iter().any(|head| head.contains(fields)), "{fields}: {own:#?}");
    }
}

/// A rule that begins to hold, for one class, and that nobody sees.
#[test]
fn a_class_that_is_refused_later_is_found() {
    let mut site = Site::new(Class::Dynamic, |_| Some("for all"));
    site.settle(OWN);
    site.settle(EVIL);
    site.says = |head| (!head.contains("evil")).then_some("for all");
    let begun = site.script.now;
    while site.visit(EVIL).1 {
        assert!(site.script.now - begun < Duration::from_secs(10), "it is never found");
        site.visit(OWN);
        site.script.wait(Duration::from_millis(100));
    }
    assert_eq!(site.visit(EVIL), (None, false));
    assert!(site.visit(OWN).1 || site.visit(OWN).1);
}

/// The change that switches on a rule for one class leaves the page of the others as it was.
#[test]
fn a_change_that_is_seen_counts_for_each_class() {
    for class in [Class::Static, Class::Dynamic] {
        for has_lapsed in [false, true] {
            let mut site = Site::new(class, |_| Some("for all"));
            site.settle(OWN);
            site.settle(EVIL);
            if has_lapsed {
                site.script.poll_once_after(Duration::from_secs(300));
            }
            site.says = |head| (!head.contains("evil")).then_some("for all");
            *site.script.reinstatement.lock().expect("one thread") = Reinstatement::Gone;
            site.script.table.record_change(SOURCE);
            site.settle(OWN);
            for _ in 0..12 {
                assert_eq!(site.visit(EVIL), (None, false), "{class:?}, lapsed: {has_lapsed}");
            }
        }
    }
}

const WEBP: &str = "Accept: image/webp,*/*\r\n";
const PLAIN: &str = "Accept: */*\r\n";
const GZIP: &str = "Accept-Encoding: gzip, br\r\n";

/// What a client accepts tells pages apart only where the server looks at it.
#[test]
fn what_is_accepted_counts_where_it_makes_a_difference() {
    for class in [Class::Static, Class::Dynamic] {
        let mut site = Site::new(class, |_| Some("for all"));
        site.settle(WEBP);
        for fields in [PLAIN, GZIP] {
            assert_eq!(site.settle(fields).0, 2, "{fields}");
        }
        assert_eq!(site.script.card.counters().cache.classes_split, 0);
        let webp = |head: &str| Some(if head.contains("webp") { "webp" } else { "png" });
        let mut site = Site::new(class, webp);
        let other = format!("{WEBP}{GZIP}{DESK}");
        for fields in [PLAIN, WEBP, GZIP, WEBP, PLAIN, &other].repeat(3) {
            assert_eq!(site.visit(fields).0.as_deref(), webp(fields), "{fields}");
        }
        assert!(site.visit(PLAIN).1 && site.visit(WEBP).1);
        assert_eq!(site.script.card.counters().cache.executions_differed, 0);
    }
}

/// A change that leaves the page as it was: the card asks as each class that had it, and none of
/// them waits.
#[test]
fn after_a_change_the_card_asks_for_the_classes_that_had_the_page() {
    let mut site =
        Site::new(Class::Dynamic, |head| (!head.contains("evil")).then_some("for friends"));
    for fields in [OWN, PHONE, DESK] {
        site.settle(fields);
    }
    for _ in 0..10 {
        assert!(site.visit(OWN).1);
    }
    *site.script.reinstatement.lock().expect("one thread") = Reinstatement::Gone;
    site.script.table.record_change(SOURCE);
    assert!(!site.visit(OWN).1, "the change is seen");
    for _ in 0..20 {
        site.script.wait(Duration::from_millis(200));
        assert!(site.visit(OWN).1);
    }
    assert!(site.visit(PHONE).1 && site.visit(DESK).1);
    assert_eq!(site.visit(EVIL), (None, false));
}
