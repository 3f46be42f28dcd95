//! What an operator sees of a running nicache.
//!
//! ```text
//! sample.rs     everything that is known at one moment: what `nicache top`, the page and Prometheus show
//! change.rs     what has happened between two samples, as rates
//! history.rs    the last few minutes, for a page that has just been opened
//! metrics.rs    a sample as text for Prometheus and OpenMetrics
//! page.rs       the live page
//! server/       the HTTP server for all of them
//! ```
//!
//! A [`Source`] gives samples. The card is asked once for all who look, and never more often than
//! [`SAMPLE_INTERVAL`]. Deliberately absent: anything that changes something, passwords and TLS.
//! Who can connect can look.

#![forbid(unsafe_code)]

mod change;
mod history;
mod metrics;
mod page;
mod sample;
mod server;

use std::sync::Arc;
use std::time::Duration;

use nicache_exposition::Exposition;

pub use change::{Change, per_second};
pub use history::{HISTORY_POINTS, History, Point};
pub use metrics::render;
pub use page::{Page, page};
pub use sample::{
    CardSample, Crossing, DatabaseSample, Direction, HotObject, Mode, Sample, WatcherSample,
};
pub use server::{AdminError, AdminServer, Reach};

/// How often a sample is taken while somebody looks, and for the history.
pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// What a counter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Description {
    /// A sentence.
    pub help: &'static str,
    /// The value can also go down.
    pub is_gauge: bool,
}

/// Where samples come from.
pub trait Source: Send + Sync + 'static {
    /// A sample of now, or one that is not older than half of [`SAMPLE_INTERVAL`]. `hottest`: with
    /// [`Sample::hottest`], which costs a look at every entry.
    ///
    /// # Errors
    /// Why there is none, as a sentence: the card does not answer.
    fn sample(&self, hottest: bool) -> Result<Arc<Sample>, String>;

    /// Tells families of its own, in the place of those that are made of a sample's cards and
    /// counters. False if it has none.
    fn own_metrics(&self, _text: &mut Exposition) -> bool {
        false
    }

    /// What a counter of [`Sample::counters`] is.
    fn describe(&self, counter: &str) -> Option<Description>;
}
