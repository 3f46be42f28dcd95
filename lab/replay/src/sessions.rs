//! Connections and pipelined batches out of a log, as Kim et al. (2002), section 5.2, make them:
//!
//! > Requests that came from the same anonymized client IP address within a fifteen second period
//! > in the original access log are treated as a single persistent connection. Within a persistent
//! > connection, requests that arrive less than five seconds apart in the original log are
//! > pipelined.
//!
//! Both are taken to be about neighbours: a request belongs to the connection of the same client's
//! request before it if less than 15 s lie between the two, and to its batch if less than 5 s do,
//! however long the chain gets. (A period of 15 s from a connection's first request would cut the
//! page views of a busy client in two at random.) A request that the log has later than one with a
//! later time counts as at that later time.

use crate::trace::Trace;

/// What makes a connection and a batch.
#[derive(Clone, Copy, Debug)]
pub struct SessionConfig {
    /// Requests of a client that are fewer seconds apart share a connection; 0: each has its own.
    /// 15 in the paper.
    pub connection_gap_s: u64,
    /// Requests of a connection that are fewer seconds apart are sent at once; 0: one by one. 5 in
    /// the paper.
    pub pipeline_gap_s: u64,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self { connection_gap_s: 15, pipeline_gap_s: 5 }
    }
}

/// A request within its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionRequest {
    /// Index into the trace's objects.
    pub object: u32,
    /// Seconds after the first request of the session.
    pub after_s: u32,
    /// HEAD instead of GET.
    pub head: bool,
    /// The last one of its batch.
    pub ends_batch: bool,
}

/// A persistent connection of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// When it begins, in nanoseconds after the first session. Logs have whole seconds: the
    /// sessions of one second are spread over it evenly, so they do not come in a burst.
    pub begin_ns: u64,
    first: u32,
    end: u32,
}

/// The sessions of a trace in the order of their begins.
#[derive(Clone, Debug, Default)]
pub struct Sessions {
    sessions: Vec<Session>,
    /// Requests of all sessions; the requests of one session follow each other.
    requests: Vec<SessionRequest>,
    span_ns: u64,
}

impl Sessions {
    /// Divides a trace.
    pub fn of(trace: &Trace, config: &SessionConfig) -> Self {
        struct Open {
            session: u32,
            last: u64,
            request: usize,
        }
        let mut open: Vec<Option<Open>> = Vec::new();
        open.resize_with(trace.clients as usize, || None);
        // Second of the begin and number of requests.
        let mut counted: Vec<(u64, u32)> = Vec::new();
        let mut session_of = Vec::with_capacity(trace.requests.len());
        let mut made: Vec<SessionRequest> = Vec::with_capacity(trace.requests.len());
        for (index, request) in trace.requests.iter().enumerate() {
            let place = &mut open[request.client as usize];
            let before = place
                .as_ref()
                .map(|open| (open.session, request.second.saturating_sub(open.last), open.request));
            let (session, second) = match before {
                Some((session, gap, last)) if gap < config.connection_gap_s => {
                    made[last].ends_batch = gap >= config.pipeline_gap_s;
                    (session, place.as_ref().map_or(0, |open| open.last).max(request.second))
                }
                _ => {
                    counted.push((request.second, 0));
                    (counted.len() as u32 - 1, request.second)
                }
            };
            let (begin, requests) = &mut counted[session as usize];
            *requests += 1;
            session_of.push(session);
            let after_s = u32::try_from(second - *begin).unwrap_or(u32::MAX);
            made.push(SessionRequest {
                object: request.object,
                after_s,
                head: request.head,
                ends_batch: true,
            });
            *place = Some(Open { session, last: second, request: index });
        }
        let mut order: Vec<u32> = (0..counted.len() as u32).collect();
        order.sort_by_key(|&session| counted[session as usize].0);
        let (begins, span_ns) = begins_ns(order.iter().map(|&session| counted[session as usize].0));
        let mut next = vec![0; counted.len()];
        let mut sessions = Vec::with_capacity(order.len());
        let mut first = 0;
        for (&session, begin_ns) in order.iter().zip(begins) {
            let end = first + counted[session as usize].1;
            sessions.push(Session { begin_ns, first, end });
            next[session as usize] = first;
            first = end;
        }
        let mut requests = made.clone();
        for (request, session) in made.into_iter().zip(session_of) {
            let place = &mut next[session as usize];
            requests[*place as usize] = request;
            *place += 1;
        }
        Self { sessions, requests, span_ns }
    }

    /// Number of sessions.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Number of requests of all of them.
    pub fn requests_len(&self) -> usize {
        self.requests.len()
    }

    /// Number of batches of all of them.
    pub fn batches_len(&self) -> usize {
        self.requests.iter().filter(|request| request.ends_batch).count()
    }

    /// From the first begin to the end of the second of the last one, in nanoseconds.
    pub fn span_ns(&self) -> u64 {
        self.span_ns
    }

    /// Session `index`.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn get(&self, index: usize) -> Session {
        self.sessions[index]
    }

    /// The requests of a session, which is one of these.
    pub fn requests(&self, session: Session) -> &[SessionRequest] {
        &self.requests[session.first as usize..session.end as usize]
    }
}

/// The begins of sessions whose seconds these are (ascending), and their span.
fn begins_ns(seconds: impl Iterator<Item = u64>) -> (Vec<u64>, u64) {
    const SECOND_NS: u64 = 1_000_000_000;
    let seconds: Vec<u64> = seconds.collect();
    let (Some(&start), Some(&end)) = (seconds.first(), seconds.last()) else {
        return (Vec::new(), 0);
    };
    let mut begins = Vec::with_capacity(seconds.len());
    for of_one in seconds.chunk_by(|a, b| a == b) {
        let base = (of_one[0] - start).saturating_mul(SECOND_NS);
        begins.extend(
            (0..of_one.len() as u64)
                .map(|n| base.saturating_add(n * SECOND_NS / of_one.len() as u64)),
        );
    }
    (begins, (end - start + 1).saturating_mul(SECOND_NS))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use nicache_trace::{Record, Verb};

    /// A trace of requests (client, second), each for an object of its own.
    fn trace(requests: &[(u64, u64)]) -> Trace {
        let mut trace = Trace::default();
        for (object, &(client, second)) in requests.iter().enumerate() {
            let (object, verb) = (object as u64, Verb::Get);
            let (time_us, bytes) = (second * 1_000_000, Some(1));
            trace
                .push(&Record {
                    time_us,
                    client,
                    object,
                    verb,
                    status: 200,
                    bytes,
                    ..Record::default()
                })
                .unwrap();
        }
        trace
    }

    /// Sessions as begin in ms and batches of objects.
    fn sessions(requests: &[(u64, u64)], config: &SessionConfig) -> Vec<(u64, Vec<Vec<u32>>)> {
        let sessions = Sessions::of(&trace(requests), config);
        let batches = |session| {
            let batches = sessions.requests(session).split_inclusive(|request| request.ends_batch);
            batches.map(|batch| batch.iter().map(|request| request.object).collect()).collect()
        };
        (0..sessions.len())
            .map(|n| sessions.get(n))
            .map(|s| (s.begin_ns / 1_000_000, batches(s)))
            .collect()
    }

    #[test]
    fn neighbours_less_than_15_s_apart_share_a_connection_and_less_than_5_s_a_batch() {
        let requests = [(1, 100), (2, 101), (1, 104), (1, 109), (1, 123), (2, 116), (1, 138)];
        let expected = [
            (0, vec![vec![0, 2], vec![3], vec![4]]),
            (1000, vec![vec![1]]),
            (16_000, vec![vec![5]]),
            (38_000, vec![vec![6]]),
        ];
        assert_eq!(sessions(&requests, &SessionConfig::default()), expected);
        let none = SessionConfig { connection_gap_s: 0, pipeline_gap_s: 0 };
        assert_eq!(sessions(&requests, &none).len(), requests.len());
        let one_by_one = SessionConfig { pipeline_gap_s: 0, ..SessionConfig::default() };
        assert_eq!(sessions(&[(1, 1), (1, 1)], &one_by_one), [(0, vec![vec![0], vec![1]])]);
    }

    #[test]
    fn sessions_of_one_second_are_spread_over_it() {
        let begins: Vec<u64> =
            sessions(&[(1, 7), (2, 7), (3, 7), (4, 7), (5, 8)], &SessionConfig::default())
                .iter()
                .map(|s| s.0)
                .collect();
        assert_eq!(begins, [0, 250, 500, 750, 1000]);
        assert!(sessions(&[], &SessionConfig::default()).is_empty());
    }

    proptest! {
        /// Every request is in one session; a session's neighbours are near, and those of two
        /// sessions are not.
        #[test]
        fn no_request_is_lost_and_gaps_are_kept(
            mut requests in proptest::collection::vec((0u64..4, 0u64..200), 1..80),
            connection_gap_s in 0u64..20,
            pipeline_gap_s in 0u64..20,
            in_order: bool,
        ) {
            if in_order {
                requests.sort_by_key(|&(_, second)| second);
            }
            let trace = trace(&requests);
            let sessions =
                Sessions::of(&trace, &SessionConfig { connection_gap_s, pipeline_gap_s });
            let all: Vec<Session> = (0..sessions.len()).map(|n| sessions.get(n)).collect();
            prop_assert!(all.is_sorted_by_key(|session| session.begin_ns));
            prop_assert!(all.iter().all(|session| session.begin_ns < sessions.span_ns()));
            let mut seen: Vec<u32> =
                all.iter().flat_map(|&s| sessions.requests(s)).map(|r| r.object).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..requests.len() as u32).collect::<Vec<_>>());
            let mut ends: std::collections::HashMap<u64, u64> = Default::default();
            for &session in &all {
                let of = sessions.requests(session);
                let client = |request: &SessionRequest| requests[request.object as usize].0;
                let second = |request: &SessionRequest| requests[request.object as usize].1;
                prop_assert!(of.iter().all(|request| client(request) == client(&of[0])));
                prop_assert!(of.last().unwrap().ends_batch);
                prop_assert!(of.is_sorted_by_key(|request| request.object));
                for pair in of.windows(2) {
                    let gap = u64::from(pair[1].after_s - pair[0].after_s);
                    prop_assert!(gap < connection_gap_s);
                    prop_assert_eq!(pair[0].ends_batch, gap >= pipeline_gap_s);
                }
                if in_order {
                    let last = ends.insert(client(&of[0]), second(of.last().unwrap()));
                    prop_assert!(last.is_none_or(|last| second(&of[0]) - last >= connection_gap_s));
                    prop_assert!(
                        of.iter().all(|r| second(r) - second(&of[0]) == u64::from(r.after_s))
                    );
                }
            }
        }
    }
}
