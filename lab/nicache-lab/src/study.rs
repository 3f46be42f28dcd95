//! Studies of traces: what `nicache sim` and `nicache trace` have in common.
//!
//! ```text
//!  traces ─▶ input ─▶ workload ─▶ sweep, curves ─▶ figures ─▶ output (terminal, HTML, SVG, PNG, CSV, JSON)
//! ```

pub(crate) mod figures;
pub(crate) mod input;
pub(crate) mod output;
pub(crate) mod progress;
