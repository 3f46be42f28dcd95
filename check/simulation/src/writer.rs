//! Writers: change files at random, each change an interval, and tell the revision table as the
//! kernel's witnesses do.
//!
//! ```text
//! in place   open* ── lock ──(witness*, visible in any order)── unlock ── return ── close
//! rename           ── lock ──(witness*, visible in any order)── unlock ── return
//! ```
//! At each * the table is told. Between lock and unlock the barrier of the watcher waits.

use std::sync::Arc;

use nicache_coherence::{RevisionTable, SourceSlot};

use crate::files::{SharedFiles, Version, content, directory_slot, inode_slot, unix_s};
use crate::mutant::Mutant;
use crate::random::Random;

/// How often and how slowly files change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriterPlan {
    /// Mean nanoseconds between two changes; 0: none.
    pub interval_ns: u64,
    /// Longest of each of the steps of a change.
    pub step_ns_max: u64,
    /// Files that are changed: the first so many.
    pub files: usize,
    /// Longest body.
    pub len_max: u64,
    /// Changes end here.
    pub until_ns: u64,
}

#[derive(Clone, Debug)]
enum Step {
    Open,
    Witness,
    Visible(Box<Version>),
    Return,
    Close,
}

/// Writers of all files.
pub(crate) struct Writers {
    plan: WriterPlan,
    files: SharedFiles,
    table: Arc<RevisionTable>,
    random: Random,
    mutant: Option<Mutant>,
    next_ns: u64,
    /// Due, file, slots that the step touches.
    steps: Vec<(u64, usize, Vec<SourceSlot>, Step)>,
    busy: Vec<bool>,
    /// Changes begun, and of these by rename.
    pub writes: (u64, u64),
    /// Changes of directories that change no file.
    pub disturbed: u64,
}

impl Writers {
    /// Writers that have not begun.
    pub(crate) fn new(
        plan: WriterPlan,
        files: SharedFiles,
        table: Arc<RevisionTable>,
        mut random: Random,
        mutant: Option<Mutant>,
    ) -> Self {
        let count = files.borrow().len();
        let next_ns =
            if plan.interval_ns == 0 { u64::MAX } else { random.below(2 * plan.interval_ns) };
        Self {
            plan,
            files,
            table,
            random,
            mutant,
            next_ns,
            steps: Vec::new(),
            busy: vec![false; count],
            writes: (0, 0),
            disturbed: 0,
        }
    }

    /// When the next step is due.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let steps = self.steps.iter().map(|step| step.0);
        steps.chain((self.next_ns < self.plan.until_ns).then_some(self.next_ns)).min()
    }

    /// Does what is due.
    pub(crate) fn poll(&mut self, now_ns: u64) {
        while let Some(index) = (0..self.steps.len())
            .filter(|&at| self.steps[at].0 <= now_ns)
            .min_by_key(|&at| self.steps[at].0)
        {
            let (_, file, slots, step) = self.steps.remove(index);
            self.take_step(file, &slots, step, now_ns);
        }
        if now_ns >= self.next_ns && self.next_ns < self.plan.until_ns {
            self.next_ns = now_ns + 1 + self.random.below(2 * self.plan.interval_ns);
            let file = self.random.below(self.plan.files as u64) as usize;
            if self.random.percent(20) {
                self.disturb(file, now_ns);
            } else if !self.busy[file] {
                self.begin(file, now_ns);
            }
        }
    }

    /// The witness is another one from now on.
    pub(crate) fn record_in(&mut self, table: &Arc<RevisionTable>) {
        self.table = Arc::clone(table);
    }

    fn witness(&self, slots: &[SourceSlot]) {
        for &slot in slots {
            self.table.record_change(slot);
        }
    }

    fn take_step(&mut self, file: usize, slots: &[SourceSlot], step: Step, now_ns: u64) {
        let silent = matches!(self.mutant, Some(Mutant::WriterSilent | Mutant::WriterLate));
        match step {
            Step::Open => {
                self.files.borrow_mut().get_mut(file).open_for_writing = true;
                if !silent {
                    self.witness(slots);
                }
            }
            Step::Witness if silent => {}
            Step::Witness => self.witness(slots),
            Step::Visible(mut version) => {
                version.visible_ns = now_ns;
                self.files.borrow_mut().get_mut(file).versions.push(*version);
            }
            Step::Return => {
                let mut files = self.files.borrow_mut();
                if let Some(version) = files.get_mut(file).versions.last_mut() {
                    version.returned_ns = now_ns;
                }
            }
            Step::Close => {
                self.files.borrow_mut().get_mut(file).open_for_writing = false;
                self.busy[file] = false;
                if self.mutant == Some(Mutant::WriterLate) {
                    self.witness(slots);
                }
            }
        }
    }

    /// Something else is made or removed in the file's directory.
    fn disturb(&mut self, file: usize, now_ns: u64) {
        let at = now_ns + self.random.below(self.plan.step_ns_max + 1);
        self.steps.push((at, file, vec![directory_slot(file)], Step::Witness));
        self.disturbed += 1;
    }

    fn begin(&mut self, file: usize, now_ns: u64) {
        self.busy[file] = true;
        let mut files = self.files.borrow_mut();
        let (old, number) = (files.current(file).clone(), files.get(file).versions.len());
        let rename = old.bytes.is_none() || self.random.percent(40);
        let gone = rename && old.bytes.is_some() && self.random.percent(15);
        let len = files.draw_len(file, self.plan.len_max, &mut self.random);
        let inode = if rename { files.new_inode() } else { old.inode };
        let keeps_time = !rename && self.random.percent(20);
        let version = Version {
            inode,
            bytes: (!gone).then(|| content(file, number, len)),
            visible_ns: 0,
            returned_ns: u64::MAX,
            modified_s: if keeps_time { old.modified_s } else { unix_s(now_ns) },
            etag: format!("\"{file}-{number}\""),
        };
        let mut at = now_ns;
        let mut step = |random: &mut Random| {
            at += random.below(self.plan.step_ns_max + 1);
            at
        };
        let random = &mut self.random;
        let slots = match rename {
            // A rename of a directory on the way leaves the file itself alone.
            true if random.percent(50) => vec![directory_slot(file)],
            true => vec![directory_slot(file), inode_slot(old.inode)],
            false => vec![inode_slot(inode)],
        };
        if !rename {
            self.steps.push((step(random), file, slots.clone(), Step::Open));
        }
        let visible = Step::Visible(Box::new(version));
        let (first, second) =
            if random.percent(50) { (Step::Witness, visible) } else { (visible, Step::Witness) };
        self.steps.push((step(random), file, slots.clone(), first));
        self.steps.push((step(random), file, slots.clone(), second));
        let unlocked = step(random);
        self.steps.push((step(random), file, Vec::new(), Step::Return));
        let close = step(random);
        self.steps.push((close, file, slots, Step::Close));
        if rename {
            files.get_mut(file).directory_locked_until_ns = unlocked;
        }
        self.writes.0 += 1;
        self.writes.1 += u64::from(rename);
    }
}
