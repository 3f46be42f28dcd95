//! What the card has the program before it answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nicache_card::{L0, L0_REPLY_BYTES, Loan, Published};
use nicache_coherence::Class;
use nicache_tcp::Time;

use crate::script::Script;

/// A program that has room for one reply and for no connection.
struct Program {
    published: Arc<AtomicU64>,
    revoked: Arc<AtomicU64>,
}

impl L0 for Program {
    fn lend(&mut self, _loan: &Loan) -> Option<u32> {
        None
    }

    fn take_back(&mut self, _place: u32) -> Option<Loan> {
        None
    }

    fn used(&self, _place: u32) -> Time {
        Time::ZERO
    }

    fn slot_of(&self, _head: &[u8]) -> Option<usize> {
        Some(0)
    }

    fn slots(&self) -> usize {
        1
    }

    fn reply_bytes_max(&self) -> usize {
        L0_REPLY_BYTES
    }

    fn publish(&mut self, _reply: &Published<'_>) -> bool {
        self.published.fetch_add(1, Relaxed);
        true
    }

    fn revoke(&mut self) {
        self.revoked.fetch_add(1, Relaxed);
    }

    fn served(&self, _slot: usize) -> u64 {
        0
    }
}

/// The program has the control page of the watcher that was there when it was loaded. Whatever is
/// published later would be compared with an epoch that says nothing of its sources.
#[test]
fn nothing_is_published_under_the_table_of_another_watcher() {
    let mut script = Script::with_stored(b"hello");
    let (published, revoked) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let program = Program { published: Arc::clone(&published), revoked: Arc::clone(&revoked) };
    script.card.set_l0(Box::new(program));
    // A hit is offered if its head has been a hit before.
    let ask_twice = |script: &mut Script| {
        let hits = script.card.counters().hits;
        for _ in 0..2 {
            script.ask(60_000);
            assert!(script.take_body().ends_with(b"hello"));
        }
        assert_eq!(script.card.counters().hits, hits + 2);
    };
    ask_twice(&mut script);
    assert_eq!((published.load(Relaxed), revoked.load(Relaxed)), (1, 0));
    script.begin_watched(Class::Static);
    assert_eq!((published.load(Relaxed), revoked.load(Relaxed)), (1, 1), "it is withdrawn");
    let mut client = script.open_as([10, 0, 0, 9], 41_000);
    script.take_turns(&mut client);
    script.ask(60_000);
    let request = script.take_request().expect("what was there before does not count");
    script.reply(&request, b"hello");
    ask_twice(&mut script);
    assert_eq!(published.load(Relaxed), 1, "hits are the card's own now");
}
