//! Entries whose sources have changed, until the watcher has said whether they may be served again
//! (docs/coherence.md rule 6).
//!
//! A file that is made or removed in a directory voids every entry whose look-ups went through it.
//! Such an entry is *suspect*: it is not served, requests for it pass, and the watcher is asked
//! with a stamp of its own. If it says that every look-up still leads where it led, the entry has
//! that stamp from then on, as if it had been filled anew.

use nicache_coherence::{
    Epoch, Question, RecordNumber, ReinstateRequest, ReinstateVerdict, Reinstatement, SourceSlot,
};
use nicache_policy::Removal;
use nicache_tcp::Time;

use super::entry::{Entry, EntryId};
use super::index::Store;
use super::standing::Standing;
use crate::counters::Counters;
use crate::limits::SUSPECTS_MAX;
use crate::link::CoherenceLink;

impl Store {
    /// A source of the entry has changed. False if the entry cannot come back.
    pub(super) fn suspect(&mut self, id: EntryId) -> bool {
        let Some(entry) = self.get(id) else { return false };
        let may_come_back = entry.record != RecordNumber::default()
            && self.revisions.stamp_of(SourceSlot::EVERYTHING) < entry.stamp
            && self.suspects.to_ask.len() < SUSPECTS_MAX;
        if may_come_back && let Some(entry) = self.get_mut(id) {
            entry.standing = Standing::Suspect;
            self.suspects.to_ask.push(id);
        }
        may_come_back
    }

    /// Is nobody suspect?
    pub fn has_no_suspects(&self) -> bool {
        self.suspects.to_ask.is_empty() && self.suspects.owes_nothing()
    }

    /// Is there a question that the watcher was too busy for?
    pub fn has_unasked(&self) -> bool {
        !self.suspects.to_ask.is_empty()
    }

    /// How many the watcher is still to be asked about.
    pub(super) fn suspects_to_ask(&self) -> usize {
        self.suspects.to_ask.len()
    }

    /// Asks the watcher about the suspects.
    pub fn ask_about_suspects(
        &mut self,
        link: &mut dyn CoherenceLink,
        now: Time,
        counters: &mut Counters,
    ) {
        self.now = now;
        if let Some(last) = self.suspects.give_up(now) {
            let is_given_up =
                |entry: &Entry| matches!(entry.standing, Standing::Asked(stamp) if stamp <= last);
            counters.purges_by_source += self.remove_where(is_given_up) as u64;
        }
        if !self.suspects.to_ask.is_empty() {
            // One stamp for all: what the watcher looks at, it looks at after this.
            let stamp = self.revisions.advance_clock();
            while let Some(&id) = self.suspects.to_ask.last() {
                if let Some(entry) = self.get_mut(id)
                    && entry.standing == Standing::Suspect
                    && !entry.dead
                {
                    let question = ReinstateRequest {
                        id: id.to_wire(),
                        record: entry.record,
                        since: entry.stamp,
                        stamp,
                    };
                    if !link.ask(&Question::Reinstate(question)) {
                        // It has enough to do.
                        break;
                    }
                    entry.standing = Standing::Asked(stamp);
                    self.suspects.note_question(stamp, now);
                }
                self.suspects.to_ask.pop();
            }
        }
    }

    /// The watcher has answered.
    pub fn handle_reinstatement(&mut self, verdict: ReinstateVerdict, counters: &mut Counters) {
        self.suspects.note_answer(verdict.stamp);
        let id = EntryId::from_wire(verdict.id);
        let epoch = self.revisions.epoch();
        let Some(entry) = self.get(id) else { return };
        let Standing::Asked(stamp) = entry.standing else { return };
        // An answer to an earlier question says nothing of what has changed before this one: the
        // server has said the same again meanwhile, and then something has changed.
        if entry.dead || verdict.stamp != stamp {
            return;
        }
        let stays = verdict.outcome == Reinstatement::Stays
            && self.revisions.is_unchanged(entry.sources.as_slice(), stamp)
            && !self.has_changed_by_request(entry);
        if verdict.outcome == Reinstatement::Gone {
            self.purge(id, counters);
        } else if let Some(entry) = self.get_mut(id) {
            entry.standing = Standing::Good;
            if stays {
                entry.stamp = stamp;
                entry.checked = epoch;
                counters.reinstated += 1;
            } else {
                // Its old stamp makes it a suspect again when it is next asked for.
                entry.checked = Epoch(epoch.0.wrapping_sub(1));
            }
        }
    }

    /// A source has changed for good. A dynamic entry keeps its place: maybe the server says the
    /// same again.
    pub(super) fn purge(&mut self, id: EntryId, counters: &mut Counters) {
        counters.purges_by_source += 1;
        // A file costs the server no more with the card than without it.
        let dynamic = self.get_mut(id).filter(|entry| entry.is_dynamic());
        if let Some((key, hits)) = dynamic.map(|entry| (entry.key, std::mem::take(&mut entry.hits)))
        {
            counters.put_aside += u64::from(self.worth.note_purge(&key, hits, self.now));
        }
        let now = self.now;
        match self.get_mut(id) {
            Some(entry) if entry.is_dynamic() => {
                (entry.standing, entry.lapsed) = (Standing::Lapsed, now);
                entry.age.life.note_change(now);
            }
            _ => self.remove(id, Removal::Purged),
        }
    }
}
