//! Figures and tables of what caches do.
//!
//! Of what a share is, its name tells, everywhere: a *hit rate* is of all requests of the trace, a
//! *byte hit rate* of the bytes of all replies, as in the counters of a card that runs; what is of
//! the requests that could come from a cache is called so.

use nicache_report::{Axis, Cell, Column, Figure, Row, Scale, Series, Style, Table, Unit};
use nicache_study::{Curve, Estimate, Objective, Point, PolicyName, Room, Size, Totals, Workload};
use serde_json::Value;

use super::input::Loaded;

/// How results are shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    /// What sizes count.
    pub room: Room,
    /// Whether Belady's choice is a bound.
    pub has_optimum: bool,
    /// Shares of the requests and of the bytes that could come from a cache.
    cacheable: (f64, f64),
}

impl Shown {
    /// For what was loaded.
    pub(crate) fn of(loaded: &Loaded) -> Self {
        Self::new(&loaded.workload, &loaded.totals)
    }

    /// For a workload of a trace.
    pub(crate) fn new(workload: &Workload, totals: &Totals) -> Self {
        Self {
            room: workload.room,
            has_optimum: workload.has_optimum(),
            cacheable: cacheable(totals),
        }
    }

    /// The hit rate, or the byte hit rate, 0 to 1.
    pub(crate) fn rate(&self, objective: Objective, point: &Point) -> f64 {
        let cacheable = match objective {
            Objective::Requests => self.cacheable.0,
            Objective::Bytes => self.cacheable.1,
        };
        cacheable * objective.share(point)
    }

    /// A curve's name; of what knows the future, with what it is.
    pub(crate) fn title(&self, curve: &Curve) -> String {
        let title = curve.choice.title();
        match curve.choice.policy {
            PolicyName::PfooL => format!("Bound ({title})"),
            PolicyName::Belady if self.has_optimum => format!("{title} (bound)"),
            PolicyName::Belady => format!("{title} (no bound here)"),
            _ => title,
        }
    }

    /// What has to be said of the curves that know the future.
    pub(crate) fn notes(&self, curves: &[Curve]) -> Vec<String> {
        let has = |policy: PolicyName| curves.iter().any(|curve| curve.choice.policy == policy);
        let mut notes = Vec::new();
        if has(PolicyName::Belady) {
            notes.push(if self.has_optimum {
                "Belady evicts what is asked for again last: with objects of one size that never change, as here, no policy can have more hits."
                    .to_owned()
            } else {
                "Belady evicts what is asked for again last, which is a bound only for objects of one size that never change. Here it is a \
                 policy that knows the future, and others may have more hits."
                    .to_owned()
            });
        }
        if has(PolicyName::PfooL) {
            notes.push(
                "PFOO-L is a bound whatever the sizes (Berger, Beckmann and Harchol-Balter 2018): no policy has more, and perhaps none as much."
                    .to_owned(),
            );
        }
        notes
    }

    /// The curves as JSON, each point with its `hit_rate` and `byte_hit_rate`, each curve with
    /// whether it `is_bound`.
    pub(crate) fn json(&self, curves: &[Curve]) -> serde_json::Result<Value> {
        let mut all = serde_json::to_value(curves)?;
        for (curve, json) in curves.iter().zip(all.as_array_mut().into_iter().flatten()) {
            let policy = curve.choice.policy;
            json["is_bound"] = (policy == PolicyName::PfooL
                || (policy == PolicyName::Belady && self.has_optimum))
                .into();
            for (point, json) in
                curve.points.iter().zip(json["points"].as_array_mut().into_iter().flatten())
            {
                json["hit_rate"] = self.rate(Objective::Requests, point).into();
                json["byte_hit_rate"] = self.rate(Objective::Bytes, point).into();
            }
        }
        Ok(all)
    }
}

/// Shares of the requests and of the bytes that could come from a cache.
fn cacheable(totals: &Totals) -> (f64, f64) {
    let requests = totals.cacheable as f64 / totals.requests.max(1) as f64;
    // A list of keys has no bytes.
    let bytes =
        if totals.bytes == 0 { 1.0 } else { totals.cacheable_bytes as f64 / totals.bytes as f64 };
    (requests.min(1.0), bytes.min(1.0))
}

/// Hit rates, then byte hit rates, by size.
pub(crate) fn curves(curves: &[Curve], shown: &Shown) -> Vec<Figure> {
    [Objective::Requests, Objective::Bytes].map(|objective| curve(curves, objective, shown)).into()
}

fn curve(curves: &[Curve], objective: Objective, shown: &Shown) -> Figure {
    let (id, title, label) = match objective {
        Objective::Requests => ("requests", HIT_RATE, "Share of all requests"),
        Objective::Bytes => ("bytes", BYTE_HIT_RATE, "Share of all bytes"),
    };
    Figure {
        id: id.to_owned(),
        title: title.to_owned(),
        caption: String::new(),
        x: size_axis(shown.room),
        y: Axis::new(label, Unit::Percent, Scale::Linear).between(0.0, 100.0),
        series: curves.iter().map(|curve| series(curve, objective, shown)).collect(),
        marks: Vec::new(),
    }
}

const HIT_RATE: &str = "Hit rate: requests answered by the card";
const BYTE_HIT_RATE: &str = "Byte hit rate: bytes that do not cross the bus";

/// The axis of cache sizes.
pub(crate) fn size_axis(room: Room) -> Axis {
    Axis::new("Card memory", size_unit(room), Scale::Log2)
}

fn size_unit(room: Room) -> Unit {
    if room == Room::One { Unit::Count } else { Unit::Bytes }
}

fn series(curve: &Curve, objective: Objective, shown: &Shown) -> Series {
    let points = curve
        .points
        .iter()
        .map(|point| (point.size.0 as f64, 100.0 * shown.rate(objective, point)));
    let line = Series::line(shown.title(curve), points);
    if curve.choice.policy.knows_the_future() { line.styled(Style::Dashed) } else { line }
}

/// Hit rates, then byte hit rates, by policy, at sizes that are powers of two (at all, if none is).
pub(crate) fn tables(curves: &[Curve], shown: &Shown) -> Vec<Table> {
    [(Objective::Requests, HIT_RATE), (Objective::Bytes, BYTE_HIT_RATE)]
        .map(|(objective, title)| table(curves, shown, objective, title))
        .into()
}

fn table(curves: &[Curve], shown: &Shown, objective: Objective, title: &str) -> Table {
    let sizes = curves.first().map_or(&[][..], |curve| &curve.points);
    let any_round = sizes.iter().any(|point| point.size.0.is_power_of_two());
    let mut columns = vec![Column::new("Memory", size_unit(shown.room))];
    columns.extend(curves.iter().map(|curve| Column::new(shown.title(curve), Unit::Percent)));
    let rows =
        sizes.iter().enumerate().filter(|(_, point)| !any_round || point.size.0.is_power_of_two());
    let rows = rows.map(|(at, point)| {
        let share = |curve: &Curve| percent(shown.rate(objective, &curve.points[at]));
        Row::new(std::iter::once(Cell::from(point.size.0 as f64)).chain(curves.iter().map(share)))
    });
    Table { title: title.to_owned(), rows: rows.collect(), columns }
}

/// A share, 0 to 1, in percent to one digit after the point, as tables have it.
pub(crate) fn percent(share: f64) -> Cell {
    Cell::from((share * 1000.0).round() / 10.0)
}

/// Sampled curves with their intervals.
pub(crate) fn estimates(estimates: &[Estimate], room: Room, totals: &Totals) -> Vec<Figure> {
    let (of_requests, of_bytes) = cacheable(totals);
    let figure = |id: &str,
                  title: &str,
                  label: &str,
                  cacheable: f64,
                  of: &dyn Fn(&Estimate) -> (f64, f64)| {
        let points = estimates.iter().map(|estimate| {
            let (miss, error) = of(estimate);
            let percent = |share: f64| 100.0 * cacheable * (1.0 - share).clamp(0.0, 1.0);
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
            caption: "Sampled; the band is the 95 % interval of eight independent samples."
                .to_owned(),
            x: size_axis(room),
            y: Axis::new(label, Unit::Percent, Scale::Linear).between(0.0, 100.0),
            series: vec![Series {
                name: "LRU".to_owned(),
                points: points.collect(),
                ..Series::default()
            }],
            marks: Vec::new(),
        }
    };
    vec![
        figure("requests", HIT_RATE, "Share of all requests", of_requests, &|e| {
            (e.miss_ratio, e.miss_ratio_error)
        }),
        figure("bytes", BYTE_HIT_RATE, "Share of all bytes", of_bytes, &|e| {
            (e.byte_miss_ratio, e.byte_miss_ratio_error)
        }),
    ]
}

/// A size as people write it.
pub(crate) fn show_size(size: Size, room: Room) -> String {
    match room {
        Room::One => format!("{} objects", Unit::Count.format(size.0 as f64)),
        Room::Bytes | Room::Slots(_) => Unit::Bytes.format(size.0 as f64),
    }
}

/// A share, 0 to 1, as people write it.
pub(crate) fn show_share(share: f64) -> String {
    Unit::Percent.format(100.0 * share)
}
