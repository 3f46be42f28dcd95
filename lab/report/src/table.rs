//! A table: the first column names the rows, the others hold numbers or text.

use serde::Serialize;

use crate::Unit;

/// A table. A row that is shorter than the columns ends with missing cells; what is longer is not
/// shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Table {
    /// What it shows, in a few words.
    pub title: String,
    /// Heads of the columns; the first is that of the row headers.
    pub columns: Vec<Column>,
    /// The rows, in order.
    pub rows: Vec<Row>,
}

/// The head of a column.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Column {
    /// Its name, without the unit.
    pub name: String,
    /// How its numbers are written.
    pub unit: Unit,
}

impl Column {
    /// A column of numbers in a unit; text in it is left as it is.
    pub fn new(name: impl Into<String>, unit: Unit) -> Self {
        Self { name: name.into(), unit }
    }
}

/// A row of a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// One for each column; the first is the row's header.
    pub cells: Vec<Cell>,
    /// Is it the row that the reader should find first?
    pub highlight: bool,
}

impl Row {
    /// A row like the others.
    pub fn new(cells: impl IntoIterator<Item = Cell>) -> Self {
        Self { cells: cells.into_iter().collect(), highlight: false }
    }

    /// A row that the reader should find first.
    pub fn highlighted(cells: impl IntoIterator<Item = Cell>) -> Self {
        Self { cells: cells.into_iter().collect(), highlight: true }
    }
}

/// What stands in a row below a column.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Cell {
    /// Text as it is.
    Text(String),
    /// A number in the column's unit. One that is not finite is shown as missing.
    Number(f64),
    /// Nothing was measured; shown as a dash.
    #[default]
    Missing,
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl<T: Into<Self>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Missing, Into::into)
    }
}
