//! Makes a workload of a trace's records.
//!
//! What a log tells of a reply is what went over the wire, which need not be the object. So, if
//! replies are taken as they are logged ([`Replies::AsLogged`]):
//!
//! | in the log | access |
//! |---|---|
//! | 200 with as many bytes as before | of the whole object |
//! | more bytes than before, or less than 5 % fewer | the same; the object has changed |
//! | at least 5 % fewer bytes | of a part: the client has left |
//! | 206 | of a part |
//! | 304, HEAD | without bytes |
//!
//! The 5 % are those of Arlitt, Friedrich and Jin 2000 ("Performance evaluation of web proxy cache
//! replacement policies"). What is of a part or without bytes can be answered from the cache, but
//! does not fill it. With [`Replies::Whole`] each request is for the whole object at its largest,
//! as where a log is replayed with clients that have no caches of their own (Kim et al. 2002).
//!
//! A write makes what is cached of its target out of date. A target that is sent in several codings
//! is several objects: `variants.rs`.

use std::hint::black_box;

use hashbrown::HashSet;
use nicache_trace::{Record, Verb};
use serde::Serialize;

use crate::blocks::BlockNumbers;
use crate::load_config::{Changes, LoadConfig, Replies, Unit, Variants, Writes};
use crate::numbers::Numbers;
use crate::sample::Sampler;
use crate::sort::{Reason, Sort, sent_bytes, sort};
use crate::variants::{Lines, Targets, note_of, resolve};
use crate::workload::Sampled;
use crate::{Access, Room, TooManyObjects, Workload};

/// What a trace has, by what a cache can do for it.
///
/// Of a sample, requests and bytes are those of the whole trace; what is known only of followed
/// targets is marked so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// All requests.
    pub requests: u64,
    /// Bytes of all replies' bodies.
    #[serde(serialize_with = "crate::sum::serialize")]
    pub bytes: u128,
    /// Requests whose reply can come from a cache.
    pub cacheable: u64,
    /// Bytes of the bodies of replies that can come from a cache.
    #[serde(serialize_with = "crate::sum::serialize")]
    pub cacheable_bytes: u128,
    /// Writes.
    pub writes: u64,
    /// Requests that cannot be answered from a cache, by [`Reason::ALL`].
    pub uncacheable: [u64; 4],
    /// Requests whose object had changed, of the targets followed.
    pub changed: u64,
    /// Replies cut off, or of a part, of the targets followed.
    pub partial: u64,
    /// Requests without bytes: 304 and HEAD.
    pub without_bytes: u64,
    /// Targets that have several variants, of those followed.
    pub varying_targets: u64,
    /// Requests for them; of a sample, of those followed.
    pub varying: u64,
    /// Replies of 4 GiB or more, which count as 4 GiB - 1 in a cache.
    pub huge: u64,
}

/// Records whose memory is asked for at once.
const BATCH: usize = 32;

/// Makes a workload. Memory: 12 bytes per request, 13 if the trace tells codings, 4 more if it has
/// clients, 8 more if it has offsets; and 80 to 120 bytes per target, most of them until it is
/// finished.
#[derive(Debug)]
pub struct Loader {
    config: LoadConfig,
    targets: Numbers,
    /// What the trace calls each target (a record's `object`), if a sample may have to be made
    /// smaller.
    names: Vec<u64>,
    sampler: Option<Sampler>,
    clients: Numbers,
    /// When each target was last changed, as far as the trace tells; empty if it does not.
    revisions: Vec<Option<u64>>,
    /// Bytes of each target's object, as replies of parts tell them; empty if none does.
    extents: Vec<u64>,
    /// Targets that were written since they were last asked for.
    written: HashSet<u32, foldhash::fast::FixedState>,
    raw: Raw,
    first_us: Option<u64>,
    totals: Totals,
}

/// What is kept of each request, in columns.
#[derive(Clone, Debug, Default)]
struct Raw {
    /// By target, with what the record alone tells.
    accesses: Vec<Access>,
    /// Of a coding or a part; empty as long as all are 0.
    notes: Vec<u8>,
    /// First byte of each access; empty as long as all are 0.
    offsets: Vec<u64>,
    seconds: Vec<u32>,
    /// Empty as long as there is one.
    client_of: Vec<u32>,
}

impl Loader {
    /// Nothing is loaded.
    pub fn new(config: &LoadConfig) -> Self {
        Self {
            config: *config,
            targets: Numbers::default(),
            names: Vec::new(),
            sampler: config.sample.map(Sampler::new),
            clients: Numbers::default(),
            revisions: Vec::new(),
            extents: Vec::new(),
            written: HashSet::default(),
            raw: Raw::default(),
            first_us: None,
            totals: Totals::default(),
        }
    }

    /// Adds requests.
    ///
    /// # Errors
    /// [`TooManyObjects`]
    pub fn push_all(&mut self, records: &[Record]) -> Result<(), TooManyObjects> {
        for records in records.chunks(BATCH) {
            // The processor then waits for the memory of all at once.
            black_box(
                records.iter().fold(0, |sum, record| sum ^ self.targets.touch(record.object)),
            );
            records.iter().try_for_each(|record| self.push(record))?;
        }
        Ok(())
    }

    /// Adds a request.
    ///
    /// # Errors
    /// [`TooManyObjects`]
    #[inline]
    pub fn push(&mut self, record: &Record) -> Result<(), TooManyObjects> {
        self.totals.requests += 1;
        self.totals.bytes += u128::from(sent_bytes(record));
        match sort(record, self.config.dynamic) {
            Sort::Cacheable => self.access(record),
            Sort::Write => {
                self.totals.writes += 1;
                match self.config.writes {
                    Writes::AsReads => self.access(record),
                    Writes::Invalidate => {
                        self.write(record);
                        Ok(())
                    }
                }
            }
            Sort::Uncacheable(reason) => {
                self.totals.uncacheable[reason as usize] += 1;
                Ok(())
            }
        }
    }

    fn number(&mut self, record: &Record) -> Result<u32, TooManyObjects> {
        let number =
            self.targets.number(record.object).filter(|number| *number < Access::OBJECTS_MAX);
        let number = number.ok_or(TooManyObjects)?;
        if self.sampler.is_some() && number as usize == self.names.len() {
            self.names.push(record.object);
        }
        Ok(number)
    }

    fn is_followed(&self, record: &Record) -> bool {
        self.sampler.is_none_or(|sampler| sampler.follows(record.object))
    }

    /// Of a target that was not asked for yet nothing is cached.
    fn write(&mut self, record: &Record) {
        if self.config.changes != Changes::Never
            && let Some(number) = self.targets.find(record.object)
        {
            self.written.insert(number);
        }
    }

    #[inline]
    fn access(&mut self, record: &Record) -> Result<(), TooManyObjects> {
        let is_whole = matches!(record.status, 0 | 200) && record.verb != Verb::Head;
        let sent = sent_bytes(record);
        self.totals.cacheable += 1;
        self.totals.cacheable_bytes += u128::from(sent);
        self.totals.without_bytes += u64::from(sent == 0 && !is_whole);
        self.totals.huge += u64::from(sent > u64::from(u32::MAX));
        if !self.is_followed(record) {
            return Ok(());
        }
        let number = self.number(record)?;
        let is_block_like = record.offset != 0 || record.object_bytes.is_some();
        if self.config.replies == Replies::Whole && (is_block_like || !is_whole) {
            let extent = record.object_bytes.unwrap_or_else(|| record.offset.saturating_add(sent));
            let known = at(&mut self.extents, number);
            *known = extent.max(*known);
        }
        let changed = self.config.changes != Changes::Never && self.is_changed(number, record);
        let access =
            Access::new(number, sent).changed(changed).without_fill(!is_whole).ending(true);
        self.append(access, note_of(record.coding, is_block_like), record);
        if let Some(mut sampler) =
            self.sampler.filter(|sampler| sampler.is_full(self.targets.len()))
        {
            sampler.lower(self.names.iter().copied());
            self.sampler = Some(sampler);
            self.thin_out(sampler);
        }
        Ok(())
    }

    /// Whether something other than its size tells that a target has changed.
    fn is_changed(&mut self, number: u32, record: &Record) -> bool {
        let mut changed = !self.written.is_empty() && self.written.remove(&number);
        if record.revision.is_some() {
            let before = std::mem::replace(at(&mut self.revisions, number), record.revision);
            changed |= before.is_some() && before != record.revision;
        }
        changed
    }

    /// Forgets the targets that are no longer followed.
    fn thin_out(&mut self, sampler: Sampler) {
        const GONE: u32 = u32::MAX;
        let (mut targets, mut names, mut new_of) =
            (Numbers::default(), Vec::new(), vec![GONE; self.names.len()]);
        for (number, &name) in
            self.names.iter().enumerate().filter(|(_, name)| sampler.follows(**name))
        {
            new_of[number] = targets.number(name).unwrap_or(GONE);
            names.push(name);
        }
        let is_kept = |number: usize| new_of.get(number).is_some_and(|new| *new != GONE);
        keep(&mut self.revisions, is_kept);
        keep(&mut self.extents, is_kept);
        self.written = self
            .written
            .iter()
            .map(|&number| new_of[number as usize])
            .filter(|&new| new != GONE)
            .collect();
        let old = std::mem::take(&mut self.raw.accesses);
        let is_kept =
            |at: usize| old.get(at).is_some_and(|access| new_of[access.object() as usize] != GONE);
        keep(&mut self.raw.notes, is_kept);
        keep(&mut self.raw.offsets, is_kept);
        keep(&mut self.raw.seconds, is_kept);
        keep(&mut self.raw.client_of, is_kept);
        let kept = old.iter().map(|access| access.with_object(new_of[access.object() as usize]));
        self.raw.accesses = kept.flatten().collect();
        (self.targets, self.names) = (targets, names);
    }

    fn append(&mut self, access: Access, note: u8, record: &Record) {
        let Raw { accesses, notes, offsets, seconds, client_of } = &mut self.raw;
        push_lazily(offsets, accesses.len(), record.offset);
        push_lazily(notes, accesses.len(), note);
        accesses.push(access);
        let first_us = *self.first_us.get_or_insert(record.time_us);
        let second = record.time_us.saturating_sub(first_us) / 1_000_000;
        // A trace that is not in order of time does not go back.
        let second =
            u32::try_from(second).unwrap_or(u32::MAX).max(seconds.last().copied().unwrap_or(0));
        seconds.push(second);
        let client = self.clients.number(record.client).unwrap_or(0);
        if client != 0 && client_of.is_empty() {
            client_of.resize(accesses.len() - 1, 0);
        }
        if self.clients.len() > 1 {
            client_of.push(client);
        }
    }

    /// What was counted so far, without what sizes tell: changes, parts and variants.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Clients so far.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Bytes that are held.
    pub fn memory(&self) -> usize {
        let Raw { accesses, notes, offsets, seconds, client_of } = &self.raw;
        let columns = 8 * (accesses.capacity() + offsets.capacity())
            + 4 * (seconds.capacity() + client_of.capacity());
        let targets =
            16 * self.revisions.capacity() + 8 * (self.extents.capacity() + self.names.capacity());
        columns + notes.capacity() + targets + self.targets.memory() + self.clients.memory()
    }

    /// The workload.
    ///
    /// # Errors
    /// [`TooManyObjects`]
    pub fn finish(mut self) -> Result<(Workload, Totals), TooManyObjects> {
        let accesses = std::mem::take(&mut self.raw.accesses);
        let lines = self.lines(accesses, self.config.variants)?;
        let (seconds, clients) = self.take_columns();
        self.assemble(lines, seconds, clients)
    }

    /// The workload, and the one without variants if there are any.
    ///
    /// # Errors
    /// [`TooManyObjects`]
    pub fn finish_both(mut self) -> Result<(Workload, Totals, Option<Workload>), TooManyObjects> {
        let accesses = std::mem::take(&mut self.raw.accesses);
        let lines = self.lines(accesses.clone(), self.config.variants)?;
        let without =
            if lines.targets > 0 { Some(self.lines(accesses, Variants::None)?) } else { None };
        let (seconds, clients) = self.take_columns();
        let without = without
            .map(|lines| self.assemble(lines, seconds.clone(), clients.clone()))
            .transpose()?;
        let (workload, totals) = self.assemble(lines, seconds, clients)?;
        Ok((workload, totals, without.map(|(workload, _)| workload)))
    }

    fn take_columns(&mut self) -> (Vec<u32>, Vec<u32>) {
        (std::mem::take(&mut self.raw.seconds), std::mem::take(&mut self.raw.client_of))
    }

    fn lines(&self, accesses: Vec<Access>, variants: Variants) -> Result<Lines, TooManyObjects> {
        let (notes, targets) = (&self.raw.notes[..], self.targets.len());
        resolve(
            Targets { accesses, notes, targets, extents: &self.extents },
            &self.config,
            variants,
        )
    }

    fn assemble(
        &self,
        lines: Lines,
        seconds: Vec<u32>,
        clients: Vec<u32>,
    ) -> Result<(Workload, Totals), TooManyObjects> {
        let totals = Totals {
            changed: lines.changed,
            partial: lines.partial,
            varying_targets: lines.targets,
            varying: lines.requests,
            ..self.totals
        };
        let whole = Workload {
            objects: lines.objects,
            accesses: lines.accesses,
            seconds,
            clients,
            room: self.config.room,
            warm_up: 0,
            sampled: self.sampler.filter(|sampler| sampler.rate() < 1.0).map(|sampler| Sampled {
                rate: sampler.rate(),
                requests: totals.cacheable,
                bytes: totals.cacheable_bytes,
            }),
        };
        let workload = match self.config.unit {
            Unit::Objects => whole,
            Unit::Blocks => {
                let mut blocks = BlockNumbers::default();
                let mut workload = Workload::of(Vec::new(), Room::Slots(crate::BLOCK_BYTES as u32));
                for (at, access) in whole.accesses.iter().enumerate() {
                    let offset = self.raw.offsets.get(at).copied().unwrap_or(0);
                    blocks.push(*access, offset, &mut workload.accesses)?;
                    workload.seconds.resize(workload.accesses.len(), whole.seconds[at]);
                    if let Some(&client) = whole.clients.get(at) {
                        workload.clients.resize(workload.accesses.len(), client);
                    }
                }
                workload.objects = blocks.len();
                Workload { sampled: whole.sampled, ..workload }
            }
        };
        Ok((workload, totals))
    }
}

/// The value of a number in a list that is as long as it has to be.
fn at<T: Copy + Default>(list: &mut Vec<T>, number: u32) -> &mut T {
    let at = number as usize;
    if at >= list.len() {
        list.resize(at + 1, T::default());
    }
    &mut list[at]
}

/// Appends to a list that is empty as long as all values are the default.
fn push_lazily<T: Copy + Default + PartialEq>(list: &mut Vec<T>, len: usize, value: T) {
    if value != T::default() && list.is_empty() {
        list.resize(len, T::default());
    }
    if value != T::default() || !list.is_empty() {
        list.push(value);
    }
}

/// Leaves the values whose places are kept.
fn keep<T>(list: &mut Vec<T>, is_kept: impl Fn(usize) -> bool) {
    let mut place = 0;
    list.retain(|_| {
        place += 1;
        is_kept(place - 1)
    });
}

/// A whole trace.
impl Loader {
    /// Requests that cannot be answered from a cache, with the reason.
    pub fn uncacheable(totals: &Totals) -> impl Iterator<Item = (Reason, u64)> {
        Reason::ALL.into_iter().zip(totals.uncacheable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PolicyName;
    use crate::{Choice, Size, sweep};

    fn record(target: u64, bytes: u64) -> Record {
        Record { status: 200, object: target, bytes: Some(bytes), ..Record::default() }
    }

    #[test]
    fn whatever_a_trace_says_nothing_overflows() {
        for config in [
            LoadConfig::default(),
            LoadConfig { replies: Replies::Whole, ..LoadConfig::default() },
            LoadConfig {
                changes: Changes::Any,
                room: Room::Slots(u32::MAX),
                ..LoadConfig::default()
            },
        ] {
            let mut loader = Loader::new(&config);
            for at in 0..300u64 {
                let some = Record {
                    offset: u64::MAX - at,
                    time_us: u64::MAX - at,
                    ..record(at % 5, u64::MAX - at % 3)
                };
                let part = Record { status: 206, object_bytes: Some(u64::MAX), ..some };
                loader.push_all(&[some, part, Record { offset: 0, ..some }]).unwrap();
            }
            let (workload, totals) = loader.finish().unwrap();
            assert!(totals.bytes > 800 * u128::from(u64::MAX) && totals.huge == 900, "{totals:?}");
            let choices = PolicyName::ALL.map(Choice::from);
            for curve in sweep(&[workload], &choices, &[Size(1 << 33), Size(u64::MAX)], 1, &|_| {})
            {
                assert_eq!(curve.points[1].counts.requests, 900, "{}", curve.choice);
            }
        }
    }

    #[test]
    fn both_are_what_each_is_alone() {
        let of = |variants| {
            let mut loader = Loader::new(&LoadConfig { variants, ..LoadConfig::default() });
            for at in 0..400u64 {
                loader.push(&record(at % 3, if at % 2 == 0 { 9000 } else { 30_000 })).unwrap();
            }
            loader
        };
        let (with, totals, without) = of(Variants::Auto).finish_both().unwrap();
        assert_eq!((totals.varying_targets, totals.varying), (3, 400));
        assert_eq!(with.accesses, of(Variants::Auto).finish().unwrap().0.accesses);
        assert_eq!(without.unwrap().accesses, of(Variants::None).finish().unwrap().0.accesses);
        assert!(of(Variants::None).finish_both().unwrap().2.is_none());
    }

    /// Of an object that a sample does not follow nothing is kept.
    #[test]
    fn a_sample_takes_no_more_memory_than_its_objects() {
        let mut loader = Loader::new(&LoadConfig { sample: Some(500), ..LoadConfig::default() });
        for at in 0..200_000u64 {
            loader.push(&Record { client: at % 50, ..record(at, 100) }).unwrap();
        }
        assert!(loader.memory() < 1 << 17, "{}", loader.memory());
        let (workload, totals) = loader.finish().unwrap();
        assert!(
            (300..=500).contains(&workload.objects)
                && workload.accesses.len() == workload.objects as usize
        );
        assert_eq!(
            (workload.seconds.len(), workload.clients.len()),
            (workload.accesses.len(), workload.accesses.len())
        );
        assert_eq!(totals.cacheable, 200_000);
        assert!(
            (workload.objects_in_all() as f64 / 2e5 - 1.0).abs() < 0.25,
            "{}",
            workload.objects_in_all()
        );
    }
}
