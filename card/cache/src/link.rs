//! The way to the watcher.

use nicache_coherence::{Answer, Question};

/// The way to the watcher: questions out, answers in. Implementations must not block.
pub trait CoherenceLink {
    /// Sends a question; false if it cannot be sent now.
    fn ask(&mut self, question: &Question<'_>) -> bool;
    /// The next answer that has come.
    fn poll_answer(&mut self) -> Option<Answer>;
}

/// Nobody to ask: nothing is ever stored.
pub struct NoWatcher;

impl CoherenceLink for NoWatcher {
    fn ask(&mut self, _: &Question<'_>) -> bool {
        false
    }
    fn poll_answer(&mut self) -> Option<Answer> {
        None
    }
}
