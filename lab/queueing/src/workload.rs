//! The requests of a run in order: drawn, or from a trace.

use fastrand::Rng;

use crate::config::{Arrivals, Config, Drawn, Responses};
use crate::random::{IdentifierDraw, Stream, exponential, size, sizes, stream};
use crate::time::Time;
use crate::trace::NumberedTrace;

/// A request that comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Incoming {
    pub(crate) time: Time,
    pub(crate) id: u32,
    /// Bytes of the response, if the host makes one.
    pub(crate) bytes: u32,
}

/// Where requests come from.
#[derive(Debug)]
pub(crate) enum Workload<'a> {
    Drawn(Box<DrawnWorkload>),
    Trace(NumberedTrace<'a>, u64),
}

#[derive(Debug)]
pub(crate) struct DrawnWorkload {
    count: u64,
    next: u64,
    time_ps: f64,
    interval_ps: f64,
    arrivals: Arrivals,
    intervals: Rng,
    identifiers: IdentifierDraw,
    responses: Responses,
    size_random: Rng,
    /// Empty if each response is drawn anew.
    sizes: Vec<u32>,
}

impl<'a> Workload<'a> {
    pub(crate) fn drawn(config: &Config, seed: u64) -> Self {
        let fixed = config.responses.drawn == Drawn::PerIdentifier;
        Workload::Drawn(Box::new(DrawnWorkload {
            count: config.requests.count,
            next: 0,
            time_ps: 0.0,
            interval_ps: 1e12 / config.requests.frequency_per_s,
            arrivals: config.requests.arrivals,
            intervals: stream(seed, Stream::Intervals),
            identifiers: IdentifierDraw::new(seed, &config.requests),
            responses: config.responses.clone(),
            size_random: stream(seed, Stream::Sizes),
            sizes: if fixed {
                sizes(seed, &config.requests, &config.responses)
            } else {
                Vec::new()
            },
        }))
    }

    #[inline]
    pub(crate) fn next(&mut self) -> Option<Incoming> {
        match self {
            Workload::Drawn(drawn) => drawn.next(),
            Workload::Trace(trace, next) => {
                let (time, id, bytes) = trace.get(*next)?;
                *next += 1;
                Some(Incoming { time, id, bytes })
            }
        }
    }
}

impl DrawnWorkload {
    #[inline]
    fn next(&mut self) -> Option<Incoming> {
        if self.next == self.count {
            return None;
        }
        // Multiples, not sums, of a fixed interval: no error adds up.
        match self.arrivals {
            Arrivals::Fixed => self.time_ps = self.next as f64 * self.interval_ps,
            Arrivals::Poisson => {
                self.time_ps += self.interval_ps * exponential(&mut self.intervals);
            }
        }
        self.next += 1;
        let id = self.identifiers.draw();
        let bytes = match self.sizes.get(id as usize) {
            Some(&bytes) => bytes,
            None => size(&mut self.size_random, &self.responses),
        };
        Some(Incoming { time: Time(self.time_ps.round() as u64), id, bytes })
    }
}
