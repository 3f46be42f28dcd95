//! The ring under a model checker: all orders of two threads, up to a number of preemptions, and
//! all values that C11 lets each load return.
//!
//! Read first: `ring.rs`; Norris and Demsky 2013, "CDSChecker", on which loom is built.
//!
//! The product's code runs unchanged over a [`RingMemory`] of loom's atomics; no `cfg(loom)` is
//! needed. In each execution a producer and a consumer pass entries through a ring that is full
//! soon, and sleep whenever they can. What may not happen:
//!
//! * an entry that is torn, out of order, taken back, or not yet published: the consumer compares
//!   both words;
//! * a place that is written again before its entry was read *and* released. loom never lets a load
//!   return what is stored later (load buffering), so no entry would ever look overwritten.
//!   Therefore the memory keeps what was read last in each place: a relaxed word, which the
//!   producer is sure to find up to date only if the read happens before its write;
//! * a bell that is lost: loom finds that nobody can go on, and says "deadlock".
//!
//! # What loom 0.7.2 models
//!
//! *Fences* of all orderings. Those of `SeqCst` are in one total order, and each sees what the ones
//! before it saw. That is no stronger than C11 as C++20 has mended it, as long as all accesses are
//! atomic. So a wake-up by store, fence and load on either side is verified as it stands;
//! `store_buffering` tests that, and that fences of `AcqRel` do not do.
//!
//! *Accesses* with `SeqCst` are taken for `AcqRel`; the ring has none.
//!
//! *A fence is no point of scheduling.* So each is preceded by a store to a word that nobody loads,
//! which orders nothing, but makes loom try the fences in either order.
//!
//! *Load buffering* is not explored, see above.
//!
//! Bells are a mutex and a condition variable: like an eventfd, they order what was before the ring
//! before what is after the hearing. `LOOM_MAX_PREEMPTIONS` replaces the bounds, with which all
//! ends in seconds.

use std::cell::Cell;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use loom::model::Builder;
use loom::sync::atomic::{AtomicU64, fence};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use nicache_bus::ring::{Entry, ring_words};
use nicache_bus::{Consumer, Producer, PushError, RingMemory};

/// Enough for every flaw below.
const PREEMPTIONS: usize = 3;

/// Words of the ring, as its head draws them.
const PRODUCER: usize = 0;
const CONSUMER: usize = 8;
const WANTED_ENTRY: usize = 16;
const WANTED_ROOM: usize = 24;

/// What is wrong with the memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    Nothing,
    /// There is no fence after a store to this word.
    NoFenceAfter(usize),
    /// The fence there is none of `SeqCst`.
    WeakFenceAfter(usize),
    RelaxedStore(usize),
    RelaxedLoad(usize),
}

/// How a side sleeps.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sleep {
    /// It silences the bell when that has woken it.
    SilenceLast,
    /// It silences the bell before it says what it wants. The firmware's way.
    SilenceFirst,
    /// Wrong: it silences the bell between saying and sleeping.
    SilenceBetween,
    /// Wrong: it does not look once more.
    Blindly,
}

struct Shared {
    words: Vec<AtomicU64>,
    /// Number of the entry that was read last, by place.
    read: Vec<AtomicU64>,
    /// Stored before each fence, never loaded.
    fences: AtomicU64,
}

/// The memory as one side has it.
struct Side {
    shared: Arc<Shared>,
    flaw: Flaw,
    stored_last: Cell<usize>,
}

impl Side {
    fn new(shared: &Arc<Shared>, flaw: Flaw) -> Self {
        Self { shared: Arc::clone(shared), flaw, stored_last: Cell::new(0) }
    }

    /// The place of an entry, and which of its words this is.
    fn place(word: usize) -> Option<(usize, usize)> {
        word.checked_sub(ring_words(0)).map(|at| (at / 2, at % 2))
    }
}

impl RingMemory for Side {
    fn load(&self, word: usize, ordering: Ordering) -> u64 {
        let ordering =
            if self.flaw == Flaw::RelaxedLoad(word) { Ordering::Relaxed } else { ordering };
        let value = self.shared.words[word].load(ordering);
        if let Some((place, 1)) = Self::place(word) {
            self.shared.read[place].store(!value, Ordering::Relaxed);
        }
        value
    }

    fn store(&self, word: usize, value: u64, ordering: Ordering) {
        let ordering =
            if self.flaw == Flaw::RelaxedStore(word) { Ordering::Relaxed } else { ordering };
        if let Some((place, 0)) = Self::place(word) {
            let read = self.shared.read[place].load(Ordering::Relaxed);
            assert_eq!(
                read,
                value.saturating_sub(self.shared.read.len() as u64),
                "overwritten before it was released"
            );
        }
        self.shared.words[word].store(value, ordering);
        self.stored_last.set(word);
    }

    fn fence(&self) {
        let word = self.stored_last.get();
        self.shared.fences.store(0, Ordering::Relaxed);
        if self.flaw == Flaw::WeakFenceAfter(word) {
            fence(Ordering::AcqRel);
        } else if self.flaw != Flaw::NoFenceAfter(word) {
            fence(Ordering::SeqCst);
        }
    }
}

#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.changed.notify_one();
    }

    fn silence(&self) {
        *self.rung.lock().unwrap() = false;
    }

    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.changed.wait(rung).unwrap();
        }
    }

    /// Sleeps if `ask`, which says what is wanted and looks once more, allows it.
    fn sleep(&self, how: Sleep, ask: impl FnOnce() -> bool) {
        if how == Sleep::SilenceFirst {
            self.silence();
        }
        if ask() || how == Sleep::Blindly {
            if how == Sleep::SilenceBetween {
                self.silence();
            }
            self.wait();
            if how != Sleep::SilenceFirst {
                self.silence();
            }
        }
    }
}

/// The entry with a number, from 1.
fn entry(number: u64) -> Entry {
    [number, !number]
}

/// What the two sides do.
#[derive(Clone, Copy)]
struct Run {
    /// Entries that the ring has room for.
    room: usize,
    /// Entries that pass through it.
    entries: u64,
    /// Entries published at once.
    publish: u64,
    /// Entries released at once; more if the consumer finds no further one.
    release: u64,
    /// Entries that the consumer waits for at once, and looks at before it takes them.
    together: u64,
    /// Whether the producer writes each entry twice, and takes the first one back.
    retracts: bool,
    sleep: Sleep,
    flaw: Flaw,
}

/// Twice the ring's length, so the producer waits for other room than the words ask for while
/// they are 0.
const ONE_BY_ONE: Run = Run {
    room: 2,
    entries: 4,
    publish: 1,
    release: 1,
    together: 1,
    retracts: false,
    sleep: Sleep::SilenceLast,
    flaw: Flaw::Nothing,
};

impl Run {
    fn check(self, preemptions: usize) {
        let mut model = Builder::new();
        model.preemption_bound = model.preemption_bound.or(Some(preemptions));
        model.check(move || self.execute());
    }

    fn execute(self) {
        let words = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        let shared = Shared {
            words: words(ring_words(self.room)),
            read: words(self.room),
            fences: AtomicU64::new(0),
        };
        let (shared, bells) = (Arc::new(shared), Arc::new([Bell::default(), Bell::default()]));
        let producer = {
            let (ring, bells) =
                (Producer::new(Side::new(&shared, self.flaw), self.room), Arc::clone(&bells));
            thread::spawn(move || self.produce(ring, &bells))
        };
        self.consume(Consumer::new(Side::new(&shared, self.flaw), self.room), &bells);
        producer.join().unwrap();
    }

    fn produce(self, mut ring: Producer<Side>, [entry_bell, room_bell]: &[Bell; 2]) {
        let push = |ring: &mut Producer<Side>, entry: Entry| {
            while let Err(error) = ring.push(entry) {
                assert_eq!(error, PushError::Full);
                if ring.publish() {
                    entry_bell.ring();
                }
                room_bell.sleep(self.sleep, || ring.sleep_until_room().unwrap());
            }
        };
        for number in 1..=self.entries {
            if self.retracts {
                push(&mut ring, [number, 0]);
                ring.retract();
            }
            push(&mut ring, entry(number));
            if (number.is_multiple_of(self.publish) || number == self.entries) && ring.publish() {
                entry_bell.ring();
            }
        }
    }

    fn consume(self, mut ring: Consumer<Side>, [entry_bell, room_bell]: &[Bell; 2]) {
        let mut number = 0;
        while number < self.entries {
            let wanted = self.together.min(self.entries - number);
            if self.together > 1 && ring.available().unwrap() < wanted {
                if ring.release() {
                    room_bell.ring();
                }
                entry_bell.sleep(self.sleep, || ring.sleep_until_more_than(wanted - 1).unwrap());
                continue;
            }
            if self.together > 1 {
                assert_eq!(ring.peek().unwrap(), Some(entry(number + 1)));
            }
            let popped = ring.pop().unwrap();
            if let Some(popped) = popped {
                number += 1;
                assert_eq!(popped, entry(number), "seen before it was published");
            }
            if (popped.is_none() || number.is_multiple_of(self.release)) && ring.release() {
                room_bell.ring();
            }
            if popped.is_none() {
                entry_bell.sleep(self.sleep, || ring.sleep_until_entry().unwrap());
            }
        }
    }
}

#[test]
fn more_orders_of_the_smallest_ring() {
    Run { room: 1, entries: 2, ..ONE_BY_ONE }.check(5);
}

#[test]
fn one_by_one() {
    ONE_BY_ONE.check(PREEMPTIONS);
}

#[test]
fn the_firmwares_way_to_sleep() {
    Run { sleep: Sleep::SilenceFirst, ..ONE_BY_ONE }.check(PREEMPTIONS);
}

#[test]
fn published_in_batches() {
    Run { publish: 2, ..ONE_BY_ONE }.check(PREEMPTIONS);
}

/// A frame that needs several buffers.
#[test]
fn waited_for_together() {
    Run { together: 2, ..ONE_BY_ONE }.check(PREEMPTIONS);
}

#[test]
fn released_in_batches() {
    Run { release: 2, ..ONE_BY_ONE }.check(PREEMPTIONS);
}

#[test]
fn released_when_there_is_no_further_entry() {
    Run { release: u64::MAX, ..ONE_BY_ONE }.check(PREEMPTIONS);
}

#[test]
fn taken_back() {
    Run { retracts: true, ..ONE_BY_ONE }.check(PREEMPTIONS);
}

/// Each step of the protocol is needed, and each check finds what it is for.
#[test]
fn every_flaw_is_found() {
    let (lost, early, late) =
        ("deadlock", "seen before it was published", "overwritten before it was released");
    let flaws = [
        (Flaw::NoFenceAfter(PRODUCER), lost),
        (Flaw::NoFenceAfter(CONSUMER), lost),
        (Flaw::NoFenceAfter(WANTED_ENTRY), lost),
        (Flaw::NoFenceAfter(WANTED_ROOM), lost),
        (Flaw::WeakFenceAfter(PRODUCER), lost),
        (Flaw::WeakFenceAfter(CONSUMER), lost),
        (Flaw::WeakFenceAfter(WANTED_ENTRY), lost),
        (Flaw::WeakFenceAfter(WANTED_ROOM), lost),
        (Flaw::RelaxedStore(PRODUCER), early),
        (Flaw::RelaxedLoad(PRODUCER), early),
        (Flaw::RelaxedStore(CONSUMER), late),
        (Flaw::RelaxedLoad(CONSUMER), late),
    ];
    for (flaw, expected) in flaws {
        assert_found(Run { flaw, ..ONE_BY_ONE }, expected);
    }
    for sleep in [Sleep::Blindly, Sleep::SilenceBetween] {
        assert_found(Run { sleep, ..ONE_BY_ONE }, lost);
    }
}

fn assert_found(run: Run, expected: &str) {
    let found = catch_unwind(|| run.check(PREEMPTIONS))
        .expect_err(&format!("{:?}, {:?}: nothing found", run.flaw, run.sleep));
    let message = found
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| found.downcast_ref::<&str>().copied());
    assert!(
        message.is_some_and(|message| message.contains(expected)),
        "{:?}, {:?}: {message:?}",
        run.flaw,
        run.sleep
    );
}

/// Stores to one of two words, fences, and loads the other.
fn miss(words: &[AtomicU64; 2], mine: usize, ordering: Ordering) -> bool {
    words[mine].store(1, Ordering::Relaxed);
    fence(ordering);
    words[1 - mine].load(Ordering::Relaxed) == 0
}

/// Whether two threads that do so can miss each other's store.
fn both_miss(ordering: Ordering) -> bool {
    let found = Arc::new(AtomicBool::new(false));
    let model = Arc::clone(&found);
    loom::model(move || {
        let words = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let other = thread::spawn({
            let words = Arc::clone(&words);
            move || miss(&words, 1, ordering)
        });
        let missed = miss(&words, 0, ordering);
        model.fetch_or(other.join().unwrap() && missed, Ordering::Relaxed);
    });
    found.load(Ordering::Relaxed)
}

/// What the rest relies on: loom knows the difference between the two fences.
#[test]
fn store_buffering() {
    assert!(!both_miss(Ordering::SeqCst));
    assert!(both_miss(Ordering::AcqRel));
}
