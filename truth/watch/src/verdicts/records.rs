//! What a fill was judged by, so its entry can be judged again: in order of age, in bounded
//! memory.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;

use nicache_coherence::{Class, RecordNumber, SourceSlot, Stamp};

use crate::resolve::resolver::{Passage, Root};
use crate::resolve::survey::Survey;
use crate::statements::journal::DatabaseRead;
use crate::verdicts::reused::{Signature, signature};
use crate::witnesses::event::LookupEvent;

/// Bytes that all records take at most, about; older ones are forgotten, and their entries not
/// reinstated.
pub(crate) const RECORDS_BYTES_MAX: usize = 32 << 20;

/// Look-ups and what they lead to; several replies to one request may share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Looked {
    /// The server's look-ups.
    pub events: Vec<LookupEvent>,
    /// Where their absolute paths start; `None` if that differs.
    pub root: Option<Root>,
    /// Every source.
    pub sources: BTreeSet<SourceSlot>,
    /// Sources that may not have changed at all: all but directories that something was looked up
    /// in.
    pub fixed: Vec<SourceSlot>,
    /// The directories, and who could search them.
    pub directories: BTreeSet<Passage>,
    /// Of a dynamic reply the files (device, inode), and when each was last changed: tells a change
    /// that no witness saw.
    pub change_times: BTreeSet<(u32, u64, i128)>,
    /// Of a dynamic reply the directories whose times it may show: device, inode, change time and
    /// size.
    pub folder_times: BTreeSet<(u32, u64, i128, u64)>,
    /// When the look-ups had been done again (CLOCK_MONOTONIC).
    pub looked_ns: u64,
}

impl Looked {
    /// What a survey has found.
    pub(crate) fn new(survey: Survey<'_>, root: Option<Root>, looked_ns: u64) -> Self {
        Self {
            looked_ns,
            change_times: survey.change_times(),
            events: survey.kept.into_iter().cloned().collect(),
            root,
            sources: survey.sources,
            fixed: survey.fixed.into_iter().collect(),
            directories: survey.directories,
            folder_times: survey.folder_times,
        }
    }

    /// Does whatever would show in the look-ups of `other` show in these?
    fn covers(&self, other: &Self) -> bool {
        let known: HashSet<Signature<'_>> = self.events.iter().map(signature).collect();
        self.root.is_some()
            && self.root == other.root
            && other.events.iter().all(|event| known.contains(&signature(event)))
            && other.sources.is_subset(&self.sources)
            && other.directories.is_subset(&self.directories)
            && other.fixed.iter().all(|slot| self.fixed.contains(slot))
            && other.change_times.is_subset(&self.change_times)
            && other.folder_times.is_subset(&self.folder_times)
    }

    fn bytes(&self) -> usize {
        let events: usize =
            self.events.iter().map(|event| size_of::<LookupEvent>() + event.path.len()).sum();
        let nodes = self.sources.len() + self.fixed.len() + self.directories.len();
        events
            + nodes * 2 * size_of::<Passage>()
            + self.change_times.len() * 2 * size_of::<(u32, u64, i128)>()
            + self.folder_times.len() * 2 * size_of::<(u32, u64, i128, u64)>()
    }
}

/// What one entry depends on, and how that was found.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// What kind of reply it is.
    pub class: Class,
    /// The clock before the look-ups were done again.
    pub since: Stamp,
    /// When the reply was whole (CLOCK_MONOTONIC).
    pub finished_ns: u64,
    /// What was read from databases.
    pub reads: Vec<DatabaseRead>,
    /// The look-ups.
    pub looked: Arc<Looked>,
    /// Earlier replies to the same request whose clients its entry answers, too, where they have
    /// something that this one has not: an entry stays only as long as all of them would.
    pub also: Vec<RecordNumber>,
}

impl Record {
    /// The databases that it was made from, each by what changes with it; [`SourceSlot::DATABASES`]
    /// is the caller's.
    pub(crate) fn databases(&self) -> impl Iterator<Item = SourceSlot> + '_ {
        self.reads.iter().map(|read| read.slot)
    }

    /// Bytes that are this record's alone.
    fn bytes(&self) -> usize {
        let looked = if Arc::strong_count(&self.looked) == 1 { self.looked.bytes() } else { 0 };
        size_of::<Self>()
            + looked
            + self.reads.len() * 2 * size_of::<DatabaseRead>()
            + self.also.len() * size_of::<RecordNumber>()
    }

    /// Is everything that `other` depends on something that this one depends on?
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.class == other.class
            && other.reads.iter().all(|read| self.reads.contains(read))
            && (Arc::ptr_eq(&self.looked, &other.looked) || self.looked.covers(&other.looked))
    }
}

/// What each fill was judged by, so its entry can be judged again: in order of age, in bounded
/// memory.
#[derive(Debug)]
pub(crate) struct Records {
    /// With the bytes that each was counted for.
    records: VecDeque<(Record, usize)>,
    /// Number before that of the oldest.
    forgotten: u64,
    bytes: usize,
}

impl Records {
    /// None yet; the first one will have the number after `before`. Different watchers of one card
    /// must not use the same numbers.
    pub(crate) fn new(before: u64) -> Self {
        Self { records: VecDeque::new(), forgotten: before, bytes: 0 }
    }

    /// Remembers one more.
    pub(crate) fn push(&mut self, record: Record) -> RecordNumber {
        let bytes = record.bytes();
        self.bytes += bytes;
        self.records.push_back((record, bytes));
        let number = RecordNumber(self.forgotten + self.records.len() as u64);
        while self.bytes > RECORDS_BYTES_MAX
            && let Some((oldest, bytes)) = self.records.pop_front()
        {
            self.bytes -= bytes;
            self.forgotten += 1;
            // Its look-ups stay if a later record shares them, and count there then.
            if Arc::strong_count(&oldest.looked) > 1 {
                self.hand_on(&oldest.looked);
            }
        }
        number
    }

    /// All that are remembered, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (RecordNumber, &Record)> {
        (self.forgotten + 1..).map(RecordNumber).zip(self.records.iter().map(|(record, _)| record))
    }

    /// The record of that number, unless it was forgotten.
    pub(crate) fn get(&self, number: RecordNumber) -> Option<&Record> {
        let index = number.0.checked_sub(self.forgotten + 1)?;
        self.records.get(usize::try_from(index).ok()?).map(|(record, _)| record)
    }

    /// The record of that number and those that it names; `None` if any of them was forgotten.
    pub(crate) fn with_also(&self, number: RecordNumber) -> Option<Vec<(RecordNumber, Record)>> {
        let first = self.get(number)?;
        let numbers = std::iter::once(number).chain(first.also.iter().copied());
        numbers.map(|number| Some((number, self.get(number)?.clone()))).collect()
    }

    /// The oldest record that shares the look-ups is charged for them from now on.
    fn hand_on(&mut self, looked: &Arc<Looked>) {
        if let Some((_, bytes)) =
            self.records.iter_mut().find(|(record, _)| Arc::ptr_eq(&record.looked, looked))
        {
            *bytes += looked.bytes();
            self.bytes += looked.bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(slots: u32) -> Record {
        let looked = Looked { sources: (0..slots).map(SourceSlot).collect(), ..Looked::default() };
        Record {
            class: Class::Static,
            since: Stamp(0),
            finished_ns: 0,
            reads: Vec::new(),
            looked: Arc::new(looked),
            also: Vec::new(),
        }
    }

    #[test]
    fn shared_look_ups_count_once_as_long_as_somebody_has_them() {
        let mut records = Records::new(0);
        let first = record(1000);
        let shared = Arc::clone(&first.looked);
        let whole = first.looked.bytes();
        records.push(Record { looked: Arc::clone(&shared), ..first });
        let of_one = records.bytes;
        for _ in 0..3 {
            records.push(Record { looked: Arc::clone(&shared), ..record(0) });
        }
        drop(shared);
        assert!(records.bytes < of_one + whole);
        // When the first is forgotten, the next is charged.
        while records.get(RecordNumber(1)).is_some() {
            records.push(record(5000));
        }
        assert_eq!(records.bytes, records.records.iter().map(|(_, bytes)| bytes).sum::<usize>());
        assert!(records.records.front().is_some_and(|(_, bytes)| *bytes > whole));
    }

    #[test]
    fn the_oldest_are_forgotten_and_no_number_means_another_record() {
        let mut records = Records::new(0);
        let count = 40_000;
        for n in 1..=count {
            assert_eq!(records.push(record((n % 60) as u32)), RecordNumber(n));
        }
        assert!(records.bytes <= RECORDS_BYTES_MAX);
        let kept: Vec<u64> =
            (1..=count).filter(|&n| records.get(RecordNumber(n)).is_some()).collect();
        assert!(kept.len() > 1000 && kept.len() < count as usize, "{} kept", kept.len());
        for n in kept {
            assert_eq!(
                records.get(RecordNumber(n)).map(|record| record.looked.sources.len() as u64),
                Some(n % 60)
            );
        }
        assert!(
            records.get(RecordNumber(0)).is_none()
                && records.get(RecordNumber(count + 1)).is_none()
        );
    }
}
