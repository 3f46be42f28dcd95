//! Processes that stand still for a moment again and again, as those of a container do that is
//! paused, and those of a machine that sleeps. Calls that wait are interrupted by it, also where no
//! signal is handled (signal(7)).

use std::time::Duration;

use rustix::process::Signal;

use super::{describe, family, is_running, kill_if_there};

const PAUSES: usize = 100;
const LENGTH: Duration = Duration::from_millis(1);
const EVERY: Duration = Duration::from_millis(20);

/// Has these processes and all that they have started stand still, and meanwhile asks again and
/// again. None of them may end.
pub(crate) fn during(processes: &[u64], mut ask: impl FnMut()) {
    let all: Vec<(u64, String)> = processes
        .iter()
        .flat_map(|&process| family(process))
        .map(|pid| (pid, describe(pid)))
        .collect();
    let signal = |signal| {
        for (pid, _) in &all {
            kill_if_there(*pid, signal);
        }
    };
    std::thread::scope(|scope| {
        let pausing = scope.spawn(|| {
            for _ in 0..PAUSES {
                signal(Signal::STOP);
                std::thread::sleep(LENGTH);
                signal(Signal::CONT);
                std::thread::sleep(EVERY);
            }
        });
        while !pausing.is_finished() {
            ask();
        }
    });
    let ended: Vec<&String> =
        all.iter().filter(|(pid, _)| !is_running(*pid)).map(|(_, name)| name).collect();
    assert!(ended.is_empty(), "ended: {ended:?}");
}
