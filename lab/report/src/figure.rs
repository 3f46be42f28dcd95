//! A figure: series of points over two axes, with marks.

use serde::Serialize;

use crate::Unit;

/// A figure: axes, and series of points on them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figure {
    /// Name in addresses and file names; what is neither letter, digit nor hyphen is replaced where
    /// it is used.
    pub id: String,
    /// What is shown, in a few words.
    pub title: String,
    /// What to see in it, and how it was measured; may be empty.
    pub caption: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What is drawn; up to eight series have colours of their own, more repeat them with other
    /// dashes.
    pub series: Vec<Series>,
    /// Places worth naming, such as the knee of a curve.
    pub marks: Vec<Mark>,
}

/// An axis: its label, unit, scale and ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Axis {
    /// What it measures, without the unit ("Cache size").
    pub label: String,
    /// How its values are written.
    pub unit: Unit,
    /// How values become places.
    pub scale: Scale,
    /// Where it begins; `None` lets the data decide.
    pub min: Option<f64>,
    /// Where it ends; `None` lets the data decide.
    pub max: Option<f64>,
    /// Categories instead of numbers: the value 0 is the first name, 1 the second. Empty for an
    /// axis of numbers. The scale is linear then, whatever `scale` says.
    pub names: Vec<String>,
}

impl Axis {
    /// An axis whose ends the data decides.
    pub fn new(label: impl Into<String>, unit: Unit, scale: Scale) -> Self {
        Self { label: label.into(), unit, scale, min: None, max: None, names: Vec::new() }
    }

    /// An axis of categories, at 0, 1, 2 ...
    pub fn of_names<N: Into<String>>(
        label: impl Into<String>,
        names: impl IntoIterator<Item = N>,
    ) -> Self {
        Self {
            label: label.into(),
            names: names.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }

    /// Gives the axis fixed ends, in place of ends that the values choose.
    #[must_use]
    pub fn between(self, min: f64, max: f64) -> Self {
        Self { min: Some(min), max: Some(max), ..self }
    }
}

/// How values become places on an axis. Values that are not above zero have no place on a
/// logarithmic one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Equal differences, equal distances.
    #[default]
    Linear,
    /// Equal ratios, equal distances; ticks at powers of two.
    Log2,
    /// Equal ratios, equal distances; ticks at powers of ten.
    Log10,
}

/// Points with one name.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Series {
    /// Its name in legends and tables.
    pub name: String,
    /// The points, in the order in which a line joins them: x never falls. A point without a place
    /// (not finite, or not above zero on a logarithmic axis) interrupts the line.
    pub points: Vec<Point>,
    /// How they are drawn.
    pub style: Style,
    /// Series of one group have one colour, and are told apart by style and marker: a model and
    /// what it models.
    pub group: Option<String>,
}

impl Series {
    /// A solid line through points (x, y).
    pub fn line(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self {
            name: name.into(),
            points: points.into_iter().map(|(x, y)| Point::new(x, y)).collect(),
            style: Style::Line,
            group: None,
        }
    }

    /// Draws the points in another style.
    #[must_use]
    pub fn styled(self, style: Style) -> Self {
        Self { style, ..self }
    }

    /// Puts the series in a group.
    #[must_use]
    pub fn grouped(self, group: impl Into<String>) -> Self {
        Self { group: Some(group.into()), ..self }
    }
}

/// A point, with the ends of its error bar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Point {
    /// Place on the horizontal axis.
    pub x: f64,
    /// Place on the vertical axis.
    pub y: f64,
    /// Lower end of what y may be, in y's unit.
    pub low: Option<f64>,
    /// Upper end of what y may be, in y's unit.
    pub high: Option<f64>,
}

impl Point {
    /// A point without an error bar.
    pub fn new(x: f64, y: f64) -> Self {
        Self { x, y, low: None, high: None }
    }

    /// A point that may lie anywhere from `low` to `high`.
    pub fn between(x: f64, y: f64, low: f64, high: f64) -> Self {
        Self { x, y, low: Some(low), high: Some(high) }
    }
}

/// How the points of a series are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    /// A line through them, with a band for the error bars.
    #[default]
    Line,
    /// A dashed line through the points, with a band for the error bars.
    Dashed,
    /// Markers, with error bars.
    Points,
    /// Each y holds until the next x.
    Steps,
    /// Bars from zero, with error bars; the bars of several series stand side by side.
    Bars,
}

/// A named place on an axis, drawn as a line across the figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Mark {
    /// On which axis.
    pub axis: Direction,
    /// Where, in the axis's unit.
    pub at: f64,
    /// What is there ("knee: 24 MB"); may be empty.
    pub label: String,
}

impl Mark {
    /// A vertical line at an x.
    pub fn x(at: f64, label: impl Into<String>) -> Self {
        Self { axis: Direction::X, at, label: label.into() }
    }

    /// A horizontal line at a y.
    pub fn y(at: f64, label: impl Into<String>) -> Self {
        Self { axis: Direction::Y, at, label: label.into() }
    }
}

/// One of the two axes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The horizontal one.
    #[default]
    X,
    /// The vertical one.
    Y,
}
