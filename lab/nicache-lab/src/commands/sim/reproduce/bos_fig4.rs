//! Bos et al. 2009, section 3.1 and figure 4: hit rates by number of slots of 1600 bytes.

use nicache_report::{
    Axis, Cell, Column, Fact, Figure, Mark, Report, Row, Scale, Section, Series, Style, Table, Unit,
};
use nicache_study::{Choice, Curve, Objective, PolicyName, Size, knee, sizes_between, sweep};
use serde_json::{Value, json};

use super::named::Named;
use crate::study::figures;

/// Bytes of a slot (section 3.3.1).
pub(super) const SLOT_BYTES: u32 = 1600;
/// Slots of the figure.
const LEAST: u64 = 1 << 10;
const MOST: u64 = 1 << 19;
/// What the paper says of figure 4 in words.
const PAPER: [(&str, &str, &str); 6] = [
    ("cs-term (3.4 million requests)", "2^17 slots and more", "60 %"),
    ("cs-term", "most", "65 %"),
    ("cs-quiet (2.8 million requests)", "most", "40 %"),
    ("ClarkNet, EPA", "", "\"very high indeed\": good locality, small files"),
    ("all", "beyond 2^17 slots (200 MB)", "hardly any longer; 25 to 50 MB may be enough"),
    ("cs-quiet, cs-term", "512 k slots", "54 % and 89 % of the bytes"),
];

/// Plays the traces back.
pub(super) fn reproduce(traces: &[Named]) -> (Report, Value) {
    let policies = [PolicyName::Popularity, PolicyName::Lru, PolicyName::Belady].map(Choice::from);
    let slots: Vec<Size> = sizes_between(Size(LEAST), Size(MOST), 1);
    let bytes: Vec<Size> =
        slots.iter().map(|slots| Size(slots.0 * u64::from(SLOT_BYTES))).collect();
    let studies: Vec<(&Named, Vec<Curve>)> = traces
        .iter()
        .map(|trace| {
            (trace, sweep(std::slice::from_ref(&trace.workload), &policies, &bytes, 2, &|_| {}))
        })
        .collect();
    let mut sections = vec![Section {
        title: "Hit rates".to_owned(),
        paragraphs: vec![
            "Popularity over time with hysteresis (alpha 0.75, periods of 30 s), which admits an object when it is asked for the second time; \
             points: LRU; dashed: Belady, a policy that knows the future and evicts what is asked for again last. With objects of several sizes \
             that is not a bound. Hits are of the requests that can come from a cache, as in the paper."
                .to_owned(),
        ],
        figures: vec![figure(&studies, Objective::Requests), figure(&studies, Objective::Bytes)],
        tables: vec![table(&studies, &slots), paper()],
    }];
    sections.push(Section {
        title: "What bounds them".to_owned(),
        paragraphs: vec![
            "A first request for an object is never a hit; with this policy a second one is none either.".to_owned(),
        ],
        tables: vec![bounds(&studies)],
        ..Section::default()
    });
    let facts = studies.iter().map(|(trace, curves)| {
        let most = curves[0].points.last().map_or(0.0, |point| Objective::Requests.share(point));
        Fact::new(
            trace.name.clone(),
            Unit::Percent.format(100.0 * most),
            "of requests with 512 k slots, popularity",
        )
    });
    let report = Report {
        title: "Bos et al. 2009, figure 4".to_owned(),
        subtitle: traces.iter().map(|trace| trace.name.clone()).collect::<Vec<_>>().join(", "),
        facts: facts.collect(),
        sections,
        footer: "nicache sim reproduce bos-fig4".to_owned(),
    };
    let json = studies
        .iter()
        .map(|(trace, curves)| json!({ "trace": trace.name, "curves": curves }))
        .collect::<Vec<_>>();
    (report, json!({ "study": "bos-fig4", "slot_bytes": SLOT_BYTES, "traces": json }))
}

fn figure(studies: &[(&Named, Vec<Curve>)], objective: Objective) -> Figure {
    let (id, title) = match objective {
        Objective::Requests => ("bos-fig4", "Hit rate by number of slots"),
        Objective::Bytes => ("bos-fig4-bytes", "Bytes from the cache by number of slots"),
    };
    let mut series = Vec::new();
    let mut marks = Vec::new();
    for (trace, curves) in studies {
        for curve in curves {
            let points: Vec<(Size, f64)> =
                curve.points.iter().map(|point| (point.size, objective.share(point))).collect();
            let line = points
                .iter()
                .map(|(size, share)| (size.0 as f64 / f64::from(SLOT_BYTES), 100.0 * share));
            let line = Series::line(format!("{}, {}", trace.name, curve.choice.title()), line)
                .grouped(&trace.name);
            series.push(match curve.choice.policy {
                PolicyName::Popularity => line,
                PolicyName::Lru => line.styled(Style::Points),
                _ => line.styled(Style::Dashed),
            });
            if curve.choice.policy == PolicyName::Popularity
                && objective == Objective::Requests
                && let Some(knee) = knee(&points)
            {
                marks.push(Mark::x(
                    knee.0 as f64 / f64::from(SLOT_BYTES),
                    format!("knee, {}", trace.name),
                ));
            }
        }
    }
    Figure {
        id: id.to_owned(),
        title: title.to_owned(),
        caption: "After Bos et al. 2009, figure 4. A slot has 1600 bytes: 2^14 slots are 25 MB."
            .to_owned(),
        x: Axis::new("Slots", Unit::Count, Scale::Log2),
        y: Axis::new(title, Unit::Percent, Scale::Linear).between(0.0, 100.0),
        series,
        marks,
    }
}

fn table(studies: &[(&Named, Vec<Curve>)], slots: &[Size]) -> Table {
    let mut columns = vec![Column::new("Slots", Unit::Count), Column::new("Memory", Unit::Bytes)];
    for (trace, _) in studies {
        columns.push(Column::new(format!("{}: hits", trace.name), Unit::Percent));
        columns.push(Column::new("bytes", Unit::Percent));
        columns.push(Column::new("hits of LRU", Unit::Percent));
    }
    let rows = slots.iter().enumerate().map(|(at, slots)| {
        let mut cells =
            vec![Cell::from(slots.0 as f64), Cell::from((slots.0 * u64::from(SLOT_BYTES)) as f64)];
        for (_, curves) in studies {
            cells.push(figures::percent(Objective::Requests.share(&curves[0].points[at])));
            cells.push(figures::percent(Objective::Bytes.share(&curves[0].points[at])));
            cells.push(figures::percent(Objective::Requests.share(&curves[1].points[at])));
        }
        Row::new(cells)
    });
    Table { title: "Ours".to_owned(), rows: rows.collect(), columns }
}

fn paper() -> Table {
    let columns = ["Trace", "Cache", "Hits"].map(|name| Column::new(name, Unit::Number)).into();
    let rows =
        PAPER.map(|(trace, cache, hits)| Row::new([trace, cache, hits].map(Cell::from))).into();
    Table { title: "What the paper says of its figure".to_owned(), columns, rows }
}

fn bounds(studies: &[(&Named, Vec<Curve>)]) -> Table {
    let columns = vec![
        Column::new("Trace", Unit::Number),
        Column::new("Requests", Unit::Count),
        Column::new("First for their object", Unit::Percent),
        Column::new("Second", Unit::Percent),
        Column::new("Left at most", Unit::Percent),
        Column::new("Requests per object", Unit::Number),
    ];
    let rows = studies.iter().map(|(trace, _)| {
        let mut uses = vec![0u32; trace.workload.objects as usize];
        let (mut first, mut second) = (0u64, 0u64);
        for access in &trace.workload.accesses {
            let uses = &mut uses[access.object() as usize];
            *uses += 1;
            first += u64::from(*uses == 1);
            second += u64::from(*uses == 2);
        }
        let requests = trace.workload.accesses.len() as f64;
        let share = |count: u64| 100.0 * count as f64 / requests.max(1.0);
        Row::new([
            Cell::from(trace.name.clone()),
            Cell::from(requests),
            Cell::from(share(first)),
            Cell::from(share(second)),
            Cell::from(100.0 - share(first) - share(second)),
            Cell::from(requests / f64::from(trace.workload.objects.max(1))),
        ])
    });
    Table { title: "First and second requests".to_owned(), rows: rows.collect(), columns }
}
