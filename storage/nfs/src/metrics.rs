//! What was asked for, how it went and how long it took. Plain numbers, for whoever shows them.
//!
//! Each worker counts for itself, so no two write the same cache line; [`Metrics::add`] sums
//! up.

use hdrhistogram::Histogram;

use crate::protocol::{Procedure, Status};

/// The longest time that is told apart, in nanoseconds: 100 s.
const LATENCY_NS_MAX: u64 = 100_000_000_000;

/// What was measured of one procedure.
#[derive(Clone, Debug)]
pub struct ProcedureMetrics {
    /// Calls that were executed.
    pub calls: u64,
    /// Executed calls that were answered with an error.
    pub errors: u64,
    /// From the whole request to the reply, in nanoseconds, within 1 %.
    pub latency_ns: Histogram<u64>,
}

impl Default for ProcedureMetrics {
    fn default() -> Self {
        let latency_ns =
            Histogram::new_with_bounds(1, LATENCY_NS_MAX, 2).expect("bounds that are right");
        Self { calls: 0, errors: 0, latency_ns }
    }
}

nicache_counters::counters! {
    /// All of it.
    #[derive(Clone, Debug, Default)]
    pub struct Metrics {
        other_calls: "Calls of MOUNT and the port mapper.",
        refused_calls: "Calls that were refused before a procedure saw them: unknown program, bad credential, malformed arguments.",
        bad_records: "Records that are not calls, or too long. Each ends its connection.",
        repeated_calls: "Calls that were answered with what they were answered before.",
        waiting_calls: "Calls that came again while they were under way.",
        read_bytes: "Payload in replies, in bytes.",
        written_bytes: "Payload in requests, in bytes.",
        copied_bytes: "Payload that was copied out of a receive buffer, in bytes.",
        connections: "Connections that were accepted.",
        replaced_connections: "Connections with nothing to do that were ended because others needed their places.",
        refused_connections: "Connections that were refused because there were too many with something to do.",
        stuck_connections: "Connections that were ended because their clients took no replies.",
        pauses: "How often a connection was not read from because its requests or replies were too many.",
    }
    beside {
        procedures: [ProcedureMetrics; Procedure::ALL.len()],
    }
}

impl Metrics {
    /// The figures of one procedure.
    #[must_use]
    pub fn procedure(&self, procedure: Procedure) -> &ProcedureMetrics {
        &self.procedures[procedure as usize]
    }

    /// A call was executed.
    pub fn record(&mut self, procedure: Procedure, status: Status, latency_ns: u64) {
        let metrics = &mut self.procedures[procedure as usize];
        metrics.calls += 1;
        metrics.errors += u64::from(status != Status::Ok);
        metrics.latency_ns.saturating_record(latency_ns);
    }

    /// Adds another worker's.
    pub fn add(&mut self, other: &Self) {
        for (own, other) in self.procedures.iter_mut().zip(&other.procedures) {
            own.calls += other.calls;
            own.errors += other.errors;
            own.latency_ns += &other.latency_ns;
        }
        self.add_each(other);
    }
}
