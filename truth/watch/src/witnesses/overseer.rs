//! Looks after the witnesses: one that was passed over has not seen everything.
//!
//! *Where no task is stopped in a program*, none may be passed over. Programs at functions are,
//! once root has the kernel stop in the middle of its own work (`preempt=full`); and none of them
//! is called once root has turned the function tracer off.
//!
//! *Where tasks are stopped in programs* (`gaps.rs`), the table itself says of each gap that
//! anything may have changed ([`RevisionTable::unseen_until`]). That makes up for a program that
//! only stamps. One on an event of perf has a memory of its own (who is a process of the server,
//! what a database is doing), which has a hole once it was passed over.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};

use nicache_coherence::RevisionTable;
use nicache_kernel::{calls_programs_at_functions, missed_runs};

use crate::witnesses::gaps::is_event;

/// Between two looks.
const LOOK_NS: u64 = 500_000_000;

/// An attached program of the witness: its name and its descriptor.
pub(super) type Loaded = (String, OwnedFd);

/// Looks after the programs that watch for it.
#[derive(Debug)]
pub struct Overseer {
    table: RevisionTable,
    programs: Vec<Loaded>,
    /// Do any hang on functions of the kernel?
    at_functions: bool,
    /// Are tasks stopped in them?
    has_gaps: bool,
    looked_ns: u64,
    /// Gaps that are over and have been looked at.
    gaps_seen: u64,
    /// From how many on it is told again.
    gaps_told: u64,
    blinded: bool,
}

/// Why the witnesses do not see everything from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blindness {
    /// The kernel's function tracer was turned off.
    NotCalled,
    /// This program was passed over.
    PassedOver {
        /// Its name.
        program: String,
        /// How often; 0: that cannot be known.
        runs: u64,
    },
}

impl fmt::Display for Blindness {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotCalled => write!(
                formatter,
                "the kernel no longer calls witnesses (kernel.ftrace_enabled is 0)"
            ),
            Self::PassedOver { program, runs } => {
                write!(
                    formatter,
                    "the kernel has passed over a witness ({program}, {runs} times): it has stopped a task in the middle of it"
                )
            }
        }
    }
}

impl Overseer {
    pub(super) fn new(
        table: RevisionTable,
        programs: Vec<Loaded>,
        at_functions: bool,
        has_gaps: bool,
    ) -> Self {
        Self {
            table,
            programs,
            at_functions,
            has_gaps,
            looked_ns: 0,
            gaps_seen: 0,
            gaps_told: 0,
            blinded: false,
        }
    }

    /// Do the witnesses no longer see everything? Then the table says from now on that everything
    /// has changed, and nobody keeps anything.
    pub fn is_blind(&self) -> bool {
        self.blinded
    }

    /// Looks after them twice a second (CLOCK_MONOTONIC). What blinds them is told once.
    pub fn handle_time(&mut self, now_ns: u64) -> Option<Blindness> {
        // Where tasks are stopped in programs, the gaps say when to look.
        if self.blinded || self.has_gaps || now_ns < self.looked_ns + LOOK_NS {
            return None;
        }
        self.looked_ns = now_ns;
        let blindness = match self.at_functions && !calls_programs_at_functions() {
            true => Some(Blindness::NotCalled),
            false => self.passed_over(|_| true),
        };
        self.blind_by(blindness)
    }

    /// Looks after them if there was a gap; to be called before anything is vouched for. What
    /// blinds them is told once.
    pub fn handle_gaps(&mut self) -> Option<Blindness> {
        let gaps = self.table.gaps();
        if self.blinded || !self.has_gaps || gaps == self.gaps_seen {
            return None;
        }
        let is_open = self.table.has_gap();
        let blindness = self.passed_over(is_event);
        // As long as one is open, another program may be passed over.
        if !is_open {
            self.gaps_seen = gaps;
        }
        if gaps > self.gaps_told {
            self.gaps_told = gaps.saturating_mul(10);
            tracing::info!(
                gaps,
                "the kernel has stopped a task in the middle of a witness: each time it does so, everything that is cached is dropped"
            );
        }
        self.blind_by(blindness)
    }

    /// Was any passed over that may not be, whether or not there was a gap?
    pub(super) fn has_missed(&self) -> bool {
        self.passed_over(|name| !self.has_gaps || is_event(name)).is_some()
    }

    fn passed_over(&self, is_looked_at: impl Fn(&str) -> bool) -> Option<Blindness> {
        self.programs.iter().filter(|(name, _)| is_looked_at(name)).find_map(|(name, program)| {
            let runs = missed_runs(program.as_fd());
            (runs != Some(0))
                .then(|| Blindness::PassedOver { program: name.clone(), runs: runs.unwrap_or(0) })
        })
    }

    fn blind_by(&mut self, blindness: Option<Blindness>) -> Option<Blindness> {
        if blindness.is_some() {
            self.blinded = true;
            self.table.begin_gap();
        }
        blindness
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A file is a program of which it cannot be known how often it was passed over.
    fn overseer(names: &[&str], has_gaps: bool) -> (Overseer, Arc<RevisionTable>) {
        let file = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let programs = names.iter().map(|name| ((*name).to_owned(), file())).collect();
        let memory = |bytes: usize| {
            let memory =
                rustix::fs::memfd_create("table", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            rustix::fs::ftruncate(&memory, bytes as u64).unwrap();
            memory
        };
        let control = memory(nicache_coherence::CONTROL_BYTES);
        let revisions = memory(nicache_coherence::REVISIONS_BYTES);
        let table = || RevisionTable::map(control.as_fd(), revisions.as_fd()).unwrap();
        (Overseer::new(table(), programs, false, has_gaps), Arc::new(table()))
    }

    #[test]
    fn without_gaps_programs_are_looked_after_twice_a_second() {
        let (mut overseer, table) = overseer(&["sys_exit"], false);
        assert_eq!(overseer.handle_time(LOOK_NS - 1), None);
        assert!(!overseer.is_blind() && !table.has_gap());
        let blindness = Blindness::PassedOver { program: "sys_exit".into(), runs: 0 };
        assert_eq!(overseer.handle_time(LOOK_NS), Some(blindness));
        assert!(overseer.is_blind() && table.has_gap(), "nobody keeps anything");
        assert_eq!(overseer.handle_time(9 * LOOK_NS), None, "it is told once");
    }

    #[test]
    fn with_gaps_those_that_remember_are_looked_after_at_each() {
        let (mut stamping, table) = overseer(&["writeback_dirty_folio"], true);
        table.begin_gap();
        table.end_gap();
        assert_eq!((stamping.handle_gaps(), stamping.handle_time(9 * LOOK_NS)), (None, None));
        assert!(!stamping.is_blind());
        let (mut remembering, table) = overseer(&["sys_exit_event"], true);
        assert_eq!(remembering.handle_gaps(), None, "there was none");
        table.begin_gap();
        assert!(remembering.handle_gaps().is_some() && remembering.is_blind());
        table.end_gap();
        assert!(table.has_gap(), "for good");
    }

    #[test]
    fn an_open_gap_is_looked_at_until_it_is_over() {
        let (mut overseer, table) = overseer(&[], true);
        table.begin_gap();
        assert_eq!((overseer.handle_gaps(), overseer.gaps_seen), (None, 0));
        table.end_gap();
        assert_eq!((overseer.handle_gaps(), overseer.gaps_seen), (None, 1));
    }
}
