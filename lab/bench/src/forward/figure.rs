//! The report as a picture: what a billion bytes cost each subject.

use nicache_report::{Axis, Figure, Point, Scale, Series, Size, Style, Unit};

use super::report::Report;

/// Draws the CPU for each billion bytes of TCP (SVG): bars by subject, one for each load. Small
/// datagrams cost ten times as much, and would hide the rest.
pub fn draw(report: &Report) -> String {
    let (mut subjects, mut loads): (Vec<&str>, Vec<&str>) = Default::default();
    let rows: Vec<_> = report.rows.iter().filter(|row| row.load.contains("TCP")).collect();
    for row in &rows {
        if !subjects.contains(&&*row.subject) {
            subjects.push(&row.subject);
        }
        if !loads.contains(&&*row.load) {
            loads.push(&row.load);
        }
    }
    let series = loads.iter().map(|load| {
        let of_load = rows.iter().filter(|row| row.load == **load);
        let points = of_load.map(|row| {
            let at = subjects.iter().position(|subject| **subject == *row.subject).unwrap_or(0);
            Point::between(at as f64, row.cpu.median, row.cpu.min, row.cpu.max)
        });
        Series {
            name: (*load).to_owned(),
            points: points.collect(),
            style: Style::Bars,
            group: None,
        }
    });
    let figure = Figure {
        id: "bench-forward".to_owned(),
        title: "Seconds of CPU for each gigabyte of TCP that is forwarded".to_owned(),
        caption: "The whole machine, with client and server".to_owned(),
        series: series.collect(),
        x: Axis::of_names("", subjects),
        y: Axis { min: Some(0.0), ..Axis::new("CPU s/GB", Unit::Number, Scale::Linear) },
        marks: Vec::new(),
    };
    nicache_report::svg(&figure, Size { width: 1100, height: 460, title: true })
}
