//! What libbpf has to say, kept instead of printed.

use std::sync::{Mutex, PoisonError};

use libbpf_rs::PrintLevel;

/// Explanations come only through a process-wide callback.
static LOG: Mutex<String> = Mutex::new(String::new());
static IN_USE: Mutex<()> = Mutex::new(());

/// Runs something, with what libbpf explains meanwhile.
pub(crate) fn with_log<T>(run: impl FnOnce() -> T) -> (T, String) {
    fn keep(_: PrintLevel, line: String) {
        LOG.lock().unwrap_or_else(PoisonError::into_inner).push_str(&line);
    }
    let _alone = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = libbpf_rs::set_print(Some((PrintLevel::Warn, keep)));
    let result = run();
    libbpf_rs::set_print(before);
    (result, std::mem::take(&mut *LOG.lock().unwrap_or_else(PoisonError::into_inner)))
}
