//! Units, and numbers with them as a reader wants to see them.

use serde::Serialize;

/// How numbers are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Bytes: "24 MB"; 1 KB is 1,024 bytes, as everywhere in nicache.
    Bytes,
    /// Hundredths: 71.3 is "71.3 %".
    Percent,
    /// How many: "121 480".
    Count,
    /// Seconds: 0.0042 is "4.2 ms".
    Seconds,
    /// A number without a unit.
    #[default]
    Number,
}
