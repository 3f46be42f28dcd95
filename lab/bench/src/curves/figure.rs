//! The report as a picture (SVG): a row for each object, and in it replies and connection times
//! over the offered rate (after Figures 6 and 7 of the CacheCard paper), requests per second and
//! latency over the number of connections that stay open.

use std::fmt::Write as _;

use nicache_report::{Axis, Figure, Point, Scale, Series, Size, Style, Unit};

use super::cell::SUBJECTS;
use super::report::{ConnectionsCell, RateCell, Report, size_label};
use super::statistics::Spread;
use crate::wire::Subject;

const PANEL_WIDTH: u32 = 460;
const PANEL_HEIGHT: u32 = 320;
const GAP: u32 = 14;
const TOP: u32 = 74;
const BOTTOM: u32 = 34;

/// Draws a report.
pub fn draw(report: &Report) -> String {
    let rows: Vec<Vec<Figure>> =
        report.sizes().into_iter().map(|bytes| panels(report, bytes)).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(1) as u32;
    let width = columns * (PANEL_WIDTH + GAP) + GAP;
    let height = TOP + rows.len() as u32 * (PANEL_HEIGHT + GAP) + BOTTOM;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"system-ui, Helvetica, Arial, sans-serif\" font-size=\"12\" fill=\"#222\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    let setting = &report.setting;
    text(
        &mut svg,
        28,
        "font-size=\"18\" font-weight=\"600\"",
        "What becomes of more and more connections",
    );
    let caption = format!(
        "Client on one CPU, the whole serving side on another; Linux {}; {} x {} s, arrivals {}. A connection for each request, at most {} at a \
         time",
        setting.kernel, setting.rounds, setting.seconds, setting.spacing, setting.connections_max
    );
    text(&mut svg, 48, "fill=\"#666\"", &caption);
    text(
        &mut svg,
        66,
        "fill=\"#666\"",
        "(left), and connections that stay open, at full speed (right). Bands: one standard deviation.",
    );
    for (row, figures) in rows.iter().enumerate() {
        let y = TOP + row as u32 * (PANEL_HEIGHT + GAP);
        for (column, figure) in figures.iter().enumerate() {
            let x = GAP + column as u32 * (PANEL_WIDTH + GAP);
            let size = Size { width: PANEL_WIDTH, height: PANEL_HEIGHT, title: true };
            let panel = nicache_report::svg(figure, size);
            let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">{panel}</g>");
        }
    }
    let small = "fill=\"#666\" font-size=\"11\"";
    text(
        &mut svg,
        height - 14,
        small,
        &format!("nginx: {}; {}", setting.nginx, setting.versions.join("; ")),
    );
    svg.push_str("</svg>\n");
    svg
}

/// The panels of an object: those of what was measured.
fn panels(report: &Report, bytes: u64) -> Vec<Figure> {
    let mut panels = Vec::new();
    if report.rates.iter().any(|cell| cell.bytes == bytes) {
        panels.extend(rate_panels(report, bytes));
    }
    if report.connections.iter().any(|cell| cell.bytes == bytes) {
        panels.extend(connection_panels(report, bytes));
    }
    panels
}

fn rate_panels(report: &Report, bytes: u64) -> [Figure; 2] {
    let (mut replies, mut times) = (Vec::new(), Vec::new());
    for subject in SUBJECTS {
        let cells: Vec<&RateCell> = report
            .rates
            .iter()
            .filter(|cell| (cell.bytes, cell.subject) == (bytes, subject))
            .collect();
        let line = |words: &str, style, point: &dyn Fn(&RateCell) -> Point| {
            series(
                subject,
                words,
                style,
                cells.iter().map(|cell| Point { x: f64::from(cell.rate), ..point(cell) }),
            )
        };
        replies.push(line("", Style::Line, &|cell| band(cell.replies_per_s)));
        // Handshakes and replies are the same curve unless some fail.
        if cells.iter().any(|cell| cell.connections_per_s.mean > 1.01 * cell.replies_per_s.mean) {
            replies.push(line(": connections", Style::Dashed, &|cell| {
                Point::new(0.0, cell.connections_per_s.mean)
            }));
        }
        times.push(line("", Style::Line, &|cell| Point::new(0.0, cell.time.median_us)));
        times.push(line(": mean", Style::Dashed, &|cell| Point::new(0.0, cell.time.mean_us)));
    }
    let offered = || Axis {
        min: Some(0.0),
        ..Axis::new("Offered connections per second", Unit::Number, Scale::Linear)
    };
    let per_second =
        Axis { min: Some(0.0), ..Axis::new("Replies per second", Unit::Number, Scale::Linear) };
    let time = Axis::new(
        "Connection time in microseconds: median, mean (dashed)",
        Unit::Number,
        Scale::Log10,
    );
    [
        figure("replies", "replies", bytes, offered(), per_second, replies),
        figure("times", "connection time", bytes, offered(), time, times),
    ]
}

fn connection_panels(report: &Report, bytes: u64) -> [Figure; 2] {
    let (mut requests, mut latency) = (Vec::new(), Vec::new());
    for subject in SUBJECTS {
        let cells: Vec<&ConnectionsCell> = report
            .connections
            .iter()
            .filter(|cell| (cell.bytes, cell.subject) == (bytes, subject))
            .collect();
        let line = |words: &str, style, point: &dyn Fn(&ConnectionsCell) -> Point| {
            let points =
                cells.iter().map(|cell| Point { x: f64::from(cell.connections), ..point(cell) });
            series(subject, words, style, points)
        };
        requests.push(line("", Style::Line, &|cell| band(cell.replies_per_s)));
        latency.push(line("", Style::Line, &|cell| Point::new(0.0, cell.time.median_us)));
        latency.push(line(": 99 %", Style::Dashed, &|cell| Point::new(0.0, cell.time.p99_us)));
    }
    let open = || Axis::new("Connections that stay open", Unit::Number, Scale::Log2);
    let per_second =
        Axis { min: Some(0.0), ..Axis::new("Requests per second", Unit::Number, Scale::Linear) };
    let time = Axis::new(
        "Latency in microseconds: median, 99th percentile (dashed)",
        Unit::Number,
        Scale::Log10,
    );
    [
        figure("requests", "requests", bytes, open(), per_second, requests),
        figure("latency", "latency", bytes, open(), time, latency),
    ]
}

/// A point with one standard deviation around it; its x is set by who draws it.
fn band(spread: Spread) -> Point {
    Point::between(
        0.0,
        spread.mean,
        (spread.mean - spread.deviation).max(0.0),
        spread.mean + spread.deviation,
    )
}

fn figure(id: &str, title: &str, bytes: u64, x: Axis, y: Axis, series: Vec<Series>) -> Figure {
    let series = series.into_iter().filter(|series| !series.points.is_empty()).collect();
    let (id, title) =
        (format!("bench-curves-{id}-{bytes}"), format!("{}: {title}", size_label(bytes)));
    Figure { id, title, caption: String::new(), x, y, series, marks: Vec::new() }
}

fn series(
    subject: Subject,
    words: &str,
    style: Style,
    points: impl Iterator<Item = Point>,
) -> Series {
    let name = subject.label();
    Series {
        name: format!("{name}{words}"),
        points: points.collect(),
        style,
        group: Some(name.to_owned()),
    }
}

fn text(svg: &mut String, y: u32, style: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(svg, "<text x=\"16\" y=\"{y}\" {style}>{words}</text>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_has_its_four_panels() {
        let report = super::super::report::tests::report();
        let svg = draw(&report);
        assert_eq!(svg.matches("<svg ").count(), 1 + 4 * report.sizes().len());
        for id in ["replies", "times", "requests", "latency"] {
            assert_eq!(
                svg.matches(&format!("id=\"bench-curves-{id}-1-title\"")).count(),
                1,
                "{id}"
            );
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        // What is measured in part is drawn in part.
        let part = Report { connections: Vec::new(), ..report };
        assert_eq!(draw(&part).matches("<svg ").count(), 1 + 2 * part.sizes().len());
    }
}
