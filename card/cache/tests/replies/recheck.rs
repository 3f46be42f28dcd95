//! Requests of the card's own: how many there may be, and what their replies are worth.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use nicache_cache::{Executor, Found};
use nicache_coherence::Class;

use crate::fixture::{AGE, Cache};

impl Cache {
    /// The card's own client sends the request that has waited for longest, and the server answers.
    /// False: there is none.
    fn answer_card(&mut self, body: &str) -> bool {
        let Some(recheck) = self.rechecks.poll() else { return false };
        let own = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 3), 60_001);
        let fill = self.forward_as(Executor::Card, own, &recheck.head).expect("a fill");
        self.reply(fill, body);
        self.talk();
        true
    }
}

#[test]
fn the_card_may_be_the_second_who_agrees() {
    let mut cache = Cache::new(Class::Dynamic);
    cache.visit(1, "/p", "one");
    cache.ask_second("/p");
    assert!(cache.answer_card("one"));
    assert!(matches!(cache.find("/p"), Found::Entry(_)));
    assert!(!cache.answer_card("one"), "it was asked for once");
    assert_eq!((cache.counters.rechecks, cache.counters.fills_stored), (1, 1));
}

#[test]
fn requests_come_in_order_and_are_bounded() {
    let mut cache = Cache::new(Class::Dynamic);
    for number in 0..300 {
        cache.ask_second(&format!("/{number}"));
    }
    let mut taken = 0;
    while let Some(recheck) = cache.rechecks.poll() {
        assert!(recheck.head.starts_with(format!("GET /{taken} HTTP/1.1\r\n").as_bytes()));
        taken += 1;
    }
    assert_eq!((cache.counters.rechecks, cache.counters.rechecks_dropped), (taken, 300 - taken));
    assert!(taken > 0 && taken < 300);
}

#[test]
fn a_page_that_is_used_is_asked_for_again_before_it_is_too_old() {
    let mut cache = Cache::new(Class::Dynamic);
    cache.visit(1, "/p", "one");
    cache.visit(2, "/p", "one");
    let (begin, mut asked) = (cache.now, Vec::new());
    for _ in 0..120 {
        cache.pass(10_000);
        let Found::Entry(id) = cache.find("/p") else {
            panic!("{:?} after the beginning", cache.now.since(begin))
        };
        cache.store.pin_for_hit(id);
        cache.store.unpin(id);
        if let Some(recheck) = cache.store.recheck_due(id, cache.now, |_| false) {
            asked.push(cache.now.since(begin));
            cache.rechecks.ask(recheck, &mut cache.counters);
            assert!(cache.answer_card("one"));
        }
    }
    assert!(asked.len() >= 2 && asked[0] < AGE && asked[0] > AGE / 2, "{asked:?}");
    assert_eq!(cache.counters.executions_differed, 0);
    let renewed = cache.counters.renewed;
    assert_eq!(renewed, asked.len() as u64);
    // Nobody asks: it grows too old, and the server is not troubled.
    cache.now = cache.now + AGE + Duration::from_secs(1);
    assert_eq!((cache.find("/p"), cache.counters.renewed), (Found::Lapsed, renewed));
}
