//! Is a reply one of the server's files?

use std::sync::Arc;

use nicache_clock::monotonic_ns;
use nicache_coherence::{Class, FillRequest, RefusalReason, SourceSet, SourceSlot, Verdict};

use super::Registrar;
use crate::resolve::contents;
use crate::resolve::copies::{Body, copies};
use crate::resolve::resolver::Resolver;
use crate::resolve::survey::{Candidate, Purpose, Selected, select, survey};
use crate::verdicts::lease::renew_lease;
use crate::verdicts::records::{Looked, Record};
use crate::verdicts::reused::common_root;
use crate::witnesses::event::EventKind;

impl Registrar {
    /// Is the reply a file?
    pub(super) fn judge_file(
        &mut self,
        request: &FillRequest<'_>,
        resolver: &mut Resolver,
    ) -> Result<Verdict, RefusalReason> {
        if request.body_len == 0 {
            return Err(RefusalReason::EmptyBody);
        }
        let events = select(&self.history, request);
        if !events.iter().any(|selected| selected.event.kind == EventKind::Lookup) {
            if request.last_modified.is_some() && !self.keeps_files {
                self.keeps_files = true;
                // What was kept until now was not looked at for that.
                self.table.record_change(SourceSlot::EVERYTHING);
            }
            return Err(RefusalReason::NotLookedUp);
        }

        let purpose = Purpose::FindFile(request.body_len);
        let mut found = survey(events.iter().copied(), resolver, purpose)?;
        if found.candidates.is_empty() {
            return Err(RefusalReason::NoMatchingFile);
        }
        let could_open = |candidate: &Candidate| {
            let could =
                |&process: &u32| self.openings.could_open(process, &candidate.node, &self.table);
            candidate.is_opened || candidate.processes.iter().any(could)
        };
        let candidates: Vec<&Candidate> =
            found.candidates.iter().filter(|candidate| could_open(candidate)).collect();
        if candidates.is_empty() {
            return Err(RefusalReason::NotLookedUp);
        }
        for &slot in &found.sources {
            self.table.watch(slot);
        }

        let mut tick = || renew_lease(&self.table, &self.remotes, &mut self.lease_renewed_ns);
        let mut matched = None;
        for Candidate { node, .. } in candidates {
            let hash = contents::hash(node, &mut tick)?;
            self.openings.note_contents(node, hash, &self.table);
            if hash == request.body_hash {
                let is_dated =
                    request.last_modified.is_some_and(|seconds| seconds as i64 == node.modified_s);
                matched = Some(matched.unwrap_or(false) || is_dated);
            }
        }
        match matched {
            None => return Err(RefusalReason::NoMatchingFile),
            Some(false) => return Err(RefusalReason::ModifiedMismatch),
            Some(true) => {}
        }
        if self.openings.has_unknown() && self.keeps_files {
            return Err(RefusalReason::NotLookedUp);
        }
        let body = Body {
            len: request.body_len,
            hash: request.body_hash,
            forwarded_ns: request.forwarded_ns,
            stamp: request.stamp,
            is_of_keeper: self.keeps_files,
        };
        let known = found.kept.iter().filter_map(|event| Some((event.inode?, &*event.path)));
        let known = known.collect();
        let clocks = (monotonic_ns(), &mut tick);
        let copies = copies(&mut self.openings, body, &known, &self.table, resolver, clocks)?;
        if !copies.is_empty() {
            let copies = copies.iter().map(|event| Selected { event, sent: false });
            found = survey(events.iter().copied().chain(copies), resolver, purpose)?;
            for &slot in &found.sources {
                self.table.watch(slot);
            }
        }

        let mut sources = SourceSet::new();
        for &slot in &found.sources {
            sources.insert(slot).map_err(|_| RefusalReason::TooManySources)?;
        }
        let others: Vec<SourceSlot> = found.others.iter().copied().collect();
        let is_unchanged = self.table.is_unchanged(sources.as_slice(), request.stamp)
            && self.table.is_unchanged(&others, request.stamp)
            && self.table.lost() == request.lost;
        if !is_unchanged {
            return Err(RefusalReason::Changed);
        }
        let root = common_root(found.kept.iter().copied(), resolver);
        let mut record = Record {
            class: Class::Static,
            since: request.stamp,
            finished_ns: request.finished_ns,
            reads: Vec::new(),
            looked: Arc::new(Looked::new(found, root, monotonic_ns())),
            also: Vec::new(),
        };
        let previous_unchanged = self.take_previous(request, &mut record, &mut sources);
        let record = self.records.push(record);
        Ok(Verdict::Stored { class: Class::Static, sources, record, previous_unchanged })
    }
}
