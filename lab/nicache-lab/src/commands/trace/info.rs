//! `nicache trace info`: what is in a trace.

use std::process::ExitCode;

use anyhow::Result;
use nicache_report::{
    Axis, Cell, Column, Fact, Figure, Report, Row, Scale, Section, Series, Style, Table, Unit,
};
use nicache_study::{
    Choice, Curve, Objective, PERCENTILES, PolicyName, Size, Summary, sizes_between, sweep,
};
use serde_json::json;

use crate::cli::TraceInfoArgs;
use crate::commands::sim::{memory_fact, totals_table};
use crate::study::figures::Shown;
use crate::study::input::Loaded;
use crate::study::{figures, input, output};

/// Shares of the requests that find their object again for which the memory is told.
const REUSE: [f64; 5] = [0.25, 0.5, 0.75, 0.9, 0.99];

/// Counts, and shows what there is.
pub(super) fn execute(arguments: &TraceInfoArgs) -> Result<ExitCode> {
    let (loaded, summary) =
        input::load_and_count(&arguments.trace, &arguments.workload, arguments.sample)?;
    let lru = reuse_curve(&loaded);
    let reuse = reuse(&lru);
    let mut json = serde_json::to_value(&summary)?;
    json["read"] = serde_json::to_value(&loaded.read)?;
    json["totals"] = serde_json::to_value(loaded.totals)?;
    json["reuse"] = json!(
        reuse
            .iter()
            .map(|(share, size)| json!({ "share": share, "size": size }))
            .collect::<Vec<_>>()
    );
    output::write(&report(&loaded, &summary, &lru, &reuse), &json, &arguments.output)?;
    Ok(ExitCode::SUCCESS)
}

/// Hits of LRU by size, finely: the distribution of reuse distances.
fn reuse_curve(loaded: &Loaded) -> Curve {
    let most = Size(loaded.workload.footprint().max(1));
    let sizes = sizes_between(Size((most.0 >> 16).max(1)), most, 16);
    let lru = [Choice::from(PolicyName::Lru)];
    sweep(std::slice::from_ref(&loaded.workload), &lru, &sizes, 2, &|_| {}).remove(0)
}

/// The memory within which these shares of all reuses lie.
fn reuse(curve: &Curve) -> Vec<(f64, Size)> {
    let most = curve.points.last().map_or(0.0, |point| point.counts.hits as f64);
    let size_of = |share: &f64| {
        let point = curve.points.iter().find(|point| point.counts.hits as f64 >= share * most)?;
        Some((*share, point.size))
    };
    if most == 0.0 { Vec::new() } else { REUSE.iter().filter_map(size_of).collect() }
}

fn report(loaded: &Loaded, summary: &Summary, lru: &Curve, reuse: &[(f64, Size)]) -> Report {
    let counts = &summary.counts;
    let shown = Shown::of(loaded);
    let first_uses = lru.points.last().map_or(0, |point| point.counts.misses());
    let mut facts = vec![
        Fact::new(
            "Requests",
            Unit::Count.format(counts.requests as f64),
            format!("of {} clients", Unit::Count.format(summary.clients as f64)),
        ),
        Fact::new("Bytes sent", Unit::Bytes.format(counts.bytes as f64), show_span(summary)),
        Fact::new(
            "Objects",
            Unit::Count.format(summary.objects as f64),
            format!("{} of them asked for once", Unit::Count.format(summary.objects_once as f64)),
        ),
        Fact::new(
            "Footprint",
            Unit::Bytes.format(summary.footprint_bytes as f64),
            "all objects at their largest",
        ),
        Fact::new(
            "Best hit rate",
            figures::show_share(
                lru.points.last().map_or(0.0, |point| shown.rate(Objective::Requests, point)),
            ),
            format!(
                "of all requests, with room for everything; {} that could be hits are first ones",
                Unit::Count.format(first_uses as f64)
            ),
        ),
    ];
    facts.push(memory_fact(loaded));
    if summary.sample_rate < 1.0 {
        let rate = figures::show_share(summary.sample_rate);
        facts.push(Fact::new(
            "Sample",
            rate,
            "of the objects: what is said of objects and clients is an estimate",
        ));
    }
    if let Some(zipf) = summary.zipf {
        facts.push(Fact::new(
            "Popularity",
            format!("rank^-{:.2}", zipf.exponent),
            format!("R² {:.2}", zipf.r_squared),
        ));
    }
    let kinds =
        Table {
            title: "What is asked for".to_owned(),
            columns: vec![
                Column::new("Kind", Unit::Number),
                Column::new("Requests", Unit::Count),
                Column::new("Share of all", Unit::Percent),
            ],
            rows: [
                ("GET, reads", counts.gets),
                ("HEAD", counts.heads),
                ("writes", counts.writes),
                ("other methods", counts.others),
                ("dynamic: with a query, or of a program", counts.dynamic),
                ("private: with a user, setting a cookie, marked so", counts.private),
                ("with a cookie", counts.with_cookie),
            ]
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| row(name, count, counts.requests))
            .chain(
                summary.statuses.iter().filter(|(status, _)| *status != 0).map(
                    |(status, count)| row(&format!("status {status}"), *count, counts.requests),
                ),
            )
            .collect(),
        };
    let top = Table {
        title: if summary.sample_rate < 1.0 {
            "The most popular objects of the sample"
        } else {
            "The most popular objects"
        }
        .to_owned(),
        columns: vec![
            Column::new("Object", Unit::Number),
            Column::new("Requests", Unit::Count),
            Column::new("Share of all", Unit::Percent),
            Column::new("Size", Unit::Bytes),
        ],
        rows: summary
            .top
            .iter()
            .map(|object| {
                let requests = u64::from(object.requests);
                let mut row = row(&shorten(&object.name), requests, counts.requests);
                row.cells.push(Cell::from(object.bytes as f64));
                row
            })
            .collect(),
    };
    let sizes = Table {
        title: "Sizes of objects".to_owned(),
        columns: vec![
            Column::new("Share of the objects", Unit::Percent),
            Column::new("Not larger than", Unit::Bytes),
        ],
        rows: PERCENTILES
            .iter()
            .zip(summary.object_bytes)
            .map(|(share, bytes)| Row::new([Cell::from(100.0 * share), Cell::from(bytes as f64)]))
            .collect(),
    };
    let popular = Table {
        title: "How popularity is spread".to_owned(),
        columns: vec![
            Column::new("The most popular", Unit::Percent),
            Column::new("Share of the requests that could come from a cache", Unit::Percent),
        ],
        rows: [1.0, 10.0, 20.0]
            .iter()
            .zip(summary.top_shares)
            .map(|(top, share)| Row::new([Cell::from(*top), Cell::from(100.0 * share)]))
            .collect(),
    };
    let distances = Table {
        title: "How far uses of an object are apart".to_owned(),
        columns: vec![
            Column::new("Share of the reuses", Unit::Percent),
            Column::new("Within a memory of", figures::size_axis(loaded.workload.room).unit),
        ],
        rows: reuse
            .iter()
            .map(|(share, size)| Row::new([Cell::from(100.0 * share), Cell::from(size.0 as f64)]))
            .collect(),
    };
    Report {
        title: "What is in the trace".to_owned(),
        subtitle: format!("{} ({})", loaded.read.traces.join(", "), loaded.read.formats.join(", ")),
        facts,
        sections: vec![
            Section {
                title: "Requests".to_owned(),
                paragraphs: Vec::new(),
                figures: rate_figure(summary).into_iter().collect(),
                tables: vec![kinds, totals_table(&loaded.totals)],
            },
            Section {
                title: "Objects".to_owned(),
                paragraphs: Vec::new(),
                figures: vec![reuse_figure(lru, loaded)],
                tables: vec![popular, top, sizes, distances],
            },
        ],
        footer: "nicache trace info".to_owned(),
    }
}

fn row(name: &str, count: u64, of: u64) -> Row {
    Row::new([
        Cell::from(name),
        Cell::from(count as f64),
        Cell::from(100.0 * count as f64 / of.max(1) as f64),
    ])
}

/// Long targets are cut in the middle: their ends tell more.
fn shorten(name: &str) -> String {
    const LENGTH: usize = 60;
    let characters: Vec<char> = name.chars().collect();
    if characters.len() <= LENGTH {
        return name.to_owned();
    }
    let (start, end) =
        (&characters[..LENGTH / 2], &characters[characters.len() - LENGTH / 2 + 1..]);
    start.iter().chain(&['…']).chain(end).collect()
}

fn show_span(summary: &Summary) -> String {
    if summary.span_s == 0.0 {
        return String::new();
    }
    let (number, unit) = match summary.span_s {
        s if s >= 2.0 * 86_400.0 => (s / 86_400.0, "days"),
        s if s >= 2.0 * 3600.0 => (s / 3600.0, "hours"),
        s if s >= 120.0 => (s / 60.0, "minutes"),
        s => (s, "seconds"),
    };
    format!("in {number:.1} {unit}")
}

fn rate_figure(summary: &Summary) -> Option<Figure> {
    if summary.span_s < 2.0 || summary.rates.len() < 3 {
        return None;
    }
    let hours = summary.span_s / 3600.0;
    let points = summary
        .rates
        .iter()
        .enumerate()
        .map(|(at, rate)| (hours * at as f64 / summary.rates.len() as f64, *rate));
    Some(Figure {
        id: "rate".to_owned(),
        title: "Requests over time".to_owned(),
        caption: format!(
            "Most in one second: {}.",
            Unit::Count.format(f64::from(summary.peak_per_s))
        ),
        x: Axis::new("Hours since the first request", Unit::Number, Scale::Linear),
        y: Axis { min: Some(0.0), ..Axis::new("Requests per second", Unit::Number, Scale::Linear) },
        series: vec![Series::line("requests", points).styled(Style::Steps)],
        marks: Vec::new(),
    })
}

fn reuse_figure(lru: &Curve, loaded: &Loaded) -> Figure {
    let mut figure = figures::curves(std::slice::from_ref(lru), &Shown::of(loaded)).remove(0);
    figure.id = "reuse".to_owned();
    figure.title =
        "Reuse: share of the requests whose object was used within so much memory before"
            .to_owned();
    figure.caption =
        "The room of all objects used since the last use, which is what LRU needs to keep it."
            .to_owned();
    figure.y.label = "Share of all requests".to_owned();
    figure
}
