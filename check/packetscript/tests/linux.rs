//! Every script against the kernel's TCP. It is the reference: what it does not pass is wrong in
//! the script.

mod common;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use nicache_packetscript::{BackendError, Linux, RunError, Script, Side, run};

/// Scripts that run at a time. They mostly wait.
const AT_A_TIME: usize = 6;
/// Runs of a script, of which one must pass: on a busy machine real time is not exact.
const RUNS_MAX: usize = 3;

#[test]
fn the_kernel_does_what_the_scripts_say() {
    let scripts = common::scripts(Side::Linux);
    let next = AtomicUsize::new(0);
    let late = Mutex::new(Vec::new());
    let refused = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(named) = scripts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match several_times(&named.script) {
                        Ok(()) => {}
                        Err(RunError::Backend(BackendError::NotPermitted)) => {
                            *refused.lock().unwrap() = Some(BackendError::NotPermitted.to_string());
                            return;
                        }
                        Err(_) => late.lock().unwrap().push(named),
                    }
                }
            });
        }
    });
    if let Some(why) = refused.into_inner().unwrap() {
        assert!(!rustix::process::geteuid().is_root(), "root is {why}");
        eprintln!("skipped: {why}");
        return;
    }
    // On a busy machine real time is less exact for six at a time than for one alone.
    let alone = late.into_inner().unwrap().into_iter().filter_map(|named| {
        let error = several_times(&named.script).err()?;
        Some(format!("{}: {error}", named.name))
    });
    let wrong: Vec<String> = alone.collect();
    assert!(wrong.is_empty(), "{} scripts are wrong:\n\n{}", wrong.len(), wrong.join("\n\n"));
}

fn several_times(script: &Script) -> Result<(), RunError> {
    let mut result = Ok(());
    for _ in 0..RUNS_MAX {
        result = Linux::new(script)
            .map_err(RunError::from)
            .and_then(|mut kernel| run(script, Side::Linux, &mut kernel))
            .map(|_| ());
        if !matches!(result, Err(RunError::Failed(_))) {
            break;
        }
    }
    result
}
