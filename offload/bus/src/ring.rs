//! A ring of 16-byte entries with one producer and one consumer, in memory that a hostile or
//! crashed peer shares.
//!
//! ```text
//! word     0  producer      entries published so far                     the producer writes
//! word     8  consumer      entries released so far                      the consumer writes
//! word    16  wanted entry  the consumer wants a bell when it is there   the consumer writes
//! word    24  wanted room   the producer wants a bell when it is free    the producer writes
//! word    32  entry 0 (two words), entry 1, ...
//! ```
//!
//! All counts only grow, so an index that cannot be is seen at once: one that goes back, or
//! that is more than the ring's length ahead. Entries become visible in batches
//! ([`Producer::publish`]), and room in batches ([`Consumer::release`]).
//!
//! *Bells are suppressed* as in virtio (1.2, section 2.7.10): each side says up to where it has
//! looked before it goes to sleep, and the other rings only when it passes that place. No bell is
//! lost: the sleeper writes what it wants and *then* looks once more; the other moves its index and
//! *then* reads what is wanted, with a full fence between the two on either side.

use std::sync::atomic::Ordering;

/// Words of a ring before its entries.
const HEAD_WORDS: usize = 32;
const PRODUCER: usize = 0;
const CONSUMER: usize = 8;
const WANTED_ENTRY: usize = 16;
const WANTED_ROOM: usize = 24;

/// What one entry is: two words, whose meaning is not the ring's.
pub type Entry = [u64; 2];

/// Words that a ring of so many entries takes.
pub const fn ring_words(entries: usize) -> usize {
    HEAD_WORDS + 2 * entries
}

/// Memory of [`ring_words`] words, all 0 at the beginning, that both sides reach.
pub trait RingMemory {
    /// Reads a word.
    fn load(&self, word: usize, ordering: Ordering) -> u64;
    /// Writes a word.
    fn store(&self, word: usize, value: u64, ordering: Ordering);
    /// [`std::sync::atomic::fence`] for this memory.
    fn fence(&self);
}

impl<M: RingMemory + ?Sized> RingMemory for std::sync::Arc<M> {
    fn load(&self, word: usize, ordering: Ordering) -> u64 {
        (**self).load(word, ordering)
    }

    fn store(&self, word: usize, value: u64, ordering: Ordering) {
        (**self).store(word, value, ordering);
    }

    fn fence(&self) {
        (**self).fence();
    }
}

/// The peer wrote an index that cannot be. The ring is of no further use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// Less than it was.
    #[error("the peer's index went back from {from} to {to}")]
    Back {
        /// What it had been.
        from: u64,
        /// What it is.
        to: u64,
    },
    /// More entries than were published, or than the ring has.
    #[error("the peer's index {index} is past {most}")]
    Past {
        /// What it is.
        index: u64,
        /// What it can be.
        most: u64,
    },
}

/// Why an entry was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// There is no room.
    #[error("the ring is full")]
    Full,
    /// The peer is broken.
    #[error(transparent)]
    Peer(#[from] RingError),
}

fn check(index: u64, from: u64, most: u64) -> Result<u64, RingError> {
    if index < from {
        Err(RingError::Back { from, to: index })
    } else if index > most {
        Err(RingError::Past { index, most })
    } else {
        Ok(index)
    }
}

/// The side that writes entries.
#[derive(Debug)]
pub struct Producer<M> {
    memory: M,
    entries: u64,
    next: u64,
    published: u64,
    /// What the consumer had released when it was looked at last.
    released: u64,
}

impl<M: RingMemory> Producer<M> {
    /// Of a ring that nobody has used.
    ///
    /// # Panics
    /// If `entries` is not a power of two.
    pub fn new(memory: M, entries: usize) -> Self {
        assert!(entries.is_power_of_two(), "a ring of {entries} entries");
        Self { memory, entries: entries as u64, next: 0, published: 0, released: 0 }
    }

    /// Entries that can be pushed now.
    ///
    /// # Errors
    /// The consumer is broken.
    pub fn room(&mut self) -> Result<u64, RingError> {
        self.released =
            check(self.memory.load(CONSUMER, Ordering::Acquire), self.released, self.published)?;
        Ok(self.entries - (self.next - self.released))
    }

    /// Writes an entry, which the consumer sees after [`publish`](Self::publish).
    ///
    /// # Errors
    /// See [`PushError`].
    pub fn push(&mut self, entry: Entry) -> Result<(), PushError> {
        if self.next - self.released == self.entries && self.room()? == 0 {
            return Err(PushError::Full);
        }
        let at = HEAD_WORDS + 2 * (self.next & (self.entries - 1)) as usize;
        self.memory.store(at, entry[0], Ordering::Relaxed);
        self.memory.store(at + 1, entry[1], Ordering::Relaxed);
        self.next += 1;
        Ok(())
    }

    /// Number of the next entry to be pushed: entries before [`released`](Self::released) are done
    /// with.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Entries that the consumer is done with.
    ///
    /// # Errors
    /// The consumer is broken.
    pub fn released(&mut self) -> Result<u64, RingError> {
        self.room()?;
        Ok(self.released)
    }

    /// Takes back what was pushed since the last [`publish`](Self::publish).
    pub fn retract(&mut self) {
        self.next = self.published;
    }

    /// Lets the consumer see what was pushed. True: it may be asleep, and wants a bell.
    #[must_use = "the consumer may be asleep"]
    pub fn publish(&mut self) -> bool {
        let old = std::mem::replace(&mut self.published, self.next);
        if old == self.next {
            return false;
        }
        self.memory.store(PRODUCER, self.next, Ordering::Release);
        self.memory.fence();
        is_passed(self.memory.load(WANTED_ENTRY, Ordering::Relaxed), old, self.next)
    }

    /// Asks for a bell when the ring has more room than it has now. True: it had not at this
    /// moment, so one may sleep.
    ///
    /// # Errors
    /// The consumer is broken.
    pub fn sleep_until_room(&mut self) -> Result<bool, RingError> {
        let before = self.released;
        self.memory.store(WANTED_ROOM, before, Ordering::Relaxed);
        self.memory.fence();
        self.room()?;
        Ok(self.released == before)
    }
}

/// The side that reads entries.
#[derive(Debug)]
pub struct Consumer<M> {
    memory: M,
    entries: u64,
    next: u64,
    released: u64,
    /// What the producer had published when it was looked at last.
    published: u64,
}

impl<M: RingMemory> Consumer<M> {
    /// Of a ring that nobody has used.
    ///
    /// # Panics
    /// If `entries` is not a power of two.
    pub fn new(memory: M, entries: usize) -> Self {
        assert!(entries.is_power_of_two(), "a ring of {entries} entries");
        Self { memory, entries: entries as u64, next: 0, released: 0, published: 0 }
    }

    fn look(&mut self) -> Result<(), RingError> {
        let most = self.released + self.entries;
        self.published =
            check(self.memory.load(PRODUCER, Ordering::Acquire), self.published, most)?;
        Ok(())
    }

    /// The next entry, if there is one. Its place is the producer's again after
    /// [`release`](Self::release).
    ///
    /// # Errors
    /// The producer is broken.
    pub fn pop(&mut self) -> Result<Option<Entry>, RingError> {
        if self.next == self.published {
            self.look()?;
            if self.next == self.published {
                return Ok(None);
            }
        }
        let at = HEAD_WORDS + 2 * (self.next & (self.entries - 1)) as usize;
        let entry =
            [self.memory.load(at, Ordering::Relaxed), self.memory.load(at + 1, Ordering::Relaxed)];
        self.next += 1;
        Ok(Some(entry))
    }

    /// The entry that [`pop`](Self::pop) would take. The producer may change it before that.
    ///
    /// # Errors
    /// The producer is broken.
    pub fn peek(&mut self) -> Result<Option<Entry>, RingError> {
        let before = self.next;
        let entry = self.pop();
        self.next = before;
        entry
    }

    /// Entries that can be popped now.
    ///
    /// # Errors
    /// The producer is broken.
    pub fn available(&mut self) -> Result<u64, RingError> {
        self.look()?;
        Ok(self.published - self.next)
    }

    /// Entries popped so far.
    pub fn popped(&self) -> u64 {
        self.next
    }

    /// Gives the places of all popped entries back. True: the producer may be asleep, and wants a
    /// bell.
    #[must_use = "the producer may be asleep"]
    pub fn release(&mut self) -> bool {
        let old = std::mem::replace(&mut self.released, self.next);
        if old == self.next {
            return false;
        }
        self.memory.store(CONSUMER, self.next, Ordering::Release);
        self.memory.fence();
        is_passed(self.memory.load(WANTED_ROOM, Ordering::Relaxed), old, self.next)
    }

    /// Asks for a bell when the next entry is there. True: it was not at this moment, so one
    /// may sleep.
    ///
    /// # Errors
    /// The producer is broken.
    pub fn sleep_until_entry(&mut self) -> Result<bool, RingError> {
        self.sleep_until_more_than(0)
    }

    /// Asks for a bell when more than `entries` entries can be popped. True: there were not more at
    /// this moment, so one may sleep.
    ///
    /// # Errors
    /// The producer is broken.
    pub fn sleep_until_more_than(&mut self, entries: u64) -> Result<bool, RingError> {
        self.memory.store(WANTED_ENTRY, self.next + entries, Ordering::Relaxed);
        self.memory.fence();
        self.look()?;
        Ok(self.published - self.next <= entries)
    }
}

/// Has an index that moved from `old` to `new` passed what is wanted?
fn is_passed(wanted: u64, old: u64, new: u64) -> bool {
    (old..new).contains(&wanted)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, fence};

    use proptest::prelude::*;

    use super::*;

    struct Heap(Vec<AtomicU64>);

    impl Heap {
        fn new(entries: usize) -> Arc<Self> {
            Arc::new(Self((0..ring_words(entries)).map(|_| AtomicU64::new(0)).collect()))
        }
    }

    impl RingMemory for Heap {
        fn load(&self, word: usize, ordering: Ordering) -> u64 {
            self.0[word].load(ordering)
        }

        fn store(&self, word: usize, value: u64, ordering: Ordering) {
            self.0[word].store(value, ordering);
        }

        fn fence(&self) {
            fence(Ordering::SeqCst);
        }
    }

    fn ring(entries: usize) -> (Arc<Heap>, Producer<Arc<Heap>>, Consumer<Arc<Heap>>) {
        let memory = Heap::new(entries);
        (memory.clone(), Producer::new(memory.clone(), entries), Consumer::new(memory, entries))
    }

    #[test]
    fn entries_come_out_in_order_and_in_batches() {
        let (_, mut producer, mut consumer) = ring(4);
        for number in 0..4 {
            producer.push([number, !number]).unwrap();
        }
        assert_eq!(producer.push([9, 9]), Err(PushError::Full));
        assert_eq!(
            (consumer.pop(), consumer.available()),
            (Ok(None), Ok(0)),
            "nothing is published yet"
        );
        let _ = producer.publish();
        assert_eq!(consumer.available(), Ok(4));
        for number in 0..4 {
            assert_eq!(consumer.pop(), Ok(Some([number, !number])));
        }
        assert_eq!((consumer.pop(), producer.room()), (Ok(None), Ok(0)));
        let _ = consumer.release();
        assert_eq!((producer.room(), producer.released()), (Ok(4), Ok(4)));
    }

    #[test]
    fn what_is_taken_back_is_never_seen() {
        let (_, mut producer, mut consumer) = ring(4);
        producer.push([1, 1]).unwrap();
        let _ = producer.publish();
        producer.push([2, 2]).unwrap();
        producer.retract();
        producer.push([3, 3]).unwrap();
        let _ = producer.publish();
        assert_eq!(consumer.pop(), Ok(Some([1, 1])));
        assert_eq!(consumer.pop(), Ok(Some([3, 3])));
        assert_eq!(consumer.pop(), Ok(None));
    }

    #[test]
    fn bells_ring_for_sleepers_only() {
        let (_, mut producer, mut consumer) = ring(4);
        producer.push([0, 0]).unwrap();
        assert!(producer.publish(), "at the beginning everybody sleeps");
        producer.push([1, 1]).unwrap();
        assert!(!producer.publish());
        assert_eq!(consumer.sleep_until_entry(), Ok(false));
        consumer.pop().unwrap().unwrap();
        consumer.pop().unwrap().unwrap();
        assert_eq!(consumer.sleep_until_entry(), Ok(true));
        producer.push([2, 2]).unwrap();
        assert!(producer.publish());
        producer.push([3, 3]).unwrap();
        producer.push([4, 4]).unwrap_err();
        assert_eq!(producer.sleep_until_room(), Ok(true));
        assert!(consumer.release());
        assert!(!consumer.release(), "nothing new was released");
        assert_eq!(producer.sleep_until_room(), Ok(false), "two places have become free");
        assert_eq!(producer.sleep_until_room(), Ok(true));
    }

    #[test]
    fn a_broken_peer_is_found() {
        let (memory, mut producer, mut consumer) = ring(4);
        memory.store(PRODUCER, 5, Ordering::SeqCst);
        assert_eq!(consumer.pop(), Err(RingError::Past { index: 5, most: 4 }));
        memory.store(CONSUMER, 1, Ordering::SeqCst);
        assert_eq!(producer.room(), Err(RingError::Past { index: 1, most: 0 }));
        memory.store(CONSUMER, 0, Ordering::SeqCst);
        memory.store(PRODUCER, 2, Ordering::SeqCst);
        consumer.pop().unwrap();
        consumer.pop().unwrap();
        memory.store(PRODUCER, 1, Ordering::SeqCst);
        assert_eq!(consumer.pop(), Err(RingError::Back { from: 2, to: 1 }));
        memory.store(PRODUCER, u64::MAX, Ordering::SeqCst);
        assert!(matches!(consumer.sleep_until_entry(), Err(RingError::Past { .. })));
    }

    #[test]
    fn two_threads_that_sleep() {
        const ENTRIES: u64 = 200_000;
        let (_, mut producer, mut consumer) = ring(8);
        let (entry_bell, entry_heard) = std::sync::mpsc::channel();
        let (room_bell, room_heard) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..ENTRIES {
                    while let Err(error) = producer.push([number, number ^ 7]) {
                        assert_eq!(error, PushError::Full);
                        if producer.publish() {
                            entry_bell.send(()).unwrap();
                        }
                        if producer.sleep_until_room().unwrap() {
                            room_heard.recv().unwrap();
                        }
                    }
                    if number % 3 == 0 && producer.publish() {
                        entry_bell.send(()).unwrap();
                    }
                }
                if producer.publish() {
                    // The consumer may have gone with what it wanted.
                    let _ = entry_bell.send(());
                }
            });
            let mut expected = 0;
            while expected < ENTRIES {
                match consumer.pop().unwrap() {
                    Some(entry) => {
                        assert_eq!(entry, [expected, expected ^ 7]);
                        expected += 1;
                    }
                    None => {
                        if consumer.release() {
                            let _ = room_bell.send(());
                        }
                        if consumer.sleep_until_entry().unwrap() {
                            entry_heard.recv().unwrap();
                        }
                    }
                }
            }
        });
    }

    proptest! {
        /// Whatever words a peer writes, both sides end with entries or a named error.
        #[test]
        fn hostile_words(
            writes in proptest::collection::vec(
                (0usize..ring_words(4), any::<u64>(), 0u8..6),
                1..60,
            ),
        ) {
            let (memory, mut producer, mut consumer) = ring(4);
            for (word, value, step) in writes {
                memory.store(word, value, Ordering::SeqCst);
                match step {
                    0 => drop(producer.push([value, value])),
                    1 => drop(producer.publish()),
                    2 => drop(consumer.pop()),
                    3 => drop(consumer.release()),
                    4 => drop(consumer.sleep_until_entry()),
                    _ => drop(producer.sleep_until_room()),
                }
            }
        }
    }
}
