//! A unit in memory, with a volatile cache, faults and power cuts, for tests.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};

use crate::lun::{BLOCK_BYTES, Lun, LunError, blocks};

/// What a command is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A flush.
    Flush,
}

/// What happens to a command instead of its execution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The command fails as a medium error does; of a write, every other block was written.
    Failure,
    /// The unit is full.
    Full,
    /// The command waits until [`MemoryLun::resume`].
    Stall,
}

type Faults = Box<dyn FnMut(Kind, u64, u64) -> Option<Fault> + Send>;

/// A unit in memory.
///
/// A write goes into a volatile cache, which a flush empties. A power cut keeps any of the writes
/// since the last flush, in any order between blocks and in their own order within each.
pub struct MemoryLun {
    name: String,
    capacity_bytes: u64,
    state: Mutex<State>,
    resumed: Condvar,
}

#[derive(Default)]
struct State {
    stable: BTreeMap<u64, Bytes>,
    /// By block, the writes since the last flush.
    volatile: BTreeMap<u64, Vec<Bytes>>,
    faults: Option<Faults>,
    is_given_up: bool,
    stalled: usize,
    epoch: u64,
    counts: [u64; 3],
}

impl State {
    fn block(&self, at: u64) -> Option<&Bytes> {
        self.volatile.get(&at).and_then(|versions| versions.last()).or_else(|| self.stable.get(&at))
    }
}

impl MemoryLun {
    /// An empty unit; `capacity_bytes` is rounded down to whole blocks.
    pub fn new(capacity_bytes: u64) -> Self {
        let capacity_bytes = capacity_bytes - capacity_bytes % BLOCK_BYTES as u64;
        let name = "a unit in memory".to_owned();
        Self { name, capacity_bytes, state: Mutex::default(), resumed: Condvar::new() }
    }

    /// Calls `faults` before each command, with its kind, offset and length in bytes.
    pub fn set_faults(&self, faults: impl FnMut(Kind, u64, u64) -> Option<Fault> + Send + 'static) {
        self.lock().faults = Some(Box::new(faults));
    }

    /// No faults from now on; commands that stall go on.
    pub fn resume(&self) {
        let mut state = self.lock();
        state.faults = None;
        state.epoch += 1;
        self.resumed.notify_all();
    }

    /// Says from now on that another gateway has it. Commands are executed as before, so nobody
    /// hears of it by them.
    pub fn give_up(&self) {
        self.lock().is_given_up = true;
    }

    /// Commands that stall now.
    pub fn stalled(&self) -> usize {
        self.lock().stalled
    }

    /// Commands of one kind so far.
    pub fn count(&self, kind: Kind) -> u64 {
        self.lock().counts[kind as usize]
    }

    /// What the unit would hold after a power cut at this moment; `seed` decides which writes
    /// survive. This unit goes on.
    pub fn cut(&self, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let state = self.lock();
        let mut stable = state.stable.clone();
        // Some cuts keep nearly everything or nearly nothing: those show most.
        let share = [0, 1, 10, 50, 90, 99, 100][random.usize(..7)];
        for (at, versions) in &state.volatile {
            if random.u32(0..100) < share {
                stable.insert(*at, versions[random.usize(..versions.len())].clone());
            }
        }
        let name = format!("a unit in memory after cut {seed}");
        let after = State { stable, ..State::default() };
        Self {
            name,
            capacity_bytes: self.capacity_bytes,
            state: Mutex::new(after),
            resumed: Condvar::new(),
        }
    }

    /// Writes everything into a sparse file.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let mut file = std::fs::File::create(path)?;
        file.set_len(self.capacity_bytes)?;
        let state = self.lock();
        for (at, block) in &state.stable {
            file.write_all_at(block, *at)?;
        }
        for (at, versions) in &state.volatile {
            if let Some(block) = versions.last() {
                file.write_all_at(block, *at)?;
            }
        }
        file.flush()
    }

    /// Calls `see` with every block that was ever written and still could be read after some power
    /// cut.
    pub fn scan(&self, mut see: impl FnMut(u64, &[u8])) {
        let state = self.lock();
        for (at, block) in &state.stable {
            see(*at, block);
        }
        for (at, versions) in &state.volatile {
            for block in versions {
                see(*at, block);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the command and lets its fault happen.
    fn begin(
        &self,
        kind: Kind,
        offset: u64,
        bytes: u64,
    ) -> Result<MutexGuard<'_, State>, (Fault, MutexGuard<'_, State>)> {
        let mut state = self.lock();
        state.counts[kind as usize] += 1;
        let fault = state.faults.as_mut().and_then(|faults| faults(kind, offset, bytes));
        match fault {
            None => Ok(state),
            Some(Fault::Stall) => {
                let epoch = state.epoch;
                state.stalled += 1;
                while state.epoch == epoch {
                    state = self.resumed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                state.stalled -= 1;
                Ok(state)
            }
            Some(fault) => Err((fault, state)),
        }
    }

    fn error(&self, fault: Fault, command: &'static str) -> LunError {
        let (lun, reason) = (self.name.clone(), "injected fault".to_owned());
        match fault {
            Fault::Full => LunError::Full { lun, reason },
            Fault::Failure | Fault::Stall => LunError::Failed { lun, command, reason },
        }
    }
}

impl Lun for MemoryLun {
    fn name(&self) -> &str {
        &self.name
    }

    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn block_bytes(&self) -> u32 {
        BLOCK_BYTES as u32
    }

    fn read(&self, offset: u64, buffers: &mut Vec<BytesMut>) -> Result<(), LunError> {
        let bytes = self.check_range(offset, buffers.iter().map(BytesMut::len))?;
        let state = self
            .begin(Kind::Read, offset, bytes)
            .map_err(|(fault, _)| self.error(fault, "read"))?;
        let targets = buffers.iter_mut().flat_map(|buffer| buffer.chunks_exact_mut(BLOCK_BYTES));
        for (at, target) in (offset..).step_by(BLOCK_BYTES).zip(targets) {
            match state.block(at) {
                Some(block) => target.copy_from_slice(block),
                None => target.fill(0),
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[Bytes]) -> Result<(), LunError> {
        let bytes = self.check_range(offset, data.iter().map(Bytes::len))?;
        let (mut state, fault) = match self.begin(Kind::Write, offset, bytes) {
            Ok(state) => (state, None),
            Err((fault, state)) => (state, Some(fault)),
        };
        for (i, (at, block)) in blocks(offset, data).enumerate() {
            if fault.is_none() || i % 2 == 1 {
                // A copy: the unit's memory is its own, as a target's is.
                state.volatile.entry(at).or_default().push(Bytes::copy_from_slice(&block));
            }
        }
        fault.map_or(Ok(()), |fault| Err(self.error(fault, "write")))
    }

    fn flush(&self) -> Result<(), LunError> {
        let mut state =
            self.begin(Kind::Flush, 0, 0).map_err(|(fault, _)| self.error(fault, "flush"))?;
        for (at, mut versions) in std::mem::take(&mut state.volatile) {
            if let Some(last) = versions.pop() {
                state.stable.insert(at, last);
            }
        }
        Ok(())
    }

    fn lost(&self) -> Option<LunError> {
        let reason = || "another gateway has taken the unit".to_owned();
        let is_given_up = self.lock().is_given_up;
        is_given_up.then(|| LunError::Taken { lun: self.name.clone(), reason: reason() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(byte: u8) -> Bytes {
        Bytes::from(vec![byte; BLOCK_BYTES])
    }

    fn read(lun: &MemoryLun, at: u64) -> u8 {
        let mut buffers = vec![BytesMut::zeroed(BLOCK_BYTES)];
        lun.read(at, &mut buffers).unwrap();
        buffers[0][0]
    }

    #[test]
    fn a_cut_keeps_what_was_flushed_and_any_of_the_rest() {
        let lun = MemoryLun::new(1 << 20);
        lun.write(0, &[block(1), block(1)]).unwrap();
        lun.flush().unwrap();
        lun.write(4096, &[block(2)]).unwrap();
        lun.write(4096, &[block(3)]).unwrap();
        let seen: std::collections::BTreeSet<(u8, u8)> = (0..200)
            .map(|seed| lun.cut(seed))
            .map(|cut| (read(&cut, 0), read(&cut, 4096)))
            .collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [(1, 1), (1, 2), (1, 3)]);
        assert_eq!(read(&lun, 4096), 3);
    }

    #[test]
    fn commands_outside_or_in_parts_are_refused() {
        let lun = MemoryLun::new(8192);
        assert!(matches!(lun.write(4096, &[block(1), block(1)]), Err(LunError::OutOfRange { .. })));
        assert!(matches!(lun.write(1, &[block(1)]), Err(LunError::OutOfRange { .. })));
        assert!(matches!(
            lun.write(0, &[Bytes::from_static(b"x")]),
            Err(LunError::OutOfRange { .. })
        ));
        assert!(matches!(
            lun.write(u64::MAX - 4095, &[block(1)]),
            Err(LunError::OutOfRange { .. })
        ));
    }

    #[test]
    fn a_stall_ends_when_resumed() {
        let lun = MemoryLun::new(8192);
        lun.set_faults(|kind, _, _| (kind == Kind::Write).then_some(Fault::Stall));
        std::thread::scope(|scope| {
            let write = scope.spawn(|| lun.write(0, &[block(5)]));
            while lun.stalled() == 0 {
                std::thread::yield_now();
            }
            assert_eq!(read(&lun, 0), 0);
            lun.resume();
            write.join().unwrap().unwrap();
        });
        assert_eq!(read(&lun, 0), 5);
    }
}
