//! What was asked for, how it went and how long it took. Plain numbers, for whoever shows them.
//!
//! Each worker counts for itself, so that no two write the same cache line; [`Metrics::add`] sums up.

use hdrhistogram::Histogram;

use crate::protocol::{Procedure, Status};

/// The longest time that is told apart, in nanoseconds: 100 s.
const LATENCY_NS_MAX: u64 = 100_000_000_000;

/// One procedure.
#[derive(Clone, Debug)]
pub struct ProcedureMetrics {
    /// Calls that were executed.
    pub calls: u64,
    /// Those among them that were answered with an error.
    pub errors: u64,
    /// From the whole request to the reply, in nanoseconds, within 1 %.
    pub latency_ns: Histogram<u64>,
}

/// All of it.
#[derive(Clone, Debug)]
pub struct Metrics {
    procedures: [ProcedureMetrics; Procedure::ALL.len()],
    /// Calls of MOUNT and the port mapper.
    pub other_calls: u64,
    /// Calls that were refused before a procedure saw them: unknown program, bad credential, arguments that are none.
    pub refused_calls: u64,
    /// Records that are not calls, or too long. Each ends its connection.
    pub bad_records: u64,
    /// Calls that were answered with what they were answered before.
    pub repeated_calls: u64,
    /// Calls that came again while they were under way.
    pub waiting_calls: u64,
    /// Payload in replies, in bytes.
    pub read_bytes: u64,
    /// Payload in requests, in bytes.
    pub written_bytes: u64,
    /// Payload that was copied out of a receive buffer, in bytes.
    pub copied_bytes: u64,
    /// Connections that were accepted.
    pub connections: u64,
    /// Connections that were refused because there were too many.
    pub refused_connections: u64,
    /// How often a connection was not read from because its requests or replies were too many.
    pub pauses: u64,
}

impl Default for Metrics {
    fn default() -> Self {
        let latency_ns = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 2).expect("bounds that are right");
        let procedure = ProcedureMetrics { calls: 0, errors: 0, latency_ns };
        Self {
            procedures: std::array::from_fn(|_| procedure.clone()),
            other_calls: 0,
            refused_calls: 0,
            bad_records: 0,
            repeated_calls: 0,
            waiting_calls: 0,
            read_bytes: 0,
            written_bytes: 0,
            copied_bytes: 0,
            connections: 0,
            refused_connections: 0,
            pauses: 0,
        }
    }
}

impl Metrics {
    /// Of one procedure.
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
        self.other_calls += other.other_calls;
        self.refused_calls += other.refused_calls;
        self.bad_records += other.bad_records;
        self.repeated_calls += other.repeated_calls;
        self.waiting_calls += other.waiting_calls;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.copied_bytes += other.copied_bytes;
        self.connections += other.connections;
        self.refused_connections += other.refused_connections;
        self.pauses += other.pauses;
    }
}
