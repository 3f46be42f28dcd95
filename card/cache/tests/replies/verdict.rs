//! When the watcher is asked, and what becomes of its answers.

use std::time::Duration;

use nicache_cache::{FillAbort, Found, Outcome};
use nicache_coherence::{Class, RefusalReason, Reinstatement};
use nicache_http::{ClientClass, KeyConfig};

use crate::fixture::{AGE, Cache, SOURCE};

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_file_is_an_entry_with_the_first_verdict() {
    let mut cache = Cache::new(Class::Static);
    assert_eq!((cache.talk_due(), cache.find("/a")), (None, Found::Absent));
    let fill = cache.forward(1, "/a").expect("a fill");
    assert_eq!(cache.forward(2, "/a"), None, "one is enough");
    assert_eq!(cache.talk_due(), None, "it is not whole");
    cache.reply(fill, "one");
    assert_eq!(cache.talk_due(), Some(Duration::ZERO), "it is whole");
    assert_eq!(cache.find("/a"), Found::Absent, "nobody has judged it");
    cache.talk();
    let Found::Entry(id) = cache.find("/a") else { panic!("it was judged") };
    assert_eq!(cache.store.get(id).map(|entry| entry.body_len), Some(3));
    assert_eq!(
        (cache.counters.fills, cache.counters.fills_stored, cache.fills.in_use()),
        (1, 1, 0)
    );
    assert_eq!((cache.talk_due(), cache.mood().questions), (None, 1));
}

#[test]
fn a_computed_page_is_an_entry_when_two_agree() {
    let mut cache = Cache::new(Class::Dynamic);
    cache.visit(1, "/p", "one");
    let outcome =
        |cache: &Cache| cache.fills.last_outcome(&cache.key("/p")).map(|(outcome, _)| outcome);
    assert_eq!((cache.find("/p"), outcome(&cache)), (Found::Absent, Some(Outcome::First)));
    cache.visit(1, "/p", "one");
    assert_eq!(cache.find("/p"), Found::Absent, "the same client has said it twice");
    cache.visit(2, "/p", "two");
    assert_eq!((cache.find("/p"), outcome(&cache)), (Found::Absent, Some(Outcome::Differed)));
    let mut cache = Cache::new(Class::Dynamic);
    cache.visit(1, "/p", "one");
    cache.visit(2, "/p", "one");
    assert!(matches!(cache.find("/p"), Found::Entry(_)));
    cache.now += AGE;
    assert_eq!(cache.find("/p"), Found::Lapsed, "T is over");
}

#[test]
fn a_change_during_a_fill_keeps_nothing() {
    let mut cache = Cache::new(Class::Static);
    let fill = cache.forward(1, "/a").expect("a fill");
    cache.table.record_change(SOURCE);
    cache.reply(fill, "one");
    cache.talk();
    assert_eq!(cache.find("/a"), Found::Absent);
    assert_eq!(cache.counters.fills_aborted[FillAbort::ChangedAtInsert.index()], 1);
    assert_eq!(cache.store.memory().used_bytes(), 0, "its memory is free");
}

#[test]
fn a_suspect_is_served_again_if_it_stays_and_gone_if_not() {
    for (reinstatement, is_there) in [(Reinstatement::Stays, true), (Reinstatement::Gone, false)] {
        let mut cache = Cache::new(Class::Static);
        cache.visit(1, "/a", "one");
        cache.mood().reinstatement = reinstatement;
        cache.table.record_change(SOURCE);
        assert_eq!(cache.find("/a"), Found::Suspect);
        assert_eq!(cache.talk_due(), Some(Duration::ZERO));
        cache.talk();
        assert_eq!(matches!(cache.find("/a"), Found::Entry(_)), is_there);
        assert_eq!(
            (cache.counters.reinstated, cache.counters.purges_by_source),
            (is_there.into(), (!is_there).into())
        );
    }
}

/// The server says the same again while the watcher is asked about the entry, which is a suspect
/// once more at once. What the watcher says then is of the time before the last change.
#[test]
fn an_answer_about_a_suspect_is_to_its_own_question() {
    let mut cache = Cache::new(Class::Dynamic);
    cache.visit(1, "/p", "one");
    cache.visit(2, "/p", "one");
    let fill = cache.forward(1, "/p").expect("a fill");
    cache.reply(fill, "one");
    cache.mood().arrive = 0;
    cache.talk();
    cache.table.record_change(SOURCE);
    assert_eq!(cache.find("/p"), Found::Suspect);
    cache.talk();
    // The watcher has answered both: the reply may be kept, and the entry stays. Now the page
    // changes.
    cache.mood().reinstatement = Reinstatement::Gone;
    cache.table.record_change(SOURCE);
    cache.mood().arrive = 1;
    cache.talk();
    assert_eq!((cache.counters.renewed, cache.find("/p")), (1, Found::Suspect));
    assert_eq!(cache.mood().questions, 5, "it was asked about the entry again");
    cache.mood().arrive = 1;
    cache.talk();
    assert_eq!(cache.find("/p"), Found::Suspect, "the answer was to the first question");
    assert_eq!((cache.counters.reinstated, cache.talk_due()), (0, Some(200 * MS)));
    cache.mood().arrive = usize::MAX;
    cache.talk();
    assert_eq!(cache.find("/p"), Found::Lapsed);
    assert_eq!(cache.talk_due(), None, "nobody owes an answer");
}

/// An entry whose answer is lost goes, although the watcher is asked about others all the time.
#[test]
fn a_lost_answer_does_not_leave_an_entry_in_question() {
    let mut cache = Cache::new(Class::Static);
    cache.visit(1, "/a", "one");
    cache.mood().is_mute = true;
    cache.table.record_change(SOURCE);
    assert_eq!(cache.find("/a"), Found::Suspect);
    cache.talk();
    cache.mood().is_mute = false;
    for round in 1..=60 {
        cache.pass(100);
        let other = format!("/other{round}");
        cache.visit(1, &other, "two");
        cache.table.record_change(SOURCE);
        assert_eq!(cache.find(&other), Found::Suspect);
        cache.talk();
        assert_eq!(cache.counters.reinstated, round);
        assert!(round > 50 || cache.counters.purges_by_source == 0, "it is waited for");
    }
    assert_eq!(cache.counters.purges_by_source, 1);
    assert_eq!(cache.find("/a"), Found::Absent);
    assert_eq!(cache.talk_due(), None, "nobody owes an answer");
}

/// What a program has in its memory may be another after a POST, whichever card that has come to.
#[test]
fn a_request_that_may_change_something_counts_at_each_card() {
    let mut cache = Cache::new(Class::Dynamic);
    let mut other = Cache::beside(&cache, Class::Dynamic);
    let is_kept = |cache: &mut Cache| matches!(cache.find("/p"), Found::Entry(_));
    for cache in [&mut cache, &mut other] {
        cache.visit(1, "/p", "one");
        cache.visit(2, "/p", "one");
        assert!(is_kept(cache));
    }
    let epoch = cache.table.epoch();
    other.store.note_unsafe_request();
    assert_eq!((cache.find("/p"), other.find("/p")), (Found::Lapsed, Found::Lapsed));
    // What is answered by the epoch alone ends, too.
    assert_ne!(cache.table.epoch(), epoch);
    // It may have been executed before it, or after it.
    let fill = cache.forward(1, "/p").expect("a fill");
    other.store.note_unsafe_request();
    cache.reply(fill, "one");
    cache.talk();
    assert!(!is_kept(&mut cache));
    cache.visit(1, "/p", "two");
    cache.visit(2, "/p", "two");
    assert!(is_kept(&mut cache));
}

/// What a request names that changes something, at whichever card, is one source for all of them,
/// although each has a secret of its own for the keys of requests.
#[test]
fn what_a_request_has_changed_counts_at_each_card() {
    let mut cache = Cache::new(Class::Static);
    let mut other = Cache::beside(&cache, Class::Static);
    cache.keys = KeyConfig::new([1; 16]).with_resources([9; 16]);
    other.keys = KeyConfig::new([2; 16]).with_resources([9; 16]);
    assert_ne!(cache.key("/p"), other.key("/p"));
    for cache in [&mut cache, &mut other] {
        cache.visit(1, "/p", "one");
        assert!(matches!(cache.find("/p"), Found::Entry(_)));
    }
    let changed = other.keys.uri_of(other.keys.origin_of(b"A:80"), b"/%70");
    other.store.note_change_by_request(changed);
    for cache in [&mut cache, &mut other] {
        assert!(!matches!(cache.find("/p"), Found::Entry(_)));
    }
}

#[test]
fn a_busy_watcher_is_asked_again_soon_and_a_silent_one_is_given_up() {
    let mut cache = Cache::new(Class::Static);
    cache.mood().is_busy = true;
    let fill = cache.forward(1, "/a").expect("a fill");
    cache.reply(fill, "one");
    cache.talk();
    assert_eq!(cache.talk_due(), Some(MS), "it is asked again");
    cache.pass(1);
    (cache.mood().is_busy, cache.mood().is_mute) = (false, true);
    cache.talk();
    assert_eq!((cache.talk_due(), cache.fills.in_use()), (Some(200 * MS), 1), "it was asked");
    cache.pass(4_998);
    cache.talk();
    assert_eq!(cache.fills.in_use(), 1, "it has 5 s since it was first to be asked");
    cache.pass(2);
    cache.talk();
    assert_eq!((cache.fills.in_use(), cache.talk_due()), (0, None));
    assert_eq!(cache.counters.fills_aborted[FillAbort::NoVerdict.index()], 1);
    assert_eq!(cache.store.memory().used_bytes(), 0);
    // Nor is one that never takes the question waited for.
    cache.mood().is_busy = true;
    let fill = cache.forward(1, "/a").expect("a fill");
    cache.reply(fill, "one");
    cache.talk();
    cache.pass(5_001);
    cache.talk();
    assert_eq!(
        (cache.fills.in_use(), cache.counters.fills_aborted[FillAbort::NoVerdict.index()]),
        (0, 2)
    );
}

#[test]
fn an_answer_to_an_older_question_is_nothing() {
    let mut cache = Cache::new(Class::Static);
    let fill = cache.forward(1, "/a").expect("a fill");
    assert!(cache.begin_reply(fill, 10));
    cache.fills.abort(fill, FillAbort::SlowClient, &mut cache.store, &mut cache.counters);
    cache.fills.handle_body(fill, b"one", &mut cache.store, &mut cache.counters);
    let next = cache.fills.finish(fill, true, &mut cache.store, &mut cache.counters);
    assert_eq!(next, None);
    let next = cache.forward(2, "/b").expect("a fill in the same place");
    assert_ne!(fill, next);
    cache.fills.abort(fill, FillAbort::SlowClient, &mut cache.store, &mut cache.counters);
    assert_eq!(
        (cache.fills.in_use(), cache.counters.fills_aborted[FillAbort::SlowClient.index()]),
        (1, 1)
    );
    cache.mood().refused = Some(RefusalReason::Changed);
    cache.reply(next, "two");
    cache.talk();
    assert_eq!((cache.find("/b"), cache.fills.in_use()), (Found::Absent, 0));
    assert_eq!(cache.counters.fills_refused[RefusalReason::Changed.index()], 1);
}

#[test]
fn what_is_on_its_way_is_purged_too() {
    for class in [Class::Static, Class::Dynamic] {
        let mut cache = Cache::new(class);
        if class == Class::Dynamic {
            cache.visit(1, "/a", "one");
            cache.visit(1, "/b", "one");
        }
        let (meant, other) = (cache.forward(2, "/a"), cache.forward(2, "/b"));
        assert_eq!(cache.store.purge_where(|entry| *entry.target == *b"/a"), 0);
        cache.reply(meant.expect("a fill"), "one");
        cache.reply(other.expect("a fill"), "one");
        cache.talk();
        assert_eq!(cache.find("/a"), Found::Absent, "{class:?}");
        assert_eq!(cache.counters.fills_aborted[FillAbort::ChangedAtInsert.index()], 1);
        assert!(matches!(cache.find("/b"), Found::Entry(_)), "{class:?}: nobody meant it");
        cache.visit(3, "/a", "one");
        cache.visit(4, "/a", "one");
        assert!(matches!(cache.find("/a"), Found::Entry(_)), "{class:?}: it was asked for later");
        assert_eq!(cache.store.purge_where(|_| true), 2);
        assert_eq!((cache.find("/a"), cache.find("/b")), (Found::Absent, Found::Absent));
        assert_eq!(cache.store.memory().used_bytes(), 0);
    }
}

/// Only the last purges are told apart; a reply that is older than those becomes no entry.
#[test]
fn purges_without_end() {
    let mut cache = Cache::new(Class::Static);
    let before = cache.forward(1, "/before").expect("a fill");
    for _ in 0..10_000 {
        cache.store.purge_where(|entry| *entry.target == *b"/other");
    }
    let after = cache.forward(1, "/after").expect("a fill");
    cache.reply(before, "one");
    cache.reply(after, "one");
    cache.talk();
    assert_eq!(cache.find("/before"), Found::Absent);
    assert!(matches!(cache.find("/after"), Found::Entry(_)));
}

/// The slow reply for one class is overtaken by a change and by the reply for another class.
#[test]
fn an_outdated_reply_says_nothing_of_whom_an_entry_answers() {
    let mut cache = Cache::new(Class::Dynamic);
    let (one, mut other) = (ClientClass::default(), ClientClass::default());
    other.0[0] = 7;
    for (client, class) in [(1, one), (2, other)] {
        cache.client_class = class;
        cache.visit(client, "/p", "same");
    }
    let answers = |cache: &mut Cache, class: ClientClass| {
        let Found::Entry(id) = cache.find("/p") else { return false };
        cache.store.answers(id, class, cache.now)
    };
    assert!(answers(&mut cache, one) && answers(&mut cache, other));
    cache.client_class = other;
    let slow = cache.forward(3, "/p").expect("a fill");
    cache.pass(10);
    cache.mood().reinstatement = Reinstatement::Gone;
    cache.table.record_change(SOURCE);
    assert_ne!(cache.find("/p"), Found::Absent);
    cache.talk();
    cache.client_class = one;
    let quick = cache.forward(4, "/p").expect("a fill for another class");
    cache.reply(quick, "same");
    cache.talk();
    assert!(answers(&mut cache, one) && !answers(&mut cache, other));
    cache.mood().outdated = Some(RefusalReason::Changed);
    cache.reply(slow, "same");
    cache.talk();
    assert!(answers(&mut cache, one), "it has it rightly");
    assert!(!answers(&mut cache, other), "the server has said nothing to it since the change");
}
