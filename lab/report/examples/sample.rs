//! A report of invented but realistic results, in every output: `cargo run -p nicache-report
//! --example sample FOLDER`.
//!
//! Miss ratios follow a Zipf-like popularity (Breslau et al., "Web Caching and Zipf-like
//! Distributions", 1999): the ratio falls about with the logarithm of the cache's size until the
//! whole site fits.

use std::path::PathBuf;

use nicache_report::{
    Axis, Cell, Column, Fact, Figure, Mark, Point, Report, Row, Scale, Section, Series, Size,
    Style, Table, Terminal, Unit, figure_csv, html, png, report_text, svg, table_csv,
};

const MB: f64 = 1_048_576.0;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("usage: sample FOLDER")?);
    std::fs::create_dir_all(&folder)?;
    let report = sample();
    std::fs::write(folder.join("report.html"), html(&report))?;
    for figure in report.sections.iter().flat_map(|section| &section.figures) {
        std::fs::write(folder.join(format!("{}.svg", figure.id)), svg(figure, Size::PAGE))?;
        std::fs::write(folder.join(format!("{}.png", figure.id)), png(figure, Size::PAGE, 2.0)?)?;
        std::fs::write(
            folder.join(format!("{}-column.png", figure.id)),
            png(figure, Size::COLUMN, 2.0)?,
        )?;
        std::fs::write(folder.join(format!("{}.csv", figure.id)), figure_csv(figure))?;
    }
    for (index, table) in report.sections.iter().flat_map(|section| &section.tables).enumerate() {
        std::fs::write(folder.join(format!("table-{index}.csv")), table_csv(table))?;
    }
    print!("{}", report_text(&report, &Terminal::default()));
    Ok(())
}

/// Sizes from 1 MB to 1 GB, `steps` of them for each doubling.
fn sizes(steps: u32) -> impl Iterator<Item = f64> {
    (0..=10 * steps).map(move |step| MB * 2_f64.powf(f64::from(step) / f64::from(steps)))
}

/// A miss ratio in percent: it falls with the logarithm of the size to `floor`, with a knee at
/// `knee` bytes.
fn misses(size: f64, floor: f64, slope: f64, knee: f64, sharpness: f64) -> f64 {
    let falling = 100.0 - slope * (size / MB).log2() - 6.0;
    let after = floor + (falling - floor) / (1.0 + (size / knee).powf(sharpness));
    after.clamp(floor, 100.0)
}

/// The report.
pub(crate) fn sample() -> Report {
    Report {
        title: "Miss ratios of a web site's trace".into(),
        subtitle: "WorldCup 98, day 46 · 7 000 000 requests for 15 788 objects of 312 MB · simulated, seed 7".into(),
        facts: vec![
            Fact::new("Miss ratio", "21.4 %", "popularity, 64 MB"),
            Fact::new("Less than LRU's", "−6.2 points", "at the same size"),
            Fact::new("Knee", "24 MB", "more memory gains less"),
            Fact::new("Simulated", "4.1 M/s", "requests, one core"),
        ],
        sections: vec![
            Section {
                title: "How much memory is worth it".into(),
                paragraphs: vec![
                    "Each curve is one replacement policy over all sizes of card memory. The band around the sampled \
                     curve is where nine of ten samples lie."
                        .into(),
                ],
                figures: vec![curves(), rates()],
                tables: vec![ratios()],
            },
            Section {
                title: "Where the time goes".into(),
                paragraphs: vec!["Latencies of replies behind the card, and of the bare server.".into()],
                figures: vec![latencies(), traffic()],
                tables: Vec::new(),
            },
        ],
        footer: "nicache sim --trace wc_day46.gz --policies lru,lfu,popularity,s3-fifo --seed 7 · nicache 0.1.0".into(),
    }
}

fn curves() -> Figure {
    let curve = |name: &str, floor, slope, knee, sharpness| {
        Series::line(name, sizes(8).map(|size| (size, misses(size, floor, slope, knee, sharpness))))
    };
    let band = |size: f64| {
        let middle = misses(size, 3.1, 7.0, 60.0 * MB, 1.3);
        let spread = 1.0 + 5.0 / (size / MB).log2().max(1.0);
        Point::between(size, middle, middle - spread, middle + spread)
    };
    let sampled = Series {
        name: "LRU, sampled".into(),
        points: sizes(2).map(band).collect(),
        style: Style::Dashed,
        group: Some("LRU".into()),
    };
    Figure {
        id: "miss-ratio".into(),
        title: "Miss ratio by size of card memory".into(),
        caption: "Popularity needs a third of LRU's memory for the same miss ratio up to the knee. Dashed: LRU from a \
                  sample of every hundredth object."
            .into(),
        x: Axis::new("Card memory", Unit::Bytes, Scale::Log2),
        y: Axis::new("Miss ratio", Unit::Percent, Scale::Linear),
        series: vec![
            curve("LRU", 3.0, 6.6, 60.0 * MB, 1.25).grouped("LRU"),
            sampled,
            curve("FIFO", 3.0, 5.6, 90.0 * MB, 1.2),
            curve("S3-FIFO", 2.9, 8.2, 40.0 * MB, 1.2),
            curve("Popularity", 2.8, 9.5, 24.0 * MB, 1.1),
            curve("Belady", 2.8, 10.5, 10.0 * MB, 1.0),
        ],
        marks: vec![Mark::x(24.0 * MB, "knee: 24 MB"), Mark::x(312.0 * MB, "all of the site")],
    }
}

fn rates() -> Figure {
    Figure {
        id: "saved".into(),
        title: "Bytes that do not cross the bus".into(),
        caption: "Of all bytes sent to clients, at two sizes of card memory; the bars show the spread of five seeds."
            .into(),
        x: Axis::of_names("", ["LRU", "FIFO", "S3-FIFO", "Popularity", "Belady"]),
        y: Axis::new("Bytes saved", Unit::Percent, Scale::Linear),
        series: [("16 MB", [41.2, 36.0, 47.9, 52.3, 58.8]),
            ("64 MB", [66.0, 61.7, 71.3, 74.8, 78.1])]
            .into_iter()
            .map(|(name, values)| Series {
                name: name.into(),
                points: (0..).zip(values)
                    .map(|(x, y)| Point::between(f64::from(x), y, y - 1.8, y + 1.4)).collect(),
                style: Style::Bars,
                group: None,
            })
            .collect(),
        marks: Vec::new(),
    }
}

fn latencies() -> Figure {
    let share = |latency: f64, middle: f64, width: f64| {
        100.0 / (1.0 + (-(latency / middle).ln() / width).exp())
    };
    let grid = || (0..=80).map(|step| 1e-5 * 10_f64.powf(f64::from(step) / 20.0));
    let steps = |name: &str, middle: f64, width: f64| {
        Series::line(name, grid().map(|latency| (latency, share(latency, middle, width))))
            .styled(Style::Steps)
    };
    Figure {
        id: "latency".into(),
        title: "Latency of replies".into(),
        caption: "Share of replies that came within a time.".into(),
        x: Axis::new("Latency", Unit::Seconds, Scale::Log10),
        y: Axis::new("Replies within", Unit::Percent, Scale::Linear).between(0.0, 100.0),
        series: vec![
            steps("card, hit", 2.3e-5, 0.18),
            steps("card, miss", 2.1e-4, 0.35),
            steps("bare server", 8.9e-5, 0.25),
        ],
        marks: vec![Mark::y(99.0, "99 %")],
    }
}

fn traffic() -> Figure {
    let noise = |step: f64| (step * 12.9898).sin() * 43_758.545_3 % 1.0;
    let requests = |hour: f64| {
        52_000.0
            + 41_000.0 * ((hour - 9.0) / 24.0 * std::f64::consts::TAU).sin()
            + 9000.0 * noise(hour)
    };
    Figure {
        id: "traffic".into(),
        title: "Requests over the day".into(),
        caption: "Per five minutes.".into(),
        x: Axis::new("Hours", Unit::Number, Scale::Linear).between(0.0, 24.0),
        y: Axis::new("Requests", Unit::Count, Scale::Linear),
        series: vec![Series::line(
            "Requests",
            (0..=288).map(|step| {
                (f64::from(step) / 12.0, requests(f64::from(step) / 12.0).max(0.0).round())
            }),
        )],
        marks: Vec::new(),
    }
}

fn ratios() -> Table {
    let row = |name: &str, values: [Option<f64>; 3], requests: f64, note: &str| {
        let mut cells: Vec<Cell> = vec![name.into()];
        cells.extend(values.map(Cell::from));
        cells.extend([Cell::from(requests), Cell::from(note)]);
        cells
    };
    Table {
        title: "Miss ratio by policy and size".into(),
        columns: vec![
            Column::new("Policy", Unit::Number),
            Column::new("16 MB", Unit::Percent),
            Column::new("64 MB", Unit::Percent),
            Column::new("256 MB", Unit::Percent),
            Column::new("Requests per second", Unit::Count),
            Column::new("Memory for each object", Unit::Number),
        ],
        rows: vec![
            Row::new(row("FIFO", [Some(70.1), Some(46.2), Some(20.9)], 6_120_400.0, "24 B")),
            Row::new(row("LRU", [Some(62.0), Some(27.6), Some(9.1)], 5_211_000.0, "36 to 40 B")),
            Row::new(row("S3-FIFO", [Some(55.5), Some(24.0), Some(7.3)], 5_874_250.0, "30 B")),
            Row::highlighted(row(
                "Popularity",
                [Some(48.8), Some(21.4), Some(6.0)],
                4_100_000.0,
                "44 B",
            )),
            Row::new(row(
                "Belady",
                [Some(41.0), Some(18.7), None],
                1_250_000.0,
                "knows the future",
            )),
        ],
    }
}
