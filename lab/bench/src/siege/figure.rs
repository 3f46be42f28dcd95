//! The report as a picture (SVG): for each attack the client's requests per second, the card's
//! connections and its memory over time; the attack is shaded.

use std::fmt::Write as _;

use super::report::{Moment, Outcome, Report};
use crate::wire::grouped;

const LEFT: f64 = 16.0;
const PANEL_WIDTH: f64 = 300.0;
const PANEL_HEIGHT: f64 = 92.0;
const GAP: f64 = 28.0;
const TOP: f64 = 76.0;
const ROW: f64 = PANEL_HEIGHT + 74.0;
const MEGABYTE: f64 = 1_048_576.0;

/// One panel: what it shows, and the lines in it with their colours.
struct Panel {
    title: &'static str,
    lines: &'static [Line],
}

/// A colour and what it stands for.
type Line = (&'static str, fn(&Moment) -> f64);

const PANELS: [Panel; 3] = [
    Panel { title: "client, requests/s", lines: &[("#e8871e", |moment| moment.requests_per_s)] },
    Panel {
        title: "connections (dark: half open)",
        lines: &[
            ("#5b8db8", |moment| moment.flows as f64),
            ("#1f3d5a", |moment| moment.half_open as f64),
        ],
    },
    Panel {
        title: "memory of the card, MB",
        lines: &[("#7b5aa6", |moment| moment.resident_bytes as f64 / MEGABYTE)],
    },
];

/// Draws a report.
pub fn draw(report: &Report) -> String {
    let width = 2.0 * LEFT + (PANEL_WIDTH + GAP) * PANELS.len() as f64 - GAP;
    let height = TOP + ROW * report.outcomes.len() as f64 + 24.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"system-ui, Helvetica, Arial, sans-serif\" font-size=\"12\" fill=\"#222\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    text(
        &mut svg,
        LEFT,
        28.0,
        "start",
        "font-size=\"18\" font-weight=\"600\"",
        "A card under attack",
    );
    let setting = &report.setting;
    let caption = format!(
        "Four connections of a client that behaves; grey: the attack. Linux {}, {} CPUs",
        setting.kernel, setting.cpus
    );
    text(&mut svg, LEFT, 48.0, "start", "fill=\"#666\"", &caption);
    for (number, outcome) in report.outcomes.iter().enumerate() {
        let top = TOP + ROW * number as f64;
        let words = if outcome.passed() { "all criteria met" } else { "NOT all criteria met" };
        let title =
            format!("{}: {} frames, {words}", outcome.attack.label(), grouped(outcome.sent as f64));
        text(&mut svg, LEFT, top + 14.0, "start", "font-size=\"13\" font-weight=\"600\"", &title);
        for (column, panel) in PANELS.iter().enumerate() {
            draw_panel(
                &mut svg,
                panel,
                outcome,
                LEFT + (PANEL_WIDTH + GAP) * column as f64,
                top + 34.0,
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_panel(svg: &mut String, panel: &Panel, outcome: &Outcome, left: f64, top: f64) {
    let end_s = outcome.moments.last().map_or(1.0, |moment| moment.at_s).max(1e-3);
    let values = panel.lines.iter().flat_map(|(_, value)| outcome.moments.iter().map(value));
    let most = values.fold(1.0, f64::max);
    let bottom = top + PANEL_HEIGHT;
    let x = |at_s: f64| left + at_s / end_s * PANEL_WIDTH;
    let [from, to] = outcome.attack_s.map(x);
    let _ = writeln!(
        svg,
        "<rect x=\"{from:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{PANEL_HEIGHT}\" fill=\"#ececec\"/>",
        to - from
    );
    for (colour, value) in panel.lines {
        let mut path = String::new();
        for (at, moment) in outcome.moments.iter().enumerate() {
            let y = bottom - value(moment) / most * (PANEL_HEIGHT - 4.0);
            let _ = write!(path, "{}{:.1} {y:.1}", if at == 0 { 'M' } else { 'L' }, x(moment.at_s));
        }
        let _ = writeln!(
            svg,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>"
        );
    }
    let _ = writeln!(
        svg,
        "<path d=\"M{left:.1} {top:.1}V{bottom:.1}H{:.1}\" fill=\"none\" stroke=\"#999\"/>",
        left + PANEL_WIDTH
    );
    let small = "fill=\"#666\" font-size=\"11\"";
    text(
        svg,
        left,
        top - 5.0,
        "start",
        small,
        &format!("{}; at most {}", panel.title, grouped(most)),
    );
    text(svg, left, bottom + 13.0, "start", small, "0 s");
    text(svg, left + PANEL_WIDTH, bottom + 13.0, "end", small, &format!("{end_s:.0} s"));
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, style: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {style}>{words}</text>"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attack_has_its_panels() {
        let report = super::super::report::tests::report();
        let svg = draw(&report);
        assert_eq!(svg.matches("fill=\"#ececec\"").count(), PANELS.len() * report.outcomes.len());
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }
}
