//! Figure 7 as a picture: throughput against the size of the card's cache.

use nicache_report::{Axis, Figure, Mark, Scale, Series, Size, Style, Unit};

use super::{FIGURE_7, Report};

/// Draws Figure 7 of a report (SVG): each mode has a colour, segments of 8 KB a solid line, of 1460
/// bytes a dashed one.
pub fn draw(report: &Report) -> String {
    let mut modes: Vec<&str> = Vec::new();
    for cell in &report.streams {
        if !modes.contains(&&*cell.mode) && cell.mode != "copy" {
            modes.push(&cell.mode);
        }
    }
    let (mut series, mut marks) = (Vec::new(), Vec::new());
    for (segment_bytes, _) in FIGURE_7 {
        let is_small = segment_bytes < 4096;
        let size = if is_small { "1.5K" } else { "8K" };
        let of_size =
            || report.streams.iter().filter(move |cell| cell.segment_bytes == segment_bytes);
        for mode in &modes {
            let points = of_size()
                .filter(|cell| cell.mode == **mode)
                .map(|cell| (cell.cache_bytes as f64 / 1024.0, cell.outcome.mb_per_s));
            let line = Series::line(format!("{mode}, {size}"), points).grouped(*mode);
            series.push(line.styled(if is_small { Style::Dashed } else { Style::Line }));
        }
        let copied = of_size().find(|cell| cell.mode == "copy");
        marks.extend(copied.map(|cell| Mark::y(cell.outcome.mb_per_s, format!("copy, {size}"))));
    }
    let figure = Figure {
        id: "bench-yocum".to_owned(),
        title: "Sixteen streams of TCP through a forwarder of 2001".to_owned(),
        caption: "Card and host are nicache's; a fitted model says how long the CPU takes"
            .to_owned(),
        x: Axis::new("Card cache (KB)", Unit::Number, Scale::Log2),
        y: Axis { min: Some(0.0), ..Axis::new("MB/s of payload", Unit::Number, Scale::Linear) },
        series,
        marks,
    };
    nicache_report::svg(&figure, Size { width: 920, height: 520, title: true })
}
