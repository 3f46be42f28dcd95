use std::collections::{HashMap, HashSet};

use super::*;
use crate::lun::BLOCK_BYTES;

fn limits() -> Limits {
    Limits {
        depth_max: 4,
        unflushed_bytes_max: 8 * BLOCK_BYTES,
        transfer_bytes_max: 2 * BLOCK_BYTES,
        patience: Duration::from_secs(10),
    }
}

fn write(block: u64, byte: u8) -> Operation {
    Operation::Write {
        offset: block * BLOCK_BYTES as u64,
        data: vec![Bytes::from(vec![byte; BLOCK_BYTES])],
    }
}

fn up() -> (Queue<u32>, Instant) {
    let now = Instant::now();
    let mut queue = Queue::new("lun".into(), limits(), now);
    queue.handle_session_up();
    (queue, now)
}

#[test]
fn commands_wait_for_a_session_and_fail_when_none_comes() {
    let now = Instant::now();
    let mut queue = Queue::new("lun".into(), limits(), now);
    queue.handle_command(write(0, 1), 7);
    assert!(queue.poll_command(now).is_none());
    queue.handle_session_down("connection refused".into(), now + Duration::from_secs(9));
    queue.handle_time(now + Duration::from_secs(9));
    assert!(queue.poll_finished().is_none());
    queue.handle_time(now + Duration::from_secs(10));
    let (caller, _, result) = queue.poll_finished().unwrap();
    assert_eq!(caller, 7);
    assert!(
        result
            .unwrap_err()
            .to_string()
            .contains("gave up after 10 s without the target: connection refused")
    );
    // Closed for good, also if a session comes.
    queue.handle_session_up();
    queue.handle_command(write(0, 1), 8);
    assert!(queue.poll_command(now).is_none());
    assert!(queue.poll_finished().unwrap().2.is_err());
}

#[test]
fn a_busy_target_gets_the_command_again_after_a_pause_until_patience_ends() {
    let (mut queue, now) = up();
    queue.handle_command(Operation::Flush, 1);
    let command = queue.poll_command(now).unwrap();
    queue.handle_answer(command, Verdict::Later("busy".into()), now);
    assert!(queue.poll_command(now).is_none());
    assert_eq!(queue.next_time(now), Some(now + PAUSE));
    let command = queue.poll_command(now + PAUSE).unwrap();
    queue.handle_answer(command, Verdict::Later("busy".into()), now + Duration::from_secs(11));
    assert!(matches!(
        queue.poll_finished().unwrap().2,
        Err(LunError::Failed { command: "flush", .. })
    ));
}

#[test]
fn a_new_session_writes_again_what_no_flush_covered_before_anything_else() {
    let (mut queue, now) = up();
    for (block, caller) in [(0, 1), (1, 2), (2, 3)] {
        queue.handle_command(write(block, block as u8), caller);
        let command = queue.poll_command(now).unwrap();
        queue.handle_answer(command, Verdict::Done, now);
    }
    queue.handle_command(write(1, 9), 4);
    let newer = queue.poll_command(now).unwrap();
    queue.handle_session_down("reset".into(), now);
    queue.handle_answer(newer, Verdict::NextSession, now);
    queue.handle_session_up();
    let first = queue.poll_command(now).unwrap();
    let second = queue.poll_command(now).unwrap();
    assert!(
        queue.poll_command(now).is_none(),
        "the newer write of block 1 waits for the older one"
    );
    queue.handle_answer(second, Verdict::Done, now);
    assert!(queue.poll_command(now).is_none());
    queue.handle_answer(first, Verdict::Done, now);
    let newer = queue.poll_command(now).unwrap();
    assert!(matches!(&newer.operation, Operation::Write { data, .. } if data[0][0] == 9));
}

#[test]
fn a_replay_that_fails_loses_the_unit() {
    let (mut queue, now) = up();
    queue.handle_command(write(0, 1), 1);
    let command = queue.poll_command(now).unwrap();
    queue.handle_answer(command, Verdict::Done, now);
    queue.handle_session_down("reset".into(), now);
    queue.handle_session_up();
    let replay = queue.poll_command(now).unwrap();
    queue.handle_answer(replay, Verdict::Failed("medium error".into()), now);
    assert!(queue.is_lost());
}

#[test]
fn much_without_a_flush_is_flushed() {
    let (mut queue, now) = up();
    for block in 0..9 {
        queue.handle_command(write(block, 1), 1);
        let command = queue.poll_command(now).unwrap();
        queue.handle_answer(command, Verdict::Done, now);
    }
    let command = queue.poll_command(now).unwrap();
    assert!(matches!(command.operation, Operation::Flush));
    queue.handle_answer(command, Verdict::Done, now);
    assert!(queue.poll_command(now).is_none());
}

#[test]
fn a_reset_inside_a_session_has_the_unflushed_written_again() {
    let (mut queue, now) = up();
    queue.handle_command(write(0, 1), 1);
    let command = queue.poll_command(now).unwrap();
    queue.handle_answer(command, Verdict::Done, now);
    queue.handle_command(Operation::Read { offset: 0, buffers: Vec::new() }, 2);
    let read = queue.poll_command(now).unwrap();
    queue.handle_command(Operation::Flush, 3);
    let flush = queue.poll_command(now).unwrap();
    queue.handle_answer(read, Verdict::Forgot("reset".into()), now);
    // The flush may have come after the reset.
    queue.handle_answer(flush, Verdict::Done, now);
    queue.poll_finished();
    assert!(queue.poll_finished().is_none());
    let replay = queue.poll_command(now).unwrap();
    assert!(matches!(&replay.operation, Operation::Write { data, .. } if data[0][0] == 1));
    assert!(queue.poll_command(now).is_none());
    queue.handle_answer(replay, Verdict::Done, now);
    let flush = queue.poll_command(now).unwrap();
    assert!(matches!(flush.operation, Operation::Flush));
    queue.handle_answer(flush, Verdict::Done, now);
    assert!(matches!(queue.poll_finished(), Some((3, _, Ok(())))));
    assert_eq!(queue.unflushed.bytes(), 0);
    // The look for a lost reservation may be the one that is told.
    queue.handle_forgot();
    let read = queue.poll_command(now + PAUSE).unwrap();
    queue.handle_answer(read, Verdict::Done, now + PAUSE);
    assert!(matches!(queue.poll_finished(), Some((2, _, Ok(())))));
}

/// Of two reads at a target that was reset, the first is told, and the second one finds the block
/// without the write that was acknowledged.
#[test]
fn what_a_read_found_at_a_target_that_had_forgotten_is_not_believed() {
    let forgot = Verdict::Forgot("reset".into());
    for first in [forgot, Verdict::Failed("medium error".into())] {
        let (mut queue, now) = up();
        queue.handle_command(write(0, 1), 1);
        let command = queue.poll_command(now).unwrap();
        queue.handle_answer(command, Verdict::Done, now);
        assert!(matches!(queue.poll_finished(), Some((1, _, Ok(())))));
        queue.handle_command(Operation::Flush, 2);
        let read = || Operation::Read { offset: 0, buffers: Vec::new() };
        queue.handle_command(read(), 3);
        let (flush, old) = (queue.poll_command(now).unwrap(), queue.poll_command(now).unwrap());
        queue.handle_answer(flush, first, now);
        queue.poll_finished();
        queue.handle_command(read(), 4);
        queue.handle_answer(old, Verdict::Done, now);
        assert!(queue.poll_finished().is_none());
        let replay = queue.poll_command(now).unwrap();
        assert!(matches!(&replay.operation, Operation::Write { data, .. } if data[0][0] == 1));
        assert!(queue.poll_command(now).is_none());
        queue.handle_answer(replay, Verdict::Done, now);
        for caller in [3, 4] {
            let read = queue.poll_command(now).unwrap();
            queue.handle_answer(read, Verdict::Done, now);
            assert!(matches!(queue.poll_finished(), Some((found, _, Ok(()))) if found == caller));
        }
    }
}

#[test]
fn what_no_flush_has_covered_is_bounded_while_a_flush_takes_its_time() {
    for is_busy in [false, true] {
        let (mut queue, now) = up();
        let mut flush = None;
        let mut written = 0;
        for block in 0..100 {
            queue.handle_command(write(block, 1), block as u32);
            while let Some(command) = queue.poll_command(now) {
                if !matches!(command.operation, Operation::Flush) {
                    queue.handle_answer(command, Verdict::Done, now);
                    written += 1;
                } else if is_busy {
                    queue.handle_answer(command, Verdict::Later("busy".into()), now);
                } else {
                    flush = Some(command);
                }
            }
        }
        assert_eq!(written, 16);
        assert_eq!(queue.unflushed.bytes(), 2 * limits().unflushed_bytes_max);
        // Reads are not held up.
        queue.handle_command(Operation::Read { offset: 0, buffers: Vec::new() }, 1000);
        let read = queue.poll_command(now).unwrap();
        assert!(matches!(read.operation, Operation::Read { .. }));
        queue.handle_answer(read, Verdict::Done, now);
        let now = now + PAUSE;
        let flush = flush.or_else(|| queue.poll_command(now)).unwrap();
        queue.handle_answer(flush, Verdict::Done, now);
        while let Some(command) = queue.poll_command(now) {
            queue.handle_answer(command, Verdict::Done, now);
        }
        let finished = std::iter::from_fn(|| queue.poll_finished());
        assert_eq!(finished.filter(|(_, _, result)| result.is_ok()).count(), 101);
    }
}

#[test]
fn writes_at_the_target_count_and_a_long_one_goes_alone() {
    let (mut queue, now) = up();
    let long = |block, blocks| Operation::Write {
        offset: block * BLOCK_BYTES as u64,
        data: vec![Bytes::from(vec![1; blocks * BLOCK_BYTES])],
    };
    queue.handle_command(long(0, 20), 1);
    queue.handle_command(long(100, 12), 2);
    queue.handle_command(long(200, 12), 3);
    let first = queue.poll_command(now).unwrap();
    assert!(queue.poll_command(now).is_none());
    queue.handle_answer(first, Verdict::Done, now);
    let flush = queue.poll_command(now).unwrap();
    assert!(matches!(flush.operation, Operation::Flush) && queue.poll_command(now).is_none());
    queue.handle_answer(flush, Verdict::Done, now);
    let second = queue.poll_command(now).unwrap();
    assert!(queue.poll_command(now).is_none());
    queue.handle_answer(second, Verdict::Done, now);
    assert!(matches!(queue.poll_command(now).unwrap().operation, Operation::Flush));
}

#[test]
fn writes_that_wait_for_a_flush_fail_with_it() {
    let (mut queue, now) = up();
    for block in 0..20 {
        queue.handle_command(write(block, 1), block as u32);
    }
    let mut flush = None;
    while let Some(command) = queue.poll_command(now) {
        match command.operation {
            Operation::Flush => flush = Some(command),
            _ => queue.handle_answer(command, Verdict::Done, now),
        }
    }
    queue.handle_answer(flush.unwrap(), Verdict::Failed("medium error".into()), now);
    let failed: Vec<String> = std::iter::from_fn(|| queue.poll_finished())
        .filter_map(|(_, _, result)| result.err().map(|error| error.to_string()))
        .collect();
    assert_eq!(failed.len(), 4);
    assert!(failed.iter().all(|error| error.contains("flush before it failed: medium error")));
    assert!(!queue.is_lost());
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_command_without_an_answer_loses_the_unit_whatever_else_is_answered() {
    let (mut queue, now) = up();
    queue.handle_command(write(0, 1), 1);
    let stuck = queue.poll_command(now).unwrap();
    for second in 0..10 {
        let now = now + second * SECOND;
        queue.handle_time(now);
        queue.handle_command(Operation::Read { offset: 0, buffers: Vec::new() }, 2);
        let read = queue.poll_command(now).unwrap();
        queue.handle_answer(read, Verdict::Done, now);
        assert!(matches!(queue.poll_finished(), Some((2, _, Ok(())))));
        assert_eq!(queue.next_time(now), Some(stuck_until(&queue)));
    }
    let now = now + 10 * SECOND;
    assert!(!queue.is_stuck(now));
    queue.handle_time(now);
    assert!(queue.is_lost() && queue.is_stuck(now));
    // The session ends for that.
    queue.handle_answer(stuck, Verdict::NextSession, now);
    let (caller, _, result) = queue.poll_finished().unwrap();
    assert!(caller == 1 && result.unwrap_err().to_string().contains("does not answer a write"));
    assert!(!queue.is_stuck(now) && queue.next_time(now).is_none());
}

fn stuck_until(queue: &Queue<u32>) -> Instant {
    queue.flights[0].sent + queue.limits.patience
}

#[test]
fn new_sessions_do_not_make_a_command_younger_and_time_without_one_does_not_count() {
    let (mut queue, mut now) = up();
    queue.handle_command(Operation::Flush, 1);
    for _ in 0..2 {
        let flush = queue.poll_command(now).unwrap();
        now += 4 * SECOND;
        queue.handle_time(now);
        queue.handle_session_down("no answer".into(), now);
        queue.handle_answer(flush, Verdict::NextSession, now);
        now += 9 * SECOND;
        queue.handle_time(now);
        assert!(!queue.is_lost());
        queue.handle_session_up();
    }
    let flush = queue.poll_command(now).unwrap();
    queue.handle_time(now + SECOND);
    assert!(!queue.is_lost());
    queue.handle_answer(flush, Verdict::NextSession, now + 2 * SECOND);
    assert!(queue.is_lost());
}

#[test]
fn a_replay_may_take_long_but_must_get_on() {
    // Whether each session completes one write more than the one before.
    for gets_on in [true, false] {
        let (mut queue, mut now) = up();
        for block in [0, 10, 20, 30, 40, 50, 60] {
            queue.handle_command(write(block, 1), 1);
            let command = queue.poll_command(now).unwrap();
            queue.handle_answer(command, Verdict::Done, now);
        }
        for session in 0..4 {
            queue.handle_session_down("no answer".into(), now);
            queue.handle_session_up();
            for _ in 0..if gets_on { session + 1 } else { 1 } {
                let replay = queue.poll_command(now).unwrap();
                queue.handle_answer(replay, Verdict::Done, now);
            }
            let stuck = queue.poll_command(now).unwrap();
            now += 6 * SECOND;
            queue.handle_time(now);
            queue.handle_session_down("no answer".into(), now);
            queue.handle_answer(stuck, Verdict::NextSession, now);
            if queue.is_lost() {
                break;
            }
        }
        assert_eq!(queue.is_lost(), !gets_on);
    }
}

/// A target with a volatile cache that it loses with its power.
#[derive(Default)]
struct Target {
    /// The next command is told, and is not executed.
    was_reset: bool,
    stable: HashMap<u64, u8>,
    cache: HashMap<u64, u8>,
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 256, ..Default::default() })]

    /// Whatever breaks when: what a flush acknowledged is durable at the target, and a read sees
    /// the last completed write.
    #[test]
    fn nothing_acknowledged_is_lost(seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut now = Instant::now();
        let limits = Limits { patience: Duration::from_secs(1000), ..limits() };
        let mut queue = Queue::new("lun".into(), limits, now);
        queue.handle_session_up();
        let mut target = Target::default();
        let mut flying: Vec<Command<u32>> = Vec::new();
        // By block: the value of the last write, which is complete or not.
        let mut written: HashMap<u64, (u8, bool)> = HashMap::new();
        let mut owed: HashMap<u32, HashMap<u64, u8>> = HashMap::new();
        let mut busy: HashSet<u64> = HashSet::new();
        let mut blocks: HashMap<u32, u64> = HashMap::new();
        let mut durable: HashMap<u64, u8> = HashMap::new();
        // What reads of blocks that nobody writes must find.
        let mut expected: HashMap<u32, (u64, u8)> = HashMap::new();
        for caller in 0..300_u32 {
            now += PAUSE;
            match random.u32(0..10) {
                0..5 => {
                    let (block, byte) = (random.u64(0..8), random.u8(..));
                    if busy.insert(block) {
                        queue.handle_command(write(block, byte), caller);
                        written.insert(block, (byte, false));
                        blocks.insert(caller, block);
                        durable.remove(&block);
                    }
                }
                5 => {
                    queue.handle_command(Operation::Flush, caller);
                    owed.insert(
                        caller,
                        written.iter().filter(|w| w.1.1).map(|w| (*w.0, w.1.0)).collect(),
                    );
                }
                6 => {
                    target.cache.clear();
                    target.was_reset = false;
                    queue.handle_session_down("power cut".into(), now);
                    while let Some(command) = flying.pop() {
                        queue.handle_answer(command, Verdict::NextSession, now);
                    }
                    queue.handle_session_up();
                }
                7 => {
                    target.cache.clear();
                    target.was_reset = true;
                }
                8 => {
                    let block = random.u64(0..8);
                    if busy.insert(block) {
                        let (offset, buffers) =
                            (block * BLOCK_BYTES as u64, vec![BytesMut::zeroed(1)]);
                        queue.handle_command(Operation::Read { offset, buffers }, caller);
                        let byte = written.get(&block).map_or(0, |written| written.0);
                        expected.insert(caller, (block, byte));
                    }
                }
                _ => {}
            }
            while let Some(command) = queue.poll_command(now) {
                flying.push(command);
            }
            for _ in 0..random.usize(0..4).min(flying.len()) {
                let mut command = flying.swap_remove(random.usize(..flying.len()));
                let verdict = match random.u32(0..12) {
                    _ if std::mem::take(&mut target.was_reset) => Verdict::Forgot("reset".into()),
                    0 => Verdict::Again,
                    1 if matches!(command.operation, Operation::Flush) => {
                        // The target drops what it could not write.
                        target.cache.clear();
                        Verdict::Failed("medium error".into())
                    }
                    _ => Verdict::Done,
                };
                if verdict == Verdict::Done {
                    match &mut command.operation {
                        Operation::Write { offset, data } => {
                            for (i, piece) in data.iter().enumerate() {
                                target
                                    .cache
                                    .insert(*offset / BLOCK_BYTES as u64 + i as u64, piece[0]);
                            }
                        }
                        Operation::Flush => target.stable.extend(target.cache.drain()),
                        Operation::Read { offset, buffers } => {
                            let block = *offset / BLOCK_BYTES as u64;
                            let found =
                                target.cache.get(&block).or_else(|| target.stable.get(&block));
                            buffers[0][0] = found.copied().unwrap_or(0);
                        }
                    }
                }
                queue.handle_answer(command, verdict, now);
                while let Some((caller, operation, result)) = queue.poll_finished() {
                    if let Some((block, byte)) = expected.remove(&caller) {
                        proptest::prop_assert!(result.is_ok());
                        busy.remove(&block);
                        let Operation::Read { buffers, .. } = operation else { unreachable!() };
                        proptest::prop_assert_eq!(buffers[0][0], byte, "block {}", block);
                    } else if let Some(block) = blocks.remove(&caller) {
                        proptest::prop_assert!(result.is_ok());
                        busy.remove(&block);
                        written.get_mut(&block).unwrap().1 = true;
                    } else if result.is_ok() {
                        for (block, byte) in owed.remove(&caller).unwrap() {
                            // Unless it is written anew meanwhile.
                            if written[&block] == (byte, true) {
                                durable.insert(block, byte);
                            }
                        }
                    }
                }
                for (block, byte) in &durable {
                    proptest::prop_assert_eq!(
                        target.stable.get(block),
                        Some(byte),
                        "block {}",
                        block
                    );
                }
            }
        }
    }
}

#[test]
fn a_unit_that_another_gateway_has_taken_gets_nothing_more() {
    let (mut queue, now) = up();
    queue.handle_command(write(0, 1), 1);
    queue.handle_command(write(1, 1), 2);
    queue.handle_command(Operation::Flush, 3);
    let (first, second) = (queue.poll_command(now).unwrap(), queue.poll_command(now).unwrap());
    queue.handle_answer(first, Verdict::Taken("taken".into()), now);
    // It was at the target before.
    queue.handle_answer(second, Verdict::Done, now);
    assert!(queue.is_lost() && queue.poll_command(now).is_none());
    let ended: HashMap<u32, bool> = std::iter::from_fn(|| queue.poll_finished())
        .map(|(caller, _, result)| (caller, matches!(result, Err(LunError::Taken { .. }))))
        .collect();
    assert_eq!(ended, HashMap::from([(1, true), (2, false), (3, true)]));
    queue.handle_session_up();
    queue.handle_command(write(0, 1), 4);
    assert!(matches!(queue.poll_finished(), Some((4, _, Err(LunError::Taken { .. })))));
}
