//! Settings of a block device's request queue, in sysfs.
//!
//! Read first: Documentation/ABI/stable/sysfs-block.

use std::fs;
use std::io;

/// Sets one, and looks whether the kernel took it.
pub(crate) fn set_of_queue(device: &str, name: &str, value: &str) -> io::Result<()> {
    let path = format!("/sys/block/{device}/queue/{name}");
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{path}: {error}"));
    fs::write(&path, value).map_err(named)?;
    let found = fs::read_to_string(&path).map_err(named)?;
    if found.trim() != value {
        return Err(io::Error::other(format!("{path} is {} and not {value}", found.trim())));
    }
    Ok(())
}

/// A page must not change while it is read by the server: half of one key and half of another is
/// not a key.
pub(crate) fn has_stable_pages(device: &str) -> io::Result<()> {
    set_of_queue(device, "stable_writes", "1")
}
