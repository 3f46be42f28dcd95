//! `nicache sim server`: a server with a network processor as a queueing network.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use nicache_queueing::{
    Config, Dump, DumpFormat, Interval, Summary, Time, TraceRequest, run_observed, run_seeds,
    run_trace,
};
use nicache_report::{
    Axis, Cell, Column, Fact, Figure, Point, Report, Row, Scale, Section, Series, Style, Table,
    Unit,
};
use nicache_study::{Sort, coded_object, sent_bytes, sort};
use serde_json::json;

use crate::cli::SimServerArgs;
use crate::options::study::TraceOptions;
use crate::study::{input, output, progress};

/// A configuration and what came out.
struct Run {
    name: String,
    config: Config,
    summary: Summary,
}

/// Runs each configuration with each seed.
pub(super) fn execute(arguments: &SimServerArgs) -> Result<ExitCode> {
    if arguments.list {
        Config::names().for_each(|name| println!("{name}"));
        return Ok(ExitCode::SUCCESS);
    }
    let configs = arguments.configurations.iter().map(|name| Ok((name.clone(), read(name)?)));
    let configs = configs.collect::<Result<Vec<(String, Config)>>>()?;
    if arguments.show {
        for (_, config) in &configs {
            println!("{}", toml::to_string(config)?);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let trace = arguments.trace.as_deref().map(read_trace).transpose()?;
    if let Some(path) = &arguments.dump {
        let [(_, config)] = &configs[..] else {
            bail!("a dump is of one configuration; name only one")
        };
        dump(path, config, trace.as_deref(), arguments)?;
    }
    let seeds: Vec<u64> =
        (0..u64::from(arguments.seeds)).map(|at| arguments.seed.wrapping_add(at)).collect();
    let mut runs = Vec::new();
    for (name, config) in configs {
        let summary = match &trace {
            None => {
                let bar = progress::bar(&name, Some(seeds.len() as u64));
                let threads = std::thread::available_parallelism().map_or(1, usize::from);
                let summary = run_seeds(&config, &seeds, threads, &|_, _| bar.inc(1));
                bar.finish_and_clear();
                summary.with_context(|| name.clone())?
            }
            Some(trace) => {
                let run =
                    |seed: &u64| run_trace(&config, trace, *seed, &mut nicache_queueing::Deaf);
                Summary::of(
                    seeds
                        .iter()
                        .map(run)
                        .collect::<Result<_, _>>()
                        .with_context(|| name.clone())?,
                )
            }
        };
        runs.push(Run { name, config, summary });
    }
    let json: Vec<_> = runs
        .iter()
        .map(|run| json!({ "name": run.name, "config": run.config, "summary": run.summary }))
        .collect();
    output::write(&report(&runs), &json!({ "runs": json }), &arguments.output)?;
    Ok(ExitCode::SUCCESS)
}

/// A file, or one that comes with the program.
fn read(name: &str) -> Result<Config> {
    let path = Path::new(name);
    if path.exists() || name.ends_with(".toml") {
        return Ok(Config::from_file(path)?);
    }
    Ok(Config::named(name)?)
}

fn read_trace(path: &Path) -> Result<Vec<TraceRequest>> {
    let options = TraceOptions {
        traces: vec![path.to_owned()],
        format: None,
        first: None,
        static_only: false,
    };
    let mut requests: Vec<TraceRequest> = Vec::new();
    let mut first_us = None;
    input::records(&options, |record, _| {
        if sort(record, true) == Sort::Cacheable {
            let since_us = record.time_us.saturating_sub(*first_us.get_or_insert(record.time_us));
            let time = Time::from_seconds(since_us as f64 / 1e6)
                .max(requests.last().map_or(Time(0), |last| last.time));
            let bytes = u32::try_from(sent_bytes(record)).unwrap_or(u32::MAX);
            requests.push(TraceRequest { time, id: coded_object(record), bytes });
        }
        Ok(())
    })?;
    Ok(requests)
}

fn dump(
    path: &Path,
    config: &Config,
    trace: Option<&[TraceRequest]>,
    arguments: &SimServerArgs,
) -> Result<()> {
    let failed = || format!("cannot write {}", path.display());
    let format =
        if path.extension().is_some_and(|extension| extension == "jsonl" || extension == "json") {
            DumpFormat::JsonLines
        } else {
            DumpFormat::Text
        };
    let mut dump = Dump::new(BufWriter::new(File::create(path).with_context(failed)?), format);
    match trace {
        Some(trace) => run_trace(config, trace, arguments.seed, &mut dump)?,
        None => run_observed(config, arguments.seed, &mut dump)?,
    };
    dump.finish().with_context(failed)?;
    Ok(())
}

/// A column of a table: its name, its unit, and the figure with its interval.
type Measure = (&'static str, Unit, fn(&Summary) -> (f64, f64));

fn of(interval: &Interval, factor: f64) -> (f64, f64) {
    (interval.mean * factor, interval.half_width * factor)
}

const MEASURES: [Measure; 7] = [
    ("Mean response", Unit::Seconds, |summary| of(&summary.response_mean_ns, 1e-9)),
    ("Median", Unit::Seconds, |summary| of(&summary.response_p50_ns, 1e-9)),
    ("99 %", Unit::Seconds, |summary| of(&summary.response_p99_ns, 1e-9)),
    ("Hits", Unit::Percent, |summary| of(&summary.hit_ratio, 100.0)),
    ("Requests per second", Unit::Count, |summary| of(&summary.throughput_per_s, 1.0)),
    ("Bytes to the host", Unit::Bytes, |summary| of(&summary.bus_to_host_bytes, 1.0)),
    ("Bytes to the card", Unit::Bytes, |summary| of(&summary.bus_to_card_bytes, 1.0)),
];

fn report(runs: &[Run]) -> Report {
    let mut results = Table {
        title: "Results".to_owned(),
        columns: vec![Column::new("Configuration", Unit::Number)],
        rows: Vec::new(),
    };
    let mut intervals = Table { title: "Half of the 95 % intervals".to_owned(), ..results.clone() };
    for (name, unit, _) in MEASURES {
        results.columns.push(Column::new(name, unit));
        intervals.columns.push(Column::new(name, unit));
    }
    results.columns.push(Column::new("Bottleneck", Unit::Number));
    for run in runs {
        let figures = MEASURES.map(|(_, _, measure)| measure(&run.summary));
        let named = || std::iter::once(Cell::from(run.name.clone()));
        let bottleneck = std::iter::once(Cell::from(run.summary.bottleneck.name()));
        results.rows.push(Row::new(
            named().chain(figures.map(|(mean, _)| Cell::from(mean))).chain(bottleneck),
        ));
        intervals.rows.push(Row::new(named().chain(figures.map(|(_, half)| Cell::from(half)))));
    }
    let first = &runs[0].summary;
    Report {
        title: "A server with a network processor that caches".to_owned(),
        subtitle: runs.iter().map(|run| run.name.clone()).collect::<Vec<_>>().join(", "),
        facts: vec![
            Fact::new("Mean response", Unit::Seconds.format(first.response_mean_ns.mean * 1e-9),
                runs[0].name.clone()),
            Fact::new("Hits", Unit::Percent.format(100.0 * first.hit_ratio.mean),
                runs[0].name.clone()),
            Fact::new("Bottleneck", first.bottleneck.name(), runs[0].name.clone()),
        ],
        sections: vec![
            Section { title: "Runs".to_owned(), tables: vec![results, intervals],
                ..Section::default() },
            Section {
                title: "Stations".to_owned(),
                paragraphs: vec![
                    "How much of the time each is at work. The bottleneck is the one that would be full first."
                        .to_owned(),
                ],
                figures: vec![utilisation(runs)],
                tables: runs.iter().map(stations).collect(),
            },
        ],
        footer: "nicache sim server".to_owned(),
    }
}

fn utilisation(runs: &[Run]) -> Figure {
    let names = runs[0].summary.stations.iter().map(|station| station.component.name());
    let series = runs.iter().map(|run| Series {
        name: run.name.clone(),
        points: (run.summary.stations.iter().enumerate())
            .map(|(at, station)| {
                let Interval { mean, half_width, .. } = station.utilisation;
                Point::between(
                    at as f64,
                    100.0 * mean,
                    100.0 * (mean - half_width),
                    100.0 * (mean + half_width),
                )
            })
            .collect(),
        style: Style::Bars,
        group: None,
    });
    Figure {
        id: "utilisation".to_owned(),
        title: "Utilisation".to_owned(),
        caption: String::new(),
        x: Axis::of_names("", names),
        y: Axis { min: Some(0.0), ..Axis::new("Of the time", Unit::Percent, Scale::Linear) },
        series: series.collect(),
        marks: Vec::new(),
    }
}

fn stations(run: &Run) -> Table {
    let columns = vec![
        Column::new("Station", Unit::Number),
        Column::new("Utilisation", Unit::Percent),
        Column::new("Waiting, mean", Unit::Number),
        Column::new("Wait, mean", Unit::Seconds),
    ];
    let rows = run.summary.stations.iter().map(|station| {
        Row::new([
            Cell::from(station.component.name()),
            Cell::from(100.0 * station.utilisation.mean),
            Cell::from(station.queue_mean.mean),
            Cell::from(station.wait_mean_ns.mean * 1e-9),
        ])
    });
    Table { title: run.name.clone(), rows: rows.collect(), columns }
}
