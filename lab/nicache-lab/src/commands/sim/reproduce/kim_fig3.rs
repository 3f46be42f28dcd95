//! Kim et al. 2002, section 3 and figure 3: content that stays off the bus with caches of blocks of
//! 4 KB.

use nicache_report::{
    Axis, Cell, Column, Fact, Figure, Report, Row, Scale, Section, Series, Style, Table, Unit,
};
use nicache_study::{
    Choice, Curve, Objective, PolicyName, Room, Size, SplitBy, Workload, sizes_between, split,
    sweep,
};
use serde_json::{Value, json};

use super::named::Named;
use crate::study::figures;

/// The paper's figure ends there.
const LEAST: Size = Size(64 << 10);
const MOST: Size = Size(16 << 20);
/// Sizes of the tables.
const SHOWN: [Size; 5] =
    [Size(1 << 20), Size(2 << 20), Size(4 << 20), Size(8 << 20), Size(16 << 20)];
/// What the paper says of figure 3 in words (section 3).
const PAPER: [(&str, &str, &str); 5] = [
    ("World Cup, IBM", "2 MB", "more than 35 %"),
    ("NASA, Rice", "8 MB", "40 to 45 %"),
    ("World Cup, IBM, NASA, Rice", "two of 16 MB", "52 to 84 %"),
    ("Berkeley", "two of 16 MB", "12 %"),
    (
        "all",
        "any",
        "LFU slightly better than LRU, FIFO slightly worse; two caches slightly worse than one of their size",
    ),
];
/// Parts of a trace that are played back to see what its length does.
const PARTS: [f64; 5] = [0.125, 0.25, 0.5, 0.75, 1.0];

/// Plays the traces back.
pub(super) fn reproduce(traces: &[Named]) -> (Report, Value) {
    let studies: Vec<Study> = traces.iter().map(Study::of).collect();
    let mut sections = vec![Section {
        title: "Content that stays off the bus".to_owned(),
        paragraphs: vec![
            "LRU caches of 4 KB blocks. Solid: one cache; dashed: two caches, each of the size shown, that get every other request."
                .to_owned(),
        ],
        figures: vec![figure(&studies)],
        tables: vec![by_size(&studies), paper()],
    }];
    sections.push(Section {
        title: "LFU and FIFO against LRU".to_owned(),
        paragraphs: vec![
            "Points of the content, more or less than LRU with one cache. Plain LFU counts for ever, and keeps what was popular once; LFU-DA \
             is the same with ageing."
                .to_owned(),
        ],
        tables: vec![policies(&studies)],
        ..Section::default()
    });
    sections.push(Section {
        title: "What the length of a trace does".to_owned(),
        paragraphs: vec![
            "A block that was never sent before crosses the bus whatever the cache. The first columns play back only the first part of the \
             trace; the last two count only its second half, and tell how much of that half's content was never sent before."
                .to_owned(),
        ],
        tables: studies.iter().map(Study::lengths).collect(),
        ..Section::default()
    });
    let report = Report {
        title: "Kim et al. 2002, figure 3".to_owned(),
        subtitle: traces.iter().map(|trace| trace.name.clone()).collect::<Vec<_>>().join(", "),
        facts: studies
            .iter()
            .map(|study| {
                Fact::new(
                    format!("{}, 16 MB", study.name),
                    percent(&study.one, MOST),
                    "of the content, one cache",
                )
            })
            .collect(),
        sections,
        footer: "nicache sim reproduce kim-fig3".to_owned(),
    };
    let json = json!(
        { "study": "kim-fig3", "traces": studies.iter().map(Study::json).collect::<Vec<_>>() });
    (report, json)
}

struct Study {
    name: String,
    one: Curve,
    two: Curve,
    lfu: Curve,
    lfu_da: Curve,
    fifo: Curve,
    /// For each part of the trace, the shares at [`SHOWN`].
    parts: Vec<Curve>,
    second_half: Curve,
    /// Share of the second half's content that was never sent before.
    new_in_second_half: f64,
}

impl Study {
    fn of(trace: &Named) -> Self {
        let workload = &trace.workload;
        let sizes = sizes_between(LEAST, MOST, 4);
        let play = |parts: &[Workload], policy: PolicyName, sizes: &[Size]| {
            sweep(parts, &[Choice::from(policy)], sizes, 2, &|_| {}).remove(0)
        };
        let whole = std::slice::from_ref(workload);
        let part = |share: f64| {
            let accesses = (workload.accesses.len() as f64 * share) as usize;
            Workload::of(workload.accesses[..accesses].to_vec(), workload.room)
        };
        let second_half = Workload { warm_up: workload.accesses.len() / 2, ..workload.clone() };
        let everything =
            play(std::slice::from_ref(&second_half), PolicyName::Lru, &[Size(u64::MAX / 2)]);
        Self {
            name: trace.name.clone(),
            one: play(whole, PolicyName::Lru, &sizes),
            two: play(&split(workload, 2, SplitBy::Requests), PolicyName::Lru, &sizes),
            lfu: play(whole, PolicyName::Lfu, &SHOWN),
            lfu_da: play(whole, PolicyName::LfuDa, &SHOWN),
            fifo: play(whole, PolicyName::Fifo, &SHOWN),
            parts: PARTS
                .iter()
                .map(|share| play(&[part(*share)], PolicyName::Lru, &SHOWN))
                .collect(),
            second_half: play(std::slice::from_ref(&second_half), PolicyName::Lru, &SHOWN),
            new_in_second_half: 1.0 - Objective::Bytes.share(&everything.points[0]),
        }
    }

    fn lengths(&self) -> Table {
        let mut columns = vec![Column::new("Cache", Unit::Bytes)];
        columns.extend(PARTS.iter().map(|share| {
            Column::new(format!("first {}", figures::show_share(*share)), Unit::Percent)
        }));
        columns.push(Column::new("second half", Unit::Percent));
        columns.push(Column::new("new in it", Unit::Percent));
        let row = |(at, size): (usize, &Size)| {
            let mut cells = vec![Cell::from(size.0 as f64)];
            cells.extend(
                self.parts
                    .iter()
                    .map(|part| figures::percent(Objective::Bytes.share(&part.points[at]))),
            );
            cells.push(figures::percent(Objective::Bytes.share(&self.second_half.points[at])));
            cells.push(figures::percent(self.new_in_second_half));
            Row::new(cells)
        };
        Table {
            title: self.name.clone(),
            columns,
            rows: SHOWN.iter().enumerate().map(row).collect(),
        }
    }

    fn json(&self) -> Value {
        json!({
            "trace": self.name,
            "one_cache": self.one,
            "two_caches": self.two,
            "lfu": self.lfu,
            "lfu_da": self.lfu_da,
            "fifo": self.fifo,
            "second_half": self.second_half,
            "new_in_second_half": self.new_in_second_half,
        })
    }
}

fn share(curve: &Curve, size: Size) -> Option<f64> {
    curve
        .points
        .iter()
        .find(|point| point.size == size)
        .map(|point| 100.0 * Objective::Bytes.share(point))
}

fn to_tenths(percent: f64) -> f64 {
    (percent * 10.0).round() / 10.0
}

fn percent(curve: &Curve, size: Size) -> String {
    share(curve, size).map_or_else(String::new, |share| Unit::Percent.format(share))
}

fn figure(studies: &[Study]) -> Figure {
    let line = |name: String, curve: &Curve| {
        Series::line(
            name,
            curve
                .points
                .iter()
                .map(|point| (point.size.0 as f64, 100.0 * Objective::Bytes.share(point))),
        )
    };
    let series = studies.iter().flat_map(|study| {
        [
            line(format!("{}, one cache", study.name), &study.one).grouped(&study.name),
            line(format!("{}, two caches", study.name), &study.two)
                .styled(Style::Dashed)
                .grouped(&study.name),
        ]
    });
    Figure {
        id: "kim-fig3".to_owned(),
        title: "Content that stays off the bus".to_owned(),
        caption: "After Kim et al. 2002, figure 3.".to_owned(),
        x: figures::size_axis(Room::Bytes),
        y: Axis::new("Content that stays off the bus", Unit::Percent, Scale::Linear)
            .between(0.0, 100.0),
        series: series.collect(),
        marks: Vec::new(),
    }
}

fn by_size(studies: &[Study]) -> Table {
    let mut columns = vec![Column::new("Cache", Unit::Bytes)];
    for study in studies {
        columns.push(Column::new(format!("{}: one", study.name), Unit::Percent));
        columns.push(Column::new("two", Unit::Percent));
    }
    let sizes = sizes_between(LEAST, MOST, 1);
    let row = |size: &Size| {
        let of = |study: &Study| {
            [&study.one, &study.two].map(|curve| Cell::from(share(curve, *size).map(to_tenths)))
        };
        Row::new([Cell::from(size.0 as f64)].into_iter().chain(studies.iter().flat_map(of)))
    };
    Table { title: "Ours".to_owned(), columns, rows: sizes.iter().map(row).collect() }
}

fn paper() -> Table {
    let columns = ["Trace", "Caches", "Content that stays off the bus"]
        .map(|name| Column::new(name, Unit::Number))
        .into();
    let rows =
        PAPER.map(|(trace, caches, share)| Row::new([trace, caches, share].map(Cell::from))).into();
    Table { title: "What the paper says of its figure".to_owned(), columns, rows }
}

fn policies(studies: &[Study]) -> Table {
    let mut columns = vec![Column::new("Cache", Unit::Bytes)];
    for study in studies {
        columns.push(Column::new(format!("{}: LFU", study.name), Unit::Number));
        columns.push(Column::new("LFU-DA", Unit::Number));
        columns.push(Column::new("FIFO", Unit::Number));
    }
    let row = |size: &Size| {
        let difference = |study: &Study, other: &Curve| {
            let points = share(other, *size)? - share(&study.one, *size)?;
            Some(to_tenths(points))
        };
        let of = |study: &Study| {
            [&study.lfu, &study.lfu_da, &study.fifo]
                .map(|other| Cell::from(difference(study, other)))
        };
        Row::new([Cell::from(size.0 as f64)].into_iter().chain(studies.iter().flat_map(of)))
    };
    Table {
        title: "Points more than LRU".to_owned(),
        columns,
        rows: SHOWN.iter().map(row).collect(),
    }
}
