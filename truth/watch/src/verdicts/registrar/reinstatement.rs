//! May an entry stay?

use std::path::Path;

use nicache_coherence::{Class, ReinstateRequest, Reinstatement, Rule, SourceSlot};

use super::Registrar;
use crate::processes::parent_of;
use crate::resolve::resolver::Resolver;
use crate::resolve::survey::{Purpose, Selected, survey};
use crate::verdicts::records::Record;
use crate::witnesses::event::LookupEvent;

impl Registrar {
    pub(super) fn try_reinstate(
        &mut self,
        request: &ReinstateRequest,
        resolver: &mut Resolver,
    ) -> Reinstatement {
        let drained = self.drain_completely();
        if drained.is_err() || self.corrupt || self.history.is_hidden() {
            return Reinstatement::Gone;
        }
        let Some(records) = self.records.with_also(request.record) else {
            tracing::debug!(record = request.record.0, "a reply goes: its record is forgotten");
            return Reinstatement::Gone;
        };
        let mut sources = Vec::new();
        for (number, record) in records {
            if record.class == Class::Dynamic && self.hiding.is_for_good() {
                return Reinstatement::Gone;
            }
            if let Err(reason) = self.stays(&record, request, resolver) {
                tracing::debug!(record = number.0, "a reply goes: {reason}");
                return Reinstatement::Gone;
            }
            sources.extend(record.looked.sources.iter().copied());
        }
        if self.table.is_unchanged(&sources, request.stamp) {
            Reinstatement::Stays
        } else {
            Reinstatement::Again
        }
    }

    /// Would the same come of the request that this is the record of?
    ///
    /// # Errors
    /// Why it may not, for people.
    fn stays(
        &mut self,
        record: &Record,
        request: &ReinstateRequest,
        resolver: &mut Resolver,
    ) -> Result<(), &'static str> {
        const FIXED: &str = "a file or a list of files has changed";
        let check = |is_fine: bool, reason: &'static str| is_fine.then_some(()).ok_or(reason);
        let is_dynamic = record.class == Class::Dynamic;
        check(self.table.is_unchanged(&record.looked.fixed, request.since), FIXED)?;
        if is_dynamic {
            let retained = &mut self.retained;
            let is_same = !retained.has_changed(&self.table, request.since, record.finished_ns);
            check(is_same, "the server may have an old file in its memory")?;
        }
        let (reads, since) = (&record.reads, request.since);
        let is_changed = self.databases.has_changed(reads, since)
            || self.remotes.iter().any(|remote| remote.has_changed(reads, since));
        check(!is_changed, "what a database was asked for has changed")?;
        let sources: Vec<SourceSlot> = record.looked.sources.iter().copied().collect();
        // Something that other entries depend on has changed, and nothing of this one.
        let sees_everybody = self.witness.sees_everybody();
        let is_to_be_seen =
            !is_dynamic || !sees_everybody || !self.table.is_unchanged(&sources, request.since);
        if is_to_be_seen && Rule::Paths.holds() {
            // Who has looked may be gone: a process that was there for one request.
            let is_there =
                |event: &LookupEvent| Path::new("/proc").join(event.owner().to_string()).exists();
            let is_whole = record.looked.events.iter().all(is_there);
            let takers = self.attribution.takers();
            let processes = takers.flat_map(|taker| [Some(taker), parent_of(taker)]).flatten();
            resolver.stand_in(record.looked.root.filter(|_| !is_whole), processes);
            let events = record.looked.events.iter().map(|event| Selected { event, sent: false });
            let now = survey(events, resolver, Purpose::FindSources)
                .map_err(|_| "a path cannot be looked up again, or leads elsewhere")?;
            let is_same = now.sources == record.looked.sources
                && now.directories == record.looked.directories;
            check(is_same, "the way of a path has changed")?;
            let is_same = !is_dynamic || now.folder_times == record.looked.folder_times;
            check(is_same, "a folder has another time or size")?;
            let is_same = sees_everybody || now.change_times() == record.looked.change_times;
            check(is_same, "a file has another change time")?;
            // Once more, because the look-ups took a while.
            check(self.table.is_unchanged(&record.looked.fixed, request.since), FIXED)?;
        }
        Ok(())
    }
}
