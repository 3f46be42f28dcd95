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
pub struct Loaded {
    /// The accesses.
    pub workload: Workload,
    /// What the trace has.
    pub totals: Totals,
    /// How records became accesses.
    pub config: LoadConfig,
    /// What was skipped, and what it was read as.
    pub read: Read,
}

/// How reading went.
#[derive(Debug, Clone, Serialize)]
pub struct Read {
    /// The traces' names.
    pub traces: Vec<String>,
    /// What they were read as.
    pub formats: Vec<String>,
    /// Lines or records that cannot be understood.
    pub bad_records: u64,
    /// The first of them: where, how it begins, what is wrong.
    pub first_bad: Vec<String>,
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
    let mut read = Read { traces: Vec::new(), formats: Vec::new(), bad_records: 0, first_bad: Vec::new() };
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
        read.formats.push(reader.format().to_string());
        read.bad_records += reader.bad().count;
        read.first_bad.extend(reader.bad().first.iter().map(|bad| show(&name, bad)));
        read.traces.push(name);
    }
    read.first_bad.truncate(8);
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

/// Makes a workload of traces.
pub fn load(options: &TraceOptions, workload: &WorkloadOptions) -> Result<Loaded> {
    load_with(options, workload, |_, _| {})
}

/// The same, and counts what is in them.
pub fn load_and_count(options: &TraceOptions, workload: &WorkloadOptions) -> Result<(Loaded, Summary)> {
    let mut census = Census::default();
    let loaded = load_with(options, workload, |record, target| census.push(record, target))?;
    Ok((loaded, census.summary()))
}

/// Fills a workload in batches, and counts.
struct Filling<'a, F> {
    options: &'a WorkloadOptions,
    dynamic: bool,
    loader: Option<(Loader, LoadConfig)>,
    batch: Vec<Record>,
    count: F,
}

impl<F: FnMut(&Record, &[u8])> Take for Filling<'_, F> {
    #[inline]
    fn record(&mut self, record: &Record, target: &[u8], format: Format) -> Result<()> {
        if self.loader.is_none() {
            let config = config(self.options, format, self.dynamic);
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

fn load_with(options: &TraceOptions, workload: &WorkloadOptions, count: impl FnMut(&Record, &[u8])) -> Result<Loaded> {
    let batch = Vec::with_capacity(BATCH);
    let mut filling = Filling { options: workload, dynamic: !options.static_only, loader: None, batch, count };
    let read = each(options, &mut filling)?;
    warn(&read);
    let Some((loader, config)) = filling.loader else { bail!(nothing(&read)) };
    let (mut loaded, totals) = loader.finish()?;
    if loaded.accesses.is_empty() {
        bail!("{}: none of its {} requests could be answered from a cache", read.traces.join(", "), totals.requests);
    }
    loaded.warm_up = (loaded.accesses.len() as f64 * workload.warm_up) as usize;
    Ok(Loaded { workload: loaded, totals, config, read })
}

/// Reads traces record by record, with their names.
pub fn named_records(options: &TraceOptions, mut take: impl FnMut(&Record, &[u8]) -> Result<()>) -> Result<Read> {
    let read = each(options, &mut |record: &Record, target: &[u8], _: Format| take(record, target))?;
    warn(&read);
    Ok(read)
}

/// Reads traces record by record.
pub fn records(options: &TraceOptions, mut take: impl FnMut(&Record) -> Result<()>) -> Result<Read> {
    let read = each(options, &mut |record: &Record, _: &[u8], _: Format| take(record))?;
    warn(&read);
    Ok(read)
}

fn nothing(read: &Read) -> String {
    let what = format!("{} has no request that can be understood", read.traces.join(", "));
    match read.bad_records {
        0 => format!("{what}: it is empty"),
        bad => format!(
            "{what} ({bad} bad lines, read as {}); if it is something else, say what with --format",
            read.formats.join(", ")
        ),
    }
}

fn warn(read: &Read) {
    if read.bad_records > 0 {
        eprintln!("{} lines or records cannot be understood and are left out; the first ones:", read.bad_records);
        for bad in &read.first_bad {
            eprintln!("  {bad}");
        }
    }
}

fn config(options: &WorkloadOptions, format: Format, dynamic: bool) -> LoadConfig {
    let (unit, changes, writes) = match format {
        Format::Vscsi => (Unit::Blocks, Changes::Never, Writes::AsReads),
        Format::Nfs => (Unit::Blocks, Changes::Any, Writes::Invalidate),
        Format::OracleGeneral | Format::Keys => (Unit::Objects, Changes::Never, Writes::AsReads),
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
    }
}
