//! A logical unit whose commands are counted and timed.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use hdrhistogram::Histogram;
use nicache_initiator::{Lun, LunError};

use crate::figures::{LatencyFigures, UnitFigures};

/// The longest time that is told apart, in nanoseconds: 100 s.
const LATENCY_NS_MAX: u64 = 100_000_000_000;

/// A unit, and how long its commands take.
pub struct Metered {
    lun: Arc<dyn Lun>,
    reads: Command,
    writes: Command,
    flushes: Command,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    errors: AtomicU64,
    /// Why the unit was given up, if it was.
    lost: Mutex<Option<String>>,
}

struct Command {
    latency_ns: Mutex<Histogram<u64>>,
}

impl Command {
    fn new() -> Self {
        let histogram =
            Histogram::new_with_bounds(1, LATENCY_NS_MAX, 2).expect("bounds that are right");
        Self { latency_ns: Mutex::new(histogram) }
    }

    fn record(&self, begun: Instant) {
        let nanoseconds = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.latency_ns
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .saturating_record(nanoseconds);
    }

    fn figures(&self) -> LatencyFigures {
        LatencyFigures::of(&self.latency_ns.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Metered {
    /// Times the commands of `lun`.
    pub fn new(lun: Arc<dyn Lun>) -> Self {
        Self {
            lun,
            reads: Command::new(),
            writes: Command::new(),
            flushes: Command::new(),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            lost: Mutex::default(),
        }
    }

    /// What was done so far.
    pub fn figures(&self) -> UnitFigures {
        UnitFigures {
            capacity_bytes: self.lun.capacity_bytes(),
            reads: self.reads.figures(),
            writes: self.writes.figures(),
            flushes: self.flushes.figures(),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
        }
    }

    /// Why the unit takes no further commands, if that is so.
    pub fn lost_reason(&self) -> Option<String> {
        let told = self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // It may be given up while it has no commands.
        told.or_else(|| self.lun.lost().map(|error| error.to_string()))
    }

    fn note<T>(&self, result: Result<T, LunError>) -> Result<T, LunError> {
        if let Err(error) = &result {
            self.errors.fetch_add(1, Ordering::Relaxed);
            if error.is_final() {
                self.lost
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .get_or_insert_with(|| error.to_string());
            }
        }
        result
    }
}

impl Lun for Metered {
    fn name(&self) -> &str {
        self.lun.name()
    }

    fn capacity_bytes(&self) -> u64 {
        self.lun.capacity_bytes()
    }

    fn block_bytes(&self) -> u32 {
        self.lun.block_bytes()
    }

    fn read(&self, offset: u64, buffers: &mut Vec<BytesMut>) -> Result<(), LunError> {
        let (begun, bytes) =
            (Instant::now(), buffers.iter().map(|buffer| buffer.len() as u64).sum());
        let result = self.lun.read(offset, buffers);
        self.reads.record(begun);
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.note(result)
    }

    fn write(&self, offset: u64, data: &[Bytes]) -> Result<(), LunError> {
        let begun = Instant::now();
        let result = self.lun.write(offset, data);
        self.writes.record(begun);
        self.written_bytes
            .fetch_add(data.iter().map(|piece| piece.len() as u64).sum(), Ordering::Relaxed);
        self.note(result)
    }

    fn flush(&self) -> Result<(), LunError> {
        let begun = Instant::now();
        let result = self.lun.flush();
        self.flushes.record(begun);
        self.note(result)
    }

    fn lost(&self) -> Option<LunError> {
        self.lun.lost()
    }

    fn descriptors(&self) -> Vec<RawFd> {
        self.lun.descriptors()
    }
}

#[cfg(test)]
mod tests {
    use nicache_initiator::{BLOCK_BYTES, MemoryLun};

    use super::*;

    #[test]
    fn commands_and_errors_are_counted() {
        let metered = Metered::new(Arc::new(MemoryLun::new(1 << 20)));
        metered.write(0, &[Bytes::from(vec![1; BLOCK_BYTES])]).unwrap();
        metered.read(0, &mut vec![BytesMut::zeroed(2 * BLOCK_BYTES)]).unwrap();
        metered.flush().unwrap();
        metered.write(1 << 20, &[Bytes::from(vec![1; BLOCK_BYTES])]).unwrap_err();
        let figures = metered.figures();
        assert_eq!((figures.reads.count, figures.writes.count, figures.flushes.count), (1, 2, 1));
        assert_eq!(
            (figures.read_bytes, figures.errors, metered.lost_reason()),
            (2 * BLOCK_BYTES as u64, 1, None)
        );
    }

    #[test]
    fn a_unit_that_is_given_up_without_a_command_is_lost() {
        let lun = Arc::new(MemoryLun::new(1 << 20));
        let metered = Metered::new(lun.clone());
        assert_eq!(metered.lost_reason(), None);
        lun.give_up();
        assert!(metered.lost_reason().unwrap().contains("another gateway"));
        assert!(metered.lost().is_some_and(|error| error.is_final()));
    }
}
