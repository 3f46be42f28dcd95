//! What nicache assumes about the kernel that it runs on.
//!
//! * [`ASSUMPTIONS`] (`table.rs`) declares every one, what takes its place, and what is lost
//!   without.
//! * [`Kernel`] (`kernel.rs`) knows the types of the running kernel and of its modules, and so
//!   which assumptions hold.
//! * `preemption.rs` asks the kernel whether it stops in the middle of its own work.
//! * [`Symbol`] (`symbols.rs`) has addresses of what the kernel has no types for.
//! * [`calls_programs_at_functions`] (`tracing.rs`) says whether anything comes of attaching to
//!   functions.
//! * [`verified_instructions`] and [`missed_runs`] (`verified.rs`) say what a loaded program has
//!   cost the verifier, and whether it was ever passed over.
//! * [`Findings`] (`findings.rs`) is the answer: which way is taken for each, and which features
//!   are not to be had.
//!
//! Deliberately absent: attaching anything. What is found here is what the kernel says of itself;
//! the verifier has the last word when a program is loaded.
#![deny(clippy::disallowed_methods)]

mod assumption;
mod findings;
mod kernel;
mod preemption;
mod symbols;
mod table;
mod tracing;
mod verified;

pub use assumption::{Assumption, Feature, Program, Test, Way};
pub use findings::{Findings, Lack};
pub use kernel::{Kernel, NoTypes};
pub use symbols::Symbol;
pub use table::ASSUMPTIONS;
pub use tracing::calls_programs_at_functions;
pub use verified::{Runs, missed_runs, runs, verified_instructions};
