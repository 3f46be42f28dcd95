//! The report as a picture (SVG): a row per kind of script; the share of sets that are too large,
//! the most that one has too many, and what edits led to. Colours follow the reader's choice of
//! light or dark.

use std::fmt::Write as _;

use super::methods::Method;
use super::report::{CaseReport, Point, Report};

const PANEL_WIDTH: f64 = 330.0;
const PANEL_HEIGHT: f64 = 190.0;
const LEFT: f64 = 64.0;
const GAP: f64 = 76.0;
const TOP: f64 = 128.0;
const ROW: f64 = PANEL_HEIGHT + 92.0;
const BARS_LEFT: f64 = 190.0;
const BARS_WIDTH: f64 = 130.0;
const BAR_STEP: f64 = 52.0;
const BAR_HEIGHT: f64 = 13.0;
const BOTTOM: f64 = 40.0;

const STYLE: &str = "<style>
.page { fill: #ffffff } .text { fill: #1f2328 } .faint { fill: #59636e } .grid { stroke: #d1d9e0; fill: none }
.line { fill: none; stroke-width: 2 } .contraction { stroke: #6ea8dc } .exact { stroke: #f0953f } .union { stroke: #9aa4af; stroke-width: 6; stroke-opacity: 0.55 }
.wrong { fill: #aacdee } .missed { fill: #c2185b } .refused { fill: #d8c7a0 }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117 } .text { fill: #e6edf3 } .faint { fill: #9198a1 } .grid { stroke: #30363d } .missed { fill: #ff6f9f }
}
</style>
";

/// An axis from 0.
#[derive(Debug, Clone, Copy)]
struct Axis {
    most: f64,
    step: f64,
}

impl Axis {
    /// One that has all values, with a handful of round steps.
    fn over(values: impl IntoIterator<Item = f64>) -> Self {
        let most = values.into_iter().fold(0.0, f64::max).max(1e-9);
        let power = 10_f64.powf((most / 4.0).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|times| times * power)
            .into_iter()
            .find(|step| most / step <= 5.0);
        let step = step.unwrap_or(10.0 * power);
        Self { most: (most / step).ceil() * step, step }
    }

    fn at(&self, value: f64) -> f64 {
        (value / self.most).clamp(0.0, 1.0)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        (0..=(self.most / self.step).round() as u32).map(|number| f64::from(number) * self.step)
    }
}

/// Draws a report.
pub fn draw(report: &Report) -> String {
    let width = LEFT + 2.0 * (PANEL_WIDTH + GAP) + BARS_LEFT + BARS_WIDTH + 170.0;
    let height = TOP + ROW * report.cases.len() as f64 + BOTTOM;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"system-ui, Helvetica, Arial, sans-serif\" font-size=\"12\">\n{STYLE}\
         <rect width=\"100%\" height=\"100%\" class=\"page\"/>\n"
    );
    let title = "Which files is a page made of? Three answers from one run, and what they lead to";
    text(&mut svg, 16.0, 30.0, "text", "font-size=\"18\" font-weight=\"600\"", title);
    text(&mut svg, 16.0, 52.0, "faint", "", &report.setting.words());
    let busy = if report.setting.busy { "; the machine was busy with something else" } else { "" };
    let machine = format!(
        "Linux {}, {} CPUs; {}{busy}",
        report.setting.kernel,
        report.setting.cpus,
        report.setting.versions.join("; ")
    );
    text(&mut svg, 16.0, 69.0, "faint", "", &machine);
    let mut x = 16.0;
    for method in Method::DRAWN {
        let _ = writeln!(svg, "<path d=\"M{x:.1} 90h22\" class=\"line {}\"/>", class(method));
        text(&mut svg, x + 28.0, 94.0, "text", "", method.label());
        x += 28.0 + method.label().len() as f64 * 6.6 + 24.0;
    }
    for (row, case) in report.cases.iter().enumerate() {
        draw_case(&mut svg, case, TOP + ROW * row as f64);
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_case(svg: &mut String, case: &CaseReport, top: f64) {
    let bold = "font-size=\"14\" font-weight=\"600\"";
    let heading =
        format!("{}, {:.1} requests in flight on average", case.script.label(), case.in_flight);
    text(svg, 16.0, top, "text", bold, &heading);
    let top = top + 34.0;
    let shares = |point: &Point, at: usize| point.share(at) * 100.0;
    let excesses = |point: &Point, at: usize| point.sizes[at].excess as f64;
    let lefts = [LEFT, LEFT + PANEL_WIDTH + GAP];
    draw_panel(svg, case, lefts[0], top, "sets with files of other pages, % of all sets", shares);
    draw_panel(svg, case, lefts[1], top, "most files of other pages in one set", excesses);
    draw_bars(svg, case, LEFT + 2.0 * (PANEL_WIDTH + GAP), top);
}

fn draw_panel(
    svg: &mut String,
    case: &CaseReport,
    left: f64,
    top: f64,
    title: &str,
    value: impl Fn(&Point, usize) -> f64,
) {
    let methods = 0..Method::DRAWN.len();
    let across = Axis::over(case.points.iter().map(|point| point.requests as f64));
    let up = Axis::over(
        case.points
            .iter()
            .flat_map(|point| methods.clone().map(|at| value(point, at)).collect::<Vec<_>>()),
    );
    let (x, y) = (
        |value: f64| left + across.at(value) * PANEL_WIDTH,
        |value: f64| top + (1.0 - up.at(value)) * PANEL_HEIGHT,
    );
    text(svg, left, top - 10.0, "faint", "", title);
    for tick in up.ticks() {
        let _ =
            writeln!(svg, "<path d=\"M{left:.1} {:.1}h{PANEL_WIDTH}\" class=\"grid\"/>", y(tick));
        text(
            svg,
            left - 6.0,
            y(tick) + 4.0,
            "faint",
            "text-anchor=\"end\" font-size=\"10\"",
            &short(tick),
        );
    }
    for tick in across.ticks() {
        text(
            svg,
            x(tick),
            top + PANEL_HEIGHT + 15.0,
            "faint",
            "text-anchor=\"middle\" font-size=\"10\"",
            &short(tick),
        );
    }
    let below = "text-anchor=\"middle\" font-size=\"11\"";
    text(
        svg,
        left + PANEL_WIDTH / 2.0,
        top + PANEL_HEIGHT + 31.0,
        "faint",
        below,
        "requests answered",
    );
    // The widest line below the others.
    for at in methods.rev() {
        let mut path = String::new();
        for point in &case.points {
            let pen = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{pen}{:.1} {:.1}", x(point.requests as f64), y(value(point, at)));
        }
        let _ = writeln!(svg, "<path d=\"{path}\" class=\"line {}\"/>", class(Method::DRAWN[at]));
    }
}

/// Wrong and missed purges of each method, and replies that it refused to keep.
fn draw_bars(svg: &mut String, case: &CaseReport, left: f64, top: f64) {
    text(svg, left, top - 10.0, "faint", "", &format!("what {} edits led to: pages", case.edits));
    let counts = case.methods.iter().flat_map(|found| {
        [found.purges.wrong as f64, found.purges.missed as f64, found.purges.refused as f64]
    });
    let axis = Axis::over(counts);
    for (line, found) in case.methods.iter().enumerate() {
        let y = top + 6.0 + BAR_STEP * line as f64;
        text(
            svg,
            left + BARS_LEFT - 8.0,
            y + 25.0,
            "text",
            "text-anchor=\"end\"",
            found.method.label(),
        );
        let purges = found.purges;
        let bars = [
            (purges.wrong, "wrong", "purged wrongly"),
            (purges.missed, "missed", "missed: stale"),
            (purges.refused, "refused", "needlessly not kept"),
        ];
        for (number, (count, class, word)) in bars.into_iter().enumerate() {
            let (y, bar) =
                (y + (BAR_HEIGHT + 1.5) * number as f64, axis.at(count as f64) * BARS_WIDTH);
            let _ = writeln!(
                svg,
                "<rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{bar:.1}\" height=\"{BAR_HEIGHT}\" class=\"bar {class}\"/>",
                left + BARS_LEFT
            );
            let bold = if class == "missed" && count > 0 {
                "font-size=\"11\" font-weight=\"700\""
            } else {
                "font-size=\"11\""
            };
            text(
                svg,
                left + BARS_LEFT + bar + 5.0,
                y + 10.5,
                "text",
                bold,
                &format!("{count} {word}"),
            );
        }
    }
}

fn class(method: Method) -> &'static str {
    match method {
        Method::Contraction => "contraction",
        Method::Exact | Method::Whole => "exact",
        Method::Union => "union",
    }
}

fn short(value: f64) -> String {
    if value > 0.0 && value < 1.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

fn text(svg: &mut String, x: f64, y: f64, class: &str, style: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    let _ =
        writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\" {style}>{words}</text>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_has_its_lines_and_bars() {
        let svg = draw(&super::super::report::tests::report());
        for method in Method::DRAWN {
            assert_eq!(
                svg.matches(&format!("class=\"line {}\"", class(method))).count(),
                1 + 2 * 2
            );
        }
        assert_eq!(svg.matches("class=\"bar ").count(), 2 * 3 * Method::ALL.len());
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn an_axis_has_all_values_and_few_steps() {
        for most in [0.0, 0.3, 1.0, 7.0, 99.0, 260.0, 6000.0] {
            let axis = Axis::over([most]);
            assert!(axis.most >= most && (2..=7).contains(&axis.ticks().count()), "{axis:?}");
        }
    }
}
