//! The report as a picture (SVG): a row per page, a panel per rate of edits, a bar per subject on a
//! logarithmic axis, stale replies written on the bar. Colours follow the reader's choice of light
//! or dark.

use std::fmt::Write as _;

use super::report::{Cell, Report};
use super::subject::Subject;
use crate::wire::grouped;

const LABELS_WIDTH: f64 = 150.0;
const PANEL_WIDTH: f64 = 330.0;
/// Room right of the axis for the number of the longest bar, and between panels.
const NUMBER_WIDTH: f64 = 76.0;
const BAR_HEIGHT: f64 = 17.0;
const BAR_STEP: f64 = 22.0;
const ROW_TITLE: f64 = 46.0;
/// Room for the axis below a panel.
const AXIS_HEIGHT: f64 = 34.0;
const TOP: f64 = 92.0;
const BOTTOM: f64 = 92.0;
/// Rough width of a character of the words on a bar.
const CHARACTER_WIDTH: f64 = 6.1;

const STYLE: &str = "<style>
.page { fill: #ffffff } .text { fill: #1f2328 } .faint { fill: #59636e } .grid { stroke: #d1d9e0 } .whisker { stroke: #1f2328 }
.on { fill: #10141a } .stale { fill: #b3000c }
.server { fill: #9aa4af } .nginx60 { fill: #6cbf8a } .nginx1 { fill: #a5dbb7 } .varnish60 { fill: #6ea8dc } .varnish1 { fill: #aacdee }
.nicache { fill: #f0953f }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117 } .text { fill: #e6edf3 } .faint { fill: #9198a1 } .grid { stroke: #30363d } .whisker { stroke: #e6edf3 }
.stale { fill: #ff8f87 }
}
</style>
";

/// A logarithmic axis from a power of ten to a power of ten.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Axis {
    /// Powers of ten.
    from: i32,
    to: i32,
    width: f64,
}

impl Axis {
    /// One that has all values.
    fn over(values: impl IntoIterator<Item = f64>, width: f64) -> Self {
        let (least, most) = values
            .into_iter()
            .filter(|value| *value > 0.0)
            .fold((f64::INFINITY, 0_f64), |(least, most), value| {
                (least.min(value), most.max(value))
            });
        if most == 0.0 {
            return Self { from: 0, to: 1, width };
        }
        // A bar of the least value shall be seen, too.
        let from = (least * 0.7).log10().floor() as i32;
        Self { from, to: (most.log10().ceil() as i32).max(from + 1), width }
    }

    fn at(&self, value: f64) -> f64 {
        let share = (value.max(f64::MIN_POSITIVE).log10() - f64::from(self.from))
            / f64::from(self.to - self.from);
        share.clamp(0.0, 1.0) * self.width
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        (self.from..=self.to).map(|power| 10_f64.powi(power))
    }
}

/// Draws a report.
pub fn draw(report: &Report) -> String {
    let (pages, subjects, rates) = (report.pages(), report.subjects(), report.rates());
    let bars = BAR_STEP * subjects.len() as f64;
    let row_height = ROW_TITLE + bars + AXIS_HEIGHT;
    let width = (LABELS_WIDTH + PANEL_WIDTH * rates.len() as f64 + 16.0).max(900.0);
    let height = TOP + row_height * pages.len() as f64 + BOTTOM;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"system-ui, Helvetica, Arial, sans-serif\" font-size=\"12\">\n{STYLE}\
         <rect width=\"100%\" height=\"100%\" class=\"page\"/>\n"
    );
    let setting = &report.setting;
    let title = "Dynamic pages that change: how many requests per second, and how many of the replies were stale";
    text(&mut svg, 16.0, 30.0, "text", "font-size=\"18\" font-weight=\"600\"", title);
    let captions = [
        "On each bar: stale replies among those that a client beside the load looked at. Stale: what it shows had been replaced before the \
         request was sent."
            .to_owned(),
        format!(
            "wrk on one CPU, the whole serving side on another; Linux {}; medians of {} rounds of {} s, lines from the least to the most; \
             logarithmic axes",
            setting.kernel, setting.rounds, setting.seconds
        ),
    ];
    for (line, caption) in captions.iter().enumerate() {
        text(&mut svg, 16.0, 52.0 + 17.0 * line as f64, "faint", "", caption);
    }
    let axis = Axis::over(
        report.cells.iter().flat_map(|cell| [cell.requests_per_s.min, cell.requests_per_s.max]),
        PANEL_WIDTH - NUMBER_WIDTH,
    );
    for (row, page) in pages.iter().enumerate() {
        let top = TOP + row_height * row as f64;
        text(
            &mut svg,
            16.0,
            top + 16.0,
            "text",
            "font-size=\"14\" font-weight=\"600\"",
            page.label(),
        );
        for (line, subject) in subjects.iter().enumerate() {
            let y = top + ROW_TITLE + BAR_STEP * line as f64;
            let style = "text-anchor=\"end\"";
            text(&mut svg, LABELS_WIDTH - 10.0, y + 13.0, "text", style, subject.label());
        }
        for (column, rate) in rates.iter().enumerate() {
            let left = LABELS_WIDTH + PANEL_WIDTH * column as f64;
            text(&mut svg, left, top + 36.0, "faint", "", &rate_words(*rate));
            let cells = subjects
                .iter()
                .map(|subject| report.cell(*page, *rate, *subject))
                .collect::<Vec<_>>();
            draw_panel(&mut svg, &axis, &subjects, &cells, left, top + ROW_TITLE);
        }
    }
    let notes = [
        format!("Varnish: {}", setting.varnish),
        format!("nginx cache: {}", setting.nginx_cache),
        format!("nicache: {}", setting.nicache),
        setting.versions.join("; "),
    ];
    for (line, note) in notes.iter().enumerate() {
        text(&mut svg, 16.0, height - 64.0 + 16.0 * line as f64, "faint", "font-size=\"11\"", note);
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_panel(
    svg: &mut String,
    axis: &Axis,
    subjects: &[Subject],
    cells: &[Option<&Cell>],
    left: f64,
    top: f64,
) {
    let bottom = top + BAR_STEP * subjects.len() as f64 - 2.0;
    for tick in axis.ticks() {
        let x = left + axis.at(tick);
        let _ = writeln!(svg, "<path d=\"M{x:.1} {:.1}V{bottom:.1}\" class=\"grid\"/>", top - 3.0);
        let style = "text-anchor=\"middle\" font-size=\"10\"";
        text(svg, x, bottom + 13.0, "faint", style, &short(tick));
    }
    for (line, (subject, cell)) in subjects.iter().zip(cells).enumerate() {
        let y = top + BAR_STEP * line as f64;
        let Some(cell) = cell else {
            text(svg, left + 6.0, y + 13.0, "faint", "", "not measured");
            continue;
        };
        draw_bar(svg, axis, *subject, cell, left, y);
    }
}

/// The bar with stale replies on it, if they fit, and the requests per second behind it.
fn draw_bar(svg: &mut String, axis: &Axis, subject: Subject, cell: &Cell, left: f64, y: f64) {
    let speed = &cell.requests_per_s;
    let (bar, low, high) = (axis.at(speed.median), axis.at(speed.min), axis.at(speed.max));
    let class = class(subject);
    let _ = writeln!(
        svg,
        "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{bar:.1}\" height=\"{BAR_HEIGHT}\" class=\"bar {class}\"/>"
    );
    if high - low > 1.0 {
        let (from, to, middle) = (left + low, left + high, y + BAR_HEIGHT - 3.0);
        let end = middle - 2.5;
        let _ = writeln!(
            svg,
            "<path d=\"M{from:.1} {middle:.1}H{to:.1}M{from:.1} {end:.1}v5M{to:.1} {end:.1}v5\" class=\"whisker\" stroke-opacity=\"0.6\"/>"
        );
    }
    let mut x = left + high.max(bar) + 5.0;
    let number = grouped(speed.median);
    text(svg, x, y + 13.0, "text", "", &number);
    let stale = stale_words(cell);
    let bold =
        if cell.stale > 0 { "font-size=\"11\" font-weight=\"700\"" } else { "font-size=\"11\"" };
    if stale.len() as f64 * CHARACTER_WIDTH + 10.0 < bar {
        text(svg, left + 5.0, y + 12.5, "on", bold, &stale);
    } else {
        x += number.len() as f64 * 7.0 + 8.0;
        text(svg, x, y + 12.5, if cell.stale > 0 { "stale" } else { "faint" }, bold, &stale);
    }
}

/// Without edits nothing can be stale, and nothing is said unless something was.
fn stale_words(cell: &Cell) -> String {
    match (cell.stale, cell.edits) {
        (0, 0) => String::new(),
        (0, _) => format!("0 of {} stale", grouped(cell.checked as f64)),
        (stale, _) => {
            format!("{} of {} stale", grouped(stale as f64), grouped(cell.checked as f64))
        }
    }
}

fn rate_words(rate: u32) -> String {
    match rate {
        0 => "no edits".to_owned(),
        1 => "1 edit per second".to_owned(),
        rate => format!("{rate} edits per second"),
    }
}

/// 10, 1k, 100k.
fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.0}M", value / 1e6),
        value if value >= 1e3 => format!("{:.0}k", value / 1e3),
        value => format!("{value}"),
    }
}

/// One hue per program, the longer time darker.
fn class(subject: Subject) -> &'static str {
    match subject {
        Subject::Nginx60 => "nginx60",
        Subject::Nginx1 => "nginx1",
        Subject::Varnish60 => "varnish60",
        Subject::Varnish1 => "varnish1",
        Subject::Nicache => "nicache",
        Subject::Server | Subject::CardBypassed | Subject::CardBypassedUnwatched => "server",
    }
}

fn text(svg: &mut String, x: f64, y: f64, class: &str, style: &str, words: &str) {
    if words.is_empty() {
        return;
    }
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    let _ =
        writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\" {style}>{words}</text>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dynamic::Page;

    #[test]
    fn every_subject_has_a_bar_in_every_panel() {
        let svg = draw(&super::super::report::tests::report());
        assert_eq!(svg.matches("class=\"bar ").count(), Page::ALL.len() * 3 * Subject::ALL.len());
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        assert!(svg.contains(">200 of 400 stale<") && svg.contains(">0 of 400 stale<"), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn an_axis_has_all_values() {
        let axis = Axis::over([30.0, 60_000.0, 0.0], 100.0);
        assert_eq!((axis.from, axis.to), (1, 5));
        assert_eq!((axis.at(10.0), axis.at(1000.0), axis.at(100_000.0)), (0.0, 50.0, 100.0));
        assert_eq!((axis.at(0.0), axis.at(1e9)), (0.0, 100.0));
        assert_eq!(Axis::over([11.0, 12.0], 1.0).from, 0, "a bar that can be seen");
        assert_eq!(Axis::over([], 1.0).ticks().collect::<Vec<_>>(), [1.0, 10.0]);
        assert_eq!([10.0, 1e3, 1e5, 1e6].map(short), ["10", "1k", "100k", "1M"]);
    }
}
