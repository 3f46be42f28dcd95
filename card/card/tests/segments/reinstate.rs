//! Entries whose sources have changed: passed by until the watcher has answered, and what its
//! answer does.

use std::time::Duration;

use nicache_coherence::{Reinstatement, SourceSlot};

use crate::script::{SOURCE, Script};

/// Asks once; true if the reply came from the card, which may wait for the watcher. If the request
/// goes to the host, the connection is of no further use.
fn is_hit(script: &mut Script) -> bool {
    script.ask(60_000);
    script.wait(Duration::from_millis(30));
    let from_card = script.take_at_client().iter().any(|segment| !segment.payload.is_empty());
    // On a new connection, the card opens the host's side first.
    let at_host = script
        .take_at_host()
        .iter()
        .any(|segment| segment.head.flags.syn() || !segment.payload.is_empty());
    assert!(from_card != at_host, "answered by the card: {from_card}, sent to the host: {at_host}");
    from_card
}

/// A card whose entry is suspect, after the request that found it so.
fn suspect(outcome: Reinstatement) -> Script {
    let mut script = Script::with_stored(b"hello");
    *script.reinstatement.lock().expect("one thread") = outcome;
    script.table.record_change(SOURCE);
    assert_eq!(
        is_hit(&mut script),
        outcome == Reinstatement::Stays,
        "a suspect is served if it stays"
    );
    script
}

#[test]
fn an_entry_that_stays_is_served_again() {
    let mut script = suspect(Reinstatement::Stays);
    assert_eq!(script.card.counters().cache.reinstated, 1);
    assert_eq!(script.card.counters().cache.purges_by_source, 0);
    script.open_another();
    assert!(is_hit(&mut script));
    // With a stamp of its own: the next change voids it again.
    script.table.record_change(SOURCE);
    *script.reinstatement.lock().expect("one thread") = Reinstatement::Gone;
    script.open_another();
    assert!(!is_hit(&mut script));
}

#[test]
fn an_entry_that_goes_is_gone() {
    let script = suspect(Reinstatement::Gone);
    assert_eq!(script.card.counters().cache.purges_by_source, 1);
    assert_eq!(script.card.store().len(), 0);
}

#[test]
fn an_entry_that_was_changed_again_is_asked_about_again() {
    let mut script = suspect(Reinstatement::Again);
    assert_eq!((script.card.counters().cache.reinstated, script.card.store().len()), (0, 1));
    *script.reinstatement.lock().expect("one thread") = Reinstatement::Stays;
    script.open_another();
    assert!(is_hit(&mut script));
    assert_eq!(script.card.counters().cache.reinstated, 1);
}

#[test]
fn a_change_between_verdict_and_card_counts() {
    let mut script = suspect(Reinstatement::Again);
    *script.reinstatement.lock().expect("one thread") = Reinstatement::Stays;
    *script.change_before_answer.lock().expect("one thread") = true;
    script.open_another();
    assert!(!is_hit(&mut script));
    assert_eq!(script.card.counters().cache.reinstated, 0);
    script.open_another();
    assert!(!is_hit(&mut script));
}

#[test]
fn a_change_of_everything_asks_nobody() {
    let mut script = Script::with_stored(b"hello");
    script.table.watch(SourceSlot::EVERYTHING);
    script.table.record_change(SourceSlot::EVERYTHING);
    assert!(!is_hit(&mut script));
    assert_eq!(script.card.counters().cache.purges_by_source, 1);
    assert_eq!(script.card.store().len(), 0);
}
