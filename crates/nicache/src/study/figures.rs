//! Figures and tables of what caches do.

use nicache_report::{Axis, Cell, Column, Figure, Row, Scale, Series, Style, Table, Unit};
use nicache_study::{Curve, Estimate, Objective, PolicyName, Room, Size};

/// The share of requests, then of bytes, that caches answer, by size.
pub fn curves(curves: &[Curve], room: Room) -> Vec<Figure> {
    [Objective::Requests, Objective::Bytes].map(|objective| curve(curves, objective, room)).into()
}

fn curve(curves: &[Curve], objective: Objective, room: Room) -> Figure {
    let (id, title, label) = match objective {
        Objective::Requests => ("requests", "Requests answered by the card", "Share of the requests"),
        Objective::Bytes => ("bytes", "Bytes that do not cross the bus", "Share of the bytes"),
    };
    Figure {
        id: id.to_owned(),
        title: title.to_owned(),
        caption: String::new(),
        x: size_axis(room),
        y: Axis::new(label, Unit::Percent, Scale::Linear).between(0.0, 100.0),
        series: curves.iter().map(|curve| series(curve, objective)).collect(),
        marks: Vec::new(),
    }
}

/// The axis of cache sizes.
pub fn size_axis(room: Room) -> Axis {
    Axis::new("Card memory", size_unit(room), Scale::Log2)
}

fn size_unit(room: Room) -> Unit {
    if room == Room::One { Unit::Count } else { Unit::Bytes }
}

fn series(curve: &Curve, objective: Objective) -> Series {
    let points = curve.points.iter().map(|point| (point.size.0 as f64, 100.0 * objective.share(point)));
    let line = Series::line(curve.choice.title(), points);
    if curve.choice.policy == PolicyName::Belady { line.styled(Style::Dashed) } else { line }
}

/// Shares of requests, then of bytes, by policy, at sizes that are powers of two (at all, if none is).
pub fn tables(curves: &[Curve], room: Room) -> Vec<Table> {
    [(Objective::Requests, "Requests answered by the card"), (Objective::Bytes, "Bytes that do not cross the bus")]
        .map(|(objective, title)| table(curves, room, objective, title))
        .into()
}

fn table(curves: &[Curve], room: Room, objective: Objective, title: &str) -> Table {
    let sizes = curves.first().map_or(&[][..], |curve| &curve.points);
    let any_round = sizes.iter().any(|point| point.size.0.is_power_of_two());
    let mut columns = vec![Column::new("Memory", size_unit(room))];
    columns.extend(curves.iter().map(|curve| Column::new(curve.choice.title(), Unit::Percent)));
    let shown = sizes.iter().enumerate().filter(|(_, point)| !any_round || point.size.0.is_power_of_two());
    let rows = shown.map(|(at, point)| {
        let share = |curve: &Curve| percent(objective.share(&curve.points[at]));
        Row::new(std::iter::once(Cell::from(point.size.0 as f64)).chain(curves.iter().map(share)))
    });
    Table { title: title.to_owned(), rows: rows.collect(), columns }
}

/// A share, 0 to 1, in percent to one digit after the point, as tables have it.
pub fn percent(share: f64) -> Cell {
    Cell::from((share * 1000.0).round() / 10.0)
}

/// Sampled curves with their intervals.
pub fn estimates(estimates: &[Estimate], room: Room) -> Vec<Figure> {
    let figure = |id: &str, title: &str, of: &dyn Fn(&Estimate) -> (f64, f64)| {
        let points = estimates.iter().map(|estimate| {
            let (miss, error) = of(estimate);
            let percent = |share: f64| 100.0 * (1.0 - share).clamp(0.0, 1.0);
            nicache_report::Point::between(
                estimate.size.0 as f64,
                percent(miss),
                percent(miss + error),
                percent(miss - error),
            )
        });
        Figure {
            id: id.to_owned(),
            title: title.to_owned(),
            caption: "Sampled; the band is the 95 % interval of eight independent samples.".to_owned(),
            x: size_axis(room),
            y: Axis::new("Answered by the card", Unit::Percent, Scale::Linear).between(0.0, 100.0),
            series: vec![Series { name: "LRU".to_owned(), points: points.collect(), ..Series::default() }],
            marks: Vec::new(),
        }
    };
    vec![
        figure("requests", "Requests answered by the card", &|e| (e.miss_ratio, e.miss_ratio_error)),
        figure("bytes", "Bytes that do not cross the bus", &|e| (e.byte_miss_ratio, e.byte_miss_ratio_error)),
    ]
}

/// A size as people write it.
pub fn show_size(size: Size, room: Room) -> String {
    match room {
        Room::One => format!("{} objects", Unit::Count.format(size.0 as f64)),
        Room::Bytes | Room::Slots(_) => Unit::Bytes.format(size.0 as f64),
    }
}

/// A share, 0 to 1, as people write it.
pub fn show_share(share: f64) -> String {
    Unit::Percent.format(100.0 * share)
}
