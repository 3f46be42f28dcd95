//! What a run tells while it goes on.

use serde::Serialize;

use crate::memory::MemoryState;
use crate::outcome::{BusBytes, Component};
use crate::time::Time;

/// Hears what happens. All methods do nothing unless they are written.
pub trait Observer {
    /// A request has been answered (those of the warm-up, too).
    fn handle_answer(&mut self, _answer: &Answer) {}

    /// The state of a component, as often as `debug` in the configuration says.
    fn handle_snapshot(&mut self, _snapshot: &Snapshot) {}
}

/// An observer to whom nothing is told.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deaf;

impl Observer for Deaf {}

/// A request that has been answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Answer {
    /// Its number, from 0, in order of arrival.
    pub sequence: u64,
    /// What it was for (numbered in order of appearance if it came from a trace).
    pub id: u32,
    /// Bytes of the response as the client got it.
    pub bytes: u32,
    /// Whether the network processor's memory had the data.
    pub hit: bool,
    /// When it came, in ps.
    pub arrived: Time,
    /// When it was answered, in ps.
    pub answered: Time,
    /// How much of the time between it was served, in ps; the rest it waited.
    pub service: Time,
}

/// The state of a component.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Snapshot {
    /// Cycles of the host's clock since the beginning.
    pub tick: u64,
    /// Time since the beginning, in ps.
    pub time: Time,
    /// What is shown.
    #[serde(flatten)]
    pub state: State,
}

/// What is shown of a component.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(tag = "component", rename_all = "snake_case")]
pub enum State {
    /// Requests.
    Requests {
        /// Requests that came.
        arrived: u64,
        /// Requests that were answered.
        answered: u64,
        /// Requests that are under way.
        outstanding: u64,
    },
    /// A station.
    Station {
        /// Which station it is.
        name: Component,
        /// Jobs waiting.
        waiting: usize,
        /// Jobs in service.
        in_service: u64,
        /// Jobs that left (since the warm-up).
        completions: u64,
        /// Share of the time (since the warm-up) in which it served.
        utilisation: f64,
        /// What is in it, if it is a memory.
        #[serde(skip_serializing_if = "Option::is_none")]
        memory: Option<MemoryState>,
        /// What has crossed (since the warm-up), if it is the bus.
        #[serde(skip_serializing_if = "Option::is_none")]
        bus: Option<BusBytes>,
    },
}
