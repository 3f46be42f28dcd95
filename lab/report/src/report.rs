//! The document: what was found, in the order in which it is read.

use serde::Serialize;

use crate::{Figure, Table};

/// A whole report.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// What the report is of, in a few words.
    pub title: String,
    /// Of what, and when; may be empty.
    pub subtitle: String,
    /// The main results, shown large; six at most are easy to read.
    pub facts: Vec<Fact>,
    /// The rest, in order.
    pub sections: Vec<Section>,
    /// How it was made, for whoever wants to repeat it; may be empty.
    pub footer: String,
}

/// One main result.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Fact {
    /// What it is ("Smallest miss ratio").
    pub label: String,
    /// The result with its unit ("21.4 %"); [`Unit::format`](crate::Unit::format) makes one from a
    /// number.
    pub value: String,
    /// What it holds for ("LRU, 64 MB"); may be empty.
    pub note: String,
}

impl Fact {
    /// A fact with a note, which may be empty.
    pub fn new(
        label: impl Into<String>,
        value: impl Into<String>,
        note: impl Into<String>,
    ) -> Self {
        Self { label: label.into(), value: value.into(), note: note.into() }
    }
}

/// A part of a report: paragraphs, then figures, then tables.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Section {
    /// Heading.
    pub title: String,
    /// Plain text, a string for each paragraph.
    pub paragraphs: Vec<String>,
    /// Figures, in order.
    pub figures: Vec<Figure>,
    /// Tables, in order.
    pub tables: Vec<Table>,
}
