//! Settings of the kernel.

use anyhow::{Context, Result, bail};

/// Writes a kernel setting of the calling thread's network namespace.
pub(super) fn set_sysctl(name: &str, value: &str) -> Result<()> {
    let path = format!("/proc/sys/{name}");
    match std::fs::write(&path, value) {
        Ok(()) => Ok(()),
        Err(error) => {
            // A container may show the settings read-only; one that is right already is fine.
            let current =
                std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
            if current.trim() != value {
                bail!("cannot set {path} to {value}: {error}");
            }
            Ok(())
        }
    }
}
