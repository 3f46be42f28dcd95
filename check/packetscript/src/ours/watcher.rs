//! A watcher that agrees: every reply is a file that does not change.

use nicache_cache::CoherenceLink;
use nicache_coherence::{
    Answer, Class, FillVerdict, Question, RecordNumber, ReinstateVerdict, Reinstatement, SourceSet,
    SourceSlot, Verdict,
};

/// The source of every reply.
pub(super) const SOURCE: SourceSlot = SourceSlot(7);

/// A watcher to whom every reply is a file that does not change.
#[derive(Default)]
pub(super) struct Agreeable {
    answers: Vec<Answer>,
}

impl CoherenceLink for Agreeable {
    fn ask(&mut self, question: &Question<'_>) -> bool {
        self.answers.push(match question {
            Question::Fill(request) => {
                let mut sources = SourceSet::new();
                let verdict = match sources.insert(SOURCE) {
                    Ok(_) => Verdict::Stored {
                        class: Class::Static,
                        sources,
                        record: RecordNumber(1),
                        previous_unchanged: request.previous.is_some(),
                    },
                    Err(_) => return false,
                };
                Answer::Fill(FillVerdict { id: request.id, verdict })
            }
            Question::Reinstate(request) => Answer::Reinstate(ReinstateVerdict {
                id: request.id,
                stamp: request.stamp,
                outcome: Reinstatement::Stays,
            }),
        });
        true
    }

    fn poll_answer(&mut self) -> Option<Answer> {
        self.answers.pop()
    }
}
