//! The report as a picture (SVG), after the paper's Figures 4 and 7: for each trace, number of
//! cards and memory a bar of what crosses the bus, by class, against no cache; and the throughput.

use std::fmt::Write as _;

use super::report::{Report, Row};

const CLASSES: [(&str, &str); 5] = [
    ("HTTP content", "#2f6db3"),
    ("bus overhead", "#c25e00"),
    ("network headers", "#5a9a4a"),
    ("HTTP headers", "#9166ad"),
    ("other", "#9a9a9a"),
];
const WIDTH: f64 = 920.0;
const LEFT: f64 = 60.0;
const PANEL_HEIGHT: f64 = 190.0;
const PANEL_STEP: f64 = 290.0;
const TOP: f64 = 118.0;

/// Draws a report.
pub fn draw(report: &Report) -> String {
    let height = TOP + PANEL_STEP + PANEL_HEIGHT + 70.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"system-ui, Helvetica, Arial, sans-serif\" font-size=\"12\" fill=\"#222\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    text(
        &mut svg,
        16.0,
        28.0,
        "start",
        "font-size=\"18\" font-weight=\"600\"",
        "What card memory keeps off the bus",
    );
    let caption = "nicache serve on a modelled PCI bus (64 bits, 33 MHz) that all cards share; web logs, infinite demand. After Kim et al. 2002, Fig. 7";
    text(&mut svg, 16.0, 48.0, "start", "fill=\"#666\"", caption);
    for (number, (name, colour)) in CLASSES.iter().enumerate() {
        let x = 16.0 + 150.0 * number as f64;
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"62\" width=\"12\" height=\"12\" fill=\"{colour}\"/>"
        );
        text(&mut svg, x + 18.0, 72.0, "start", "", name);
    }
    let rows: Vec<&Row> = report.rows.iter().filter(|row| row.is_modelled).collect();
    let groups = groups(&rows);
    let bars = rows.len() as f64 + groups.len() as f64;
    let step = (WIDTH - LEFT - 20.0) / bars.max(1.0);
    let most = rows.iter().map(|row| row.mbit_per_s.median).fold(1.0, f64::max);
    let most = (most / 400.0).ceil() * 400.0;
    panel(&mut svg, TOP, "Traffic over the bus for the same content; 100 %: no cache", "%", 100.0);
    panel(
        &mut svg,
        TOP + PANEL_STEP,
        "Throughput, megabits of content per second; percent more than without memory",
        "",
        most,
    );
    let mut x = LEFT + step / 2.0;
    for group in &groups {
        let base = group.iter().find(|row| row.memory_bytes == 0).map_or(1.0, |row| row.traffic());
        let middle = x + step * group.len() as f64 / 2.0;
        for row in group {
            let bottom = TOP + PANEL_HEIGHT;
            let mut top = bottom;
            for (share, (name, colour)) in row.per_body_byte.iter().zip(CLASSES) {
                let bar = PANEL_HEIGHT * share / base;
                top -= bar;
                let _ = writeln!(
                    svg,
                    "<rect x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{bar:.1}\" fill=\"{colour}\"><title>{} MB, {name}: {:.1} \
                     %</title></rect>",
                    x + 2.0,
                    step - 4.0,
                    row.memory_bytes >> 20,
                    100.0 * share / base
                );
            }
            let label = format!("{:.0}", 100.0 * row.traffic() / base);
            text(&mut svg, x + step / 2.0, top - 4.0, "middle", "font-size=\"10\"", &label);
            let bottom = TOP + PANEL_STEP + PANEL_HEIGHT;
            let bar = PANEL_HEIGHT * row.mbit_per_s.median / most;
            let _ = writeln!(
                svg,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{bar:.1}\" fill=\"#2f6db3\"/>",
                x + 2.0,
                bottom - bar,
                step - 4.0
            );
            let scale = |value: f64| bottom - PANEL_HEIGHT * value / most;
            let _ = writeln!(
                svg,
                "<line x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{1:.1}\" y2=\"{2:.1}\" stroke=\"#222\"/>",
                x + step / 2.0,
                scale(row.mbit_per_s.min),
                scale(row.mbit_per_s.max)
            );
            let label = match row.benefit {
                Some(benefit) if row.memory_bytes > 0 => format!("{:+.0}", 100.0 * benefit),
                _ => format!("{:.0}", row.mbit_per_s.median),
            };
            let y = scale(row.mbit_per_s.max.max(row.mbit_per_s.median)) - 4.0;
            text(&mut svg, x + step / 2.0, y, "middle", "font-size=\"10\"", &label);
            for top in [TOP, TOP + PANEL_STEP] {
                let label = (row.memory_bytes >> 20).to_string();
                text(
                    &mut svg,
                    x + step / 2.0,
                    top + PANEL_HEIGHT + 16.0,
                    "middle",
                    "font-size=\"10\"",
                    &label,
                );
            }
            x += step;
        }
        x += step;
        if let Some(first) = group.first() {
            for top in [TOP, TOP + PANEL_STEP] {
                text(
                    &mut svg,
                    middle,
                    top + PANEL_HEIGHT + 34.0,
                    "middle",
                    "font-weight=\"600\"",
                    &short(&first.trace),
                );
                let cards =
                    format!("{} card{}", first.cards, if first.cards == 1 { "" } else { "s" });
                text(
                    &mut svg,
                    middle,
                    top + PANEL_HEIGHT + 50.0,
                    "middle",
                    "fill=\"#666\"",
                    &cards,
                );
            }
        }
    }
    for top in [TOP, TOP + PANEL_STEP] {
        text(
            &mut svg,
            16.0,
            top + PANEL_HEIGHT + 16.0,
            "start",
            "font-size=\"10\" fill=\"#666\"",
            "MB",
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// Rows of one trace and number of cards each.
fn groups<'a>(rows: &[&'a Row]) -> Vec<Vec<&'a Row>> {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        match groups.last_mut() {
            Some(group) if (&group[0].trace, group[0].cards) == (&row.trace, row.cards) => {
                group.push(row);
            }
            _ => groups.push(vec![row]),
        }
    }
    groups
}

fn short(name: &str) -> String {
    name.chars().take(16).collect()
}

fn panel(svg: &mut String, top: f64, title: &str, unit: &str, most: f64) {
    text(svg, 16.0, top - 18.0, "start", "font-size=\"13\" font-weight=\"600\"", title);
    for quarter in 0..=4 {
        let y = top + PANEL_HEIGHT * (1.0 - f64::from(quarter) / 4.0);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#e4e4e4\"/>",
            WIDTH - 20.0
        );
        let label = format!("{:.0} {unit}", most * f64::from(quarter) / 4.0);
        text(svg, LEFT - 6.0, y + 4.0, "end", "font-size=\"10\" fill=\"#666\"", label.trim());
    }
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, style: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {style}>{words}</text>"
    );
}
