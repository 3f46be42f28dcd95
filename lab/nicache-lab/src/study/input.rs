//! Reads traces, with progress.

use std::path::Path;

use anyhow::{Context, Result, bail};
use nicache_study::{Census, Changes, LoadConfig, Loader, Summary, Totals, Unit, Workload, Writes};
use nicache_trace::{BadRecord, Format, Reader, Record};
use serde::Serialize;

use super::progress;
use crate::options::study::{TraceOptions, WorkloadOptions};

/// What was read.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The accesses.
    pub workload: Workload,
    /// What the trace has.
    pub totals: Totals,
    /// How records became accesses.
    pub config: LoadConfig,
    /// What was skipped, and what it was read as.
    pub read: Read,
    /// The accesses with each target as one object, if some have variants.
    pub without_variants: Option<Workload>,
    /// Bytes of memory that loading took.
    pub memory: usize,
}

/// How reading went.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Read {
    /// The traces' names.
    pub traces: Vec<String>,
    /// What they were read as.
    pub formats: Vec<String>,
    /// Lines or records that cannot be understood.
    pub bad_records: u64,
    /// The first of them: where, how it begins, what is wrong.
    pub first_bad: Vec<String>,
    /// Traces that end before their end, and why: what was read until there counts.
    pub cut_off: Vec<String>,
}

/// Records that are handed on at once.
const BATCH: usize = 1024;

/// Reads every record of the traces, in order: in batches, or one by one with its name.
trait Take {
    /// A record, with its name.
    fn record(&mut self, record: &Record, target: &[u8], format: Format) -> Result<()>;

    /// Nothing more for now.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl<F: FnMut(&Record, &[u8], Format) -> Result<()>> Take for F {
    #[inline]
    fn record(&mut self, record: &Record, target: &[u8], format: Format) -> Result<()> {
        self(record, target, format)
    }
}

fn each(options: &TraceOptions, take: &mut impl Take) -> Result<Read> {
    let mut read = Read {
        traces: Vec::new(),
        formats: Vec::new(),
        bad_records: 0,
        first_bad: Vec::new(),
        cut_off: Vec::new(),
    };
    let (mut good, mut strange) = (0u64, 0u64);
    let mut left = options.first.unwrap_or(u64::MAX);
    for path in &options.traces {
        let name = name(path);
        let failed = || format!("cannot read the trace {}", path.display());
        let mut reader = Reader::open(path, options.format).with_context(failed)?;
        let bar = progress::bar(&format!("reading {name}"), reader.size());
        let mut count = 0u64;
        while left > 0 {
            let Some(record) = reader.read().with_context(failed)? else { break };
            take.record(&record, reader.target(), reader.format())?;
            left -= 1;
            count += 1;
            if count.is_multiple_of(1 << 16) {
                bar.set_position(if reader.size().is_some() { reader.position() } else { count });
            }
        }
        take.flush()?;
        bar.finish_and_clear();
        good += count;
        strange += reader.bad().count - reader.bad().no_requests;
        if let Some(damage) = reader.damage() {
            read.cut_off.push(format!("{name}: {damage}; the {count} requests before that count"));
        }
        read.formats.push(reader.format().to_string());
        read.bad_records += reader.bad().count;
        read.first_bad.extend(reader.bad().first.iter().map(|bad| show(&name, bad)));
        read.traces.push(name);
    }
    read.first_bad.truncate(8);
    // More than half of it is something else: nothing that is said of the rest would be true of the
    // whole.
    if good > 0 && strange > good {
        bail!(
            "{}: only {good} of {} lines or records can be understood ({}), which is too little; if it is something else, say what with \
             --format. The first of the others: {}",
            read.traces.join(", "),
            good + strange,
            read.formats.join(", "),
            read.first_bad.first().map_or("", String::as_str)
        );
    }
    Ok(read)
}

fn show(name: &str, bad: &BadRecord) -> String {
    format!("{name}:{}: {}: {}", bad.number, bad.defect, bad.text)
}

fn name(path: &Path) -> String {
    if path == Path::new("-") {
        return "standard input".to_owned();
    }
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Makes a workload of traces, of a sample of so many objects if there are more.
pub(crate) fn load(
    options: &TraceOptions,
    workload: &WorkloadOptions,
    sample: Option<u32>,
) -> Result<Loaded> {
    load_with(options, workload, sample, |_, _| {})
}

/// Makes a workload of traces, of a sample of so many objects if there are more, and counts what is
/// in the traces.
pub(crate) fn load_and_count(
    options: &TraceOptions,
    workload: &WorkloadOptions,
    sample: Option<u32>,
) -> Result<(Loaded, Summary)> {
    let mut census = sample.map_or_else(Census::default, Census::sampled);
    let loaded =
        load_with(options, workload, sample, |record, target| census.push(record, target))?;
    let memory = loaded.memory + census.memory();
    Ok((Loaded { memory, ..loaded }, census.summary()))
}

/// Fills a workload in batches, and counts.
struct Filling<'a, F> {
    options: &'a WorkloadOptions,
    dynamic: bool,
    sample: Option<u32>,
    loader: Option<(Loader, LoadConfig)>,
    batch: Vec<Record>,
    count: F,
}

impl<F: FnMut(&Record, &[u8])> Take for Filling<'_, F> {
    #[inline]
    fn record(&mut self, record: &Record, target: &[u8], format: Format) -> Result<()> {
        if self.loader.is_none() {
            let config =
                LoadConfig { sample: self.sample, ..config(self.options, format, self.dynamic) };
            if self.sample.is_some() && config.unit == Unit::Blocks {
                bail!(
                    "a sample follows objects, and {format} is studied in blocks: make each block an object first, with \
                     `nicache trace convert --unit blocks`"
                );
            }
            self.loader = Some((Loader::new(&config), config));
        }
        (self.count)(record, target);
        self.batch.push(*record);
        if self.batch.len() == BATCH { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        if let Some((loader, _)) = &mut self.loader {
            loader.push_all(&self.batch)?;
            self.batch.clear();
        }
        Ok(())
    }
}

fn load_with(
    options: &TraceOptions,
    workload: &WorkloadOptions,
    sample: Option<u32>,
    count: impl FnMut(&Record, &[u8]),
) -> Result<Loaded> {
    let batch = Vec::with_capacity(BATCH);
    let mut filling = Filling {
        options: workload,
        dynamic: !options.static_only,
        sample,
        loader: None,
        batch,
        count,
    };
    let read = each(options, &mut filling)?;
    warn(&read);
    let Some((loader, config)) = filling.loader else { bail!(nothing(&read)) };
    let memory = loader.memory();
    let warm_up = |loaded: Workload| Workload {
        warm_up: (loaded.accesses.len() as f64 * workload.warm_up) as usize,
        ..loaded
    };
    let (loaded, totals, without) = loader.finish_both()?;
    let without_variants = without.map(warm_up);
    if loaded.accesses.is_empty() {
        bail!(
            "{}: none of its {} requests could be answered from a cache",
            read.traces.join(", "),
            totals.requests
        );
    }
    Ok(Loaded { workload: warm_up(loaded), totals, config, read, without_variants, memory })
}

/// Reads traces record by record, with their names.
pub(crate) fn named_records(
    options: &TraceOptions,
    mut take: impl FnMut(&Record, &[u8]) -> Result<()>,
) -> Result<Read> {
    let read =
        each(options, &mut |record: &Record, target: &[u8], _: Format| take(record, target))?;
    warn(&read);
    Ok(read)
}

/// Reads traces record by record.
pub(crate) fn records(
    options: &TraceOptions,
    mut take: impl FnMut(&Record, Format) -> Result<()>,
) -> Result<Read> {
    let read =
        each(options, &mut |record: &Record, _: &[u8], format: Format| take(record, format))?;
    warn(&read);
    Ok(read)
}

fn nothing(read: &Read) -> String {
    let what = format!("{} has no request that can be understood", read.traces.join(", "));
    match read.bad_records {
        0 if !read.cut_off.is_empty() => format!("{what}: {}", read.cut_off.join("; ")),
        0 => format!("{what}: it is empty"),
        bad => format!(
            "{what} ({bad} bad lines, read as {}); if it is something else, say what with --format",
            read.formats.join(", ")
        ),
    }
}

fn warn(read: &Read) {
    for cut_off in &read.cut_off {
        eprintln!("{cut_off}");
    }
    if read.bad_records > 0 {
        eprintln!(
            "{} lines or records cannot be understood and are left out; the first ones:",
            read.bad_records
        );
        for bad in &read.first_bad {
            eprintln!("  {bad}");
        }
    }
}

fn config(options: &WorkloadOptions, format: Format, dynamic: bool) -> LoadConfig {
    let (unit, changes, writes) = match format {
        Format::Vscsi => (Unit::Blocks, Changes::Never, Writes::AsReads),
        Format::Nfs => (Unit::Blocks, Changes::Any, Writes::Invalidate),
        Format::Lis => (Unit::Blocks, Changes::Never, Writes::AsReads),
        Format::OracleGeneral | Format::Keys | Format::U32 | Format::U64 => {
            (Unit::Objects, Changes::Never, Writes::AsReads)
        }
        // A cache's or a disk's trace has no statuses.
        Format::Csv(_) => (Unit::Objects, Changes::Small, Writes::Invalidate),
        Format::Common | Format::Json | Format::Tsv | Format::WorldCup => {
            (Unit::Objects, Changes::Small, Writes::Invalidate)
        }
    };
    LoadConfig {
        unit: options.unit.map_or(unit, Unit::from),
        room: options.room.0,
        replies: options.replies.into(),
        changes: options.changes.map_or(changes, Changes::from),
        writes: options.writes.map_or(writes, Writes::from),
        dynamic,
        variants: options.variants.into(),
        sample: None,
    }
}
