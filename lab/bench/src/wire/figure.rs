//! The report as a picture (SVG): one panel per object and measure, one bar per subject, whiskers
//! from the least to the most.

use std::fmt::Write as _;

use super::cell::Mode;
use super::report::{Cell, Report, grouped};
use super::site::Object;
use super::subject::Subject;
use crate::Summary;

const LABELS_WIDTH: f64 = 212.0;
/// Room for the longest line of text.
const WIDTH_MIN: f64 = 860.0;
const PANEL_WIDTH: f64 = 214.0;
const BAR_HEIGHT: f64 = 15.0;
const BAR_STEP: f64 = 21.0;
const ROW_TITLE: f64 = 44.0;
const TOP: f64 = 74.0;
/// Notes at the bottom: from line to line, and from letter to letter.
const NOTE_STEP: f64 = 16.0;
const NOTE_LETTER: f64 = 6.2;
/// Room right of the longest bar for its number.
const NUMBER_WIDTH: f64 = 58.0;

/// One row of panels.
struct Row {
    title: &'static str,
    mode: Mode,
    value: fn(&Cell) -> Summary,
    decimals: bool,
}

const ROWS: [Row; 6] = [
    Row {
        title: "Requests per second, connections kept open (64; 16 for 100 KB, 4 for 1 MB): more is better",
        mode: Mode::KeepAlive,
        value: |cell| cell.requests_per_s,
        decimals: false,
    },
    Row {
        title: "Requests per second, a connection for each request: more is better",
        mode: Mode::Close,
        value: |cell| cell.requests_per_s,
        decimals: false,
    },
    Row {
        title: "Median latency of one connection, microseconds: less is better",
        mode: Mode::One,
        value: |cell| cell.p50_us,
        decimals: false,
    },
    Row {
        title: "CPU time of the serving side per request, microseconds, connections kept open: less is better",
        mode: Mode::KeepAlive,
        value: |cell| cell.server_cpu_us,
        decimals: true,
    },
    Row {
        title: "Requests per second, connections kept open, client and serving side share both CPUs: more is better",
        mode: Mode::Shared,
        value: |cell| cell.requests_per_s,
        decimals: false,
    },
    Row {
        title: "CPU time of the whole machine per request there, client included, microseconds: less is better",
        mode: Mode::Shared,
        value: |cell| cell.machine_cpu_us,
        decimals: true,
    },
];

/// Draws a report.
pub fn draw(report: &Report) -> String {
    let (objects, subjects) = (report.objects(), report.subjects());
    let row_height = ROW_TITLE + BAR_STEP * subjects.len() as f64 + 12.0;
    let width = (LABELS_WIDTH + PANEL_WIDTH * objects.len() as f64 + 16.0).max(WIDTH_MIN);
    let mut notes = vec![format!("nginx: {}", report.setting.nginx)];
    notes.extend(wrapped(&report.setting.versions, "; ", ((width - 32.0) / NOTE_LETTER) as usize));
    let height = TOP + row_height * ROWS.len() as f64 + 18.0 + NOTE_STEP * notes.len() as f64;
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
        "Who answers the client, and how fast",
    );
    let setting = &report.setting;
    let caption = format!(
        "wrk on one CPU, the whole serving side on another, but where it says so; Linux {}; medians of {} rounds of {} s, lines from the least to the most",
        setting.kernel, setting.rounds, setting.seconds
    );
    text(&mut svg, 16.0, 48.0, "start", "fill=\"#666\"", &caption);
    for (number, row) in ROWS.iter().enumerate() {
        let top = TOP + row_height * number as f64;
        text(
            &mut svg,
            16.0,
            top + 14.0,
            "start",
            "font-size=\"13\" font-weight=\"600\"",
            row.title,
        );
        for (line, subject) in subjects.iter().enumerate() {
            let y = top + ROW_TITLE + BAR_STEP * line as f64;
            text(&mut svg, LABELS_WIDTH - 10.0, y + 12.0, "end", "", subject.label());
        }
        for (column, object) in objects.iter().enumerate() {
            let left = LABELS_WIDTH + PANEL_WIDTH * column as f64;
            draw_panel(&mut svg, report, row, object, &subjects, left, top);
        }
    }
    let small = "fill=\"#666\" font-size=\"11\"";
    for (number, line) in notes.iter().enumerate() {
        let y = height - 14.0 - NOTE_STEP * (notes.len() - 1 - number) as f64;
        text(&mut svg, 16.0, y, "start", small, line);
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_panel(
    svg: &mut String,
    report: &Report,
    row: &Row,
    object: &Object,
    subjects: &[Subject],
    left: f64,
    top: f64,
) {
    text(svg, left, top + 35.0, "start", "fill=\"#666\"", &object.label());
    let values: Vec<Option<Summary>> = subjects
        .iter()
        .map(|subject| report.cell(row.mode, object, *subject).map(row.value))
        .collect();
    let most = values.iter().flatten().map(|value| value.max).fold(f64::MIN_POSITIVE, f64::max);
    let scale = (PANEL_WIDTH - NUMBER_WIDTH - 14.0) / most;
    let bars_top = top + ROW_TITLE;
    let bottom = bars_top + BAR_STEP * subjects.len() as f64 - 4.0;
    let _ =
        writeln!(svg, "<path d=\"M{left} {:.1}V{bottom:.1}\" stroke=\"#999\"/>", bars_top - 2.0);
    for (line, (subject, value)) in subjects.iter().zip(values).enumerate() {
        let y = bars_top + BAR_STEP * line as f64;
        let Some(value) = value else {
            text(svg, left + 6.0, y + 12.0, "start", "fill=\"#999\"", "not measured");
            continue;
        };
        let (bar, low, high) = (value.median * scale, value.min * scale, value.max * scale);
        let _ = writeln!(
            svg,
            "<rect x=\"{left}\" y=\"{y:.1}\" width=\"{bar:.1}\" height=\"{BAR_HEIGHT}\" fill=\"{}\"/>",
            colour(*subject)
        );
        if high - low > 1.0 {
            draw_whisker(svg, left + low, left + high, y + BAR_HEIGHT / 2.0);
        }
        let number = if row.decimals && value.median < 1000.0 {
            format!("{:.1}", value.median)
        } else {
            grouped(value.median)
        };
        text(svg, left + high.max(bar) + 5.0, y + 12.0, "start", "", &number);
    }
}

fn draw_whisker(svg: &mut String, from: f64, to: f64, y: f64) {
    let end = y - 3.0;
    let _ = writeln!(
        svg,
        "<path d=\"M{from:.1} {y:.1}H{to:.1}M{from:.1} {end:.1}v6M{to:.1} {end:.1}v6\" stroke=\"#222\" stroke-opacity=\"0.6\"/>"
    );
}

/// Grey for what is there without us, orange for the card; told apart by label and place, too.
fn colour(subject: Subject) -> &'static str {
    match subject {
        Subject::Nginx => "#8c8c8c",
        Subject::NginxPlain => "#bdbdbd",
        Subject::Apache => "#a8846b",
        Subject::Varnish => "#5b8db8",
        Subject::Haproxy => "#9bbdd6",
        Subject::CardMiss => "#f3c998",
        Subject::CardHit => "#e8871e",
        Subject::CardHitHandshake => "#c25e00",
        Subject::CardHitVeth => "#a64b00",
        Subject::CardHitL0 => "#8a3d00",
        Subject::Floor => "#d9d2c5",
        Subject::Serve => "#7b5aa6",
    }
}

/// Words with something between them in lines of at most so many letters, or of one word.
fn wrapped(words: &[String], between: &str, letters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line)
                if line.chars().count() + between.len() + word.chars().count() <= letters =>
            {
                *line += between;
                *line += word;
            }
            _ => lines.push(word.clone()),
        }
    }
    lines
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
    fn words_go_into_lines() {
        let words = ["one", "two", "three", "a long one"].map(str::to_owned);
        assert_eq!(wrapped(&words, "; ", 8), ["one; two", "three", "a long one"]);
        assert!(wrapped(&[], "; ", 8).is_empty());
    }

    #[test]
    fn every_subject_has_a_bar_in_every_panel() {
        let svg = draw(&super::super::report::tests::report());
        let panels = ROWS.len() * super::super::site::OBJECTS.len();
        assert_eq!(svg.matches("height=\"15\"").count(), panels * Subject::ALL.len());
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }
}
