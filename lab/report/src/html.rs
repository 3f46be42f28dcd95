//! A report as one HTML page that needs nothing else: no network, no other file, and for reading no
//! script.
//!
//! Each figure is drawn twice, for wide and for narrow windows, and on a logarithmic x axis also
//! with a linear one; style sheet and script choose what is seen. The page's content security
//! policy (W3C CSP Level 3) allows the one style sheet and the one script that are in it, by their
//! hashes, and nothing from elsewhere; so neither does a name that was not escaped do any harm.
//! Accessibility: WCAG 2.2, level AA; each figure has a table of its data.

use std::collections::HashSet;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::csv::{figure_csv, table_csv};
use crate::drawing::{Drawing, Look, describe, draw};
use crate::escape::{escape, slug};
use crate::grid::Written;
use crate::key::{Sample, swatch};
use crate::paint::{DARK, LIGHT, Paint, Role, appearances};
use crate::scale::{Projection, axis_scale};
use crate::svg::{Size, svg};
use crate::{Fact, Figure, Point, Report, Scale, Section, Series, Table};

const STYLE: &str = include_str!("html/report.css");
const SCRIPT: &str = include_str!("html/report.js");

const WIDE: (f64, f64) = (800.0, 380.0);
const NARROW: (f64, f64) = (360.0, 300.0);
/// More points of a series are not sent to the script; the drawing and the CSV file have all.
const SCRIPT_POINTS_MAX: usize = 2000;
/// More rows are not in a figure's table; the CSV file has all.
const DATA_ROWS_MAX: usize = 200;
/// Where the largest x is so many times the smallest, a linear axis shows only the largest.
const LINEAR_RATIO_MAX: f64 = 1e5;

/// A report as a page.
pub fn html(report: &Report) -> String {
    let style = format!(
        ":root{{color-scheme:light;{light}}}@media screen and (prefers-color-scheme:dark){{\
         :root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}@media screen{{\
         :root[data-theme=dark]{{color-scheme:dark;{dark}}}}}\n{STYLE}",
        light = LIGHT.css(),
        dark = DARK.css()
    );
    let policy = format!(
        "default-src 'none'; style-src '{}'; script-src '{}'; img-src data:; base-uri 'none'; form-action 'none'",
        hash(&style),
        hash(SCRIPT)
    );
    let mut names = Names::default();
    let mut body = String::new();
    for (index, section) in report.sections.iter().enumerate() {
        write_section(&mut body, section, index, &mut names);
    }
    let title = escape(&report.title);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n<title>{title}</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n<style>{style}</style>\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#content\">Skip to the results</a>\n<header>\n<h1>{title}</h1>\n"
    );
    out += "<button class=\"theme\" type=\"button\" hidden aria-label=\"Dark theme\" title=\"Light or dark\">\
            <svg viewBox=\"0 0 18 18\" aria-hidden=\"true\"><circle cx=\"9\" cy=\"9\" r=\"7\" fill=\"none\" \
            stroke=\"currentColor\" stroke-width=\"1.6\"/><path d=\"M9 2a7 7 0 0 1 0 14Z\" fill=\"currentColor\"/></svg>\
            </button>\n";
    if !report.subtitle.trim().is_empty() {
        let _ = writeln!(out, "<p class=\"subtitle\">{}</p>", escape(&report.subtitle));
    }
    write_facts(&mut out, &report.facts);
    if report.sections.len() > 1 {
        out += "<nav aria-label=\"Sections\"><ol>";
        for (index, section) in report.sections.iter().enumerate() {
            let _ = write!(
                out,
                "<li><a href=\"#section-{}\">{}</a></li>",
                index + 1,
                escape(&section.title)
            );
        }
        out += "</ol></nav>\n";
    }
    let _ = write!(out, "</header>\n<main id=\"content\" tabindex=\"-1\">\n{body}</main>\n");
    if !report.footer.trim().is_empty() {
        let _ = writeln!(out, "<footer><p>{}</p></footer>", escape(&report.footer));
    }
    let _ = write!(out, "<script>{SCRIPT}</script>\n</body>\n</html>\n");
    out
}

/// Identifiers of a page, each used once.
#[derive(Default)]
struct Names(HashSet<String>);

impl Names {
    fn unused(&mut self, wanted: &str) -> String {
        // Names of the page's own begin with others.
        let base = format!("plot-{}", slug(wanted));
        let mut name = base.clone();
        let mut number = 2;
        while !self.0.insert(name.clone()) {
            name = format!("{base}-{number}");
            number += 1;
        }
        name
    }
}

fn hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text.as_bytes())))
}

fn write_facts(out: &mut String, facts: &[Fact]) {
    if facts.is_empty() {
        return;
    }
    *out += "<dl class=\"facts\">";
    for fact in facts {
        let (label, value) = (escape(&fact.label), escape(&fact.value));
        let _ = write!(out, "<div><dt>{label}</dt><dd class=\"value\">{value}</dd>");
        if !fact.note.trim().is_empty() {
            let _ = write!(out, "<dd class=\"note\">{}</dd>", escape(&fact.note));
        }
        *out += "</div>";
    }
    *out += "</dl>\n";
}

fn write_section(out: &mut String, section: &Section, index: usize, names: &mut Names) {
    let id = format!("section-{}", index + 1);
    let _ = write!(
        out,
        "<section aria-labelledby=\"{id}\">\n<h2 id=\"{id}\">{}</h2>\n",
        escape(&section.title)
    );
    for text in &section.paragraphs {
        let _ = writeln!(out, "<p>{}</p>", escape(text));
    }
    for figure in &section.figures {
        write_figure(out, figure, &names.unused(&figure.id));
    }
    for table in &section.tables {
        write_table(out, table);
    }
    *out += "</section>\n";
}

fn write_figure(out: &mut String, figure: &Figure, name: &str) {
    let _ = write!(out, "<figure id=\"{name}\" aria-labelledby=\"{name}-title\">\n<figcaption>");
    let _ = write!(out, "<h3 id=\"{name}-title\">{}</h3>", escape(&figure.title));
    if !figure.caption.trim().is_empty() {
        let _ = write!(out, "<p class=\"caption\">{}</p>", escape(&figure.caption));
    }
    *out += "</figcaption>\n";
    let switch = can_be_linear(figure);
    write_controls(out, figure, switch);
    *out += "<div class=\"plot\">";
    let linear =
        Figure { x: crate::Axis { scale: Scale::Linear, ..figure.x.clone() }, ..figure.clone() };
    let given = [(figure, "given wide", WIDE), (figure, "given narrow", NARROW)];
    let others = [(&linear, "linear wide", WIDE), (&linear, "linear narrow", NARROW)];
    let label = escape(&format!("{}. {}", figure.title.trim(), describe(figure)));
    for (index, (drawn, class, size)) in
        given.into_iter().chain(others.into_iter().filter(|_| switch)).enumerate()
    {
        let prefix = format!("{name}-{index}");
        let look = Look {
            width: size.0,
            height: size.1,
            title: false,
            named: false,
            paint: Paint::Variables,
            prefix: &prefix,
        };
        let drawing = draw(drawn, &look);
        let axes = escape(&axes(&drawing));
        let (width, height) = size;
        let _ = write!(
            out,
            "<svg class=\"{class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{label}\" \
             data-axes=\"{axes}\">{}</svg>",
            drawing.svg
        );
    }
    let data = script_data(figure).replace('<', "\\u003c");
    let _ = write!(out, "</div>\n<script type=\"application/json\">{data}</script>\n");
    *out += "<details><summary>Data and downloads</summary>";
    let file = slug(&figure.id);
    let csv = STANDARD.encode(figure_csv(figure));
    let picture = STANDARD.encode(svg(figure, Size::PAGE));
    let _ = writeln!(
        out,
        "<p class=\"links\"><a download=\"{file}.csv\" href=\"data:text/csv;charset=utf-8;base64,{csv}\">Download CSV</a>\
         <a download=\"{file}.svg\" href=\"data:image/svg+xml;base64,{picture}\">Download SVG</a></p>"
    );
    write_data(out, figure);
    *out += "</details>\n</figure>\n";
}

fn can_be_linear(figure: &Figure) -> bool {
    if axis_scale(&figure.x) == Scale::Linear {
        return false;
    }
    let xs = figure.series.iter().flat_map(|series| &series.points).map(|point| point.x);
    let x = Projection::new(&figure.x, xs, false);
    x.max / x.min > 2.0 && x.max / x.min <= LINEAR_RATIO_MAX
}

fn write_controls(out: &mut String, figure: &Figure, switch: bool) {
    if figure.series.len() < 2 && !switch {
        return;
    }
    *out += "<div class=\"controls\">";
    // Where no list is, nothing else moves to its place.
    *out += "<ul class=\"legend\" aria-label=\"Series\">";
    if figure.series.len() > 1 {
        for (index, (series, appearance)) in
            figure.series.iter().zip(appearances(figure)).enumerate()
        {
            let sample = swatch(&Sample { series, appearance }, Paint::Variables, (0.0, 7.0));
            let _ = write!(
                out,
                "<li data-series=\"{index}\"><span><svg viewBox=\"0 0 22 14\" aria-hidden=\"true\">{sample}</svg>{}</span></li>",
                escape(&series.name)
            );
        }
    }
    *out += "</ul>";
    if switch {
        *out += "<div class=\"scale\" role=\"group\" aria-label=\"Scale of the horizontal axis\" hidden>\
                 <button type=\"button\" value=\"given\" aria-pressed=\"true\">Log</button>\
                 <button type=\"button\" value=\"linear\" aria-pressed=\"false\">Linear</button></div>";
    }
    *out += "</div>\n";
}

/// The axes of a drawing, for the script.
fn axes(drawing: &Drawing) -> String {
    let one = |axis: &Projection| {
        json!(
        { "s": axis.scale, "a": axis.min, "b": axis.max, "f": axis.from, "t": axis.to })
    };
    json!({ "x": one(&drawing.x), "y": one(&drawing.y) }).to_string()
}

/// The points of a figure, for the script: x, y, and where there are any, the ends of the error
/// bar.
fn script_data(figure: &Figure) -> String {
    let (log_x, log_y) =
        (axis_scale(&figure.x) != Scale::Linear, axis_scale(&figure.y) != Scale::Linear);
    let has_place =
        |value: f64, log: bool| value.is_finite() && value.abs() <= 1e300 && (!log || value > 0.0);
    let of_point = |point: &Point| {
        let y = has_place(point.y, log_y).then_some(point.y);
        let end = |end: Option<f64>| end.filter(|end| end.is_finite());
        match (end(point.low), end(point.high)) {
            (None, None) => json!([point.x, y]),
            (low, high) => json!([point.x, y, low, high]),
        }
    };
    let of_series = |(series, appearance): (&Series, crate::paint::Appearance)| {
        let Role::Series(colour) = appearance.colour else { return json!(null) };
        let mut points: Vec<&Point> =
            series.points.iter().filter(|point| has_place(point.x, log_x)).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        let points: Vec<_> =
            thinned(&points, SCRIPT_POINTS_MAX).into_iter().map(of_point).collect();
        json!({ "name": series.name, "style": series.style, "colour": format!("s{colour}"),
            "points": points })
    };
    let series: Vec<_> = figure.series.iter().zip(appearances(figure)).map(of_series).collect();
    json!({
        "title": figure.title, "x": figure.x.label, "xUnit": figure.x.unit, "yUnit": figure.y.unit,
        "names": figure.x.names, "series": series,
    })
    .to_string()
}

/// At most so many of the items, equally far apart, the first and the last among them.
fn thinned<T: Copy>(items: &[T], most: usize) -> Vec<T> {
    if items.len() <= most {
        return items.to_vec();
    }
    (0..most).map(|index| items[index * (items.len() - 1) / (most - 1)]).collect()
}

/// What the figure shows as a table: a row for each x.
fn write_data(out: &mut String, figure: &Figure) {
    let mut xs: Vec<f64> =
        figure.series.iter().flat_map(|series| &series.points).map(|point| point.x + 0.0).collect();
    xs.retain(|x| x.is_finite());
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let shown = thinned(&xs, DATA_ROWS_MAX);
    let mut caption = format!("{} by {}", figure.y.label.trim(), figure.x.label.trim());
    if figure.x.label.trim().is_empty() || figure.y.label.trim().is_empty() {
        caption = figure.title.clone();
    }
    if shown.len() < xs.len() {
        let _ = write!(caption, ": {} of {} rows; the CSV file has all", shown.len(), xs.len());
    }
    open_table(out, &caption, "Data of the figure");
    let head = if figure.x.label.trim().is_empty() { "x" } else { figure.x.label.as_str() };
    let _ = write!(out, "<th scope=\"col\">{}</th>", escape(head));
    for series in &figure.series {
        let _ = write!(out, "<th scope=\"col\" class=\"n\">{}</th>", escape(&series.name));
    }
    *out += "</tr></thead><tbody>";
    let sorted: Vec<Vec<&Point>> = figure.series.iter().map(by_x).collect();
    for x in shown {
        let name = match figure.x.names.get(x.round().max(0.0) as usize) {
            Some(name) => name.clone(),
            None => figure.x.unit.format(x),
        };
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escape(&name));
        for points in &sorted {
            let at = points.partition_point(|point| point.x < x);
            let text = points
                .get(at)
                .filter(|point| point.x == x)
                .map_or(String::new(), |point| value(figure, point));
            let _ = write!(out, "<td class=\"n\">{}</td>", escape(&text));
        }
        *out += "</tr>";
    }
    *out += "</tbody></table></div>\n";
}

fn by_x(series: &Series) -> Vec<&Point> {
    let mut points: Vec<&Point> =
        series.points.iter().filter(|point| point.x.is_finite()).collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    points
}

fn value(figure: &Figure, point: &Point) -> String {
    let unit = figure.y.unit;
    let mut text = unit.format(point.y);
    if point.low.is_some() || point.high.is_some() {
        let (low, high) = (point.low.unwrap_or(point.y), point.high.unwrap_or(point.y));
        let _ = write!(text, " ({} to {})", unit.format(low), unit.format(high));
    }
    text
}

/// Up to the first cell of the head.
fn open_table(out: &mut String, caption: &str, label: &str) {
    let _ = write!(
        out,
        "<div class=\"tablebox\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table><caption>{}</caption><thead><tr>",
        escape(label),
        escape(caption)
    );
}

fn write_table(out: &mut String, table: &Table) {
    let written = Written::of(table);
    let class = |index: usize| if written.numeric[index] { " class=\"n\"" } else { "" };
    open_table(
        out,
        &table.title,
        if table.title.trim().is_empty() { "Table" } else { &table.title },
    );
    for (index, head) in written.heads.iter().enumerate() {
        let _ = write!(out, "<th scope=\"col\"{}>{}</th>", class(index), escape(head));
    }
    *out += "</tr></thead><tbody>";
    for (row, cells) in table.rows.iter().zip(&written.rows) {
        *out += if row.highlight { "<tr class=\"first\">" } else { "<tr>" };
        for (index, text) in cells.iter().enumerate() {
            let text = escape(text);
            let _ = match index {
                0 => write!(out, "<th scope=\"row\">{text}</th>"),
                _ => write!(out, "<td{}>{text}</td>", class(index)),
            };
        }
        *out += "</tr>";
    }
    *out += "</tbody></table></div>\n";
    let csv = STANDARD.encode(table_csv(table));
    let file = slug(&table.title);
    let _ = writeln!(
        out,
        "<p class=\"links\"><a download=\"{file}.csv\" href=\"data:text/csv;charset=utf-8;base64,{csv}\">Download CSV</a></p>"
    );
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Axis, Cell, Column, Mark, Row, Style, Unit};

    const HOSTILE: &str = "</script></style><script>alert(1)</script>\"' onload=alert(1) x='\"><img src=x onerror=alert(1)>";

    fn hostile() -> Report {
        let text = || HOSTILE.to_owned();
        let axis = || Axis::new(HOSTILE, Unit::Bytes, Scale::Log2);
        let line = Series::line(HOSTILE, [(1.0, 1.0), (8.0, 2.0)]).grouped(HOSTILE);
        let figure = Figure {
            id: text(),
            title: text(),
            caption: text(),
            x: axis(),
            y: axis(),
            series: vec![line.clone(), line],
            marks: vec![Mark::x(2.0, HOSTILE), Mark::y(1.5, HOSTILE)],
        };
        let named = Figure { x: Axis::of_names(HOSTILE, [HOSTILE, "b"]), ..figure.clone() };
        let table = Table {
            title: text(),
            columns: vec![Column::new(HOSTILE, Unit::Number), Column::new(HOSTILE, Unit::Count)],
            rows: vec![Row::new([Cell::from(HOSTILE), Cell::from(HOSTILE)])],
        };
        Report {
            title: text(),
            subtitle: text(),
            facts: vec![Fact::new(HOSTILE, HOSTILE, HOSTILE)],
            sections: vec![
                Section {
                    title: text(),
                    paragraphs: vec![text()],
                    figures: vec![figure, named],
                    tables: vec![table],
                },
                Section { title: text(), ..Section::default() },
            ],
            footer: text(),
        }
    }

    #[test]
    fn no_text_becomes_markup() {
        let page = html(&hostile());
        assert!(!page.contains("<img") && !page.contains("alert(1)</script>"));
        // One script of the page's, and the data of each figure.
        assert_eq!(page.matches("<script").count(), 3);
        assert_eq!(page.matches("</script").count(), 3);
        assert_eq!(page.matches("</style").count(), 1);
        // Every attribute is one of ours: a quote never ends one early.
        let tags = page.split('<').filter_map(|part| part.split_once('>')).map(|(tag, _)| tag);
        for tag in tags.filter(|tag| tag.contains("onload") || tag.contains("onerror")) {
            let outside: String = tag.split('"').step_by(2).collect();
            assert!(!outside.contains("onload") && !outside.contains("onerror"), "{tag}");
        }
    }

    #[test]
    fn identifiers_are_unique_and_references_exist() {
        let page = html(&hostile());
        let all = |before: &str| -> Vec<String> {
            page.match_indices(before)
                .map(|(at, _)| {
                    page[at + before.len()..].split(['"', ')']).next().unwrap().to_owned()
                })
                .collect()
        };
        let ids = all(" id=\"");
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
        for reference in
            all("url(#").iter().chain(&all("href=\"#")).chain(&all("aria-labelledby=\""))
        {
            assert!(ids.contains(reference), "{reference}");
        }
    }

    #[test]
    fn the_script_is_small() {
        assert!(SCRIPT.len() <= 15 * 1024, "{}", SCRIPT.len());
        assert!(!SCRIPT.contains("</script") && !STYLE.contains("</style"));
    }

    #[test]
    fn many_points_make_a_page_of_bounded_size() {
        let points = (0..200_000).map(|x| (f64::from(x), f64::from(x % 977)));
        let figure = Figure { series: vec![Series::line("many", points)], ..Figure::default() };
        let mut out = String::new();
        write_figure(&mut out, &figure, "x");
        let without_csv: usize = out
            .split("base64,")
            .map(|part| part.split('"').skip(1).map(str::len).sum::<usize>())
            .sum();
        assert!(without_csv < 400_000, "{without_csv}");
        assert!(out.contains("200 of 200000 rows"));
    }

    proptest! {
        #[test]
        fn any_points_make_a_page(
            points in prop::collection::vec(
                (any::<f64>(), any::<f64>(), prop::option::of(any::<f64>())),
                0..30,
            ),
            scales in prop::collection::vec(
                prop::sample::select(vec![Scale::Linear, Scale::Log2, Scale::Log10]),
                2,
            ),
            style in prop::sample::select(
                vec![Style::Line, Style::Dashed, Style::Points, Style::Steps, Style::Bars]),
            mark in any::<f64>(),
            named in any::<bool>(),
        ) {
            let points = points.into_iter().map(|(x, y, low)| Point {
                x,
                y,
                low,
                high: low.map(|low| low + 1.0),
            });
            let series = Series { name: "s".into(), points: points.collect(), style, group: None };
            let x = if named {
                Axis::of_names("x", ["a", "b"])
            } else {
                Axis::new("x", Unit::Bytes, scales[0])
            };
            let figure = Figure {
                x,
                y: Axis::new("y", Unit::Percent, scales[1]),
                series: vec![series.clone(), series],
                marks: vec![Mark::x(mark, "x"), Mark::y(mark, "y")],
                ..Figure::default()
            };
            let mut out = String::new();
            write_figure(&mut out, &figure, "x");
            let drawings = out
                .split("<svg class=\"given")
                .skip(1)
                .map(|part| part.split("data-axes").nth(1).unwrap());
            for drawing in drawings {
                let (_, drawing) = drawing.split_once('>').unwrap();
                let drawing = drawing.split("</svg>").next().unwrap();
                prop_assert!(!drawing.contains("NaN") && !drawing.contains("inf"), "{drawing}");
            }
        }
    }
}
