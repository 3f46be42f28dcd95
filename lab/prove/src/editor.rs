//! Who changes a subject, and the thread that has it changed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nicache_clock::monotonic_ns;

use crate::log::Log;
use crate::report::SubjectReport;
use crate::schedule::Schedule;

/// Why an edit failed.
pub type EditError = Box<dyn std::error::Error + Send + Sync>;

/// Longest sleep, so the end of a run is noticed.
const NAP: Duration = Duration::from_millis(20);
/// Attempts to end a run with an edit that succeeds.
const LAST_EDITS: u32 = 5;

/// A way to change a subject.
pub trait Editor: Send {
    /// The subject. Editors of the same name change the same one in turns.
    fn name(&self) -> &str;

    /// What the last edit did: `rename over`, `UPDATE`, ... Edits are counted by it.
    fn kind(&self) -> &str;

    /// Makes the subject show `version`. When this returns, the change must be complete: whoever
    /// asks the server from now on must get it. Nothing of it may come later, nor after an error.
    ///
    /// # Errors
    /// Whatever went wrong. Then this version and the one before are both taken for possible until
    /// an edit succeeds.
    fn edit(&mut self, version: u64) -> Result<(), EditError>;
}

/// Counts the edits of all subjects.
#[derive(Debug, Default)]
pub(crate) struct EditCount {
    pub(crate) succeeded: AtomicU64,
}

/// Changes one subject.
pub(crate) struct Changer<'a> {
    pub(crate) editors: &'a mut [Box<dyn Editor>],
    pub(crate) log: &'a Log,
    pub(crate) count: &'a EditCount,
    /// The last version that was tried.
    pub(crate) version: u64,
    pub(crate) report: SubjectReport,
    pub(crate) random: fastrand::Rng,
}

impl Changer<'_> {
    /// Makes the next version, or says why not.
    pub(crate) fn edit(&mut self) -> Result<(), String> {
        self.version += 1;
        let which = self.random.usize(..self.editors.len());
        let editor = &mut self.editors[which];
        self.log.begin(self.version);
        let outcome = editor.edit(self.version);
        self.log.end(outcome.is_ok());
        let counts = self.report.kinds.entry(editor.kind().to_owned()).or_default();
        match outcome {
            Ok(()) => {
                self.count.succeeded.fetch_add(1, Ordering::Relaxed);
                counts.edits += 1;
                self.report.edits += 1;
                Ok(())
            }
            Err(error) => {
                counts.failed += 1;
                self.report.failed += 1;
                let text = error.to_string();
                self.report.first_failure.get_or_insert_with(|| text.clone());
                Err(text)
            }
        }
    }

    /// Edits at the schedule's times until `stop`, and in the end until one succeeds.
    pub(crate) fn run(
        mut self,
        mut schedule: Schedule,
        least_gap: Duration,
        stop: &AtomicBool,
    ) -> SubjectReport {
        let least_gap_ns = least_gap.as_nanos() as u64;
        let mut due_ns = monotonic_ns();
        let mut last = Ok(());
        'run: loop {
            let Some(gap) = schedule.next_gap() else {
                while !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(NAP);
                }
                break;
            };
            // An editor that is slower than its schedule does not catch up.
            due_ns = (due_ns + gap.as_nanos() as u64).max(monotonic_ns() + least_gap_ns);
            loop {
                if stop.load(Ordering::Relaxed) {
                    break 'run;
                }
                let left = Duration::from_nanos(due_ns.saturating_sub(monotonic_ns()));
                if left.is_zero() {
                    break;
                }
                std::thread::sleep(left.min(NAP));
            }
            last = self.edit();
        }
        for _ in 0..LAST_EDITS {
            if last.is_ok() {
                break;
            }
            last = self.edit();
        }
        self.report.last_version = self.version;
        self.report
    }
}
