//! A figure in a terminal: curves of braille dots, each marked with a letter, or of the letters
//! alone.
//!
//! A braille pattern has two by four dots (Unicode 16, chapter 21.1), so a cell shows eight points.

use unicode_width::UnicodeWidthStr;

use crate::drawing::projections;
use crate::scale::{Projection, Tick};
use crate::terminal::{Charset, Terminal, WIDTH_MIN, clean, padded, paragraph, shortened};
use crate::{Figure, Point, Series, Style};

/// Dots of a cell, of the left and the right column from top to bottom, in U+2800's low byte.
const DOTS: [[u32; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];
const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Cells between the letters of a curve.
const LETTERS_APART: usize = 18;

/// A figure with its title, axes and the names of its series.
pub fn figure_text(figure: &Figure, terminal: &Terminal) -> String {
    if !figure.x.names.is_empty() && figure.series.iter().all(|series| series.style == Style::Bars)
    {
        return bars(figure, terminal);
    }
    let charset = terminal.charset;
    let width = terminal.width.max(WIDTH_MIN);
    let rows = terminal.height.clamp(6, 200) - 3;
    let (x, y) = projections(figure);
    let y_ticks = y.clone().onto(rows as f64 - 1.0, 0.0);
    let y_ticks = y_ticks.ticks(&figure.y, |ticks| ticks.len() <= (rows * 2 / 5).max(2));
    let labels: Vec<String> = y_ticks.iter().map(|tick| clean(&tick.label, charset)).collect();
    let left = labels.iter().map(|label| label.width()).max().unwrap_or(0).min(width / 3);
    let columns = width - left - 2;

    let mut field = Field::new(columns, rows, charset);
    let x = x.onto(0.0, columns as f64 * 2.0 - 1.0);
    let y = y.onto(rows as f64 * 4.0 - 1.0, 0.0);
    for (index, series) in figure.series.iter().enumerate() {
        field.draw(series, LETTERS[index % LETTERS.len()], &x, &y);
    }
    if figure.series.len() > 1 || charset == Charset::Ascii {
        for (index, series) in figure.series.iter().enumerate() {
            field.letter(series, LETTERS[index % LETTERS.len()], index, &x, &y);
        }
    }

    let mut out = paragraph(&figure.title, width, charset);
    out += &paragraph(&figure.y.label, width, charset);
    let at_row = |tick: &Tick| y.place(tick.value).map(|place| (place / 4.0) as usize);
    let (bar, tee, corner, flat, cross) = if charset == Charset::Unicode {
        ('│', '┤', '└', '─', '┬')
    } else {
        ('|', '+', '+', '-', '+')
    };
    for row in 0..rows {
        let tick = y_ticks.iter().position(|tick| at_row(tick) == Some(row));
        out += &padded(tick.map_or("", |tick| &labels[tick]), left, true, charset);
        out.push(' ');
        out.push(if tick.is_some() { tee } else { bar });
        out += field.line(row).trim_end();
        out.push('\n');
    }
    let (mut axis, mut below) = (vec![flat; columns], vec![' '; width]);
    let x_ticks = x_ticks(figure, &x, left + 2, width, charset);
    for (at, label, start) in x_ticks {
        axis[at] = cross;
        below.splice(start..start + label.width(), label.chars());
    }
    out += &format!("{}{corner}{}\n", " ".repeat(left + 1), axis.into_iter().collect::<String>());
    out += below.into_iter().collect::<String>().trim_end();
    out.push('\n');
    let x_label = shortened(&clean(&figure.x.label, charset), width, charset);
    if !x_label.is_empty() {
        out += &format!(
            "{}{x_label}\n",
            " ".repeat(
                (left + 2 + columns.saturating_sub(x_label.width()) / 2)
                    .min(width - x_label.width())
            )
        );
    }
    out + &names(figure, width, charset)
}

/// Bars of categories lie: a line for each, with its value.
fn bars(figure: &Figure, terminal: &Terminal) -> String {
    let (charset, width) = (terminal.charset, terminal.width.max(WIDTH_MIN));
    let (_, y) = projections(figure);
    let names: Vec<String> = figure.x.names.iter().map(|name| clean(name, charset)).collect();
    let series: Vec<String> =
        figure.series.iter().map(|series| clean(&series.name, charset)).collect();
    let value = |point: &Point| clean(&figure.y.unit.format(point.y), charset);
    let widest =
        |texts: &mut dyn Iterator<Item = usize>, most: usize| texts.max().unwrap_or(0).min(most);
    let of_names = widest(&mut names.iter().map(|name| name.width()), width / 4);
    let several = series.len() > 1;
    let of_series =
        if several { widest(&mut series.iter().map(|name| name.width()), width / 4) } else { 0 };
    let points = || figure.series.iter().flat_map(|series| &series.points);
    let of_values = widest(&mut points().map(|point| value(point).width()), width / 4);
    let room = width.saturating_sub(of_names + of_series + of_values + 4).max(1);
    let longest = y.min.abs().max(y.max.abs());
    let y = y.onto(0.0, room as f64);
    // Where some are negative, the length is the size, and the filling tells the sign.
    let length = |value: f64| match y.place(value) {
        Some(_) if y.min < 0.0 => value.abs() / longest * room as f64,
        Some(place) => place,
        None => 0.0,
    };

    let mut out =
        paragraph(&figure.title, width, charset) + &paragraph(&figure.y.label, width, charset);
    for (index, name) in names.iter().enumerate() {
        let mut head = name.as_str();
        for (series, label) in figure.series.iter().zip(&series) {
            for point in series.points.iter().filter(|point| point.x == index as f64) {
                let label = if several {
                    padded(label, of_series, false, charset) + " "
                } else {
                    String::new()
                };
                let value = padded(&value(point), of_values, true, charset);
                let bar = bar(length(point.y).clamp(0.0, room as f64), point.y < 0.0, charset);
                let line =
                    format!("{} {label}{value} {bar}", padded(head, of_names, false, charset));
                out += line.trim_end();
                out.push('\n');
                head = "";
            }
        }
    }
    out
}

/// A bar to an eighth of a cell; a negative one is shaded, to a whole cell.
fn bar(length: f64, negative: bool, charset: Charset) -> String {
    let whole = length as usize;
    match (charset, negative) {
        (Charset::Ascii, false) => return "#".repeat(length.round() as usize),
        (Charset::Ascii, true) => return "-".repeat(length.round() as usize),
        (Charset::Unicode, true) => return "░".repeat(length.round() as usize),
        (Charset::Unicode, false) => {}
    }
    let eighths = ((length - whole as f64) * 8.0) as u32;
    // U+258F is an eighth of a cell, U+2588 all of it.
    let rest = char::from_u32(0x2590 - eighths).filter(|_| eighths > 0);
    "█".repeat(whole) + &rest.map_or(String::new(), String::from)
}

/// Ticks that have room: the column, the label, and where that starts in the line.
fn x_ticks(
    figure: &Figure,
    x: &Projection,
    left: usize,
    width: usize,
    charset: Charset,
) -> Vec<(usize, String, usize)> {
    let placed = |tick: &Tick| -> Option<(usize, String, usize)> {
        let label: String = clean(&tick.label, charset)
            .chars()
            .filter(|c| unicode_width::UnicodeWidthChar::width(*c) == Some(1))
            .collect();
        let at = (x.place(tick.value)? / 2.0) as usize;
        let label = shortened(&label, width / 3, charset);
        let start = (left + at).saturating_sub(label.width() / 2).min(width - label.width());
        Some((at.min(width - left - 1), label, start))
    };
    let fits = |ticks: &[Tick]| {
        let mut free_from = 0;
        ticks.iter().filter_map(&placed).all(|(_, label, start)| {
            let fits = start >= free_from;
            free_from = start + label.width() + 2;
            fits
        })
    };
    x.ticks(&figure.x, fits).iter().filter_map(&placed).collect()
}

fn names(figure: &Figure, width: usize, charset: Charset) -> String {
    let marks = figure
        .marks
        .iter()
        .map(|mark| clean(&mark.label, charset))
        .filter(|label| !label.trim().is_empty());
    let marks: Vec<String> = marks.collect();
    let mut out = String::new();
    if figure.series.len() > 1 || charset == Charset::Ascii {
        let mut line = String::new();
        for (index, series) in figure.series.iter().enumerate() {
            let letter = char::from(LETTERS[index % LETTERS.len()]);
            let name =
                shortened(&format!("{letter} {}", clean(&series.name, charset)), width, charset);
            if !line.is_empty() && line.width() + 3 + name.width() > width {
                out += &line;
                out.push('\n');
                line.clear();
            }
            if !line.is_empty() {
                line += "   ";
            }
            line += &name;
        }
        out += &line;
        if !figure.series.is_empty() {
            out.push('\n');
        }
    }
    if !marks.is_empty() {
        out += &paragraph(&format!("Marked: {}", marks.join("; ")), width, charset);
    }
    out
}

/// Cells of dots and letters.
struct Field {
    columns: usize,
    rows: usize,
    charset: Charset,
    dots: Vec<u32>,
    letters: Vec<Option<u8>>,
}

impl Field {
    fn new(columns: usize, rows: usize, charset: Charset) -> Self {
        Self {
            columns,
            rows,
            charset,
            dots: vec![0; columns * rows],
            letters: vec![None; columns * rows],
        }
    }

    fn line(&self, row: usize) -> String {
        let cells = row * self.columns..(row + 1) * self.columns;
        let one = |index: usize| match (self.letters[index], self.dots[index]) {
            (Some(letter), _) => char::from(letter),
            (None, 0) => ' ',
            (None, dots) => char::from_u32(0x2800 + dots).unwrap_or(' '),
        };
        cells.map(one).collect()
    }

    /// Coordinates are dots from the upper left corner.
    fn dot(&mut self, x: f64, y: f64, letter: u8) {
        if !(x >= 0.0 && y >= 0.0 && x < self.columns as f64 * 2.0 && y < self.rows as f64 * 4.0) {
            return;
        }
        let (x, y) = (x as usize, y as usize);
        let cell = y / 4 * self.columns + x / 2;
        match self.charset {
            Charset::Unicode => self.dots[cell] |= DOTS[x % 2][y % 4],
            Charset::Ascii => self.letters[cell] = Some(letter),
        }
    }

    fn draw(&mut self, series: &Series, letter: u8, x: &Projection, y: &Projection) {
        let place = |point: &Point| Some((x.place(point.x)?.round(), y.place(point.y)?.round()));
        let mut before = None;
        for point in &series.points {
            let Some(now) = place(point) else {
                before = None;
                continue;
            };
            match (series.style, before) {
                (Style::Bars, _) => {
                    let base = y.place(0.0).unwrap_or(y.from).clamp(y.to, y.from);
                    self.segment((now.0, base), now, letter, 1);
                }
                (Style::Points, _) | (_, None) => self.dot(now.0, now.1, letter),
                (Style::Steps, Some(before)) => {
                    self.segment(before, (now.0, before.1), letter, 1);
                    self.segment((now.0, before.1), now, letter, 1);
                }
                (Style::Line, Some(before)) => self.segment(before, now, letter, 1),
                (Style::Dashed, Some(before)) => self.segment(before, now, letter, 3),
            }
            before = Some(now);
        }
    }

    /// A straight line; of a dashed one, two of three dots.
    fn segment(&mut self, from: (f64, f64), to: (f64, f64), letter: u8, dash: usize) {
        let limit = 4.0 * (self.columns + self.rows) as f64;
        let near = |place: f64| place.clamp(-limit, 2.0 * limit);
        let (from, to) = ((near(from.0), near(from.1)), (near(to.0), near(to.1)));
        let steps = (to.0 - from.0).abs().max((to.1 - from.1).abs()).ceil().max(1.0);
        for step in 0..=steps as usize {
            let share = step as f64 / steps;
            let (x, y) = (from.0 + (to.0 - from.0) * share, from.1 + (to.1 - from.1) * share);
            if dash == 1 || !(x as usize).is_multiple_of(dash) {
                self.dot(x.round(), y.round(), letter);
            }
        }
    }

    /// Letters along a curve, at other columns than those of its neighbours.
    fn letter(
        &mut self,
        series: &Series,
        letter: u8,
        index: usize,
        x: &Projection,
        y: &Projection,
    ) {
        let every = matches!(series.style, Style::Points | Style::Bars);
        let mut next = if every { 0 } else { 2 + index * 5 % LETTERS_APART };
        let mut before: Option<(f64, f64)> = None;
        for point in &series.points {
            let (Some(at_x), Some(at_y)) = (x.place(point.x), y.place(point.y)) else { continue };
            let (at_x, at_y) = (at_x / 2.0, at_y / 4.0);
            if every {
                self.put(at_x, at_y, letter);
            }
            while !every && (next as f64) <= at_x && next < self.columns {
                let place = match before {
                    Some(before) if at_x > before.0 && series.style != Style::Steps => {
                        before.1 + (at_y - before.1) * (next as f64 - before.0) / (at_x - before.0)
                    }
                    Some(before) => before.1,
                    None => at_y,
                };
                if before.is_some() || next as f64 > at_x - 1.0 {
                    self.put(next as f64, place, letter);
                }
                next += LETTERS_APART;
            }
            before = Some((at_x, at_y));
        }
    }

    fn put(&mut self, column: f64, row: f64, letter: u8) {
        if column >= 0.0 && row >= 0.0 && column < self.columns as f64 && row < self.rows as f64 {
            let cell = row as usize * self.columns + column as usize;
            self.letters[cell] = Some(letter);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Axis, Mark, Scale, Unit};

    fn falling() -> Figure {
        let line = |name: &str, from: f64| {
            Series::line(
                name,
                (0..=20).map(|step| (2_f64.powi(step) * 1024.0, from - 4.0 * f64::from(step))),
            )
        };
        Figure {
            title: "Miss ratio by size".into(),
            x: Axis::new("Size", Unit::Bytes, Scale::Log2),
            y: Axis::new("Miss ratio", Unit::Percent, Scale::Linear),
            series: vec![line("LRU", 95.0), line("Popularity", 82.0)],
            marks: vec![Mark::x(65_536.0, "the knee")],
            ..Figure::default()
        }
    }

    fn compared() -> Figure {
        let series = |name: &str, values: [f64; 2]| {
            Series::line(name, (0..).map(f64::from).zip(values)).styled(Style::Bars)
        };
        Figure {
            title: "Bytes saved".into(),
            x: Axis::of_names("", ["LRU", "Popularity"]),
            y: Axis::new("", Unit::Percent, Scale::Linear).between(0.0, 100.0),
            series: vec![series("16 MB", [41.2, 52.3]), series("64 MB", [66.0, 75.0])],
            ..Figure::default()
        }
    }

    #[test]
    fn negative_bars_are_as_long_as_they_are_large() {
        let changes = Series::line("", [(0.0, -8.0), (1.0, 4.0), (2.0, -2.0)]).styled(Style::Bars);
        let figure = Figure {
            x: Axis::of_names("", ["a", "b", "c"]),
            series: vec![changes],
            ..Figure::default()
        };
        let text =
            figure_text(&figure, &Terminal { width: 20, height: 9, charset: Charset::Ascii });
        let count = |line: &str, of: char| line.chars().rev().take_while(|it| *it == of).count();
        let lengths: Vec<usize> =
            text.lines().zip(['-', '#', '-']).map(|(line, of)| count(line, of)).collect();
        assert!(lengths[2] > 1 && lengths[0].abs_diff(2 * lengths[1]) <= 1, "{text}");
        assert!(lengths[1].abs_diff(2 * lengths[2]) <= 1, "{text}");
    }

    #[test]
    fn figures_are_as_they_were() {
        let narrow = |charset| Terminal { width: 48, height: 12, charset };
        for (name, text) in [
            ("curves", figure_text(&falling(), &narrow(Charset::Unicode))),
            ("curves-ascii", figure_text(&falling(), &narrow(Charset::Ascii))),
            ("bars", figure_text(&compared(), &narrow(Charset::Unicode))),
            ("bars-ascii", figure_text(&compared(), &narrow(Charset::Ascii))),
        ] {
            crate::snapshot::check(&format!("{name}.txt"), &text);
        }
    }

    proptest! {
        #[test]
        fn any_points_make_lines_that_fit(
            points in prop::collection::vec((any::<f64>(), any::<f64>()), 0..30),
            scale in prop::sample::select(vec![Scale::Linear, Scale::Log2, Scale::Log10]),
            style in prop::sample::select(
                vec![Style::Line, Style::Dashed, Style::Points, Style::Steps, Style::Bars]),
            name in "\\PC{0,40}",
            names in prop::collection::vec("\\PC{0,20}", 0..4),
            width in 0_usize..150,
            height in 0_usize..60,
            ascii in any::<bool>(),
        ) {
            let line = Series::line(name.clone(), points).styled(style);
            let x = Axis { names, ..Axis::new(name.clone(), Unit::Bytes, scale) };
            let y = Axis::new(name.clone(), Unit::Count, scale);
            let figure =
                Figure { title: name, x, y, series: vec![line.clone(), line], ..Figure::default() };
            let charset = if ascii { Charset::Ascii } else { Charset::Unicode };
            let text = figure_text(&figure, &Terminal { width, height, charset });
            prop_assert!(
                text.lines().all(|line| line.width() <= width.max(WIDTH_MIN)),
                "{width}\n{text}"
            );
            prop_assert!(!ascii || text.is_ascii());
        }
    }
}
