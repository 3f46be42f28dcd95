//! A server whose network processor keeps replies in its own memory, as a discrete-event
//! simulation.
//!
//! Read first: Koch and Doughty 2002 (koch2002), "Improving Throughput and Reducing PCI Bus Traffic
//! by Caching Server Requests using a Network Processor with Memory"; then `docs/simulator.md` for
//! the model, its parameters, how the constants that the paper leaves out were found, and how its
//! Table 1 compares.
//!
//! [`run`] is one run of a [`Config`]; [`run_seeds`] are several with confidence intervals;
//! [`table1::reproduce`] is the paper's table. A run has no clock and no I/O: it is a function of
//! configuration and seed.
//!
//! [`Kernel`] and [`Station`] are public, for other queueing networks and for the tests that hold
//! them against closed forms.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

mod config;
mod config_file;
mod configurations;
mod dump;
mod interval;
mod kernel;
mod memory;
mod model;
mod observer;
mod outcome;
mod parallel;
mod random;
mod station;
mod summary;
pub mod table1;
mod time;
mod times;
mod trace;
mod workload;

pub use config::{
    Arrivals, Bus, CLOCK_MHZ_MAX, COUNT_MAX, CYCLES_MAX, Config, DIFFERENT_MAX, Debug, Disk, Drawn,
    FREQUENCY_PER_S_MAX, Host, Identifiers, MemoryPolicy, NetworkProcessor, OUTSTANDING_MAX,
    OutOfBounds, Processing, Requests, Responses, Simulation,
};
pub use config_file::ConfigError;
pub use configurations::CONFIGURATIONS;
pub use dump::{Dump, DumpFormat};
pub use interval::Interval;
pub use kernel::Kernel;
pub use memory::MemoryState;
pub use model::{RunError, run, run_observed, run_trace};
pub use observer::{Answer, Deaf, Observer, Snapshot, State};
pub use outcome::{BusBytes, Component, Outcome, PathTimes, StationOutcome};
pub use station::{Begun, Servers, Station, StationCounts};
pub use summary::{StationSummary, Summary, run_seeds};
pub use time::{Clock, Time};
pub use times::ResponseTimes;
pub use trace::{TraceError, TraceRequest};
