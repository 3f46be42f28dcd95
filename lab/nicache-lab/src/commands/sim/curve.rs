//! `nicache sim curve`: what caches of many sizes would have done for a trace.

use std::process::ExitCode;

use anyhow::{Result, bail};
use nicache_report::{Fact, Report, Section, Unit};
use nicache_study::{
    Choice, Curve, Loader, PolicyName, Room, Shards, ShardsConfig, Size, Sort, Totals,
    Unit as CacheUnit, Variants, Workload, accesses_of, coded_object, sent_bytes, sizes_between,
    sort, split, sweep,
};
use serde_json::json;

use crate::cli::SimCurveArgs;
use crate::options::study::CacheOptions;
use crate::study::figures::Shown;
use crate::study::input::{Loaded, Read};
use crate::study::{figures, input, output, progress};

/// Policies that are compared unless others are named.
const DEFAULT: [PolicyName; 6] = [
    PolicyName::Lru,
    PolicyName::Sieve,
    PolicyName::S3Fifo,
    PolicyName::Popularity,
    PolicyName::Belady,
    PolicyName::PfooL,
];
/// Sizes to each doubling, and doublings, unless sizes are named.
const PER_DOUBLING: u32 = 4;
const DOUBLINGS: u32 = 10;

/// Plays the trace back.
pub(super) fn execute(arguments: &SimCurveArgs) -> Result<ExitCode> {
    let lru = [Choice::from(PolicyName::Lru)];
    if let Some(objects_max) = arguments.sample
        && arguments.caches.choices(&lru) == lru
        && arguments.caches.cards == 1
    {
        return execute_sampled(arguments, objects_max);
    }
    let loaded = input::load(&arguments.trace, &arguments.workload, arguments.sample)?;
    let choices = arguments.caches.choices(&DEFAULT.map(Choice::from));
    let curves = play(&loaded.workload, &arguments.caches, &choices);
    let shown = Shown::of(&loaded);
    let mut sections = vec![Section {
        title: "Cache size and policy".to_owned(),
        paragraphs: [paragraphs(&loaded, &arguments.caches), shown.notes(&curves)].concat(),
        figures: figures::curves(&curves, &shown),
        tables: figures::tables(&curves, &shown),
    }];
    let mut json = json!({
        "read": loaded.read,
        "totals": loaded.totals,
        "workload": loaded.config,
        "sample_rate": loaded.workload.sampled.map_or(1.0, |sampled| sampled.rate),
        "cards": arguments.caches.cards,
        "footprint": loaded.workload.footprint(),
        "objects": loaded.workload.objects_in_all(),
        "curves": shown.json(&curves)?,
    });
    if let Some(other) = &loaded.without_variants {
        // At the same sizes.
        let sizes = curves
            .first()
            .map(|curve| curve.points.iter().map(|point| point.size).collect::<Vec<_>>());
        let without = play_at(other, &arguments.caches, &choices, sizes.unwrap_or_default());
        sections.push(Section {
            title: "Each target as one object".to_owned(),
            paragraphs: vec![without_variants(&loaded)],
            figures: figures::curves(&without, &shown).into_iter().map(figure_without).collect(),
            tables: figures::tables(&without, &shown),
        });
        json["curves_without_variants"] = shown.json(&without)?;
    }
    sections.push(Section {
        title: "The trace".to_owned(),
        tables: vec![totals_table(&loaded.totals)],
        ..Section::default()
    });
    let report = Report {
        title: "What a card would have answered".to_owned(),
        subtitle: loaded.read.traces.join(", "),
        facts: facts(&loaded),
        sections,
        footer: "nicache sim curve".to_owned(),
    };
    output::write(&report, &json, &arguments.output)?;
    Ok(ExitCode::SUCCESS)
}

/// The figure of the same caches without variants.
pub(crate) fn figure_without(mut figure: nicache_report::Figure) -> nicache_report::Figure {
    figure.id += "-without-variants";
    figure.title += ", without variants";
    figure
}

/// The share of the requests that are for targets with variants, in words.
pub(crate) fn varying_share(loaded: &Loaded) -> String {
    let share = |of: u64| figures::show_share(loaded.totals.varying as f64 / of.max(1) as f64);
    match loaded.workload.sampled {
        Some(_) => format!(
            "{} of the requests that the sample follows",
            share(loaded.workload.accesses.len() as u64)
        ),
        None => format!("{} of all requests", share(loaded.totals.requests)),
    }
}

/// What variants are, and what follows without them.
pub(crate) fn without_variants(loaded: &Loaded) -> String {
    format!(
        "{} are for targets ({} in all) that have replies in several codings or sizes that come back: one file sent packed \
         and plain, for example. Each of these variants is an object of its own. With --variants none, as below, a target is one object: its \
         smaller replies count as parts, its larger ones as changes.",
        varying_share(loaded),
        Unit::Count.format(loaded.totals.varying_targets as f64),
    )
}

/// Plays a workload back against the caches that were asked for.
pub(crate) fn play(workload: &Workload, options: &CacheOptions, choices: &[Choice]) -> Vec<Curve> {
    let sizes =
        options.sizes.as_ref().map_or_else(|| default_sizes(workload), |sizes| sizes.0.clone());
    play_at(workload, options, choices, sizes)
}

/// Plays a workload back against the caches that were asked for, at these sizes.
pub(crate) fn play_at(
    workload: &Workload,
    options: &CacheOptions,
    choices: &[Choice],
    sizes: Vec<Size>,
) -> Vec<Curve> {
    let parts = match options.cards {
        1 => None,
        cards => Some(split(workload, usize::from(cards), options.split.into())),
    };
    let parts = parts.as_deref().unwrap_or_else(|| std::slice::from_ref(workload));
    let threads = options
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
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
    let mut facts = vec![
        Fact::new("Requests", Unit::Count.format(totals.requests as f64), ""),
        Fact::new(
            "Could come from a cache",
            figures::show_share(share),
            "of the requests; a hit rate is of all of them",
        ),
        Fact::new("Objects", Unit::Count.format(loaded.workload.objects_in_all() as f64), ""),
        Fact::new(
            "All of them take",
            figures::show_size(Size(loaded.workload.footprint()), room),
            "",
        ),
        memory_fact(loaded),
    ];
    if let Some(sampled) = loaded.workload.sampled {
        facts.push(Fact::new(
            "Sample",
            figures::show_share(sampled.rate),
            "of the objects: all figures are estimates",
        ));
    }
    facts
}

/// The memory that loading took.
pub(crate) fn memory_fact(loaded: &Loaded) -> Fact {
    let each =
        |count: usize| Unit::Bytes.format((loaded.memory as f64 / count.max(1) as f64).round());
    let (requests, objects) = (loaded.workload.accesses.len(), loaded.workload.objects as usize);
    let held =
        format!("{} for each request held, or {} for each object", each(requests), each(objects));
    Fact::new("Memory of this study", Unit::Bytes.format(loaded.memory as f64), held)
}

fn paragraphs(loaded: &Loaded, options: &CacheOptions) -> Vec<String> {
    let mut paragraphs = Vec::new();
    if options.cards > 1 {
        paragraphs.push(format!(
            "{} cards share the requests, each with a memory of the size shown.",
            options.cards
        ));
    }
    if options.cards > 1
        && options.split == crate::options::study::SplitOption::Objects
        && loaded.config.unit == CacheUnit::Blocks
    {
        paragraphs.push(
            "The blocks of a request are in several cards: a request counts as answered block by block.".to_owned(),
        );
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
pub(crate) fn totals_table(totals: &Totals) -> nicache_report::Table {
    use nicache_report::{Cell, Column, Row, Table};
    let share = |count: u64| Cell::from(100.0 * count as f64 / totals.requests.max(1) as f64);
    let row = |name: &str, count: u64| {
        Row::new([Cell::from(name), Cell::from(count as f64), share(count)])
    };
    let mut rows = vec![
        row("could come from a cache", totals.cacheable),
        row("… of an object that had changed", totals.changed),
        row("… of a part, or cut off", totals.partial),
        row("… without a body (304, HEAD)", totals.without_bytes),
        row("… of a target with variants", totals.varying),
        row("… of 4 GiB or more, taken as 4 GiB", totals.huge),
        row("writes", totals.writes),
    ];
    rows.extend(Loader::uncacheable(totals).map(|(reason, count)| row(reason.title(), count)));
    rows.retain(|row| row.cells[1] != Cell::from(0.0));
    Table {
        title: "Requests".to_owned(),
        columns: vec![
            Column::new("Kind", Unit::Number),
            Column::new("Requests", Unit::Count),
            Column::new("Share of all", Unit::Percent),
        ],
        rows,
    }
}

/// Follows a sample of the objects: for traces that do not fit into memory. Replies are objects of
/// the size that was sent; where the log tells codings, each is an object of its own.
fn execute_sampled(arguments: &SimCurveArgs, objects_max: u32) -> Result<ExitCode> {
    let room = arguments.workload.room.0;
    let mut shards = Shards::new(&ShardsConfig { objects_max, room, ..ShardsConfig::default() });
    let (read, totals) = read_sampled(arguments, &mut shards)?;
    if shards.requests() == 0 {
        bail!("{}: none of its requests could be answered from a cache", read.traces.join(", "));
    }
    let bytes = u64::try_from(totals.cacheable_bytes).unwrap_or(u64::MAX);
    let most = if room == Room::One { shards.requests() } else { bytes }.max(1);
    let most = Size(most.checked_next_power_of_two().unwrap_or(1 << 63));
    let sizes = arguments.caches.sizes.as_ref().map_or_else(
        || sizes_between(Size((most.0 >> (2 * DOUBLINGS)).max(1)), most, PER_DOUBLING),
        |sizes| sizes.0.clone(),
    );
    let estimates = shards.curve(&sizes);
    let cacheable = figures::show_share(totals.cacheable as f64 / totals.requests.max(1) as f64);
    let report = Report {
        title: "What a card would have answered".to_owned(),
        subtitle: read.traces.join(", "),
        facts: vec![
            Fact::new("Requests", Unit::Count.format(totals.requests as f64), ""),
            Fact::new(
                "Could come from a cache",
                cacheable,
                "of the requests; a hit rate is of all of them",
            ),
            Fact::new("Sample", figures::show_share(shards.rate()), "of the objects at the end"),
        ],
        sections: vec![Section {
            title: "Cache size, LRU".to_owned(),
            figures: figures::estimates(&estimates, room, &totals),
            ..Section::default()
        }],
        footer: "nicache sim curve --sample".to_owned(),
    };
    let json = json!({
        "read": read, "totals": totals, "requests": shards.requests(), "rate": shards.rate(),
        "estimates": estimates,
    });
    output::write(&report, &json, &arguments.output)?;
    Ok(ExitCode::SUCCESS)
}

fn read_sampled(arguments: &SimCurveArgs, shards: &mut Shards) -> Result<(Read, Totals)> {
    let by_coding =
        matches!(Variants::from(arguments.workload.variants), Variants::Auto | Variants::Coding);
    let mut totals = Totals::default();
    let read = input::records(&arguments.trace, |record, format| {
        if format.is_of_blocks()
            && arguments.workload.unit.is_none_or(|unit| CacheUnit::from(unit) == CacheUnit::Blocks)
        {
            bail!(
                "a sample follows objects, and {format} is studied in blocks: make each block an object first, with \
                 `nicache trace convert --unit blocks`"
            );
        }
        let bytes = sent_bytes(record);
        totals.requests += 1;
        totals.bytes += u128::from(bytes);
        if sort(record, !arguments.trace.static_only) == Sort::Cacheable {
            totals.cacheable += 1;
            totals.cacheable_bytes += u128::from(bytes);
            shards.request(if by_coding { coded_object(record) } else { record.object }, bytes);
        }
        Ok(())
    })?;
    Ok((read, totals))
}
