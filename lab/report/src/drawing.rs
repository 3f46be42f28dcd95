//! A figure as an SVG fragment: layout, axes, marks and series. The one drawing behind HTML, SVG
//! and PNG.
//!
//! From top to bottom: title, key, the y axis's label, labels of vertical marks, the plot, ticks,
//! the x axis's label. Curves are named at their ends where there is room, else in a key (Tufte,
//! "The Visual Display of Quantitative Information", 1983, chapter 9, prefers the former).

use std::fmt::Write as _;

use crate::font;
use crate::key::{Key, Sample};
use crate::paint::{Appearance, HATCHES, Paint, Role, appearances};
use crate::pen::{Anchor, Letters, Pen, number};
use crate::scale::{Projection, Tick};
use crate::trace::{self, Place};
use crate::unit::Unit;
use crate::{Axis, Direction, Figure, Point, Scale, Style};

/// How a figure is to be drawn.
#[derive(Clone, Debug)]
pub(crate) struct Look<'a> {
    pub(crate) width: f64,
    pub(crate) height: f64,
    /// Is the title part of the drawing?
    pub(crate) title: bool,
    /// Are the names of series?
    pub(crate) named: bool,
    pub(crate) paint: Paint,
    /// Identifiers in the fragment begin with it.
    pub(crate) prefix: &'a str,
}

/// What was drawn, and where.
#[derive(Clone, Debug)]
pub(crate) struct Drawing {
    /// Elements inside an `svg` element.
    pub(crate) svg: String,
    pub(crate) x: Projection,
    pub(crate) y: Projection,
}

const LABEL: f64 = 12.0;
const TITLE: f64 = 15.0;
const TITLE_LINE: f64 = 20.0;
const ROW: f64 = 19.0;
const MARK_ROW: f64 = 16.0;
const MARGIN: f64 = 10.0;
const STROKE: f64 = 2.0;
const MARKER: f64 = 3.4;
/// Markers of a curve are about so far apart.
const MARKERS_APART: f64 = 90.0;
const BAR_WIDTH_MAX: f64 = 56.0;

/// Draws a figure.
pub(crate) fn draw(figure: &Figure, look: &Look<'_>) -> Drawing {
    let appearances = appearances(figure);
    let mut pen = Pen::new(look.paint);
    let (x, y) = projections(figure);
    // On a page the drawing stands flush with the text around it.
    let margin = if look.named { MARGIN } else { 0.0 };
    let mut top = MARGIN / 2.0;

    if look.title && !figure.title.trim().is_empty() {
        for line in font::wrap(&figure.title, TITLE, (look.width - 2.0 * margin) / 1.06, 3) {
            top += TITLE_LINE;
            let letters = Letters { medium: true, ..Letters::new(TITLE, Role::Ink) };
            pen.text((margin, top - 4.0), Anchor::Start, letters, &line);
        }
        top += 6.0;
    }

    let samples: Vec<Sample<'_>> = figure
        .series
        .iter()
        .zip(&appearances)
        .map(|(series, look)| Sample { series, appearance: *look })
        .collect();
    let key = if look.named {
        Key::choose(&samples, &x, look.width, look.height - top)
    } else {
        Key::None
    };
    top += key.draw_rows(&mut pen, (margin, top), look.width - 2.0 * margin);

    let label_lines = font::wrap(&figure.y.label, LABEL, look.width - 2.0 * margin, 2);
    for line in &label_lines {
        top += ROW - 2.0;
        pen.text((margin, top - 5.0), Anchor::Start, Letters::new(LABEL, Role::Muted), line);
    }
    top += if label_lines.is_empty() { 10.0 } else { 9.0 };

    let x_label = font::cut(&figure.x.label, LABEL, look.width - 2.0 * margin);
    let names = Names::of(figure, look.width);
    let mut bottom = look.height - MARGIN / 2.0 - 6.0 - names.lines_max() as f64 * 15.0;
    bottom -= if x_label.is_empty() { 0.0 } else { ROW };

    // The width of the y ticks decides the plot's left end, which decides where marks are and how
    // many rows they need.
    let tick_gap = ((bottom - top) / 8.0).clamp(22.0, 44.0);
    let y_onto = |top: f64| y.clone().onto(bottom.max(top + 20.0), top);
    let y_ticks = |y: &Projection| y.ticks(&figure.y, |ticks| apart(ticks, y, tick_gap));
    let label_room = look.width / 3.0;
    let widest = |ticks: &[Tick]| {
        ticks.iter().map(|tick| font::width(&tick.label, LABEL)).fold(0.0, f64::max)
    };
    let left = margin + widest(&y_ticks(&y_onto(top))).min(label_room) * 1.22 + 8.0;
    let right = (look.width
        - key.room_at_right().max(if figure.x.names.is_empty() { 26.0 } else { 8.0 }))
    .max(left + 40.0);
    let x = x.onto(left, right);
    let marks = mark_rows(figure, &x, look.width);
    let rows = marks.iter().map(|mark| mark.row + 1).max().unwrap_or(0);
    top += rows as f64 * MARK_ROW;
    let y = y_onto(top);
    let bottom = y.from;

    axes(&mut pen, figure, (&x, &y), &y_ticks(&y), (look.width, label_room), &names);
    if !x_label.is_empty() {
        let at = ((left + right) / 2.0, look.height - MARGIN / 2.0 - 5.0);
        // Centred below the plot, unless it would leave the paper there.
        let half = font::width(&x_label, LABEL) * 0.55;
        let centre = at.0.min(look.width - half - 2.0).max(half + 2.0);
        pen.text((centre, at.1), Anchor::Middle, Letters::new(LABEL, Role::Muted), &x_label);
    }
    let lowest_row = rows as f64;
    for mark in &marks {
        let line_top = top - (lowest_row - mark.row as f64) * MARK_ROW;
        pen.line(
            (mark.x, line_top + if mark.label.is_empty() { 0.0 } else { 2.0 }),
            (mark.x, bottom),
            Role::Axis,
            1.0,
            Some("3 3"),
        );
    }

    let prefix = look.prefix;
    let _ = write!(
        pen.out,
        "<clipPath id=\"{prefix}-clip\"><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/></clipPath>",
        number(left - 1.0),
        number(top - 2.0),
        number(right - left + 2.0),
        number(bottom - top + 3.0)
    );
    hatches(&mut pen, prefix, &appearances);
    let bars = Bars::of(figure, &x);
    for (index, sample) in samples.iter().enumerate() {
        let _ = write!(pen.out, "<g data-series=\"{index}\">");
        let _ = write!(pen.out, "<g clip-path=\"url(#{prefix}-clip)\">");
        if sample.series.style == Style::Bars {
            bars.draw(&mut pen, figure, index, (&x, &y), sample.appearance, prefix);
        } else {
            curve(&mut pen, sample, &x, &y);
        }
        pen.raw("</g>");
        if sample.series.style == Style::Bars {
            bars.values(&mut pen, figure, index, (&x, &y));
        } else {
            markers(&mut pen, sample, (index, samples.len()), &x, &y);
        }
        pen.raw("</g>");
    }
    for mark in &marks {
        let baseline = top - (lowest_row - mark.row as f64) * MARK_ROW - 3.0;
        let letters = Letters { halo: true, ..Letters::new(11.0, Role::Muted) };
        pen.text((mark.label_x, baseline + 2.0), mark.anchor, letters, &mark.label);
    }
    y_marks(&mut pen, figure, &x, &y);
    key.draw_ends(&mut pen, &x, &y);
    Drawing { svg: pen.out, x, y }
}

/// Both axes, before it is known where they are drawn.
pub(crate) fn projections(figure: &Figure) -> (Projection, Projection) {
    let points = || figure.series.iter().flat_map(|series| &series.points);
    let marks = |axis: Direction| {
        figure.marks.iter().filter(move |mark| mark.axis == axis).map(|mark| mark.at)
    };
    let bars = figure.series.iter().any(|series| series.style == Style::Bars);
    let mut x =
        Projection::new(&figure.x, points().map(|point| point.x).chain(marks(Direction::X)), false);
    if bars && figure.x.names.is_empty() {
        x = widen_for_bars(figure, x);
    }
    let heights =
        || points().flat_map(|point| [Some(point.y), point.low, point.high].into_iter().flatten());
    let zero = bars.then_some(0.0);
    let values = || heights().chain(marks(Direction::Y)).chain(zero);
    let highest = values().filter(|value| value.is_finite()).fold(f64::NEG_INFINITY, f64::max);
    let y = Projection::new(&figure.y, values(), true).rounded(&figure.y, highest);
    (x, y)
}

/// Room for half a bar beyond the first and the last.
fn widen_for_bars(figure: &Figure, x: Projection) -> Projection {
    let half = bars_apart(figure, &x.clone().onto(0.0, 1.0)).unwrap_or(1.0) / 2.0;
    let (min, max) = if x.scale == Scale::Linear {
        (x.min - half * (x.max - x.min), x.max + half * (x.max - x.min))
    } else {
        let ratio = (x.max / x.min).powf(half);
        (x.min / ratio, x.max * ratio)
    };
    let usable = |end: f64| {
        end.is_finite() && end.abs() <= 1e300 && (x.scale == Scale::Linear || end > 1e-300)
    };
    Projection {
        min: if figure.x.min.is_none() && usable(min) { min } else { x.min },
        max: if figure.x.max.is_none() && usable(max) { max } else { x.max },
        ..x
    }
}

/// The least distance between places of bars; none if there is but one.
fn bars_apart(figure: &Figure, x: &Projection) -> Option<f64> {
    let bars = figure.series.iter().filter(|series| series.style == Style::Bars);
    let mut places: Vec<f64> =
        bars.flat_map(|series| &series.points).filter_map(|point| x.place(point.x)).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    places.windows(2).map(|pair| pair[1] - pair[0]).min_by(f64::total_cmp)
}

fn apart(ticks: &[Tick], axis: &Projection, gap: f64) -> bool {
    let places: Vec<f64> = ticks.iter().filter_map(|tick| axis.place(tick.value)).collect();
    places.windows(2).all(|pair| (pair[1] - pair[0]).abs() >= gap)
}

/// The categories of the horizontal axis, in lines that have room below their places.
struct Names {
    size: f64,
    lines: Vec<Vec<String>>,
}

impl Names {
    /// Letters are smaller where only that keeps a word whole. The plot is taken to be most of the
    /// paper.
    fn of(figure: &Figure, paper: f64) -> Self {
        let names = &figure.x.names;
        let slot = (paper - 56.0) / names.len().max(1) as f64;
        let every = (18.0 / slot).ceil().max(1.0);
        let room = (slot * every - 4.0) / 1.02;
        let whole = |size: f64| {
            names
                .iter()
                .flat_map(|it| it.split_whitespace())
                .all(|it| font::width(it, size) <= room)
        };
        let size = if whole(LABEL) { LABEL } else { 10.5 };
        let lines = names.iter().map(|name| font::wrap(name, size, room, 2)).collect();
        Self { size, lines }
    }

    fn lines_max(&self) -> usize {
        self.lines.iter().map(Vec::len).max().unwrap_or(1).max(1)
    }
}

fn axes(
    pen: &mut Pen,
    figure: &Figure,
    (x, y): (&Projection, &Projection),
    y_ticks: &[Tick],
    (paper, label_room): (f64, f64),
    names: &Names,
) {
    for tick in y_ticks {
        let Some(at) = y.place(tick.value) else { continue };
        pen.line((x.from, at), (x.to, at), Role::Grid, 1.0, None);
        let label = font::cut(&tick.label, LABEL, label_room);
        pen.text((x.from - 8.0, at + 4.2), Anchor::End, Letters::new(LABEL, Role::Muted), &label);
    }
    pen.line((x.from, y.from), (x.to, y.from), Role::Axis, 1.0, None);
    if let Some(zero) = y.place(0.0).filter(|_| y.min < 0.0 && y.contains(0.0)) {
        pen.line((x.from, zero), (x.to, zero), Role::Axis, 1.0, None);
    }
    if figure.x.names.is_empty() {
        for tick in x.ticks(&figure.x, |ticks| labels_apart(ticks, x, paper)) {
            let Some(at) = x.place(tick.value) else { continue };
            pen.line((at, y.from), (at, y.from + 4.0), Role::Axis, 1.0, None);
            pen.text(
                (at, y.from + 18.0),
                Anchor::Middle,
                Letters::new(LABEL, Role::Muted),
                &tick.label,
            );
        }
        return;
    }
    let every = (18.0 * names.lines.len() as f64 / (x.to - x.from)).ceil().max(1.0) as usize;
    for (index, lines) in names.lines.iter().enumerate().step_by(every) {
        let Some(at) = x.place(index as f64) else { continue };
        for (line, text) in lines.iter().enumerate() {
            let baseline = y.from + 18.0 + 15.0 * line as f64;
            pen.text((at, baseline), Anchor::Middle, Letters::new(names.size, Role::Ink), text);
        }
    }
}

/// Labels are a space apart, stay on paper, and are not so many that they are noise.
fn labels_apart(ticks: &[Tick], x: &Projection, paper: f64) -> bool {
    let mut free_from = 0.0;
    ticks.len() <= 13
        && ticks.iter().all(|tick| {
            let half = font::width(&tick.label, LABEL) * 0.58;
            let Some(at) = x.place(tick.value) else { return false };
            let fits = at - half >= free_from && at + half <= paper;
            free_from = at + half + 12.0;
            fits
        })
}

/// A vertical mark and where its label stands.
struct PlacedMark {
    x: f64,
    label: String,
    label_x: f64,
    anchor: Anchor,
    /// 0 is the highest.
    row: usize,
}

/// Labels of vertical marks stand above the plot, in as many rows as they need, so they cover
/// no curve.
fn mark_rows(figure: &Figure, x: &Projection, paper: f64) -> Vec<PlacedMark> {
    let mut row_ends: Vec<f64> = Vec::new();
    let mut marks: Vec<(f64, &str)> = figure
        .marks
        .iter()
        .filter(|mark| mark.axis == Direction::X && x.contains(mark.at))
        .filter_map(|mark| Some((x.place(mark.at)?, mark.label.as_str())))
        .collect();
    marks.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut placed = Vec::new();
    for (at, label) in marks {
        let label = font::cut(label, 11.0, (paper - 2.0 * MARGIN) / 1.05);
        let width = font::width(&label, 11.0) * 1.06;
        let (start, anchor, label_x) = if at + width / 2.0 > paper - 4.0 {
            (paper - 4.0 - width, Anchor::End, paper - 4.0)
        } else if at - width / 2.0 < 4.0 {
            (4.0, Anchor::Start, 4.0)
        } else {
            (at - width / 2.0, Anchor::Middle, at)
        };
        let row = row_ends.iter().position(|end| *end + 10.0 <= start).unwrap_or(row_ends.len());
        if row == row_ends.len() {
            row_ends.push(0.0);
        }
        row_ends[row] = start + width;
        placed.push(PlacedMark { x: at, label, label_x, anchor, row });
    }
    // More rows would leave no plot.
    placed.retain(|mark| mark.row < 4);
    placed
}

fn y_marks(pen: &mut Pen, figure: &Figure, x: &Projection, y: &Projection) {
    for mark in figure.marks.iter().filter(|mark| mark.axis == Direction::Y && y.contains(mark.at))
    {
        let Some(at) = y.place(mark.at) else { continue };
        pen.line((x.from, at), (x.to, at), Role::Axis, 1.0, Some("3 3"));
        let label = font::cut(&mark.label, 11.0, x.to - x.from);
        let letters = Letters { halo: true, ..Letters::new(11.0, Role::Muted) };
        let above = at - 5.0 - 11.0 > y.to;
        pen.text((x.to, if above { at - 5.0 } else { at + 13.0 }), Anchor::End, letters, &label);
    }
}

fn place(point: &Point, x: &Projection, y: &Projection) -> Option<Place> {
    Some((x.place(point.x)?, y.place(point.y)?))
}

fn ends(point: &Point, y: &Projection) -> Option<(f64, f64)> {
    let (low, high) =
        (point.low.and_then(|low| y.place(low)), point.high.and_then(|high| y.place(high)));
    if low.is_none() && high.is_none() {
        return None;
    }
    let middle = y.place(point.y)?;
    Some((low.unwrap_or(middle), high.unwrap_or(middle)))
}

fn curve(pen: &mut Pen, sample: &Sample<'_>, x: &Projection, y: &Projection) {
    let (series, appearance) = (sample.series, sample.appearance);
    let colour = pen.paint.colour(appearance.colour);
    if series.style == Style::Points {
        for point in &series.points {
            if let (Some((at, _)), Some((low, high))) = (place(point, x, y), ends(point, y)) {
                error_bar(pen, at, low, high, appearance.colour);
            }
        }
        return;
    }
    let steps = series.style == Style::Steps;
    let spans = series.points.iter().map(|point| {
        let (low, high) = ends(point, y)?;
        Some((x.place(point.x)?, low, high))
    });
    for run in trace::runs(spans).iter().filter(|run| run.len() > 1) {
        let path = trace::band(run, steps);
        let _ = write!(
            pen.out,
            "<path d=\"{path}\" fill=\"{colour}\" fill-opacity=\"0.16\" stroke=\"none\"/>"
        );
    }
    let dash =
        appearance.dash.map(|dash| format!(" stroke-dasharray=\"{dash}\"")).unwrap_or_default();
    let runs = trace::runs(series.points.iter().map(|point| place(point, x, y)));
    let path: String = runs.iter().map(|run| trace::path(run, steps)).collect();
    if !path.is_empty() {
        let _ = write!(
            pen.out,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{STROKE}\" stroke-linejoin=\"round\" \
             stroke-linecap=\"round\"{dash}/>"
        );
    }
}

/// All points of a series of points; of a curve a few, at other places than its neighbour's; none
/// of a lone curve.
fn markers(
    pen: &mut Pen,
    sample: &Sample<'_>,
    (index, count): (usize, usize),
    x: &Projection,
    y: &Projection,
) {
    let (series, appearance) = (sample.series, sample.appearance);
    let points = series.points.iter().filter(|point| x.contains(point.x) && y.contains(point.y));
    let places: Vec<Place> = points.filter_map(|point| place(point, x, y)).collect();
    let all = series.style == Style::Points
        || (series.points.len() <= 12 && series.style != Style::Steps);
    if !all && count < 2 {
        return;
    }
    let background = pen.paint.colour(Role::Background);
    let colour = pen.paint.colour(appearance.colour);
    let mut next = f64::NEG_INFINITY;
    let mut path = String::new();
    for place in places {
        if next == f64::NEG_INFINITY && !all {
            next = place.0 + MARKERS_APART * (0.25 + 0.37 * index as f64).fract();
        }
        if all || place.0 >= next {
            path += &appearance.shape.path(place.0, place.1, MARKER);
            next += MARKERS_APART * (1.0 + ((place.0 - next) / MARKERS_APART).floor().max(0.0));
        }
    }
    if !path.is_empty() {
        let _ = write!(
            pen.out,
            "<path d=\"{path}\" fill=\"{colour}\" stroke=\"{background}\" stroke-width=\"1\" paint-order=\"stroke\"/>"
        );
    }
}

fn error_bar(pen: &mut Pen, at: f64, low: f64, high: f64, role: Role) {
    for (from, to) in [
        ((at, low), (at, high)),
        ((at - 3.0, low), (at + 3.0, low)),
        ((at - 3.0, high), (at + 3.0, high)),
    ] {
        pen.line(from, to, role, 1.2, None);
    }
}

/// Where the bars of all series stand.
struct Bars {
    width: f64,
    /// Which of the series of bars each series is.
    order: Vec<Option<usize>>,
    count: usize,
    /// Is each bar wide enough for its value?
    valued: bool,
}

impl Bars {
    fn of(figure: &Figure, x: &Projection) -> Self {
        let mut count = 0;
        let order = figure.series.iter().map(|series| {
            (series.style == Style::Bars).then(|| {
                count += 1;
                count - 1
            })
        });
        let order: Vec<Option<usize>> = order.collect();
        let apart = if figure.x.names.is_empty() {
            bars_apart(figure, x).unwrap_or((x.to - x.from) / 3.0)
        } else {
            (x.to - x.from) / figure.x.names.len() as f64
        };
        let width = (apart * 0.74 / count.max(1) as f64).min(BAR_WIDTH_MAX);
        let points =
            figure.series.iter().filter(|it| it.style == Style::Bars).flat_map(|it| &it.points);
        let widest = points
            .map(|point| font::width(&bar_value(&figure.y, point.y), 11.0))
            .fold(0.0, f64::max);
        Self { width, order, count, valued: widest * 1.06 <= width + 4.0 }
    }

    fn draw(
        &self,
        pen: &mut Pen,
        figure: &Figure,
        series: usize,
        (x, y): (&Projection, &Projection),
        appearance: Appearance,
        prefix: &str,
    ) {
        let Some(order) = self.order[series] else { return };
        let base = y.place(0.0).unwrap_or(y.from).clamp(y.to, y.from);
        let shift = (order as f64 - self.count as f64 / 2.0) * self.width;
        let colour = pen.paint.colour(appearance.colour);
        let gap = if self.width > 6.0 { 1.0 } else { 0.0 };
        let mut path = String::new();
        for point in &figure.series[series].points {
            let Some((at, height)) = place(point, x, y) else { continue };
            let (left, right) = (number(at + shift + gap), number(at + shift + self.width - gap));
            let _ = write!(path, "M{left} {}H{right}V{}H{left}Z", number(base), number(height));
        }
        if path.is_empty() {
            return;
        }
        let _ = write!(pen.out, "<path d=\"{path}\" fill=\"{colour}\"/>");
        if let Some(hatch) = appearance.hatch {
            let _ = write!(pen.out, "<path d=\"{path}\" fill=\"url(#{prefix}-hatch{hatch})\"/>");
        }
        for point in &figure.series[series].points {
            if let (Some((at, _)), Some((low, high))) = (place(point, x, y), ends(point, y)) {
                error_bar(pen, at + shift + self.width / 2.0, low, high, Role::Ink);
            }
        }
    }

    /// The values above the bars of a series, or below those that hang.
    fn values(
        &self,
        pen: &mut Pen,
        figure: &Figure,
        series: usize,
        (x, y): (&Projection, &Projection),
    ) {
        let Some(order) = self.order[series].filter(|_| self.valued) else { return };
        let middle = (order as f64 - self.count as f64 / 2.0 + 0.5) * self.width;
        for point in &figure.series[series].points {
            let Some((at, height)) = place(point, x, y).filter(|_| x.contains(point.x)) else {
                continue;
            };
            let (low, high) = ends(point, y).unwrap_or((height, height));
            let baseline =
                if point.y < 0.0 { low.max(height) + 13.0 } else { high.min(height) - 5.0 };
            if (y.to - 6.0..=y.from).contains(&baseline) {
                let letters = Letters { halo: true, ..Letters::new(11.0, Role::Ink) };
                pen.text(
                    (at + middle, baseline),
                    Anchor::Middle,
                    letters,
                    &bar_value(&figure.y, point.y),
                );
            }
        }
    }
}

fn bar_value(axis: &Axis, value: f64) -> String {
    let unit: Unit = axis.unit;
    unit.format(value)
}

fn hatches(pen: &mut Pen, prefix: &str, appearances: &[Appearance]) {
    let background = pen.paint.colour(Role::Background);
    for hatch in 0..HATCHES {
        if !appearances.iter().any(|it| it.hatch == Some(hatch)) {
            continue;
        }
        let drawn = match hatch {
            0 => format!(
                "<path d=\"M-1 1L1 -1M0 6L6 0M5 7L7 5\" stroke=\"{background}\" stroke-width=\"1.4\"/>"
            ),
            1 => format!(
                "<path d=\"M-1 5L1 7M0 0L6 6M5 -1L7 1\" stroke=\"{background}\" stroke-width=\"1.4\"/>"
            ),
            _ => format!("<circle cx=\"3\" cy=\"3\" r=\"1.3\" fill=\"{background}\"/>"),
        };
        let _ = write!(
            pen.out,
            "<pattern id=\"{prefix}-hatch{hatch}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
             stroke-opacity=\"0.75\" fill-opacity=\"0.75\">{drawn}</pattern>"
        );
    }
}

/// What a figure shows, in words, for those who do not see it.
pub(crate) fn describe(figure: &Figure) -> String {
    const NAMED_MAX: usize = 12;
    let mut words = figure.caption.trim().to_owned();
    if !words.is_empty() && !words.ends_with(['.', '!', '?']) {
        words.push('.');
    }
    let _ = write!(words, " {} over {}.", figure.y.label.trim(), figure.x.label.trim());
    let at = |value: f64| -> String {
        match figure.x.names.get(value.round().max(0.0) as usize) {
            Some(name) if value >= 0.0 => name.clone(),
            _ => figure.x.unit.format(value),
        }
    };
    for series in figure.series.iter().take(NAMED_MAX) {
        let mut usable =
            series.points.iter().filter(|point| point.x.is_finite() && point.y.is_finite());
        let (first, last) = (usable.next(), usable.next_back());
        let of = |point: &Point| format!("{} at {}", figure.y.unit.format(point.y), at(point.x));
        let _ = match (first, last) {
            (Some(first), Some(last)) => {
                write!(words, " {}: from {} to {}.", series.name, of(first), of(last))
            }
            (Some(only), None) => write!(words, " {}: {}.", series.name, of(only)),
            _ => write!(words, " {}: no points.", series.name),
        };
    }
    if figure.series.len() > NAMED_MAX {
        let _ = write!(words, " And {} more.", figure.series.len() - NAMED_MAX);
    }
    for mark in figure.marks.iter().filter(|mark| !mark.label.trim().is_empty()) {
        let _ = write!(words, " Marked: {}.", mark.label.trim());
    }
    words.trim().to_owned()
}
