//! Koch and Doughty 2002, table 1: throughput and bus traffic of 23 configurations.

use anyhow::Result;
use nicache_queueing::table1::{self, Comparison, PAPER};
use nicache_report::{
    Axis, Cell, Column, Fact, Figure, Point, Report, Row, Scale, Section, Series, Style, Table,
    Unit,
};
use serde_json::{Value, json};

use crate::study::progress;

/// Simulates the table.
pub(super) fn reproduce(repetitions: u32) -> Result<(Report, Value)> {
    let bar = progress::bar("simulating", Some(PAPER.len() as u64 * u64::from(repetitions)));
    let rows = table1::reproduce(repetitions, &|done, _| bar.set_position(done as u64))?;
    bar.finish_and_clear();
    let compared = || rows.iter().flat_map(|row| [row.throughput, row.traffic]).flatten();
    let (fitted, predicted): (Vec<Comparison>, Vec<Comparison>) =
        compared().partition(|comparison| comparison.fitted);
    let within = |comparisons: &[Comparison]| {
        format!(
            "{} of {}",
            comparisons.iter().filter(|comparison| comparison.within).count(),
            comparisons.len()
        )
    };
    let report = Report {
        title: "Koch and Doughty 2002, table 1".to_owned(),
        subtitle: format!("{repetitions} runs of each configuration"),
        facts: vec![
            Fact::new("Predicted figures within the band", within(&predicted), "of single runs, 99 %"),
            Fact::new("Fitted figures within the band", within(&fitted), "they set what the paper leaves open"),
            Fact::new(
                "Farthest from the paper",
                compared().map(|c| (c.ours - c.paper).abs()).fold(0.0, f64::max).to_string()
                    .chars().take(4).collect::<String>() + " points",
                "any figure",
            ),
        ],
        sections: vec![Section {
            title: "Against the paper".to_owned(),
            paragraphs: vec![
                "Throughput improvement is the decrease of the mean response time, traffic reduction that of the bytes over the bus in both \
                 directions, each against the baseline. The band is where one more run is with a probability of 99 %: the paper ran each \
                 configuration once."
                    .to_owned(),
            ],
            figures: vec![
                figure("throughput", "Throughput improvement", &rows, |row| row.throughput),
                figure("traffic", "Bus traffic reduction", &rows, |row| row.traffic),
            ],
            tables: vec![table(&rows)],
        }],
        footer: "nicache sim reproduce koch-table1".to_owned(),
    };
    Ok((report, json!({ "study": "koch-table1", "repetitions": repetitions, "rows": rows })))
}

fn figure(
    id: &str,
    title: &str,
    rows: &[table1::Row],
    of: fn(&table1::Row) -> Option<Comparison>,
) -> Figure {
    let rows: Vec<(&str, Comparison)> =
        rows.iter().filter_map(|row| Some((row.name, of(row)?))).collect();
    let points = |value: &dyn Fn(&Comparison) -> Point| {
        rows.iter()
            .enumerate()
            .map(|(at, (_, comparison))| Point { x: at as f64, ..value(comparison) })
            .collect::<Vec<Point>>()
    };
    Figure {
        id: id.to_owned(),
        title: title.to_owned(),
        caption: "Ours with the band of single runs; the paper's single runs as points.".to_owned(),
        x: Axis::of_names("", rows.iter().map(|(name, _)| *name)),
        y: Axis::new(title, Unit::Percent, Scale::Linear),
        series: vec![
            Series {
                name: "ours".to_owned(),
                points: points(&|c| Point::between(0.0, c.ours, c.ours - c.band, c.ours + c.band)),
                style: Style::Bars,
                group: None,
            },
            Series {
                name: "paper".to_owned(),
                points: points(&|c| Point::new(0.0, c.paper)),
                style: Style::Points,
                group: None,
            },
        ],
        marks: Vec::new(),
    }
}

fn table(rows: &[table1::Row]) -> Table {
    let columns = [
        "Simulation",
        "Throughput: paper",
        "ours",
        "band",
        "",
        "Traffic: paper",
        "ours",
        "band",
        "",
    ];
    let cells = |comparison: &Option<Comparison>| match comparison {
        None => [Cell::Missing, Cell::Missing, Cell::Missing, Cell::Missing],
        Some(c) => {
            let verdict = match (c.within, c.fitted) {
                (true, true) => "fitted",
                (true, false) => "predicted",
                (false, true) => "fitted, outside",
                (false, false) => "outside",
            };
            let two = |number: f64| Cell::from(format!("{number:.2}"));
            [two(c.paper), two(c.ours), Cell::from(format!("± {:.2}", c.band)), Cell::from(verdict)]
        }
    };
    let row = |row: &table1::Row| {
        let name = std::iter::once(Cell::from(row.name));
        Row::new(name.chain(cells(&row.throughput)).chain(cells(&row.traffic)))
    };
    Table {
        title: "Percent against the baseline".to_owned(),
        columns: columns.map(|name| Column::new(name, Unit::Number)).into(),
        rows: rows.iter().map(row).collect(),
    }
}
