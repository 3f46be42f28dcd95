//! The table's protocol: no hit is older than a change that had ended before the hit began.
//!
//! Two ways: a model whose every interleaving of steps is tried, and the real table under threads.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nicache_coherence::{Epoch, RevisionTable, SourceSlot, Stamp};

/// The protocol as single steps on plain words.
mod model {
    use std::collections::HashSet;

    #[derive(Clone, Default, PartialEq, Eq, Hash)]
    pub(crate) struct World {
        clock: u64,
        slots: [Slot; 2],
        epoch: u64,
        files: [File; 2],
        places: Places,
        writers: [Writer; 2],
        card: Card,
        gap: Gap,
    }

    /// A witness that is stopped in the middle, once at most.
    #[derive(Clone, Default, PartialEq, Eq, Hash)]
    struct Gap {
        step: u8,
        /// The table's words, and the clock as it was last read.
        open: bool,
        stamp: u64,
        clock: u64,
    }

    /// What the two writers change. The entry is of the last file.
    #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub(crate) enum Places {
        /// One file.
        #[default]
        OneFile,
        /// Each its own, in the same slot.
        OneSlot,
        /// Each its own, each in its own slot. The first is a directory on the way to the last: if
        /// that alone changes, the entry may be reinstated.
        Apart,
    }

    #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
    struct Slot {
        stamp: u64,
        watched: bool,
    }

    #[derive(Clone, Default, PartialEq, Eq, Hash)]
    struct File {
        /// Which version is visible, and which version the last writer that has returned had
        /// written.
        visible: u64,
        returned: u64,
        /// The inode's lock.
        locked: bool,
    }

    #[derive(Clone, Default, PartialEq, Eq, Hash)]
    struct Writer {
        step: u8,
        clock: u64,
        /// The slot as it was last seen; has this writer changed it?
        seen: Slot,
        is_new: bool,
        effect_first: bool,
    }

    #[derive(Clone, Default, PartialEq, Eq, Hash)]
    struct Card {
        step: u8,
        stamp: u64,
        body: u64,
        epoch: u64,
        entry: Option<(u64, u64)>,
        checked: u64,
        hits: u8,
        /// What it has read of the gap.
        gap_open: bool,
        gap_stamp: u64,
        /// What had returned when the present hit began, and the epoch that it read.
        floor: u64,
        hit_epoch: u64,
    }

    /// Which rules are followed; the tests leave one out each, to see that the model would notice.
    #[derive(Clone, Copy)]
    pub(crate) struct Rules {
        pub epoch_after_stamp: bool,
        pub epoch_read_before_check: bool,
        pub barrier: bool,
        pub watch_before_check: bool,
        pub epoch_even_if_stamped: bool,
        pub clock_after_stamp: bool,
        pub epoch_at_gap: bool,
        pub stamp_before_gap_ends: bool,
        pub gap_read_before_its_stamp: bool,
    }

    pub(crate) const ALL: Rules = Rules {
        epoch_after_stamp: true,
        epoch_read_before_check: true,
        barrier: true,
        watch_before_check: true,
        epoch_even_if_stamped: true,
        clock_after_stamp: true,
        epoch_at_gap: true,
        stamp_before_gap_ends: true,
        gap_read_before_its_stamp: true,
    };

    /// Steps of the card.
    const HIT: u8 = 8;
    const REINSTATE: u8 = 20;
    /// Reads the gap in two steps, and then goes on.
    const FILL_GAP: u8 = 30;
    const HIT_GAP: u8 = 40;
    const REINSTATE_GAP: u8 = 50;
    const OVER: u8 = 100;
    const HITS_MAX: u8 = 3;
    /// A step of the gap: others are passed over.
    const GAP_OPEN: u8 = 2;

    impl World {
        /// `effect_first`: does the first (second) writer's effect come before its witness?
        pub(crate) fn new(effect_first: [bool; 2], places: Places) -> Self {
            let mut world = Self { places, ..Self::default() };
            for (writer, effect_first) in world.writers.iter_mut().zip(effect_first) {
                writer.effect_first = effect_first;
            }
            world
        }

        /// Tries all interleavings and gathers the states that they lead through; `Err` is a hit
        /// that was stale.
        pub(crate) fn explore(
            self,
            rules: Rules,
            seen: &mut HashSet<Self>,
        ) -> Result<(), &'static str> {
            let mut open = vec![self];
            while let Some(world) = open.pop() {
                for actor in 0..6 {
                    let mut next = world.clone();
                    let moved = match actor {
                        0 | 1 => next.writer_step(actor, rules),
                        2 => next.card_step(rules)?,
                        3 => next.gap_step(rules),
                        _ => next.miss_step(actor - 4),
                    };
                    if moved && seen.insert(next.clone()) {
                        open.push(next);
                    }
                }
            }
            Ok(())
        }

        /// lock, [effect], look at the slot, read the clock and stamp until the stamp is at least
        /// as large, epoch, [effect], unlock, return
        fn writer_step(&mut self, index: usize, rules: Rules) -> bool {
            let mut writer = self.writers[index].clone();
            let file = if self.places == Places::OneFile { 1 } else { index };
            let slot = if self.places == Places::Apart { index } else { 1 };
            let effect = |world: &mut Self| world.files[file].visible += 1;
            match writer.step {
                0 if self.files[file].locked => return false,
                0 => self.files[file].locked = true,
                1 if writer.effect_first => effect(self),
                1 => {}
                2 => {
                    self.epoch += u64::from(!rules.epoch_after_stamp);
                    writer.seen = self.slots[slot];
                }
                3 => {
                    writer.clock = self.clock;
                    if rules.clock_after_stamp && writer.seen.stamp >= writer.clock {
                        writer.step = 4;
                    }
                }
                4 => {
                    let now = &mut self.slots[slot];
                    if (*now == writer.seen || !rules.clock_after_stamp) && now.stamp < writer.clock
                    {
                        now.stamp = writer.clock;
                        writer.is_new = true;
                    }
                    writer.seen = *now;
                    if rules.clock_after_stamp {
                        writer.step = 2;
                    }
                }
                5 => {
                    let is_told =
                        writer.seen.watched && (writer.is_new || rules.epoch_even_if_stamped);
                    self.epoch += u64::from(rules.epoch_after_stamp && is_told);
                }
                6 if !writer.effect_first => effect(self),
                6 => {}
                7 => {
                    let file = &mut self.files[file];
                    file.locked = false;
                    file.returned = file.visible;
                }
                _ => return false,
            }
            writer.step += 1;
            self.writers[index] = writer;
            true
        }

        /// The witness that would tell of the writer is passed over.
        fn miss_step(&mut self, index: usize) -> bool {
            let writer = &mut self.writers[index];
            if self.gap.step != GAP_OPEN || writer.step != 2 {
                return false;
            }
            writer.step = 6;
            true
        }

        /// open, epoch; then writers may be missed; then read the clock, stamp, close
        fn gap_step(&mut self, rules: Rules) -> bool {
            let gap = &mut self.gap;
            gap.step = match gap.step {
                0 => {
                    gap.open = true;
                    1
                }
                1 => {
                    self.epoch += u64::from(rules.epoch_at_gap);
                    GAP_OPEN
                }
                GAP_OPEN => {
                    gap.open = rules.stamp_before_gap_ends;
                    3
                }
                3 => {
                    gap.clock = self.clock;
                    4
                }
                4 => {
                    gap.stamp = gap.clock;
                    5
                }
                5 => {
                    gap.open = false;
                    6
                }
                _ => return false,
            };
            true
        }

        fn is_unchanged(&self, card: &Card, slots: &[usize], since: u64) -> bool {
            !card.gap_open
                && card.gap_stamp < since
                && slots.iter().all(|&slot| self.slots[slot].stamp < since)
        }

        fn card_step(&mut self, rules: Rules) -> Result<bool, &'static str> {
            let mut card = self.card.clone();
            let sources: &[usize] = if self.places == Places::Apart { &[0, 1] } else { &[1] };
            let watch = |world: &mut Self| {
                sources.iter().for_each(|&slot| world.slots[slot].watched = true);
            };
            let go = |ahead: bool, step: u8| if ahead { step } else { OVER };
            card.step = match card.step {
                0 => {
                    self.clock += 1;
                    card.stamp = self.clock;
                    1
                }
                1 => {
                    card.body = self.files[1].visible;
                    2
                }
                2 => {
                    if rules.watch_before_check {
                        watch(self);
                    }
                    3
                }
                // The barrier waits for the lock; the comparison follows.
                3 if rules.barrier && self.files[1].locked => return Ok(false),
                3 => 4,
                4 => go(!rules.barrier || self.files[1].visible == card.body, 5),
                5 => {
                    if rules.epoch_read_before_check {
                        card.epoch = self.epoch;
                    }
                    FILL_GAP
                }
                FILL_GAP | HIT_GAP | REINSTATE_GAP => {
                    match rules.gap_read_before_its_stamp {
                        true => card.gap_open = self.gap.open,
                        false => card.gap_stamp = self.gap.stamp,
                    }
                    card.step + 1
                }
                // FILL_GAP, HIT_GAP, REINSTATE_GAP and 1
                31 | 41 | 51 => {
                    match rules.gap_read_before_its_stamp {
                        true => card.gap_stamp = self.gap.stamp,
                        false => card.gap_open = self.gap.open,
                    }
                    match card.step {
                        31 => 6,
                        41 => 12,
                        _ => 25,
                    }
                }
                6 => {
                    card.entry = Some((card.body, card.stamp));
                    go(self.is_unchanged(&card, sources, card.stamp), 7)
                }
                7 => {
                    if !rules.epoch_read_before_check {
                        card.epoch = self.epoch;
                    }
                    if !rules.watch_before_check {
                        watch(self);
                    }
                    card.checked = card.epoch;
                    HIT
                }
                // A hit: begins, reads the epoch, re-checks if it moved, serves.
                HIT => {
                    card.floor = self.files[1].returned;
                    9
                }
                9 => {
                    card.hit_epoch = self.epoch;
                    10
                }
                10 if card.hit_epoch != card.checked => HIT_GAP,
                12 => {
                    if card.entry.is_some_and(|(_, stamp)| self.is_unchanged(&card, sources, stamp))
                    {
                        card.checked = card.hit_epoch;
                        11
                    } else {
                        go(self.places == Places::Apart, REINSTATE)
                    }
                }
                10 => 11,
                11 => {
                    let (body, _) = card.entry.expect("stored");
                    if body < card.floor {
                        return Err("stale");
                    }
                    card.hits += 1;
                    go(card.hits < HITS_MAX, HIT)
                }
                // The registrar looks at the file's slot, again at the path, once more at the slot;
                // then the card at all slots.
                REINSTATE => {
                    self.clock += 1;
                    card.stamp = self.clock;
                    21
                }
                21 | 23 => {
                    (card.gap_open, card.gap_stamp) = (self.gap.open, self.gap.stamp);
                    go(
                        card.entry.is_some_and(|(_, stamp)| self.is_unchanged(&card, &[1], stamp)),
                        card.step + 1,
                    )
                }
                22 if self.files[0].locked => return Ok(false),
                22 => 23,
                24 => {
                    card.epoch = self.epoch;
                    REINSTATE_GAP
                }
                25 => {
                    card.entry = card.entry.map(|(body, _)| (body, card.stamp));
                    card.checked = card.epoch;
                    go(self.is_unchanged(&card, sources, card.stamp), HIT)
                }
                _ => return Ok(false),
            };
            self.card = card;
            Ok(true)
        }
    }
}

fn explore(rules: model::Rules) -> Result<usize, &'static str> {
    let mut states = 0;
    for places in [model::Places::OneFile, model::Places::OneSlot, model::Places::Apart] {
        for effect_first in [[true, true], [true, false], [false, true], [false, false]] {
            let mut seen = HashSet::new();
            model::World::new(effect_first, places).explore(rules, &mut seen)?;
            states += seen.len();
        }
    }
    Ok(states)
}

#[test]
fn no_interleaving_of_two_writers_and_a_card_serves_a_stale_entry() {
    let states = explore(model::ALL).unwrap();
    assert!(states > 1_000, "only {states} states");
    println!("{states} states");
}

#[test]
fn the_model_notices_every_rule_that_is_left_out() {
    let broken = [
        ("epoch before stamp", model::Rules { epoch_after_stamp: false, ..model::ALL }),
        (
            "epoch read after the check",
            model::Rules { epoch_read_before_check: false, ..model::ALL },
        ),
        ("no barrier", model::Rules { barrier: false, ..model::ALL }),
        (
            "no epoch if stamped already",
            model::Rules { epoch_even_if_stamped: false, ..model::ALL },
        ),
        ("watched after the check", model::Rules { watch_before_check: false, ..model::ALL }),
        (
            "clock read before the stamp alone",
            model::Rules { clock_after_stamp: false, ..model::ALL },
        ),
        ("epoch not moved by a gap", model::Rules { epoch_at_gap: false, ..model::ALL }),
        (
            "a gap that ends before its stamp",
            model::Rules { stamp_before_gap_ends: false, ..model::ALL },
        ),
        (
            "the gap's stamp read before the gap",
            model::Rules { gap_read_before_its_stamp: false, ..model::ALL },
        ),
    ];
    for (name, rules) in broken {
        assert!(explore(rules).is_err(), "{name} is not noticed");
    }
}

/// The real table: a file is an atomic version; writers change it and record the change before they
/// return.
#[test]
fn threads_never_see_a_hit_older_than_a_change_that_had_ended() {
    const SLOTS: u16 = 4;
    const FILLS: u64 = 2_000;
    struct Site {
        table: Arc<RevisionTable>,
        /// Version that readers see, and version that had been written when its writer returned.
        visible: [AtomicU64; SLOTS as usize],
        returned: [AtomicU64; SLOTS as usize],
        stop: AtomicBool,
    }
    let site = Site {
        table: RevisionTable::on_heap(),
        visible: Default::default(),
        returned: Default::default(),
        stop: AtomicBool::new(false),
    };
    let (mut hits, mut fills) = (0_u64, 0_u64);
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let site = &site;
            scope.spawn(move || {
                for round in 0_u64.. {
                    if site.stop.load(Ordering::Relaxed) {
                        break;
                    }
                    // One writer per file, so `returned` is exact.
                    let file = (round % 2 * 2 + writer) as usize;
                    // Now and then nobody tells of it.
                    let is_seen = round % 16 != 3;
                    if !is_seen {
                        site.table.begin_gap();
                    }
                    let version = site.visible[file].fetch_add(1, Ordering::SeqCst) + 1;
                    match is_seen {
                        true => site.table.record_change(SourceSlot(file as u32 + 8)),
                        false => site.table.end_gap(),
                    }
                    site.returned[file].store(version, Ordering::SeqCst);
                    // Long enough for fills and hits in between.
                    for _ in 0..round % 128 {
                        std::hint::spin_loop();
                    }
                    if round % 8 == 0 {
                        std::thread::yield_now();
                    }
                }
            });
        }
        struct Entry {
            body: u64,
            stamp: Stamp,
            checked: Epoch,
        }
        let mut entries: [Option<Entry>; SLOTS as usize] = Default::default();
        for turn in 0.. {
            if fills >= FILLS && hits >= FILLS {
                break;
            }
            let file = turn % SLOTS as usize;
            let slots = [SourceSlot::EVERYTHING, SourceSlot(file as u32 + 8)];
            let floor = site.returned[file].load(Ordering::SeqCst);
            if let Some(entry) = &mut entries[file] {
                let epoch = site.table.epoch();
                if epoch == entry.checked || site.table.is_unchanged(&slots, entry.stamp) {
                    entry.checked = epoch;
                    assert!(
                        entry.body >= floor,
                        "entry of version {} served after {floor}",
                        entry.body
                    );
                    hits += 1;
                    continue;
                }
                entries[file] = None;
            }
            let stamp = site.table.advance_clock();
            let body = site.visible[file].load(Ordering::SeqCst);
            site.table.watch(slots[1]);
            let checked = site.table.epoch();
            if site.table.is_unchanged(&slots, stamp) {
                entries[file] = Some(Entry { body, stamp, checked });
                fills += 1;
            }
        }
        site.stop.store(true, Ordering::Relaxed);
    });
    println!("{hits} hits, {fills} fills");
}

#[test]
fn a_change_stamps_its_slot_only_and_moves_the_epoch_only_if_it_is_watched() {
    let table = RevisionTable::on_heap();
    let (one, other) = (SourceSlot(7), SourceSlot(8));
    let stamp = table.advance_clock();
    let epoch = table.epoch();
    table.record_change(one);
    assert_eq!(table.epoch(), epoch);
    assert!(!table.is_unchanged(&[other, one], stamp));
    assert!(table.is_unchanged(&[other], stamp));
    table.watch(one);
    assert!(table.is_watched(one) && !table.is_watched(other));
    table.record_change(one);
    table.record_change(one);
    assert_eq!(table.epoch(), Epoch(epoch.0 + 2));
    let stamp = table.advance_clock();
    assert!(table.is_unchanged(&[one, other], stamp));
}

#[test]
fn a_gap_is_a_change_of_everything_from_its_beginning_to_its_end() {
    let table = RevisionTable::on_heap();
    let slots = [SourceSlot(7), SourceSlot::EVERYTHING];
    let before = table.advance_clock();
    let epoch = table.epoch();
    table.begin_gap();
    assert_ne!(table.epoch(), epoch);
    let meanwhile = table.advance_clock();
    assert!(!table.is_unchanged(&slots, before) && !table.is_unchanged(&slots, meanwhile));
    assert!(!table.is_unchanged(&[], meanwhile) && table.stamp_of(slots[0]) >= meanwhile);
    // One within another, as with two processors.
    table.begin_gap();
    table.end_gap();
    assert!(!table.is_unchanged(&slots, table.advance_clock()));
    let last = table.advance_clock();
    table.end_gap();
    assert!(!table.is_unchanged(&slots, last) && table.stamp_of(slots[0]) == last);
    assert!(table.is_unchanged(&slots, table.advance_clock()));
    assert_eq!(table.gaps(), 2);
}

#[test]
fn the_lease_ends_on_time() {
    let table = RevisionTable::on_heap();
    assert!(!table.lease_holds(1));
    table.renew_lease(100);
    assert!(table.lease_holds(100) && !table.lease_holds(101));
    table.renew_lease(0);
    assert!(!table.lease_holds(1));
}

#[test]
fn two_mappings_of_the_same_memory_are_one_table() {
    use std::os::fd::AsFd;
    let file = |bytes: usize| {
        let file = rustix::fs::memfd_create("table", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, bytes as u64).unwrap();
        file
    };
    let control = file(nicache_coherence::CONTROL_BYTES);
    let revisions = file(nicache_coherence::REVISIONS_BYTES);
    let writer = RevisionTable::map(control.as_fd(), revisions.as_fd()).unwrap();
    let reader = RevisionTable::map(control.as_fd(), revisions.as_fd()).unwrap();
    drop((control, revisions));
    let stamp = reader.advance_clock();
    for slot in [SourceSlot::EVERYTHING, SourceSlot(nicache_coherence::SOURCE_SLOTS as u32 - 1)] {
        reader.watch(slot);
        let epoch = reader.epoch();
        writer.record_change(slot);
        assert_ne!(reader.epoch(), epoch);
        assert_eq!(reader.stamp_of(slot), stamp);
    }
    writer.set_server_netns(0xf000_0001);
    writer.record_lost();
    assert_eq!((reader.server_netns(), reader.lost()), (0xf000_0001, 1));
}
