//! The watcher's word about whole replies: it is asked for their sources, and its verdict makes
//! entries of them.

use nicache_coherence::{
    Class, FillRequest, FillVerdict, Question, RecordNumber, RefusalReason, SourceSet, Verdict,
};
use nicache_http::parse_imf_fixdate;
use nicache_tcp::Time;

use super::one::{FillId, State};
use super::table::Fills;
use super::words::target_of;
use crate::counters::{Counters, FillAbort};
use crate::link::CoherenceLink;
use crate::outcomes::Outcome;
use crate::store::{Executor, Inserted, NotInserted, Store};

impl Fills {
    /// Is anybody waited for?
    pub fn is_idle(&self) -> bool {
        self.asked == 0 && self.whole.is_empty()
    }

    /// Is there a question that the watcher was too busy for?
    pub fn has_unasked(&self) -> bool {
        !self.whole.is_empty()
    }

    /// Asks the watcher about whole replies, and gives up those that it does not answer. Call with
    /// a `now` that was read after the frames which made the replies whole had been received,
    /// because the watcher looks at what happened up to then.
    pub fn ask(
        &mut self,
        link: &mut dyn CoherenceLink,
        store: &mut Store,
        now: Time,
        counters: &mut Counters,
    ) {
        // One value for all: what the watcher looks at, it looks at after this.
        let asked = if self.whole.is_empty() {
            Default::default()
        } else {
            store.revisions().advance_clock()
        };
        while let Some(&index) = self.whole.last() {
            let fill = &mut self.fills[index as usize];
            let id = FillId { index, generation: fill.generation };
            fill.asked = asked;
            fill.previous = store.previous(&fill.key).map(|(record, _)| record);
            fill.body_hash =
                fill.body.and_then(|body| store.memory().hash(body)).unwrap_or_default();
            let request = FillRequest {
                id: id.to_wire(),
                stamp: fill.stamp,
                asked,
                forwarded_ns: fill.forwarded.0,
                finished_ns: fill.finished.get_or_insert(now).0,
                lost: fill.lost,
                body_len: fill.received,
                body_hash: fill.body_hash,
                may_be_static: fill.may_be_static,
                may_be_dynamic: fill.may_be_dynamic,
                previous: store.previous(&fill.key),
                last_modified: fill.last_modified.as_deref().and_then(parse_imf_fixdate),
                client: fill.client,
                target: target_of(&fill.request[..fill.request_len]),
            };
            if link.ask(&Question::Fill(request)) {
                fill.state = State::Asked;
                self.asked += 1;
            } else if fill.is_overdue(now) {
                counters.count_abort(FillAbort::NoVerdict);
                self.note(id, Outcome::Aborted(FillAbort::NoVerdict));
                self.free(id, store);
            } else {
                // It has enough to do.
                break;
            }
            self.whole.pop();
        }
        if self.asked == 0 {
            return;
        }
        for index in 0..self.fills.len() as u32 {
            let fill = &self.fills[index as usize];
            if fill.state == State::Asked && fill.is_overdue(now) {
                let id = FillId { index, generation: fill.generation };
                counters.count_abort(FillAbort::NoVerdict);
                self.note(id, Outcome::Aborted(FillAbort::NoVerdict));
                self.asked -= 1;
                self.free(id, store);
            }
        }
    }

    /// The watcher has answered.
    pub fn handle_verdict(
        &mut self,
        verdict: &FillVerdict,
        store: &mut Store,
        counters: &mut Counters,
    ) {
        let id = FillId::from_wire(verdict.id);
        let Some(fill) = self.get(id) else { return };
        if fill.state != State::Asked {
            return;
        }
        let mut outcome = None;
        match &verdict.verdict {
            Verdict::Refused(reason) | Verdict::Outdated(reason) => {
                counters.fills_refused[reason.index()] += 1;
                outcome = Some(Outcome::Refused(*reason));
                if fill.by.by == Executor::Card {
                    store.note_vain(&fill.key, fill.finished.unwrap_or(fill.forwarded));
                } else if *reason == RefusalReason::Changed {
                    store.note_wasted(&fill.key, fill.forwarded, counters);
                }
                // Whether the file was looked up for this one is not known, but the server has said
                // the same again.
                if matches!(verdict.verdict, Verdict::Refused(RefusalReason::NotLookedUp))
                    && fill.lost == store.revisions().lost()
                    && let Some((template, body)) = fill.take_reply()
                {
                    let forwarded = fill.stamp;
                    let execution = fill.execution(&template, body, false, store);
                    store.release(body);
                    if store.confirm(&fill.key, forwarded, execution) {
                        counters.renewed += 1;
                        outcome = Some(Outcome::Stored);
                    }
                }
                // What was lost since might have spoken against sharing it.
                let may_be_shared = matches!(verdict.verdict, Verdict::Outdated(_))
                    && fill.may_be_dynamic
                    && fill.lost == store.revisions().lost();
                let taken = if may_be_shared { fill.take_reply() } else { None };
                if let Some((template, body)) = taken {
                    let execution = fill.execution(&template, body, false, store);
                    let new =
                        fill.new_entry(template, body, SourceSet::new(), RecordNumber::default());
                    if store.insert_outdated(new, execution, counters).is_err() {
                        counters.count_abort(FillAbort::Resources);
                    }
                }
            }
            Verdict::Stored { class, sources, record, previous_unchanged } => {
                if let Some((template, body)) = fill.take_reply() {
                    store.note_class_headers(
                        fill.class,
                        &fill.request[..fill.request_len],
                        &fill.by,
                        fill.forwarded,
                    );
                    let execution = fill.execution(&template, body, *previous_unchanged, store);
                    let mut new = fill.new_entry(template, body, *sources, *record);
                    if *class == Class::Static {
                        new.stamp = fill.stamp;
                    }
                    let inserted = if fill.lost != store.revisions().lost() {
                        store.release(new.body);
                        Err(NotInserted::Changed)
                    } else {
                        match class {
                            Class::Static => store.insert_static(new, execution, counters),
                            Class::Dynamic => store.insert_dynamic(new, execution, counters),
                        }
                    };
                    counters.fills_stored += u64::from(matches!(inserted, Ok(Inserted::Stored(_))));
                    outcome = Some(match inserted {
                        Ok(Inserted::Stored(_)) => Outcome::Stored,
                        Ok(Inserted::First) => Outcome::First,
                        Ok(Inserted::Differed) => Outcome::Differed,
                        Err(reason) => {
                            let reason = match reason {
                                NotInserted::Changed => FillAbort::ChangedAtInsert,
                                NotInserted::NoPlace => FillAbort::Resources,
                            };
                            counters.count_abort(reason);
                            Outcome::Aborted(reason)
                        }
                    });
                }
            }
        }
        if let Some(outcome) = outcome {
            self.note(id, outcome);
        }
        self.asked -= 1;
        self.free(id, store);
    }
}
