//! The report as a picture.

use nicache_report::{Axis, Figure, Point, Scale, Series, Size, Style, Unit};

use super::report::{Report, Row};
use crate::Summary;

/// Draws a report (SVG).
pub fn draw(report: &Report) -> String {
    let rows = &report.rows;
    let bars = |name: &str, of: &dyn Fn(&Row) -> Option<Summary>| Series {
        name: name.to_owned(),
        points: rows
            .iter()
            .enumerate()
            .filter_map(|(at, row)| {
                let rate = of(row)?;
                Some(Point::between(at as f64, rate.median / 1e6, rate.min / 1e6, rate.max / 1e6))
            })
            .collect(),
        style: Style::Bars,
        group: None,
    };
    let mut series = vec![bars("nicache", &|row| Some(row.ours_per_s))];
    if report.setting.peer.is_some() {
        series.push(bars("libCacheSim", &|row| row.peer_per_s));
    }
    let figure = Figure {
        id: "bench-sim".to_owned(),
        title: "Requests simulated in a second of one core, reading included".to_owned(),
        caption: String::new(),
        x: Axis::of_names("", rows.iter().map(|row| row.policy.clone())),
        y: Axis { min: Some(0.0), ..Axis::new("Million requests", Unit::Number, Scale::Linear) },
        series,
        marks: Vec::new(),
    };
    nicache_report::svg(&figure, Size { width: 920, height: 420, title: true })
}
