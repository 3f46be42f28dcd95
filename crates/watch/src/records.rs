//! What a fill was judged by, so that its entry can be judged again: in order of age, in bounded memory.

use std::collections::{BTreeSet, VecDeque};

use nicache_coherence::{Class, RecordNumber, SourceSlot};
use nicache_sql::Access;

use crate::databases::Server;
use crate::event::LookupEvent;
use crate::resolve::Permissions;
use crate::survey::Survey;

/// Bytes that all records take at most, about; older ones are forgotten, and their entries not reinstated.
pub const RECORDS_BYTES_MAX: usize = 32 << 20;

/// What one entry depends on, and how that was found.
#[derive(Clone, Debug)]
pub struct Record {
    /// What kind of reply it is.
    pub class: Class,
    /// When the reply was whole (CLOCK_MONOTONIC).
    pub finished_ns: u64,
    /// What was read from databases.
    pub reads: Vec<(Server, Access)>,
    /// The server's look-ups.
    pub events: Vec<LookupEvent>,
    /// Every source.
    pub sources: BTreeSet<SourceSlot>,
    /// Those that may not have changed at all: all but directories that something was looked up in.
    pub fixed: Vec<SourceSlot>,
    /// The directories, and who could search them.
    pub directories: BTreeSet<(SourceSlot, Permissions)>,
}

impl Record {
    /// What a survey has found.
    pub(crate) fn new(class: Class, survey: Survey<'_>, finished_ns: u64) -> Record {
        Record {
            class,
            finished_ns,
            reads: Vec::new(),
            events: survey.kept.into_iter().cloned().collect(),
            sources: survey.sources,
            fixed: survey.fixed.into_iter().collect(),
            directories: survey.directories,
        }
    }

    fn bytes(&self) -> usize {
        let events: usize = self.events.iter().map(|event| size_of::<LookupEvent>() + event.path.len()).sum();
        let nodes = self.sources.len() + self.fixed.len() + self.directories.len();
        size_of::<Record>()
            + events
            + self.reads.len() * 2 * size_of::<(Server, Access)>()
            + nodes * 2 * size_of::<(SourceSlot, Permissions)>()
    }
}

/// See the module's head.
#[derive(Debug)]
pub struct Records {
    records: VecDeque<Record>,
    /// Number before that of the oldest.
    forgotten: u64,
    bytes: usize,
}

impl Records {
    /// None yet; the first one will have the number after `before`. Different watchers of one card must not use the same numbers.
    pub fn new(before: u64) -> Records {
        Records { records: VecDeque::new(), forgotten: before, bytes: 0 }
    }

    /// Remembers one more.
    pub fn push(&mut self, record: Record) -> RecordNumber {
        self.bytes += record.bytes();
        self.records.push_back(record);
        let number = RecordNumber(self.forgotten + self.records.len() as u64);
        while self.bytes > RECORDS_BYTES_MAX
            && let Some(oldest) = self.records.pop_front()
        {
            self.bytes -= oldest.bytes();
            self.forgotten += 1;
        }
        number
    }

    /// All that are remembered, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (RecordNumber, &Record)> {
        (self.forgotten + 1..).map(RecordNumber).zip(&self.records)
    }

    /// The record of that number, unless it was forgotten.
    pub fn get(&self, number: RecordNumber) -> Option<&Record> {
        let index = number.0.checked_sub(self.forgotten + 1)?;
        self.records.get(usize::try_from(index).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(slots: u32) -> Record {
        Record {
            class: Class::Static,
            finished_ns: 0,
            reads: Vec::new(),
            events: Vec::new(),
            sources: (0..slots).map(SourceSlot).collect(),
            fixed: Vec::new(),
            directories: BTreeSet::new(),
        }
    }

    #[test]
    fn the_oldest_are_forgotten_and_no_number_means_another_record() {
        let mut records = Records::new(0);
        let count = 40_000;
        for n in 1..=count {
            assert_eq!(records.push(record((n % 60) as u32)), RecordNumber(n));
        }
        assert!(records.bytes <= RECORDS_BYTES_MAX);
        let kept: Vec<u64> = (1..=count).filter(|&n| records.get(RecordNumber(n)).is_some()).collect();
        assert!(kept.len() > 1000 && kept.len() < count as usize, "{} kept", kept.len());
        for n in kept {
            assert_eq!(records.get(RecordNumber(n)).map(|record| record.sources.len() as u64), Some(n % 60));
        }
        assert!(records.get(RecordNumber(0)).is_none() && records.get(RecordNumber(count + 1)).is_none());
    }
}
