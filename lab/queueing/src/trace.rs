//! Requests that were recorded instead of drawn.

use std::collections::HashMap;

use thiserror::Error;

use crate::time::Time;

/// One recorded request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceRequest {
    /// When it comes.
    pub time: Time,
    /// What it is for: two with one identifier are for the same data.
    pub id: u64,
    /// Bytes of the host's response.
    pub bytes: u32,
}

/// A trace that cannot be simulated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum TraceError {
    /// It is empty.
    #[error("the trace has no requests")]
    Empty,
    /// A request is earlier than the one before it.
    #[error("request {at} of the trace is earlier than the one before it: sort the trace by time")]
    Unsorted {
        /// Counted from 0.
        at: usize,
    },
    /// It has more different identifiers than fit in 32 bits.
    #[error("the trace has more than 2^32 - 1 different identifiers: split it")]
    TooManyIdentifiers,
}

/// A trace whose identifiers are numbered in order of appearance, as the simulation's tables want
/// them.
#[derive(Debug)]
pub(crate) struct NumberedTrace<'a> {
    requests: &'a [TraceRequest],
    numbers: Vec<u32>,
    pub(crate) different: u32,
    pub(crate) bytes_min: u32,
}

impl<'a> NumberedTrace<'a> {
    pub(crate) fn new(requests: &'a [TraceRequest]) -> Result<Self, TraceError> {
        if let Some(at) = requests.windows(2).position(|pair| pair[1].time < pair[0].time) {
            return Err(TraceError::Unsorted { at: at + 1 });
        }
        let bytes_min =
            requests.iter().map(|request| request.bytes).min().ok_or(TraceError::Empty)?;
        let mut known: HashMap<u64, u32> = HashMap::new();
        let mut numbers = Vec::with_capacity(requests.len());
        for request in requests {
            let next = u32::try_from(known.len()).map_err(|_| TraceError::TooManyIdentifiers)?;
            numbers.push(*known.entry(request.id).or_insert(next));
        }
        let different = u32::try_from(known.len()).map_err(|_| TraceError::TooManyIdentifiers)?;
        Ok(NumberedTrace { requests, numbers, different, bytes_min })
    }

    /// Time, number and bytes of a request.
    #[inline]
    pub(crate) fn get(&self, at: u64) -> Option<(Time, u32, u32)> {
        let at = usize::try_from(at).ok()?;
        let request = self.requests.get(at)?;
        Some((request.time, self.numbers[at], request.bytes))
    }
}
