//! Studies of traces: what `nicache sim` and `nicache trace` have in common.
//!
//! ```text
//!  traces ─▶ input ─▶ workload ─▶ sweep, curves ─▶ figures ─▶ output (terminal, HTML, SVG, PNG, CSV, JSON)
//! ```

pub mod figures;
pub mod input;
pub mod output;
pub mod progress;
