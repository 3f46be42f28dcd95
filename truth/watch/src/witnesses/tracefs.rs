//! Where the kernel's events have their numbers: libbpf reads those in tracefs, which systemd
//! mounts, and a container need not have.

use std::io;
use std::path::Path;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

const TRACEFS: &str = "/sys/kernel/tracing";

/// Runs `attach` where tracefs is mounted: if it is not, on a thread that has it for itself alone.
/// Nothing stays mounted.
pub(super) fn with_tracefs<T: Send>(attach: impl FnOnce() -> T + Send) -> io::Result<T> {
    if Path::new(TRACEFS).join("events").is_dir() {
        return Ok(attach());
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: descriptors, which `UnshareFlags::FILES` would take away from other threads,
            // stay shared.
            unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
            mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
            mount("tracefs", TRACEFS, "tracefs", MountFlags::empty(), None)?;
            Ok(attach())
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
