use nicache_policy::{ChosenPolicy, PolicyName};

use super::*;

const FILE: FileId = FileId { inode: 12, generation: 1 };

fn keeping(policy: ChosenPolicy, chunks_max: usize) -> Keeping {
    let bytes = (chunks_max * BLOCK_BYTES) as u64;
    Keeping { policy: policy.build(bytes, chunks_max as u32, 1), lapse: 0, chunks_max }
}

fn index() -> Index {
    Index::new(keeping(ChosenPolicy::LRU, 256), 1000, 256)
}

fn fill(index: &mut Index, lbn: u64, reader: Reader) {
    index.begin_fill(Lbn(lbn));
    index.end_fill(Lbn(lbn), Some(chunk(lbn as u8)), reader);
}

fn chunk(byte: u8) -> Bytes {
    Bytes::from(vec![byte; BLOCK_BYTES])
}

fn write(index: &mut Index, block: u64, byte: u8) -> Sequence {
    let sequence =
        index.register(Pending { file: FILE, block, valid_bytes: 4096, chunk: chunk(byte) });
    index.publish(FILE, block, sequence);
    sequence
}

fn arrive(index: &mut Index, lbn: u64, sequence: Sequence) {
    index.begin_write(Lbn(lbn));
    index.end_write(Lbn(lbn), Some(sequence), true);
}

fn read(index: &mut Index, block: u64) -> Result<u8, Option<u64>> {
    let mut found = Err(None);
    index.find(FILE, block, 1, Reader::Client, |one| {
        found = match one {
            Found::Chunk(chunk) => Ok(chunk[0]),
            Found::At(lbn) => Err(Some(lbn.0)),
            Found::Unknown => Err(None),
        }
    });
    found
}

#[test]
fn a_chunk_is_found_by_file_and_then_by_block() {
    let mut index = index();
    let sequence = write(&mut index, 3, 7);
    assert_eq!(read(&mut index, 3), Ok(7));
    assert!(index.evict().is_none(), "it is pinned");
    arrive(&mut index, 50, sequence);
    assert_eq!(read(&mut index, 3), Ok(7));
    assert_eq!((index.pending_chunks(), index.clean_chunks(), index.remapped), (0, 1, 1));
    assert!(index.evict().is_some());
    assert_eq!(read(&mut index, 3), Err(Some(50)));
}

#[test]
fn files_whose_writes_failed_are_remembered_up_to_a_bound() {
    let mut index = index();
    let file = |inode| FileId { inode, generation: 1 };
    for inode in 0..FAILED_MAX as u64 {
        index.fail(file(inode));
        index.fail(file(inode));
    }
    assert!(index.take_failed(file(5)) && !index.take_failed(file(5)));
    index.fail(file(5));
    assert_eq!((index.files(), index.has_failed(file(0))), (FAILED_MAX, true));
    index.handle_places(file(1), 0, Lbn(50), 1);
    index.fail(file(FAILED_MAX as u64));
    assert!(index.has_failed(file(FAILED_MAX as u64)) && !index.has_failed(file(0)));
    assert_eq!((index.files(), index.failed), (2, 1), "places are kept");
}

#[test]
fn a_key_that_arrives_before_it_is_published_is_not_pinned_for_ever() {
    let mut index = index();
    let old = write(&mut index, 0, 1);
    let new = index.register(Pending { file: FILE, block: 0, valid_bytes: 4096, chunk: chunk(2) });
    arrive(&mut index, 50, new);
    index.publish(FILE, 0, new);
    assert_eq!(read(&mut index, 0), Ok(2));
    assert_eq!(index.pending_chunks(), 0);
    assert!(index.payload(old).is_none());
}

#[test]
fn an_older_key_that_arrives_does_not_hide_a_newer_one() {
    let mut index = index();
    let old = write(&mut index, 0, 1);
    let new = index.register(Pending { file: FILE, block: 0, valid_bytes: 4096, chunk: chunk(2) });
    arrive(&mut index, 50, old);
    index.publish(FILE, 0, new);
    assert_eq!(read(&mut index, 0), Ok(2));
}

#[test]
fn a_fill_that_a_write_overtook_is_not_kept() {
    let mut index = index();
    index.begin_fill(Lbn(5));
    index.begin_write(Lbn(5));
    index.end_write(Lbn(5), None, true);
    index.end_fill(Lbn(5), Some(chunk(1)), Reader::Client);
    assert!(matches!(index.find_lbn(Lbn(5), Reader::Client), Found::At(_)));
    // One that begins later is.
    index.begin_fill(Lbn(5));
    index.end_fill(Lbn(5), Some(chunk(2)), Reader::Client);
    assert!(matches!(index.find_lbn(Lbn(5), Reader::Client), Found::Chunk(chunk) if chunk[0] == 2));
    // One that begins during a write is not.
    index.begin_write(Lbn(5));
    index.begin_fill(Lbn(5));
    index.end_write(Lbn(5), None, true);
    index.end_fill(Lbn(5), Some(chunk(3)), Reader::Client);
    assert!(matches!(index.find_lbn(Lbn(5), Reader::Client), Found::At(_)));
}

#[test]
fn of_two_writes_of_a_block_at_once_neither_is_kept() {
    let mut index = index();
    let sequence = write(&mut index, 0, 1);
    index.begin_write(Lbn(5));
    index.begin_write(Lbn(5));
    index.end_write(Lbn(5), Some(sequence), true);
    index.end_write(Lbn(5), None, true);
    assert_eq!(read(&mut index, 0), Err(Some(5)));
}

#[test]
fn a_write_that_fails_keeps_its_payload_and_is_told_once() {
    let mut index = index();
    let sequence = write(&mut index, 0, 1);
    index.begin_write(Lbn(5));
    index.end_write(Lbn(5), Some(sequence), false);
    assert_eq!(read(&mut index, 0), Ok(1));
    assert_eq!(index.keys_of(FILE), [(0, sequence, 4096)]);
    assert!(index.take_failed(FILE) && !index.take_failed(FILE));
}

#[test]
fn what_is_cut_is_forgotten() {
    let mut index = index();
    let first = write(&mut index, 0, 1);
    let second = write(&mut index, 1, 2);
    let third = write(&mut index, 2, 3);
    arrive(&mut index, 9, third);
    index.cut(FILE, 1);
    assert!(index.payload(first).is_some() && index.payload(second).is_none());
    assert_eq!((read(&mut index, 1), read(&mut index, 2)), (Err(None), Err(None)));
    index.cut(FILE, 0);
    assert_eq!((index.files(), index.pending_chunks()), (0, 0));
}

#[test]
fn a_policy_hears_of_uses_as_often_as_insertions_matter() {
    let keeping = Keeping { lapse: 4, ..keeping(ChosenPolicy::LRU, 8) };
    let mut index = Index::new(keeping, 1000, 16);
    (0..8).for_each(|lbn| fill(&mut index, lbn, Reader::Client));
    // A lapse later, the oldest one is used, again and again; it stays, and the next one goes.
    for _ in 0..3 {
        assert!(matches!(index.find_lbn(Lbn(0), Reader::Client), Found::Chunk(_)));
    }
    index.evict();
    let is_here = |index: &Index, lbn| index.peek_lbn(Lbn(lbn)).is_some();
    assert!(is_here(&index, 0) && !is_here(&index, 1));
    assert_eq!(index.hits_lbn, 3);
}

#[test]
fn a_block_says_why_it_is_not_here() {
    let mut index = index();
    let state = |index: &Index, lbn| index.state(FILE, 0, Place::At(Lbn(lbn)));
    assert_eq!(state(&index, 5), BlockState::Unread);
    index.begin_fill(Lbn(5));
    assert_eq!(state(&index, 5), BlockState::Coming);
    index.end_fill(Lbn(5), Some(chunk(1)), Reader::Client);
    assert_eq!(state(&index, 5), BlockState::ByBlock);
    index.evict();
    assert_eq!(state(&index, 5), BlockState::Evicted);
    index.begin_write(Lbn(5));
    index.end_write(Lbn(5), None, true);
    assert_eq!(state(&index, 5), BlockState::Overwritten);
    index.begin_fill(Lbn(5));
    index.begin_write(Lbn(5));
    index.end_write(Lbn(5), None, true);
    index.end_fill(Lbn(5), Some(chunk(1)), Reader::Client);
    assert_eq!(state(&index, 5), BlockState::Contested);
    let sequence = write(&mut index, 0, 1);
    assert_eq!(index.state(FILE, 0, Place::Nowhere), BlockState::ByFile);
    assert_eq!(index.state(FILE, 1, Place::Nowhere), BlockState::Hole);
    assert_eq!(index.state(FILE, 1, Place::Reserved), BlockState::Reserved);
    index.publish_literal(FILE, 1, chunk(2));
    assert_eq!(index.state(FILE, 1, Place::Nowhere), BlockState::ByFileShort);
    arrive(&mut index, 9, sequence);
    assert_eq!(state(&index, 9), BlockState::ByBlock);
}

#[test]
fn places_are_bounded_and_dirty_files_stay() {
    let mut index = Index::new(keeping(ChosenPolicy::LRU, 256), 10, 256);
    write(&mut index, 0, 1);
    for inode in 0..100 {
        index.handle_places(FileId { inode: 100 + inode, generation: 0 }, 0, Lbn(inode * 2), 1);
    }
    assert!(index.files() <= 12, "{}", index.files());
    assert_eq!(read(&mut index, 0), Ok(1));
}

fn policies() -> impl Iterator<Item = ChosenPolicy> {
    PolicyName::ALL.into_iter().filter_map(ChosenPolicy::new)
}

/// Memory is given back at any price, whatever a policy holds for worth it; and what is dirty
/// is none of its business.
#[test]
fn every_policy_gives_up_what_is_clean_and_nothing_else() {
    for policy in policies() {
        let mut index = Index::new(keeping(policy, 16), 1000, 64);
        let dirty = write(&mut index, 0, 1);
        for round in 0..200 {
            fill(&mut index, round * 7 % 40, Reader::Client);
            let _ = index.find_lbn(Lbn(round % 5), Reader::Client);
            assert!(index.clean_chunks() <= 16, "{policy}");
        }
        // What arrives is a chunk like any other, or it is declined.
        let arrived = write(&mut index, 1, 2);
        arrive(&mut index, 90, arrived);
        let clean = index.clean_chunks();
        assert!(clean > 0, "{policy}");
        for left in (0..clean).rev() {
            assert!(index.evict().is_some(), "{policy}");
            assert_eq!(index.clean_chunks(), left, "{policy}");
        }
        assert!(index.evict().is_none(), "{policy}");
        assert_eq!((read(&mut index, 0), index.pending_chunks()), (Ok(1), 1), "{policy}");
        assert_eq!(read(&mut index, 1), Err(Some(90)), "{policy}");
        assert!(index.payload(dirty).is_some(), "{policy}");
    }
}

/// The index against a map of what blocks contain: what is found is what was written or read
/// last, whichever chunks a policy keeps.
#[test]
fn under_every_policy_what_is_found_is_true() {
    for policy in policies() {
        let mut index = Index::new(keeping(policy, 12), 1000, 64);
        let mut random = fastrand::Rng::with_seed(5);
        let mut unit = [0_u8; 40];
        let mut now = Instant::now();
        let mut found = 0;
        for step in 0..5000_u32 {
            let at = random.usize(..40).min(random.usize(..40));
            let lbn = at as u64;
            match random.u32(..10) {
                0 => {
                    // A key of block `at` of the file arrives there.
                    let sequence = write(&mut index, lbn, step as u8);
                    index.begin_write(Lbn(lbn));
                    let is_written = random.bool();
                    if is_written {
                        unit[at] = step as u8;
                    }
                    index.end_write(Lbn(lbn), Some(sequence), is_written);
                    assert_eq!(read(&mut index, lbn).unwrap_or(unit[at]), step as u8);
                    // The file system gives up what did not arrive.
                    index.cut(FILE, 0);
                }
                1 => {
                    index.begin_write(Lbn(lbn));
                    unit[at] = step as u8;
                    index.end_write(Lbn(lbn), None, true);
                }
                2 => {
                    // A write overtakes a fill.
                    index.begin_fill(Lbn(lbn));
                    let old = chunk(unit[at]);
                    index.begin_write(Lbn(lbn));
                    unit[at] = step as u8;
                    index.end_write(Lbn(lbn), None, true);
                    index.end_fill(Lbn(lbn), Some(old), Reader::Client);
                }
                3 => {
                    let _ = index.evict();
                }
                4 => {
                    now += std::time::Duration::from_secs(random.u64(..20));
                    index.handle_time(now);
                }
                way => {
                    let reader = if way == 5 { Reader::Ahead } else { Reader::Client };
                    match index.find_lbn(Lbn(lbn), reader) {
                        Found::Chunk(chunk) => {
                            assert_eq!(chunk[0], unit[at], "{policy}, step {step}");
                            found += 1;
                        }
                        _ => {
                            index.begin_fill(Lbn(lbn));
                            index.end_fill(Lbn(lbn), Some(chunk(unit[at])), reader);
                        }
                    }
                }
            }
            let occupancy = index.keeping.policy.occupancy();
            assert_eq!(occupancy.objects, index.clean_chunks(), "{policy}, step {step}");
            assert!(index.clean_chunks() <= 12, "{policy}, step {step}");
        }
        assert!(found > 100, "{policy}: {found}");
    }
}

/// A policy that counts uses: what one client reads once from front to back is used once, also
/// if it was read ahead, and gives way to what is used again.
#[test]
fn reading_ahead_is_the_use_it_was_read_for() {
    for reader in [Reader::Client, Reader::Ahead] {
        let policy = ChosenPolicy::new(PolicyName::TwoQ).unwrap();
        let mut index = Index::new(keeping(policy, 16), 1000, 4096);
        for round in 0..2 {
            for lbn in 0..8 {
                if index.peek_lbn(Lbn(lbn)).is_none() {
                    fill(&mut index, lbn, Reader::Client);
                }
                let _ = index.find_lbn(Lbn(lbn), Reader::Client);
            }
            // More than fits, so the names of the eight are ghosts and they come again.
            (1000..1012).for_each(|lbn| fill(&mut index, lbn + round * 20, Reader::Client));
        }
        let kept = |index: &Index| (0..8).filter(|lbn| index.peek_lbn(Lbn(*lbn)).is_some()).count();
        let before = kept(&index);
        assert!(before > 0);
        for lbn in 2000..2200 {
            fill(&mut index, lbn, reader);
            if reader == Reader::Ahead {
                let _ = index.find_lbn(Lbn(lbn), Reader::Client);
            }
        }
        assert_eq!(kept(&index), before, "{reader:?}");
    }
    // Two uses are two.
    let used = |second: Reader| {
        let mut index = Index::new(keeping(ChosenPolicy::new(PolicyName::Lfu).unwrap(), 2), 9, 16);
        fill(&mut index, 1, Reader::Ahead);
        fill(&mut index, 2, Reader::Client);
        let _ = index.find_lbn(Lbn(1), Reader::Client);
        let _ = index.find_lbn(Lbn(1), second);
        fill(&mut index, 3, Reader::Client);
        index.peek_lbn(Lbn(1)).is_some()
    };
    assert!(used(Reader::Client) && !used(Reader::Ahead));
}

#[test]
fn what_a_policy_declines_is_not_kept_and_says_so() {
    let policy = ChosenPolicy::new(PolicyName::Popularity).unwrap();
    let mut index = Index::new(keeping(policy, 4), 1000, 64);
    fill(&mut index, 20, Reader::Ahead);
    assert!(index.peek_lbn(Lbn(20)).is_some(), "there is room for what is read ahead");
    index.evict();
    let mut now = Instant::now();
    index.handle_time(now);
    for _ in 0..3 {
        for lbn in 0..4 {
            if index.peek_lbn(Lbn(lbn)).is_none() {
                fill(&mut index, lbn, Reader::Client);
            }
            let _ = index.find_lbn(Lbn(lbn), Reader::Client);
        }
        now += std::time::Duration::from_secs(30);
        index.handle_time(now);
    }
    // It takes what is asked for again.
    assert_eq!((index.declined, index.clean_chunks()), (4, 4));
    fill(&mut index, 9, Reader::Client);
    assert!(index.peek_lbn(Lbn(9)).is_none());
    assert_eq!((index.declined, index.clean_chunks()), (5, 4));
    assert_eq!(index.state(FILE, 0, Place::At(Lbn(9))), BlockState::Declined);
}

#[test]
fn a_policy_key_says_its_block() {
    for lbn in [0, 1, 77, u64::MAX] {
        assert_eq!(unmix(policy_key(Lbn(lbn)).0), lbn);
    }
}
