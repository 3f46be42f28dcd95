//! The report as a picture (SVG): a line per condition, and on it how far each subject comes beside
//! Linux, on a scale of factors.

use std::fmt::Write as _;

use super::report::{Report, SHARE_MIN};
use super::subject::Subject;

const LABELS_WIDTH: f64 = 330.0;
const PLOT_WIDTH: f64 = 460.0;
const NUMBERS_WIDTH: f64 = 90.0;
const ROW: f64 = 17.0;
const TOP: f64 = 96.0;
/// Factors at the left and right end.
const LEAST: f64 = 0.25;
const MOST: f64 = 4.0;

/// Draws a report.
pub fn draw(report: &Report) -> String {
    let conditions = report.conditions();
    let width = LABELS_WIDTH + PLOT_WIDTH + NUMBERS_WIDTH + 16.0;
    let bottom = TOP + ROW * conditions.len() as f64;
    let height = bottom + 44.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"system-ui, Helvetica, Arial, sans-serif\" font-size=\"12\" fill=\"#222\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    text(
        &mut svg,
        16.0,
        28.0,
        "start",
        "font-size=\"18\" font-weight=\"600\"",
        "Goodput on bad paths, beside Linux",
    );
    let caption = format!(
        "Linux {} with CUBIC is 1; right of it is more. Geometric means of pairs, with 95 %; seed {}",
        report.setting.kernel, report.setting.seed
    );
    text(&mut svg, 16.0, 48.0, "start", "fill=\"#666\"", &caption);
    for (number, subject) in Subject::ALL[1..].iter().enumerate() {
        let x = LABELS_WIDTH + 150.0 * number as f64;
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"66\" r=\"4.5\" fill=\"{}\"/>",
            colour(*subject)
        );
        text(&mut svg, x + 10.0, 70.0, "start", "", subject.label());
    }
    for factor in [0.25, 0.5, SHARE_MIN, 1.0, 2.0, 4.0] {
        let x = place(factor);
        let dash = if factor == SHARE_MIN { " stroke-dasharray=\"3 3\"" } else { "" };
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.1} {:.1}V{bottom:.1}\" stroke=\"#bbb\"{dash}/>",
            TOP - 6.0
        );
        if factor != SHARE_MIN {
            text(
                &mut svg,
                x,
                TOP - 10.0,
                "middle",
                "fill=\"#666\" font-size=\"11\"",
                &format!("{factor}"),
            );
        }
    }
    for (number, condition) in conditions.iter().enumerate() {
        let y = TOP + ROW * (number as f64 + 0.5);
        text(&mut svg, LABELS_WIDTH - 12.0, y + 4.0, "end", "font-size=\"11\"", &condition.label());
        for subject in &Subject::ALL[1..] {
            if let Some(mean) = report.cell(condition, *subject).and_then(|cell| cell.share_mean) {
                let (x, low, high) = (place(mean.share), place(mean.low), place(mean.high));
                let _ = writeln!(
                    svg,
                    "<path d=\"M{low:.1} {y:.1}H{high:.1}\" stroke=\"{}\"/>",
                    colour(*subject)
                );
                let _ = writeln!(
                    svg,
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\" fill=\"{}\"/>",
                    colour(*subject)
                );
            }
        }
        if let Some(linux) = report.cell(condition, Subject::Linux) {
            let number = format!("{:.2} Mbit/s", linux.goodput.median);
            text(&mut svg, width - 16.0, y + 4.0, "end", "fill=\"#666\" font-size=\"11\"", &number);
        }
    }
    let small = "fill=\"#666\" font-size=\"11\"";
    text(
        &mut svg,
        16.0,
        height - 14.0,
        "start",
        small,
        "Dashed: 0.9. At the right: Linux' median.",
    );
    svg.push_str("</svg>\n");
    svg
}

fn place(factor: f64) -> f64 {
    let share = (factor.clamp(LEAST, MOST) / LEAST).ln() / (MOST / LEAST).ln();
    LABELS_WIDTH + share * PLOT_WIDTH
}

fn colour(subject: Subject) -> &'static str {
    match subject {
        Subject::Linux => "#8c8c8c",
        Subject::PassThrough => "#e8871e",
        Subject::Card => "#7b3f00",
    }
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
    fn every_condition_has_a_dot_for_each_subject() {
        let report = super::super::report::tests::report();
        let svg = draw(&report);
        assert_eq!(svg.matches("<circle").count(), 2 + 2 * report.conditions().len());
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }
}
