//! Reports: what a simulation or a measurement found, as figures and tables, for browsers, papers
//! and terminals.
//!
//! [`Report`] is the document; the rest turns it, or a [`Figure`] or a [`Table`] of it, into bytes:
//!
//! | output | of | function |
//! |---|---|---|
//! | one HTML page that needs nothing else | report | [`html`](mod@html) |
//! | SVG | figure | [`svg`](mod@svg) |
//! | PNG | figure | [`png`] |
//! | CSV | figure, table | [`figure_csv`], [`table_csv`] |
//! | text for a terminal | report, figure, table | [`report_text`], [`figure_text`], [`table_text`] |
//!
//! All are pure functions: no files, no clock, no network. One drawing serves HTML, SVG and PNG.
//! Text in a model may be anything; it is escaped where it is written. Numbers may be anything,
//! too: what is not finite, and what a logarithmic scale has no place for, is not drawn.
//!
//! Deliberately absent: any knowledge of caches, and three-dimensional or pie charts.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

mod csv;
mod drawing;
mod escape;
mod figure;
mod font;
mod grid;
mod html;
mod key;
mod paint;
mod pen;
mod plot;
mod report;
mod scale;
#[cfg(test)]
mod snapshot;
mod svg;
mod table;
mod terminal;
mod text;
mod trace;
mod unit;

pub use csv::{figure_csv, table_csv};
pub use figure::{Axis, Direction, Figure, Mark, Point, Scale, Series, Style};
pub use html::html;
pub use plot::figure_text;
pub use report::{Fact, Report, Section};
pub use svg::{PngError, Size, png, svg};
pub use table::{Cell, Column, Row, Table};
pub use terminal::{Charset, Terminal};
pub use text::{report_text, table_text};
pub use unit::Unit;
