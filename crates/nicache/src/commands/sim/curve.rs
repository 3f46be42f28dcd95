//! `nicache sim curve`: what caches of many sizes would have done for a trace.

use std::process::ExitCode;

use anyhow::{Result, bail};
use nicache_report::{Fact, Report, Section, Unit};
use nicache_study::{
    Choice, Curve, Loader, PolicyName, Room, Shards, ShardsConfig, Size, Sort, Totals, Workload, accesses_of,
    sizes_between, sort, split, sweep,
};
use serde_json::json;

use crate::cli::SimCurveArgs;
use crate::options::study::{CacheOptions, TraceOptions};
use crate::study::input::{Loaded, Read};
use crate::study::{figures, input, output, progress};

/// Policies that are compared unless others are named.
const DEFAULT: [PolicyName; 5] =
    [PolicyName::Lru, PolicyName::Sieve, PolicyName::S3Fifo, PolicyName::Popularity, PolicyName::Belady];
/// Sizes to each doubling, and doublings, unless sizes are named.
const PER_DOUBLING: u32 = 4;
const DOUBLINGS: u32 = 10;

/// Plays the trace back.
pub fn execute(arguments: &SimCurveArgs) -> Result<ExitCode> {
    if let Some(objects_max) = arguments.sample {
        return execute_sampled(arguments, objects_max);
    }
    let loaded = input::load(&arguments.trace, &arguments.workload)?;
    let choices = arguments.caches.choices(&DEFAULT.map(Choice::from));
    let curves = play(&loaded.workload, &arguments.caches, &choices);
    let room = loaded.workload.room;
    let report = Report {
        title: "What a card would have answered".to_owned(),
        subtitle: loaded.read.traces.join(", "),
        facts: facts(&loaded),
        sections: vec![
            Section {
                title: "Cache size and policy".to_owned(),
                paragraphs: paragraphs(&loaded, &arguments.caches),
                figures: figures::curves(&curves, room),
                tables: figures::tables(&curves, room),
            },
            Section { title: "The trace".to_owned(), tables: vec![totals_table(&loaded.totals)], ..Section::default() },
        ],
        footer: "nicache sim curve".to_owned(),
    };
    let json = json!({
        "read": loaded.read,
        "totals": loaded.totals,
        "workload": loaded.config,
        "cards": arguments.caches.cards,
        "footprint": loaded.workload.footprint(),
        "objects": loaded.workload.objects,
        "curves": curves,
    });
    output::write(&report, &json, &arguments.output)?;
    Ok(ExitCode::SUCCESS)
}

/// Plays a workload back against the caches that were asked for.
pub fn play(workload: &Workload, options: &CacheOptions, choices: &[Choice]) -> Vec<Curve> {
    let sizes = options.sizes.as_ref().map_or_else(|| default_sizes(workload), |sizes| sizes.0.clone());
    let parts = match options.cards {
        1 => None,
        cards => Some(split(workload, usize::from(cards), options.split.into())),
    };
    let parts = parts.as_deref().unwrap_or(std::slice::from_ref(workload));
    let threads = options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let bar = progress::bar("simulating", Some(accesses_of(parts, choices, &sizes)));
    let curves = sweep(parts, choices, &sizes, threads, &|accesses| bar.inc(accesses));
    bar.finish_and_clear();
    curves
}

/// Up to the first power of two that holds everything.
fn default_sizes(workload: &Workload) -> Vec<Size> {
    let most = workload.footprint().max(1).next_power_of_two();
    sizes_between(Size((most >> DOUBLINGS).max(1)), Size(most), PER_DOUBLING)
}

fn facts(loaded: &Loaded) -> Vec<Fact> {
    let totals = &loaded.totals;
    let share = totals.cacheable as f64 / totals.requests.max(1) as f64;
    let room = loaded.workload.room;
    vec![
        Fact::new("Requests", Unit::Count.format(totals.requests as f64), ""),
        Fact::new("Could come from a cache", figures::show_share(share), "of the requests; the figures are of these"),
        Fact::new("Objects", Unit::Count.format(f64::from(loaded.workload.objects)), ""),
        Fact::new("All of them take", figures::show_size(Size(loaded.workload.footprint()), room), ""),
    ]
}

fn paragraphs(loaded: &Loaded, options: &CacheOptions) -> Vec<String> {
    let mut paragraphs = Vec::new();
    if options.cards > 1 {
        paragraphs.push(format!("{} cards share the requests, each with a memory of the size shown.", options.cards));
    }
    if loaded.workload.warm_up > 0 {
        paragraphs.push(format!(
            "The first {} accesses fill the caches and are not counted.",
            Unit::Count.format(loaded.workload.warm_up as f64)
        ));
    }
    paragraphs
}

/// What a trace has, as a table.
pub fn totals_table(totals: &Totals) -> nicache_report::Table {
    use nicache_report::{Cell, Column, Row, Table};
    let share = |count: u64| Cell::from(100.0 * count as f64 / totals.requests.max(1) as f64);
    let row = |name: &str, count: u64| Row::new([Cell::from(name), Cell::from(count as f64), share(count)]);
    let mut rows = vec![
        row("could come from a cache", totals.cacheable),
        row("… of an object that had changed", totals.changed),
        row("… of a part, or cut off", totals.partial),
        row("… without a body (304, HEAD)", totals.without_bytes),
        row("writes", totals.writes),
    ];
    rows.extend(Loader::uncacheable(totals).map(|(reason, count)| row(reason.title(), count)));
    rows.retain(|row| row.cells[1] != Cell::from(0.0));
    Table {
        title: "Requests".to_owned(),
        columns: vec![
            Column::new("Kind", Unit::Number),
            Column::new("Requests", Unit::Count),
            Column::new("Share", Unit::Percent),
        ],
        rows,
    }
}

/// Follows a sample of the objects: for traces that do not fit into memory.
fn execute_sampled(arguments: &SimCurveArgs, objects_max: u32) -> Result<ExitCode> {
    let caches = &arguments.caches;
    let choices = caches.choices(&[PolicyName::Lru.into()]);
    if choices != [PolicyName::Lru.into()] || caches.cards != 1 {
        bail!("a sample gives the curve of LRU for one card; leave --sample out for other policies and several cards");
    }
    let room = arguments.workload.room.0;
    let mut shards = Shards::new(&ShardsConfig { objects_max, room, ..ShardsConfig::default() });
    let mut bytes = 0u64;
    let read = read_sampled(&arguments.trace, &mut shards, &mut bytes)?;
    if shards.requests() == 0 {
        bail!("{}: none of its requests could be answered from a cache", read.traces.join(", "));
    }
    let most = Size(if room == Room::One { shards.requests() } else { bytes }.max(1).next_power_of_two());
    let sizes = caches.sizes.as_ref().map_or_else(
        || sizes_between(Size((most.0 >> (2 * DOUBLINGS)).max(1)), most, PER_DOUBLING),
        |sizes| sizes.0.clone(),
    );
    let estimates = shards.curve(&sizes);
    let report = Report {
        title: "What a card would have answered".to_owned(),
        subtitle: read.traces.join(", "),
        facts: vec![
            Fact::new("Requests", Unit::Count.format(shards.requests() as f64), "that could come from a cache"),
            Fact::new("Sample", figures::show_share(shards.rate()), "of the objects at the end"),
        ],
        sections: vec![Section {
            title: "Cache size, LRU".to_owned(),
            figures: figures::estimates(&estimates, room),
            ..Section::default()
        }],
        footer: "nicache sim curve --sample".to_owned(),
    };
    let json = json!({ "read": read, "requests": shards.requests(), "rate": shards.rate(), "estimates": estimates });
    output::write(&report, &json, &arguments.output)?;
    Ok(ExitCode::SUCCESS)
}

fn read_sampled(options: &TraceOptions, shards: &mut Shards, bytes: &mut u64) -> Result<Read> {
    input::records(options, |record| {
        if sort(record, !options.static_only) == Sort::Cacheable {
            let size = record.bytes.unwrap_or(0);
            *bytes = bytes.saturating_add(size);
            shards.request(record.object, size);
        }
        Ok(())
    })
}
