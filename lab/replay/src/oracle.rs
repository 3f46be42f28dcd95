//! Says whether a reply is one that the file could have given. Pure: no clock, no I/O.
//!
//! A file has one writer, so its history is a sequence of steps, each with the time of its call and
//! of its return. The state made by step *i* can be seen from the call of step *i* (the effect may
//! come at any time before the return) until the return of step *i*+1. A reply may show any state
//! that can be seen at some moment between the sending of its request and its last byte. A state
//! that ceased before the request was sent is **stale**.
//!
//! A server that sends a file while it is written in place sends a mixture, with or without a card.
//! So lines of several versions, or a length between two states, are accepted (and counted apart)
//! if all of these versions can be seen during the reply and one of the steps is a write in place;
//! so are zeros behind the place where the file is cut. A mixture that was kept is found by the
//! next reply, whose time the old versions do not reach.

use std::fmt;

use crate::content::{Body, is_patchwork};

/// What a file is after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The first `len` bytes of a version.
    Content {
        /// Which version it is.
        version: u32,
        /// Bytes, never 0.
        len: u64,
    },
    /// A file of no bytes.
    Empty,
    /// No such file: 404.
    Missing,
    /// A file that the server may not read: 403.
    Forbidden,
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Content { version, len } => write!(f, "version {version}, {len} bytes,"),
            Self::Empty => f.write_str("no bytes"),
            Self::Missing => f.write_str("no such file"),
            Self::Forbidden => f.write_str("not to be read"),
        }
    }
}

/// A change of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When the writer made its call, CLOCK_MONOTONIC in nanoseconds.
    pub call_ns: u64,
    /// When the call returned; `u64::MAX` while it has not.
    pub return_ns: u64,
    /// What it makes of the file.
    pub state: State,
    /// Whether it changes bytes of a file that a server may be sending.
    pub in_place: bool,
}

/// All steps of one file, the oldest (its creation) first.
#[derive(Clone, Debug, Default)]
pub struct History {
    file: u64,
    steps: Vec<Step>,
}

impl History {
    /// The history of the file with this id, which has been in `state` since ever.
    pub fn new(file: u64, state: State) -> Self {
        Self { file, steps: vec![Step { call_ns: 0, return_ns: 0, state, in_place: false }] }
    }

    /// Notes a step that begins at `call_ns`. To be called before the change is made.
    pub fn begin(&mut self, call_ns: u64, state: State, in_place: bool) {
        self.steps.push(Step { call_ns, return_ns: u64::MAX, state, in_place });
    }

    /// Notes that the last step is over.
    pub fn end(&mut self, return_ns: u64) {
        if let Some(last) = self.steps.last_mut() {
            last.return_ns = return_ns;
        }
    }

    /// The steps of the file's history.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Steps whose state can be seen between the two times.
    fn visible(&self, sent_ns: u64, ended_ns: u64) -> &[Step] {
        let end = self.steps.partition_point(|step| step.call_ns <= ended_ns);
        // Step i is out of sight if step i+1 had returned before the request was sent.
        let returned = self.steps.partition_point(|step| step.return_ns < sent_ns);
        &self.steps[returned.saturating_sub(1).min(end)..end]
    }
}

/// What a reply showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// 200 with a body of `len` bytes.
    Body {
        /// What it is.
        body: Body,
        /// Its bytes.
        len: u64,
    },
    /// 200 to HEAD: the length that was told.
    Length(u64),
    /// 404.
    Missing,
    /// 403.
    Forbidden,
    /// Another status.
    Status(u16),
}

/// The oracle's words on a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// A state of the file at some moment of the reply's time.
    Fresh,
    /// A mixture that the server may have sent while the file was written in place.
    MixedByServer,
    /// A state that a finished step had ended before the request was sent, `age_ns` before.
    Stale {
        /// Time from the end of the state to the sending of the request.
        age_ns: u64,
    },
    /// Versions or a length that never were in the file together, and no write in place explains
    /// it.
    Torn,
    /// Bytes or a status that never were the file's.
    Corrupt,
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fresh => f.write_str("fresh"),
            Self::MixedByServer => f.write_str("mixed by the server"),
            Self::Stale { age_ns } => write!(f, "STALE by {:.3} ms", *age_ns as f64 / 1e6),
            Self::Torn => f.write_str("TORN"),
            Self::Corrupt => f.write_str("CORRUPT"),
        }
    }
}

/// Judges a reply whose request was sent at `sent_ns` (noted before the call) and whose last byte
/// was there at `ended_ns` (noted after the call).
pub fn judge(history: &History, sent_ns: u64, ended_ns: u64, seen: &Observation) -> Judgement {
    let visible = history.visible(sent_ns, ended_ns);
    if visible.iter().any(|step| shows(step.state, seen)) {
        return Judgement::Fresh;
    }
    if is_mixture(history.file, visible, seen) {
        return Judgement::MixedByServer;
    }
    let steps = history.steps();
    let last = steps.iter().rposition(|step| step.call_ns <= ended_ns && shows(step.state, seen));
    match (last, seen) {
        (Some(at), _) => {
            let ended = steps.get(at + 1).map_or(sent_ns, |next| next.return_ns);
            Judgement::Stale { age_ns: sent_ns.saturating_sub(ended) }
        }
        (None, Observation::Body { body: Body::Garbled { bytes, .. }, .. })
            if !is_patchwork(history.file, &versions(steps), u64::MAX, bytes) =>
        {
            Judgement::Corrupt
        }
        (None, Observation::Body { .. } | Observation::Length(_)) => Judgement::Torn,
        (None, _) => Judgement::Corrupt,
    }
}

/// Is this just what the state looks like?
fn shows(state: State, seen: &Observation) -> bool {
    match (state, seen) {
        (
            State::Content { version, len },
            Observation::Body { body: Body::Whole { version: other }, len: other_len },
        ) => version == *other && len == *other_len,
        (State::Content { len, .. }, Observation::Length(other)) => len == *other,
        (State::Empty, Observation::Length(0) | Observation::Body { body: Body::Empty, .. })
        | (State::Missing, Observation::Missing)
        | (State::Forbidden, Observation::Forbidden) => true,
        _ => false,
    }
}

fn versions(steps: &[Step]) -> Vec<u32> {
    let version = |step: &Step| {
        if let State::Content { version, .. } = step.state { Some(version) } else { None }
    };
    steps.iter().filter_map(version).collect()
}

/// A server that sends pages by reference (sendfile) sends zeros from where a file is cut while
/// they wait to be sent, because the kernel clears the rest of the last page.
fn zeros_from(visible: &[Step]) -> u64 {
    let cut =
        visible.iter().skip(1).filter(|step| step.in_place).filter_map(|step| match step.state {
            State::Content { len, .. } => Some(len),
            State::Empty => Some(0),
            State::Missing | State::Forbidden => None,
        });
    cut.min().unwrap_or(u64::MAX)
}

fn is_mixture(file: u64, visible: &[Step], seen: &Observation) -> bool {
    // The first one is what was there before; what changes it is among the others.
    let is_rewritten = visible.iter().skip(1).any(|step| step.in_place);
    let len_max = visible
        .iter()
        .map(|step| if let State::Content { len, .. } = step.state { len } else { 0 })
        .max();
    let is_visible = |wanted: u32| versions(visible).contains(&wanted);
    let is_possible = match seen {
        Observation::Body { body: Body::Whole { version }, len } => {
            is_visible(*version) && Some(*len) <= len_max
        }
        Observation::Body { body: Body::Mixed { versions }, len } => {
            versions.iter().all(|&version| is_visible(version)) && Some(*len) <= len_max
        }
        Observation::Body { body: Body::Garbled { bytes, .. }, len } => {
            is_rewritten
                && Some(*len) <= len_max
                && is_patchwork(file, &versions(visible), zeros_from(visible), bytes)
        }
        Observation::Length(len) => Some(*len) <= len_max,
        _ => false,
    };
    is_rewritten && is_possible
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: u64 = 99;

    fn content(version: u32) -> State {
        State::Content { version, len: 1000 }
    }

    fn whole(version: u32) -> Observation {
        Observation::Body { body: Body::Whole { version }, len: 1000 }
    }

    fn mixed(versions: &[u32]) -> Observation {
        Observation::Body { body: Body::Mixed { versions: versions.to_vec() }, len: 1000 }
    }

    /// Version 1 at first, then version `n` by a step called at `100 * n` that returned at `100 * n
    /// + 10`, up to 5.
    fn history(in_place: bool) -> History {
        let mut history = History::new(FILE, content(1));
        for version in 2..=5 {
            let call = 100 * u64::from(version);
            history.begin(call, content(version), in_place);
            history.end(call + 10);
        }
        history
    }

    #[test]
    fn a_version_is_fresh_from_its_call_until_the_next_return() {
        let history = history(false);
        assert_eq!(judge(&history, 250, 260, &whole(2)), Judgement::Fresh);
        assert_eq!(judge(&history, 250, 300, &whole(3)), Judgement::Fresh);
        assert_eq!(judge(&history, 310, 320, &whole(2)), Judgement::Fresh);
        assert_eq!(judge(&history, 311, 320, &whole(2)), Judgement::Stale { age_ns: 1 });
        assert_eq!(judge(&history, 10_000, 10_001, &whole(1)), Judgement::Stale { age_ns: 9790 });
        assert_eq!(judge(&history, 10_000, 10_001, &whole(5)), Judgement::Fresh);
        // A version that nobody had begun to write.
        assert_eq!(judge(&history, 250, 299, &whole(3)), Judgement::Torn);
    }

    #[test]
    fn an_unfinished_write_makes_nothing_stale() {
        let mut history = History::new(FILE, content(1));
        history.begin(100, content(2), false);
        assert_eq!(judge(&history, 5000, 6000, &whole(1)), Judgement::Fresh);
        assert_eq!(judge(&history, 5000, 6000, &whole(2)), Judgement::Fresh);
        history.end(4000);
        assert_eq!(judge(&history, 5000, 6000, &whole(1)), Judgement::Stale { age_ns: 1000 });
    }

    #[test]
    fn a_mixture_needs_a_write_in_place_during_the_reply() {
        assert_eq!(judge(&history(true), 290, 305, &mixed(&[2, 3])), Judgement::MixedByServer);
        assert_eq!(judge(&history(false), 290, 305, &mixed(&[2, 3])), Judgement::Torn);
        // The same bytes later, from a cache that kept them.
        assert_eq!(judge(&history(true), 320, 330, &mixed(&[2, 3])), Judgement::Torn);
        assert_eq!(judge(&history(true), 290, 305, &mixed(&[1, 3])), Judgement::Torn);
        let short = Observation::Body { body: Body::Whole { version: 3 }, len: 700 };
        assert_eq!(judge(&history(true), 290, 305, &short), Judgement::MixedByServer);
        assert_eq!(judge(&history(true), 320, 330, &short), Judgement::Torn);
        assert_eq!(judge(&history(false), 290, 305, &short), Judgement::Torn);
    }

    #[test]
    fn a_garbled_body_is_torn_if_its_bytes_are_the_file_s_and_corrupt_if_not() {
        let garbled = |last: u8| {
            let mut bytes = vec![0; 1000];
            crate::content::render(FILE, 2, 0, &mut bytes);
            crate::content::render(FILE, 3, 500, &mut bytes[500..]);
            bytes[999] = bytes[999].wrapping_add(last);
            Observation::Body { body: Body::Garbled { offset: 448, bytes }, len: 1000 }
        };
        assert_eq!(judge(&history(true), 290, 305, &garbled(0)), Judgement::MixedByServer);
        assert_eq!(judge(&history(true), 320, 330, &garbled(0)), Judgement::Torn);
        assert_eq!(judge(&history(false), 290, 305, &garbled(0)), Judgement::Torn);
        assert_eq!(judge(&history(true), 290, 305, &garbled(128)), Judgement::Corrupt);
    }

    #[test]
    fn zeros_are_those_of_a_cut_during_the_reply_or_corrupt() {
        let mut history = History::new(FILE, content(2));
        history.begin(300, State::Content { version: 2, len: 700 }, true);
        history.end(310);
        let zeroed = |from: usize| {
            let mut bytes = vec![0; 1000];
            crate::content::render(FILE, 2, 0, &mut bytes[..from]);
            Observation::Body { body: Body::Garbled { offset: from / 64 * 64, bytes }, len: 1000 }
        };
        assert_eq!(judge(&history, 290, 320, &zeroed(700)), Judgement::MixedByServer);
        assert_eq!(judge(&history, 290, 320, &zeroed(699)), Judgement::Corrupt);
        assert_eq!(judge(&history, 311, 320, &zeroed(700)), Judgement::Corrupt);
    }

    #[test]
    fn lengths_and_absences_are_states_like_others() {
        let mut history = History::new(FILE, content(1));
        for (call, state) in
            [(100, State::Missing), (200, State::Empty), (300, State::Forbidden), (400, content(2))]
        {
            history.begin(call, state, false);
            history.end(call + 10);
        }
        assert_eq!(judge(&history, 150, 160, &Observation::Missing), Judgement::Fresh);
        assert_eq!(judge(&history, 150, 160, &whole(1)), Judgement::Stale { age_ns: 40 });
        assert_eq!(
            judge(&history, 250, 260, &Observation::Body { body: Body::Empty, len: 0 }),
            Judgement::Fresh
        );
        assert_eq!(
            judge(&history, 250, 260, &Observation::Missing),
            Judgement::Stale { age_ns: 40 }
        );
        assert_eq!(judge(&history, 350, 360, &Observation::Forbidden), Judgement::Fresh);
        assert_eq!(
            judge(&history, 350, 360, &Observation::Length(1000)),
            Judgement::Stale { age_ns: 240 }
        );
        assert_eq!(judge(&history, 450, 460, &Observation::Length(1000)), Judgement::Fresh);
        assert_eq!(
            judge(&history, 450, 460, &Observation::Forbidden),
            Judgement::Stale { age_ns: 40 }
        );
        assert_eq!(judge(&history, 450, 460, &Observation::Status(500)), Judgement::Corrupt);
        assert_eq!(
            judge(&History::new(FILE, content(1)), 5, 6, &Observation::Missing),
            Judgement::Corrupt
        );
    }

    proptest! {
        /// A server that answers with what is in the file at one moment of the reply is never
        /// blamed; a cache that keeps an answer over a finished write is always caught.
        #[test]
        fn honest_servers_pass_and_stale_caches_do_not(
            gaps in proptest::collection::vec((1u64..50, 1u64..50), 1..40),
            sent in 1u64..2000, lasts in 0u64..100, moment in 0u64..100, lag in 1usize..3,
        ) {
            let mut history = History::new(FILE, content(0));
            let mut effects = vec![0];
            let mut now = 1;
            for (version, (pause, takes)) in gaps.iter().enumerate() {
                now += pause;
                history.begin(now, content(version as u32 + 1), false);
                effects.push(now + takes / 2);
                now += takes;
                history.end(now);
                now += 1;
            }
            let at = sent + moment.min(lasts);
            let current = effects.partition_point(|&effect| effect <= at) as u32 - 1;
            prop_assert_eq!(judge(&history, sent, sent + lasts, &whole(current)), Judgement::Fresh);
            let finished = history.steps().partition_point(|step| step.return_ns < sent) - 1;
            if let Some(old) = finished.checked_sub(lag) {
                let judgement = judge(&history, sent, sent + lasts, &whole(old as u32));
                prop_assert!(
                    matches!(judgement, Judgement::Stale { age_ns: 1.. }),
                    "{}",
                    judgement
                );
            }
        }
    }
}
