//! The names of series in a drawing: at the ends of curves, or in rows above the plot.

use std::fmt::Write as _;

use crate::font;
use crate::paint::{Appearance, Paint, Role};
use crate::pen::{Anchor, Letters, Pen, number};
use crate::scale::Projection;
use crate::{Series, Style};

/// A series and how it looks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample<'a> {
    pub(crate) series: &'a Series,
    pub(crate) appearance: Appearance,
}

/// Where names are.
pub(crate) enum Key<'a> {
    /// Nowhere.
    None,
    /// In rows above the plot.
    Rows(Vec<Sample<'a>>),
    /// Right of the plot, at the ends of curves; and the room that they need.
    Ends(Vec<Sample<'a>>, f64),
}

const SIZE: f64 = 12.0;
const ROW: f64 = 19.0;
/// From the top of one name to that of the next.
const NAME_HEIGHT: f64 = 15.5;
const SWATCH: f64 = 22.0;
const GAP: f64 = 18.0;

impl<'a> Key<'a> {
    /// One series needs no name beside the title's. Names stand at the ends if all series are
    /// curves that end at the right, and the names leave most of the paper to the plot.
    pub(crate) fn choose(samples: &[Sample<'a>], x: &Projection, paper: f64, height: f64) -> Self {
        if samples.len() < 2 {
            return Key::None;
        }
        let x = x.clone().onto(0.0, 1.0);
        let ends_at_right = |sample: &Sample<'_>| {
            let last = sample
                .series
                .points
                .iter()
                .rev()
                .find(|point| x.contains(point.x) && point.y.is_finite());
            let curve = matches!(sample.series.style, Style::Line | Style::Dashed | Style::Steps);
            curve && last.and_then(|last| x.place(last.x)).is_some_and(|place| place > 0.9)
        };
        let widest =
            samples.iter().map(|it| font::width(&it.series.name, SIZE)).fold(0.0, f64::max) * 1.08;
        let room = widest + 22.0;
        let fits =
            room <= paper * 0.24 && samples.len() as f64 * NAME_HEIGHT <= (height - 90.0).max(0.0);
        if fits && samples.iter().all(ends_at_right) {
            Key::Ends(samples.to_vec(), room)
        } else {
            Key::Rows(samples.to_vec())
        }
    }

    pub(crate) fn room_at_right(&self) -> f64 {
        if let Key::Ends(_, room) = self { *room } else { 0.0 }
    }

    /// Draws the rows; how high they are.
    pub(crate) fn draw_rows(&self, pen: &mut Pen, at: (f64, f64), room: f64) -> f64 {
        let Key::Rows(samples) = self else { return 0.0 };
        let cut = |sample: &Sample<'_>| {
            font::cut(&sample.series.name, SIZE, (room - SWATCH - 6.0) / 1.08)
        };
        let names: Vec<String> = samples.iter().map(cut).collect();
        let width = |name: &String| SWATCH + 6.0 + font::width(name, SIZE) * 1.08;
        let packed: Vec<f64> = names.iter().map(width).collect();
        let columns = vec![packed.iter().copied().fold(0.0, f64::max); names.len()];
        let (packed, columns) = (in_rows(&packed, room), in_rows(&columns, room));
        // Columns are easier to read, unless they take more rows.
        let rows = |places: &[(f64, usize)]| places.last().map_or(0, |place| place.1 + 1);
        let aligned = rows(&packed) > 1 && rows(&columns) <= rows(&packed);
        let places = if aligned { columns } else { packed };
        for ((sample, name), (x, row)) in samples.iter().zip(&names).zip(&places) {
            let (x, y) = (at.0 + x, at.1 + ROW * *row as f64);
            pen.raw(&swatch(sample, pen.paint, (x, y + ROW / 2.0 - 1.0)));
            let baseline = y + ROW / 2.0 + 3.2;
            pen.text(
                (x + SWATCH + 6.0, baseline),
                Anchor::Start,
                Letters::new(SIZE, Role::Ink),
                name,
            );
        }
        ROW * rows(&places) as f64 + 6.0
    }

    /// Draws the names at the ends of curves, moved apart where those are near each other.
    pub(crate) fn draw_ends(&self, pen: &mut Pen, x: &Projection, y: &Projection) {
        let Key::Ends(samples, _) = self else { return };
        let end_of = |sample: &Sample<'a>| -> Option<(f64, f64)> {
            let last = sample
                .series
                .points
                .iter()
                .rev()
                .find(|point| x.contains(point.x) && point.y.is_finite())?;
            Some((x.place(last.x)?, y.place(last.y).unwrap_or(y.from).clamp(y.to, y.from)))
        };
        let mut ends: Vec<(Sample<'a>, (f64, f64))> =
            samples.iter().filter_map(|sample| Some((*sample, end_of(sample)?))).collect();
        ends.sort_by(|a, b| a.1.1.total_cmp(&b.1.1));
        let wanted: Vec<f64> = ends.iter().map(|(_, end)| end.1).collect();
        let places = spread(&wanted, NAME_HEIGHT, y.to - 2.0, y.from + 2.0);
        for ((sample, end), place) in ends.iter().zip(places) {
            let colour = pen.paint.colour(sample.appearance.colour);
            let marker = sample.appearance.shape.path(x.to + 11.0, place, 3.4);
            if (place - end.1).abs() > 3.0 || x.to - end.0 > 4.0 {
                let _ = write!(
                    pen.out,
                    "<path d=\"M{} {}L{} {}\" stroke=\"{colour}\" stroke-width=\"1\" stroke-opacity=\"0.6\"/>",
                    number(end.0 + 2.0),
                    number(end.1),
                    number(x.to + 8.0),
                    number(place)
                );
            }
            let _ = write!(pen.out, "<path d=\"{marker}\" fill=\"{colour}\"/>");
            pen.text(
                (x.to + 19.0, place + 4.2),
                Anchor::Start,
                Letters::new(SIZE, Role::Ink),
                &sample.series.name,
            );
        }
    }
}

/// Where things of these widths begin, and in which row.
fn in_rows(widths: &[f64], room: f64) -> Vec<(f64, usize)> {
    let (mut x, mut row) = (0.0, 0);
    let place = |width: &f64| {
        if x > 0.0 && x + width > room + 0.1 {
            (x, row) = (0.0, row + 1);
        }
        let place = (x, row);
        x += width + GAP;
        place
    };
    widths.iter().map(place).collect()
}

/// A short piece of what a series looks like, 22 wide, from a point at its left, half its height
/// down.
pub(crate) fn swatch(sample: &Sample<'_>, paint: Paint, (x, y): (f64, f64)) -> String {
    let colour = paint.colour(sample.appearance.colour);
    let background = paint.colour(Role::Background);
    let mut out = String::new();
    let right = number(x + SWATCH);
    match sample.series.style {
        Style::Bars => {
            let (left, top) = (number(x + 4.0), number(y - 5.5));
            let _ = write!(
                out,
                "<rect x=\"{left}\" y=\"{top}\" width=\"14\" height=\"11\" rx=\"1.5\" fill=\"{colour}\"/>"
            );
            // The lines of the hatch, without a reference to its pattern.
            let lines = match sample.appearance.hatch {
                Some(0) => Some("v-11m4.7 11v0l8 -11m1.3 4l-5 7"),
                Some(1) => Some("m0 0l8 11m1 0l-5 -7m5 -4l5 7"),
                _ => None,
            };
            if let Some(lines) = lines {
                let start = number(x + 4.0)
                    + " "
                    + &number(if lines.starts_with('v') { y + 5.5 } else { y - 5.5 });
                let _ = write!(
                    out,
                    "<path d=\"M{start}{lines}\" fill=\"none\" stroke=\"{background}\" stroke-width=\"1.2\"/>"
                );
            }
        }
        style => {
            if style != Style::Points {
                let dash = sample
                    .appearance
                    .dash
                    .map(|dash| format!(" stroke-dasharray=\"{dash}\""))
                    .unwrap_or_default();
                let (left, at) = (number(x), number(y));
                let _ = write!(
                    out,
                    "<path d=\"M{left} {at}H{right}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>"
                );
            }
            let marker = sample.appearance.shape.path(x + SWATCH / 2.0, y, 3.6);
            let _ = write!(
                out,
                "<path d=\"{marker}\" fill=\"{colour}\" stroke=\"{background}\" stroke-width=\"1\" paint-order=\"stroke\"/>"
            );
        }
    }
    out
}

/// Places near the wanted ones (which rise) that are at least `apart` from each other, between
/// `top` and `bottom` if there is room: neighbours that are too close move as one, to the middle of
/// what they want.
fn spread(wanted: &[f64], apart: f64, top: f64, bottom: f64) -> Vec<f64> {
    // Groups of (first wanted place that its members agree on, members).
    let mut groups: Vec<(f64, usize)> = Vec::new();
    for place in wanted {
        groups.push((*place, 1));
        while let [.., before, last] = groups[..] {
            if before.0 + apart * before.1 as f64 <= last.0 {
                break;
            }
            let members = before.1 + last.1;
            let shifted = last.0 - apart * before.1 as f64;
            let first = (before.0 * before.1 as f64 + shifted * last.1 as f64) / members as f64;
            groups.truncate(groups.len() - 2);
            groups.push((first, members));
        }
    }
    let mut places: Vec<f64> = Vec::with_capacity(wanted.len());
    for (first, members) in groups {
        places.extend((0..members).map(|index| first + apart * index as f64));
    }
    let mut limit = bottom;
    for place in places.iter_mut().rev() {
        *place = place.min(limit);
        limit = *place - apart;
    }
    let mut limit = top;
    for place in &mut places {
        *place = place.max(limit);
        limit = *place + apart;
    }
    places
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_that_have_room_stay() {
        assert_eq!(spread(&[10.0, 40.0, 80.0], 15.0, 0.0, 100.0), [10.0, 40.0, 80.0]);
        assert_eq!(spread(&[50.0, 50.0], 10.0, 0.0, 100.0), [45.0, 55.0]);
        assert_eq!(spread(&[99.0, 99.0], 10.0, 0.0, 100.0), [90.0, 100.0]);
    }

    #[test]
    fn rows_are_filled() {
        assert_eq!(in_rows(&[40.0, 40.0, 90.0], 100.0), [(0.0, 0), (40.0 + GAP, 0), (0.0, 1)]);
        assert_eq!(in_rows(&[500.0], 100.0), [(0.0, 0)]);
    }

    proptest! {
        #[test]
        fn names_never_overlap(mut wanted in prop::collection::vec(0.0..300.0_f64, 0..20)) {
            wanted.sort_by(f64::total_cmp);
            let places = spread(&wanted, 15.0, 0.0, 300.0);
            prop_assert_eq!(places.len(), wanted.len());
            prop_assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= 15.0 - 1e-6));
            prop_assert!(places.iter().all(|place| (-1e-6..=300.0 + 1e-6).contains(place)));
        }
    }
}
