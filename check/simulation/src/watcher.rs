//! A model of the watcher: judges fills as the contract of `nicache-coherence` says, with delays,
//! refusals, deaths and lost events.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use nicache_cache::CoherenceLink;
use nicache_coherence::{
    Answer, Class, FILL_REQUEST_BYTES_MAX, FILL_VERDICT_BYTES_MAX, FillRequest, FillVerdict,
    LEASE_NS, LEASE_RENEWAL_NS, Question, RecordNumber, RefusalReason, ReinstateRequest,
    ReinstateVerdict, Reinstatement, RevisionTable, SourceSet, SourceSlot, Stamp, Verdict,
};

use crate::files::{SharedFiles, directory_slot, inode_slot};
use crate::mutant::Mutant;
use crate::random::Random;

/// How a watcher behaves in a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatcherPlan {
    /// Longest of each of the three delays of a judgement.
    pub delay_ns_max: u64,
    /// Percent of fills refused for no reason.
    pub refuse_percent: u64,
    /// From when to when it is dead.
    pub deaths: Vec<(u64, u64)>,
    /// Who watches then is another one.
    pub is_replaced: bool,
    /// When look-up events are lost.
    pub losses: Vec<u64>,
}

/// The server looked a path up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lookup {
    /// When the server looked it up, in ns.
    pub time_ns: u64,
    /// Which path.
    pub file: usize,
    /// What it led to.
    pub inode: u64,
}

/// What card and watcher tell each other.
#[derive(Debug, Default)]
struct Mail {
    questions: VecDeque<Asked>,
    answers: VecDeque<Answer>,
    dead: bool,
}

#[derive(Debug)]
enum Asked {
    Fill(Fill),
    Reinstate(ReinstateRequest),
}

#[derive(Debug)]
struct Fill {
    id: u64,
    stamp: Stamp,
    forwarded_ns: u64,
    finished_ns: u64,
    lost: u64,
    body_len: u64,
    body_hash: [u8; 32],
    last_modified: Option<u64>,
}

/// The card's end.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatcherLink(Arc<Mutex<Mail>>);

impl WatcherLink {
    fn with<T>(&self, work: impl FnOnce(&mut Mail) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl CoherenceLink for WatcherLink {
    fn ask(&mut self, question: &Question<'_>) -> bool {
        // Through the codec, as over the socket.
        let mut buffer = [0; FILL_REQUEST_BYTES_MAX];
        let message = match question {
            Question::Fill(request) => request.encode(&mut buffer).to_vec(),
            Question::Reinstate(request) => request.encode().to_vec(),
        };
        let asked = match Question::decode(&message) {
            Ok(Question::Fill(request)) => Asked::Fill(Fill::new(&request)),
            Ok(Question::Reinstate(request)) => Asked::Reinstate(request),
            Err(_) => return false,
        };
        self.with(|mail| {
            if !mail.dead {
                mail.questions.push_back(asked);
            }
            !mail.dead
        })
    }

    fn poll_answer(&mut self) -> Option<Answer> {
        let answer = self.with(|mail| mail.answers.pop_front())?;
        let message = match answer {
            Answer::Fill(verdict) => verdict.encode(&mut [0; FILL_VERDICT_BYTES_MAX]).to_vec(),
            Answer::Reinstate(verdict) => verdict.encode().to_vec(),
        };
        Answer::decode(&message).ok()
    }
}

impl Fill {
    fn new(request: &FillRequest<'_>) -> Self {
        Self {
            id: request.id,
            stamp: request.stamp,
            forwarded_ns: request.forwarded_ns,
            finished_ns: request.finished_ns,
            lost: request.lost,
            body_len: request.body_len,
            body_hash: request.body_hash,
            last_modified: request.last_modified,
        }
    }
}

/// What the look-ups of a fill led to: paths and inodes.
type Found = BTreeSet<(usize, u64)>;

#[derive(Debug)]
enum Step {
    /// Resolve the look-ups, mark their slots.
    Mark(Fill),
    /// Barrier, second look, compare.
    Compare { fill: Fill, sources: BTreeSet<SourceSlot>, found: Found },
    /// Barrier, and the look-ups of an entry again.
    Review(ReinstateRequest),
    /// On its way to the card.
    Deliver(Answer),
}

#[derive(Debug)]
struct Judgement {
    due_ns: u64,
    step: Step,
}

/// A model of the watcher: judges fills as the contract of `nicache-coherence` says, with delays,
/// refusals, deaths and lost events.
pub(crate) struct Watcher {
    link: WatcherLink,
    table: Arc<RevisionTable>,
    files: SharedFiles,
    plan: WatcherPlan,
    random: Random,
    mutant: Option<Mutant>,
    lookups: VecDeque<Lookup>,
    /// Look-ups before are not known.
    covers_since_ns: u64,
    judgements: Vec<Judgement>,
    /// What entries were judged by; number 1 first.
    records: Vec<Found>,
    /// Another watcher has taken its place, which the card has yet to hear of.
    is_new: bool,
    /// How often that was so.
    pub replacements: u64,
    /// Deaths so far.
    pub deaths: u64,
    /// Times at which events were lost.
    pub lost_ns: Vec<u64>,
    /// While the lease did not hold: from, to.
    pub lapses: Vec<(u64, u64)>,
    lease_until_ns: u64,
}

impl Watcher {
    /// A living watcher.
    pub(crate) fn new(
        link: WatcherLink,
        table: Arc<RevisionTable>,
        files: SharedFiles,
        plan: WatcherPlan,
        random: Random,
        mutant: Option<Mutant>,
    ) -> Self {
        Self {
            link,
            table,
            files,
            plan,
            random,
            mutant,
            lookups: VecDeque::new(),
            covers_since_ns: 0,
            judgements: Vec::new(),
            records: Vec::new(),
            is_new: false,
            replacements: 0,
            deaths: 0,
            lost_ns: Vec::new(),
            lapses: Vec::new(),
            lease_until_ns: 0,
        }
    }

    fn is_dead(&self, now_ns: u64) -> bool {
        self.plan.deaths.iter().any(|&(from, to)| (from..to).contains(&now_ns))
    }

    /// The server looked a path up.
    pub(crate) fn observe(&mut self, lookup: Lookup) {
        if !self.is_dead(lookup.time_ns) {
            self.lookups.push_back(lookup);
        }
    }

    /// Does what is due.
    pub(crate) fn poll(&mut self, now_ns: u64) {
        let dead = self.is_dead(now_ns);
        let was_dead = self.link.with(|mail| std::mem::replace(&mut mail.dead, dead));
        if dead && !was_dead {
            self.deaths += 1;
            self.judgements.clear();
            self.lookups.clear();
            self.link.with(|mail| mail.questions.clear());
        }
        if was_dead && !dead {
            self.covers_since_ns = now_ns;
            if self.plan.is_replaced {
                self.begin_anew();
            }
        }
        self.renew_lease(now_ns, dead);
        self.lose_events(now_ns);
        if dead {
            return;
        }
        while self.lookups.front().is_some_and(|lookup| lookup.time_ns + 200_000_000_000 < now_ns) {
            self.lookups.pop_front();
        }
        while let Some(asked) = self.link.with(|mail| mail.questions.pop_front()) {
            let step = match asked {
                Asked::Fill(fill) => Step::Mark(fill),
                Asked::Reinstate(request) => Step::Review(request),
            };
            self.put_off(step, now_ns);
        }
        let due: Vec<Judgement> =
            self.judgements.extract_if(.., |judgement| judgement.due_ns <= now_ns).collect();
        for judgement in due {
            self.advance(judgement.step, now_ns);
        }
    }

    /// From now on it is another one, with a table and a socket of its own, that knows of no entry.
    fn begin_anew(&mut self) {
        self.table = RevisionTable::on_heap();
        self.table.renew_lease(self.lease_until_ns);
        self.link = WatcherLink::default();
        self.records.clear();
        self.is_new = true;
        self.replacements += 1;
    }

    /// What the card needs of a watcher that has taken another one's place, if one just has.
    pub(crate) fn take_new(&mut self) -> Option<(Arc<RevisionTable>, WatcherLink)> {
        std::mem::take(&mut self.is_new).then(|| (Arc::clone(&self.table), self.link.clone()))
    }

    fn renew_lease(&mut self, now_ns: u64, dead: bool) {
        if !dead {
            let renewed = now_ns / LEASE_RENEWAL_NS * LEASE_RENEWAL_NS;
            if renewed + LEASE_NS > self.lease_until_ns {
                if now_ns > self.lease_until_ns && now_ns > 0 {
                    // The lapse ends where it is renewed.
                    self.lapses.push((self.lease_until_ns, now_ns));
                }
                self.lease_until_ns = renewed + LEASE_NS;
                self.table.renew_lease(self.lease_until_ns);
            }
        } else if self.mutant == Some(Mutant::LeaseOutlivesWatcher) {
            self.table.renew_lease(now_ns + LEASE_NS);
        }
    }

    /// The time without a lease that has not ended, if it has begun.
    pub(crate) fn open_lapse(&self, now_ns: u64) -> Option<(u64, u64)> {
        (now_ns > self.lease_until_ns).then_some((self.lease_until_ns, u64::MAX))
    }

    fn lose_events(&mut self, now_ns: u64) {
        let lost: Vec<u64> = self.plan.losses.extract_if(.., |at| *at <= now_ns).collect();
        for _ in lost {
            self.lost_ns.push(now_ns);
            self.lookups.retain(|lookup| lookup.time_ns + 1_000_000 < now_ns);
            if self.mutant != Some(Mutant::LossNotTold) {
                self.table.record_lost();
            }
        }
    }

    fn skips_compare(&self) -> bool {
        matches!(self.mutant, Some(Mutant::WatcherSkipsCompare | Mutant::PrivateUnmarked))
    }

    fn delay(&mut self) -> u64 {
        self.random.below(self.plan.delay_ns_max + 1)
    }

    /// When it wants to be polled.
    pub(crate) fn due_ns(&self, now_ns: u64) -> Option<u64> {
        let edges =
            self.plan.deaths.iter().flat_map(|&(from, to)| [from, to]).filter(|&at| at > now_ns);
        let judgements = self.judgements.iter().map(|judgement| judgement.due_ns);
        let mail =
            self.link.with(|mail| !mail.questions.is_empty() && !mail.dead).then_some(now_ns);
        edges.chain(judgements).chain(self.plan.losses.iter().copied()).chain(mail).min()
    }

    fn put_off(&mut self, step: Step, now_ns: u64) {
        let due_ns = now_ns + self.delay();
        self.judgements.push(Judgement { due_ns, step });
    }

    fn advance(&mut self, step: Step, now_ns: u64) {
        match step {
            Step::Mark(fill) => match self.mark(&fill) {
                Ok((sources, found)) => {
                    self.put_off(Step::Compare { fill, sources, found }, now_ns);
                }
                Err(reason) => {
                    let verdict = FillVerdict { id: fill.id, verdict: Verdict::Refused(reason) };
                    self.put_off(Step::Deliver(Answer::Fill(verdict)), now_ns);
                }
            },
            Step::Compare { fill, sources, found } => {
                let locked_ns = self.locked_until_ns(&found);
                if locked_ns > now_ns && !self.skips_compare() {
                    self.judgements.push(Judgement {
                        due_ns: locked_ns,
                        step: Step::Compare { fill, sources, found },
                    });
                    return;
                }
                let verdict = match self.compare(&fill, &sources, &found) {
                    Ok(sources) => {
                        self.records.push(found);
                        Verdict::Stored {
                            class: Class::Static,
                            sources,
                            record: RecordNumber(self.records.len() as u64),
                            previous_unchanged: false,
                        }
                    }
                    Err(reason) => Verdict::Refused(reason),
                };
                self.put_off(
                    Step::Deliver(Answer::Fill(FillVerdict { id: fill.id, verdict })),
                    now_ns,
                );
            }
            Step::Review(request) => {
                let locked_ns =
                    self.record(&request).map_or(0, |found| self.locked_until_ns(found));
                if locked_ns > now_ns && self.mutant != Some(Mutant::ReinstatesWithoutWaiting) {
                    self.judgements
                        .push(Judgement { due_ns: locked_ns, step: Step::Review(request) });
                    return;
                }
                let outcome = self.review(&request);
                let verdict = ReinstateVerdict { id: request.id, stamp: request.stamp, outcome };
                self.put_off(Step::Deliver(Answer::Reinstate(verdict)), now_ns);
            }
            Step::Deliver(answer) => self.link.with(|mail| mail.answers.push_back(answer)),
        }
    }

    fn record(&self, request: &ReinstateRequest) -> Option<&Found> {
        self.records.get(request.record.0.checked_sub(1)? as usize)
    }

    fn locked_until_ns(&self, found: &Found) -> u64 {
        let files = self.files.borrow();
        found.iter().map(|&(file, _)| files.get(file).directory_locked_until_ns).max().unwrap_or(0)
    }

    fn review(&self, request: &ReinstateRequest) -> Reinstatement {
        let Some(found) = self.record(request) else { return Reinstatement::Gone };
        let files = self.files.borrow();
        let leads_elsewhere = found.iter().any(|&(file, inode)| files.current(file).inode != inode);
        if leads_elsewhere && self.mutant != Some(Mutant::ReinstatesWithoutLookups) {
            return Reinstatement::Gone;
        }
        let mut fixed = vec![SourceSlot::EVERYTHING];
        fixed.extend(found.iter().map(|&(_, inode)| inode_slot(inode)));
        if !self.table.is_unchanged(&fixed, request.since)
            && self.mutant != Some(Mutant::ReinstatesChangedFiles)
        {
            return Reinstatement::Gone;
        }
        let directories: Vec<SourceSlot> =
            found.iter().map(|&(file, _)| directory_slot(file)).collect();
        let unchanged = [&fixed, &directories]
            .iter()
            .all(|slots| self.table.is_unchanged(slots, request.stamp));
        if unchanged { Reinstatement::Stays } else { Reinstatement::Again }
    }

    fn mark(&mut self, question: &Fill) -> Result<(BTreeSet<SourceSlot>, Found), RefusalReason> {
        if question.body_len == 0 {
            return Err(RefusalReason::EmptyBody);
        }
        if self.table.lost() != question.lost || question.forwarded_ns < self.covers_since_ns {
            return Err(RefusalReason::EventsLost);
        }
        if self.random.percent(self.plan.refuse_percent) {
            return Err(RefusalReason::Io);
        }
        let files = self.files.borrow();
        let mut found = Found::new();
        for lookup in &self.lookups {
            if (question.forwarded_ns..=question.finished_ns).contains(&lookup.time_ns) {
                if files.current(lookup.file).inode != lookup.inode {
                    return Err(RefusalReason::Changed);
                }
                found.insert((lookup.file, lookup.inode));
            }
        }
        if found.is_empty() {
            return Err(RefusalReason::NotLookedUp);
        }
        let mut sources = BTreeSet::from([SourceSlot::EVERYTHING]);
        for &(file, inode) in &found {
            sources.extend([directory_slot(file), inode_slot(inode)]);
        }
        for &slot in &sources {
            self.table.watch(slot);
        }
        Ok((sources, found))
    }

    fn compare(
        &self,
        question: &Fill,
        sources: &BTreeSet<SourceSlot>,
        found: &Found,
    ) -> Result<SourceSet, RefusalReason> {
        if !self.skips_compare() {
            let files = self.files.borrow();
            let mut matched = None;
            for &(file, inode) in found {
                let (state, current) = (files.get(file), files.current(file));
                if current.inode != inode {
                    return Err(RefusalReason::Changed);
                }
                let Some(bytes) = &current.bytes else { continue };
                if bytes.len() as u64 == question.body_len {
                    if state.open_for_writing {
                        return Err(RefusalReason::OpenForWriting);
                    }
                    if *blake3::hash(bytes).as_bytes() == question.body_hash {
                        matched = Some(
                            matched.unwrap_or(false)
                                || question.last_modified == Some(current.modified_s),
                        );
                    }
                }
            }
            match matched {
                None => return Err(RefusalReason::NoMatchingFile),
                Some(false) => return Err(RefusalReason::ModifiedMismatch),
                Some(true) => {}
            }
        }
        let mut set = SourceSet::new();
        for &slot in sources {
            set.insert(slot).map_err(|_| RefusalReason::TooManySources)?;
        }
        if self.table.lost() != question.lost {
            return Err(RefusalReason::EventsLost);
        }
        if !self.table.is_unchanged(set.as_slice(), question.stamp) {
            return Err(RefusalReason::Changed);
        }
        Ok(set)
    }
}
