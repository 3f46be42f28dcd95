//! Makes a workload of a trace's records.
//!
//! What a log tells of a reply is what went over the wire, which need not be the object. So, if replies are taken as
//! they are logged ([`Replies::AsLogged`]):
//!
//! | in the log | access |
//! |---|---|
//! | 200 with as many bytes as before | of the whole object |
//! | more bytes than before, or less than 5 % fewer | the same; the object has changed |
//! | at least 5 % fewer bytes | of a part: the client has left |
//! | 206 | of a part |
//! | 304, HEAD | without bytes |
//!
//! The 5 % are those of Arlitt, Friedrich and Jin 2000 ("Performance evaluation of web proxy cache replacement policies"). What is of a part
//! or without bytes can be answered from the cache, but does not fill it. With [`Replies::Whole`] each request is for the whole object at
//! its largest, as where a log is replayed with clients that have no caches of their own (Kim et al. 2002).
//!
//! A write makes what is cached of its target out of date.

use std::hint::black_box;

use hashbrown::HashSet;
use nicache_trace::{Record, Verb};
use serde::Serialize;

use crate::blocks::BlockNumbers;
use crate::numbers::Numbers;
use crate::sort::{Reason, Sort, sort};
use crate::{Access, Room, TooManyObjects, Workload};

/// What is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Whole objects.
    Objects,
    /// Blocks of [`crate::BLOCK_BYTES`].
    Blocks,
}

/// What a log's replies say of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Replies {
    /// They are what was sent.
    AsLogged,
    /// Each stands for the whole object at its largest.
    Whole,
}

/// When an object that has another size has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Changes {
    /// Never; nor if its revision differs, or it was written.
    Never,
    /// If it grew, or shrank by less than 5 %: otherwise the reply was cut off.
    Small,
    /// Always.
    Any,
}

/// What a write does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Writes {
    /// What is cached of its target is out of date.
    Invalidate,
    /// The same as a read: caches of disks.
    AsReads,
}

/// How records become accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LoadConfig {
    /// What is cached.
    pub unit: Unit,
    /// What an object is charged; a block always has room for all its bytes.
    pub room: Room,
    /// What replies say.
    pub replies: Replies,
    /// What changes.
    pub changes: Changes,
    /// What writes do.
    pub writes: Writes,
    /// Whether what programs made can be cached.
    pub dynamic: bool,
}

impl Default for LoadConfig {
    /// Whole objects of a web server on a card.
    fn default() -> LoadConfig {
        LoadConfig {
            unit: Unit::Objects,
            room: Room::Bytes,
            replies: Replies::AsLogged,
            changes: Changes::Small,
            writes: Writes::Invalidate,
            dynamic: true,
        }
    }
}

/// What a trace has, by what a cache can do for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// All requests.
    pub requests: u64,
    /// Bytes of all replies.
    pub bytes: u64,
    /// Requests whose reply can come from a cache.
    pub cacheable: u64,
    /// Their bytes.
    pub cacheable_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Requests that cannot be answered from a cache, by [`Reason::ALL`].
    pub uncacheable: [u64; 4],
    /// Requests whose object had changed.
    pub changed: u64,
    /// Replies cut off, or of a part.
    pub partial: u64,
    /// Requests without bytes: 304 and HEAD.
    pub without_bytes: u64,
}

/// Records whose memory is asked for at once.
const BATCH: usize = 32;

/// Makes a workload.
#[derive(Debug)]
pub struct Loader {
    config: LoadConfig,
    objects: Numbers,
    clients: Numbers,
    /// Bytes and revision of each object.
    known: Vec<Known>,
    /// Objects that were written since they were last asked for.
    written: HashSet<u32, foldhash::fast::FixedState>,
    accesses: Vec<Access>,
    /// First byte of each access; empty as long as all are 0.
    offsets: Vec<u64>,
    seconds: Vec<u32>,
    /// Empty as long as there is one.
    client_of: Vec<u32>,
    first_us: Option<u64>,
    totals: Totals,
    /// Nothing changes, and replies are objects: nothing needs to be known of them.
    is_plain: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    bytes: u64,
    bytes_max: u64,
    revision: Option<u64>,
}

impl Loader {
    /// Nothing is loaded.
    pub fn new(config: &LoadConfig) -> Loader {
        Loader {
            config: *config,
            objects: Numbers::default(),
            clients: Numbers::default(),
            known: Vec::new(),
            written: HashSet::default(),
            accesses: Vec::new(),
            offsets: Vec::new(),
            seconds: Vec::new(),
            client_of: Vec::new(),
            first_us: None,
            totals: Totals::default(),
            is_plain: config.changes == Changes::Never && config.replies == Replies::AsLogged,
        }
    }

    /// Adds requests.
    ///
    /// # Errors
    /// [`TooManyObjects`]
    pub fn push_all(&mut self, records: &[Record]) -> Result<(), TooManyObjects> {
        for records in records.chunks(BATCH) {
            // So that the processor waits for the memory of all at once.
            black_box(records.iter().fold(0, |sum, record| sum ^ self.objects.touch(record.object)));
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
        self.totals.bytes += record.bytes.unwrap_or(0);
        match sort(record, self.config.dynamic) {
            Sort::Cacheable => self.access(record),
            Sort::Write => {
                self.totals.writes += 1;
                match self.config.writes {
                    Writes::AsReads => self.access(record),
                    Writes::Invalidate => self.write(record),
                }
            }
            Sort::Uncacheable(reason) => {
                self.totals.uncacheable[reason as usize] += 1;
                Ok(())
            }
        }
    }

    fn number(&mut self, record: &Record) -> Result<u32, TooManyObjects> {
        let number = self.objects.number(record.object).filter(|number| *number < Access::OBJECTS_MAX);
        let number = number.ok_or(TooManyObjects)?;
        if !self.is_plain && number as usize == self.known.len() {
            self.known.push(Known::default());
        }
        Ok(number)
    }

    fn write(&mut self, record: &Record) -> Result<(), TooManyObjects> {
        if self.config.changes != Changes::Never {
            let number = self.number(record)?;
            self.written.insert(number);
        }
        Ok(())
    }

    #[inline]
    fn access(&mut self, record: &Record) -> Result<(), TooManyObjects> {
        let number = self.number(record)?;
        let is_whole = matches!(record.status, 0 | 200) && record.verb != Verb::Head;
        let sent = if record.verb == Verb::Head || record.status == 304 { 0 } else { record.bytes.unwrap_or(0) };
        let (fills, changed) =
            if self.is_plain { (is_whole, false) } else { self.learn(number, record, is_whole, sent) };
        self.totals.cacheable += 1;
        self.totals.cacheable_bytes += sent;
        self.totals.changed += u64::from(changed);
        self.totals.partial += u64::from(!fills && sent > 0);
        self.totals.without_bytes += u64::from(sent == 0 && !is_whole);
        let fills = fills || self.config.replies == Replies::Whole;
        let access = Access::new(number, sent).changed(changed).without_fill(!fills).ending(true);
        self.append(access, record);
        Ok(())
    }

    /// Learns size and revision of an object; whether the reply can become an entry, and whether the object has changed.
    fn learn(&mut self, number: u32, record: &Record, is_whole: bool, sent: u64) -> (bool, bool) {
        let is_block_like = record.offset != 0 || record.object_bytes.is_some();
        let known = &mut self.known[number as usize];
        let before = *known;
        let mut fills = is_whole;
        let mut changed = false;
        if is_whole && !is_block_like {
            known.bytes_max = known.bytes_max.max(sent);
            let is_cut = sent < before.bytes && (before.bytes - sent) * 20 >= before.bytes;
            match self.config.changes {
                Changes::Small if is_cut => fills = false,
                Changes::Small | Changes::Any => {
                    changed = before.bytes != 0 && before.bytes != sent;
                    known.bytes = sent;
                }
                Changes::Never => {}
            }
        } else {
            known.bytes_max = known.bytes_max.max(record.object_bytes.unwrap_or(record.offset + sent));
        }
        if self.config.changes != Changes::Never {
            changed |= before.revision.is_some() && record.revision.is_some() && before.revision != record.revision;
            changed |= !self.written.is_empty() && self.written.remove(&number);
        }
        known.revision = record.revision.or(known.revision);
        (fills, changed)
    }

    fn append(&mut self, access: Access, record: &Record) {
        if record.offset != 0 && self.offsets.is_empty() {
            self.offsets.resize(self.accesses.len(), 0);
        }
        if record.offset != 0 || !self.offsets.is_empty() {
            self.offsets.push(record.offset);
        }
        self.accesses.push(access);
        let first_us = *self.first_us.get_or_insert(record.time_us);
        let second = record.time_us.saturating_sub(first_us) / 1_000_000;
        // A trace that is not in order of time does not go back.
        let second = u32::try_from(second).unwrap_or(u32::MAX).max(self.seconds.last().copied().unwrap_or(0));
        self.seconds.push(second);
        let client = self.clients.number(record.client).unwrap_or(0);
        if client != 0 && self.client_of.is_empty() {
            self.client_of.resize(self.accesses.len() - 1, 0);
        }
        if self.clients.len() > 1 {
            self.client_of.push(client);
        }
    }

    /// What was counted so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Clients so far.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// The workload.
    ///
    /// # Errors
    /// [`TooManyObjects`]
    pub fn finish(mut self) -> Result<(Workload, Totals), TooManyObjects> {
        if self.config.replies == Replies::Whole {
            for access in &mut self.accesses {
                let bytes = self.known[access.object() as usize].bytes_max;
                *access = Access::new(access.object(), bytes).changed(access.is_changed()).ending(true);
            }
        }
        let workload = match self.config.unit {
            Unit::Objects => Workload {
                objects: self.objects.len() as u32,
                accesses: self.accesses,
                seconds: self.seconds,
                clients: self.client_of,
                room: self.config.room,
                warm_up: 0,
            },
            Unit::Blocks => {
                let mut blocks = BlockNumbers::default();
                let mut workload = Workload::of(Vec::new(), Room::Slots(crate::BLOCK_BYTES as u32));
                for (at, access) in self.accesses.iter().enumerate() {
                    let offset = self.offsets.get(at).copied().unwrap_or(0);
                    blocks.push(*access, offset, &mut workload.accesses)?;
                    workload.seconds.resize(workload.accesses.len(), self.seconds[at]);
                    if let Some(&client) = self.client_of.get(at) {
                        workload.clients.resize(workload.accesses.len(), client);
                    }
                }
                workload.objects = blocks.len();
                workload
            }
        };
        Ok((workload, self.totals))
    }
}

/// A whole trace.
impl Loader {
    /// Requests that cannot be answered from a cache, with the reason.
    pub fn uncacheable(totals: &Totals) -> impl Iterator<Item = (Reason, u64)> {
        Reason::ALL.into_iter().zip(totals.uncacheable)
    }
}
