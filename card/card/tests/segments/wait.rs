//! Requests that wait for the reply to another one, and who is let through when the server is
//! silent.

use std::time::Duration;

use nicache_card::Handshake;
use nicache_coherence::{Class, RefusalReason, Reinstatement};

use crate::script::{AtHost, End, SOURCE, Script};

/// What a request waits for is not given to it any longer, so it goes to the server at once.
#[test]
fn who_waits_goes_to_the_server_when_the_card_no_longer_answers() {
    let bypass = |changed: &mut Changed| changed.script.card.set_bypass(true);
    let lease = |changed: &mut Changed| changed.script.table.renew_lease(0);
    for stop in [&bypass as &dyn Fn(&mut Changed), &lease] {
        let (mut changed, _first) = Changed::first(Duration::from_millis(100));
        changed.ask(1);
        assert!(changed.take_request(1).is_none(), "it waits");
        stop(&mut changed);
        changed.script.wait(Duration::from_millis(1));
        assert!(changed.take_request(1).is_some(), "it is let go");
    }
}

/// A card that has had a page for which the server needs `usual`, and that has changed since; with
/// connections of three clients.
struct Changed {
    script: Script,
    clients: Vec<End>,
}

impl Changed {
    fn new(usual: Duration) -> Self {
        let mut script = Script::with_class(Handshake::Card, Class::Dynamic);
        for (number, stored) in [(1, 0), (2, 1)] {
            let mut client = script.open_as([10, 0, 0, 10 + number], 41_000 + u16::from(number));
            script.take_turns(&mut client);
            script.ask(60_000);
            let request =
                script.take_request().expect("nobody waits for a page that was not there");
            script.wait(usual);
            assert!(script.reply(&request, b"old").ends_with(b"old"));
            assert_eq!(script.card.counters().cache.fills_stored, stored, "two must agree");
        }
        let clients = (0..3)
            .map(|number| script.open_as([10, 0, 0, 20 + number], 42_000 + u16::from(number)))
            .collect();
        *script.reinstatement.lock().expect("one thread") = Reinstatement::Gone;
        script.table.record_change(SOURCE);
        Self { script, clients }
    }

    fn with<T>(&mut self, client: usize, job: impl FnOnce(&mut Script) -> T) -> T {
        self.script.take_turns(&mut self.clients[client]);
        let result = job(&mut self.script);
        self.script.take_turns(&mut self.clients[client]);
        result
    }

    fn ask(&mut self, client: usize) {
        self.with(client, |script| script.ask(60_000));
    }

    fn take_request(&mut self, client: usize) -> Option<AtHost> {
        self.with(client, Script::take_request)
    }

    fn reply(&mut self, client: usize, at: &AtHost) -> Vec<u8> {
        self.with(client, |script| script.reply(at, b"new"))
    }

    fn body(&mut self, client: usize) -> Vec<u8> {
        self.with(client, Script::take_body)
    }

    /// Time until the request of a client is sent on.
    fn held(&mut self, client: usize) -> (Duration, AtHost) {
        let mut waited = Duration::ZERO;
        loop {
            if let Some(request) = self.take_request(client) {
                return (waited, request);
            }
            assert!(waited < Duration::from_secs(5), "it waits for ever");
            self.script.wait(Duration::from_millis(5));
            waited += Duration::from_millis(5);
        }
    }

    /// The page is asked for by a client of its own whose request the host has, and is not an entry
    /// again yet.
    fn first(usual: Duration) -> (Self, AtHost) {
        let mut changed = Self::new(usual);
        changed.ask(0);
        changed.script.wait(Duration::from_millis(5));
        let first = changed.take_request(0).expect("the first one goes to the server");
        (changed, first)
    }
}

#[test]
fn who_comes_second_waits_and_is_answered_by_the_card() {
    let (mut changed, first) = Changed::first(Duration::ZERO);
    changed.ask(1);
    changed.script.wait(Duration::from_millis(10));
    assert!(changed.take_request(1).is_none() && changed.body(1).is_empty(), "it waits");
    assert!(changed.reply(0, &first).ends_with(b"new"));
    // The first one to say so: a second one is asked, by whoever waits.
    changed.script.wait(Duration::from_millis(5));
    let second = changed.take_request(1).expect("two must agree");
    changed.ask(2);
    assert!(changed.take_request(2).is_none(), "it waits");
    assert!(changed.reply(1, &second).ends_with(b"new"));
    changed.script.wait(Duration::from_millis(5));
    assert!(changed.body(2).ends_with(b"new"));
    assert!(changed.take_request(2).is_none(), "it was answered by the card");
    let counters = changed.script.card.counters();
    // The first one has waited for the watcher's verdict about the old entry.
    assert_eq!((counters.cache.waits, counters.cache.waits_answered), (3, 1));
}

#[test]
fn a_silent_server_is_asked_again_after_four_times_what_it_needs() {
    for (usual, least, most) in [(0, 25, 60), (50, 190, 240), (100, 390, 440)] {
        let (mut changed, _first) = Changed::first(Duration::from_millis(usual));
        changed.ask(1);
        let (waited, _) = changed.held(1);
        let range = Duration::from_millis(least)..Duration::from_millis(most);
        assert!(range.contains(&waited), "with {usual} ms usually it has waited {waited:?}");
    }
}

#[test]
fn the_oldest_connection_is_let_through_first() {
    let (mut changed, _first) = Changed::first(Duration::ZERO);
    changed.ask(2);
    changed.ask(1);
    let (_, _second) = changed.held(1);
    assert!(changed.take_request(2).is_none());
    let (waited, _) = changed.held(2);
    assert!(waited >= Duration::from_millis(50), "twice as long, not {waited:?}");
}

/// One that was let through is answered before the first: the server has one process per
/// connection. Another time one goes there beside the first at once, and the next when that is
/// answered.
#[test]
fn a_server_that_is_overtaken_gets_two_at_a_time() {
    let (mut changed, first) = Changed::first(Duration::ZERO);
    changed.ask(1);
    let (_, second) = changed.held(1);
    assert!(changed.reply(1, &second).ends_with(b"new"));
    assert!(changed.reply(0, &first).ends_with(b"new"));
    *changed.script.outdated.lock().unwrap() = Some(RefusalReason::Changed);
    changed.script.table.record_change(SOURCE);
    changed.clients = (0..4)
        .map(|number| changed.script.open_as([10, 0, 0, 30 + number], 43_000 + u16::from(number)))
        .collect();
    let mut at_server = Vec::new();
    for client in 0..4 {
        changed.ask(client);
        changed.script.wait(Duration::from_millis(1));
        at_server.push(changed.take_request(client));
    }
    assert_eq!(
        at_server.iter().map(Option::is_some).collect::<Vec<_>>(),
        [true, true, false, false]
    );
    assert!(changed.reply(1, at_server[1].as_ref().unwrap()).ends_with(b"new"));
    changed.script.wait(Duration::from_millis(1));
    assert!(changed.take_request(2).is_some(), "the next at once");
    assert!(changed.take_request(3).is_none());
}

/// The one that was let through makes the entry; what the server says to the first at last is
/// nobody's but the first one's.
#[test]
fn the_reply_to_one_that_was_overtaken_is_not_kept() {
    for is_first_late in [false, true] {
        let (mut changed, first) = Changed::first(Duration::ZERO);
        changed.ask(1);
        let (_, second) = changed.held(1);
        let reply_to_first = |changed: &mut Changed| {
            assert!(changed.with(0, |script| script.reply(&first, b"other")).ends_with(b"other"));
        };
        if !is_first_late {
            reply_to_first(&mut changed);
        }
        assert!(changed.reply(1, &second).ends_with(b"new"));
        if is_first_late {
            reply_to_first(&mut changed);
        }
        changed.script.wait(Duration::from_millis(1));
        changed.ask(2);
        changed.script.wait(Duration::from_millis(1));
        let third = changed.take_request(2).expect("two must agree");
        assert!(changed.reply(2, &third).ends_with(b"new"));
        changed.script.wait(Duration::from_millis(1));
        changed.ask(0);
        changed.script.wait(Duration::from_millis(1));
        assert!(changed.body(0).ends_with(b"new"));
        let counters = changed.script.card.counters();
        assert_eq!(
            (counters.cache.fills, counters.cache.fills_stored, counters.hits_dynamic),
            (2 + 3, 1 + 1, 1)
        );
    }
}

/// Something changes during each execution, so no reply may be kept. Those who were there
/// before the second one began have its reply, because it is that of the first; those who came
/// later do not.
#[test]
fn a_reply_that_is_not_kept_is_shared_with_those_who_had_asked_before() {
    for reason in [RefusalReason::Changed, RefusalReason::Dirty] {
        let (mut changed, first) = Changed::first(Duration::ZERO);
        *changed.script.outdated.lock().unwrap() = Some(reason);
        changed.clients.push(changed.script.open_as([10, 0, 0, 40], 44_000));
        changed.ask(1);
        changed.ask(2);
        changed.script.wait(Duration::from_millis(1));
        assert!(changed.reply(0, &first).ends_with(b"new"));
        changed.script.wait(Duration::from_millis(5));
        let second = changed.take_request(1).expect("two must agree");
        assert!(changed.body(2).is_empty());
        changed.ask(3);
        changed.script.wait(Duration::from_millis(5));
        assert!(changed.reply(1, &second).ends_with(b"new"));
        changed.script.wait(Duration::from_millis(5));
        assert!(changed.take_request(3).is_some(), "it came after the second one was forwarded");
        assert!(changed.body(3).is_empty());
        assert!(changed.body(2).ends_with(b"new"));
        let counters = changed.script.card.counters();
        assert_eq!((counters.cache.waits_shared, counters.hits, counters.misses), (1, 1, 2 + 3));
    }
}

/// What was lost might have spoken against sharing it: a program that nobody knows was asked.
#[test]
fn nothing_is_shared_if_events_are_lost_before_the_verdict() {
    let (mut changed, first) = Changed::first(Duration::ZERO);
    *changed.script.outdated.lock().unwrap() = Some(RefusalReason::Changed);
    changed.ask(1);
    changed.ask(2);
    changed.script.wait(Duration::from_millis(1));
    assert!(changed.reply(0, &first).ends_with(b"new"));
    changed.script.wait(Duration::from_millis(5));
    let second = changed.take_request(1).expect("two must agree");
    changed.script.table.record_lost();
    assert!(changed.reply(1, &second).ends_with(b"new"));
    changed.script.wait(Duration::from_millis(5));
    assert!(changed.take_request(2).is_some());
    assert_eq!(changed.script.card.counters().cache.waits_shared, 0);
}

/// What the server said to the second differs from what it said to the first: nobody else gets it.
#[test]
fn a_reply_that_is_not_kept_is_not_shared_if_another_differs() {
    let (mut changed, first) = Changed::first(Duration::ZERO);
    *changed.script.outdated.lock().unwrap() = Some(RefusalReason::Changed);
    changed.ask(1);
    changed.ask(2);
    assert!(changed.reply(0, &first).ends_with(b"new"));
    changed.script.wait(Duration::from_millis(5));
    let second = changed.take_request(1).expect("two must agree");
    assert!(changed.with(1, |script| script.reply(&second, b"else")).ends_with(b"else"));
    changed.script.wait(Duration::from_millis(5));
    assert!(changed.body(2).is_empty());
    assert!(changed.take_request(2).is_some());
    assert_eq!(changed.script.card.counters().cache.waits_shared, 0);
}
