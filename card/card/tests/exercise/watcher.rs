//! A watcher that knows the versions of all objects, and may be slow or contrary.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use nicache_cache::CoherenceLink;
use nicache_coherence::{
    Answer, Class, FillVerdict, Question, RecordNumber, RefusalReason, ReinstateVerdict,
    Reinstatement, RevisionTable, SourceSet, SourceSlot, Verdict,
};

use super::content::{PATHS, PRIVATE, VERSIONS};

/// What the run decides about the watcher.
#[derive(Debug, Default)]
pub(super) struct Mood {
    /// Present versions.
    pub versions: [u8; PATHS],
    /// It takes no questions.
    pub is_deaf: bool,
    /// It gives no answers.
    pub is_mute: bool,
    /// It refuses whatever it may.
    pub is_contrary: bool,
    /// What it knows as dynamic, by bits.
    pub computed: u8,
}

/// [`Mood`] in two hands.
pub(super) type SharedMood = Arc<Mutex<Mood>>;

/// The card's end of the way to it.
pub(super) struct Watcher {
    mood: SharedMood,
    table: Arc<RevisionTable>,
    answers: VecDeque<Answer>,
}

/// The source of an object.
pub(super) fn slot(path: u8) -> SourceSlot {
    SourceSlot(7 + u32::from(path))
}

impl Watcher {
    /// One that has not been asked.
    pub(super) fn new(mood: SharedMood, table: Arc<RevisionTable>) -> Self {
        (0..PATHS as u8).for_each(|path| table.watch(slot(path)));
        Self { mood, table, answers: VecDeque::new() }
    }

    fn verdict(&self, request: &nicache_coherence::FillRequest<'_>, mood: &Mood) -> Verdict {
        let Some(path) = path_of(request.target) else {
            return Verdict::Refused(RefusalReason::NoMatchingFile);
        };
        if mood.is_contrary || path == PRIVATE {
            return Verdict::Refused(RefusalReason::NotLookedUp);
        }
        let is_dynamic = mood.computed >> path & 1 == 1;
        if is_dynamic && self.table.stamp_of(slot(path)) >= request.stamp {
            return Verdict::Outdated(RefusalReason::Changed);
        }
        let mut sources = SourceSet::new();
        sources.insert(slot(path)).expect("room for one");
        Verdict::Stored {
            class: if is_dynamic { Class::Dynamic } else { Class::Static },
            sources,
            record: RecordNumber(
                u64::from(path) * u64::from(VERSIONS) + u64::from(mood.versions[usize::from(path)]),
            ),
            previous_unchanged: request
                .previous
                .is_some_and(|(_, stamp)| self.table.is_unchanged(&[slot(path)], stamp)),
        }
    }
}

/// The object that a target names.
pub(super) fn path_of(target: &[u8]) -> Option<u8> {
    match target {
        [b'/', b'p', digit @ b'0'..=b'7'] => Some(digit - b'0'),
        _ => None,
    }
}

impl CoherenceLink for Watcher {
    fn ask(&mut self, question: &Question<'_>) -> bool {
        let mood = Arc::clone(&self.mood);
        let mood = mood.lock().unwrap_or_else(PoisonError::into_inner);
        if mood.is_deaf {
            return false;
        }
        let answer = match question {
            Question::Fill(request) => {
                Answer::Fill(FillVerdict { id: request.id, verdict: self.verdict(request, &mood) })
            }
            Question::Reinstate(request) => {
                let (path, version) = (
                    request.record.0 / u64::from(VERSIONS),
                    (request.record.0 % u64::from(VERSIONS)) as u8,
                );
                let stays = mood.versions[path as usize] == version && !mood.is_contrary;
                let outcome = if stays { Reinstatement::Stays } else { Reinstatement::Gone };
                Answer::Reinstate(ReinstateVerdict {
                    id: request.id,
                    stamp: request.stamp,
                    outcome,
                })
            }
        };
        self.answers.push_back(answer);
        true
    }

    fn poll_answer(&mut self) -> Option<Answer> {
        let is_mute = self.mood.lock().unwrap_or_else(PoisonError::into_inner).is_mute;
        if is_mute { None } else { self.answers.pop_front() }
    }
}
