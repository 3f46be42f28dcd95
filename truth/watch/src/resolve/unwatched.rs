//! Says which file systems keep pages from being kept, once for each.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::{Mutex, Once, PoisonError};

use crate::resolve::node::Node;

/// What was said already, by device number.
static TOLD: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// More are not told: whoever mounts without end is not to fill the log.
const TOLD_MAX: usize = 64;

/// Warns that a page was not kept because of this file, unless that was said of its file system
/// before.
pub(crate) fn tell_once(node: &Node, path: &[u8]) {
    let Some(reason) = why_unwatched(node) else { return };
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if told.len() < TOLD_MAX && told.insert(node.identity.dev) {
        let path = String::from_utf8_lossy(path);
        tracing::warn!("pages that need {path} are not kept: {reason}");
    }
}

/// Why changes of a file or directory are not seen, as the end of a sentence. `None`: they are.
pub fn why_unwatched(node: &Node) -> Option<String> {
    if node.is_watched() {
        return None;
    }
    let magic = rustix::fs::fstatfs(&node.fd).map_or(0, |found| found.f_type as u64);
    Some(format!("it is on {}, where nobody sees every change", name_of(magic)))
}

/// Says once that on such an overlay only files are kept.
pub(crate) fn tell_of_overlays() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing::warn!(
            "pages that programs make from files on an overlayfs of Btrfs or tmpfs are not kept; files that are sent as they are, are"
        );
    });
}

/// Of `statfs(2)`.
fn name_of(magic: u64) -> String {
    let name = match magic {
        0x5846_5342 => "xfs on a kernel without its witnesses (see nicache check)",
        0x9123_683e => "btrfs on a kernel without its witnesses (see nicache check)",
        0x794c_7630 => {
            "an overlayfs with layers or options that are not watched (docs/filesystems.md)"
        }
        0x0102_1994 => "tmpfs on a kernel without its witnesses (see nicache check)",
        0x6969 => "NFS",
        0x6573_5546 => "a FUSE file system",
        0x0102_1997 => "9p",
        0x2fc1_2fc1 => "ZFS",
        0xf2f5_2010 => "f2fs",
        0xff53_4d42 | 0xfe53_4d42 => "SMB",
        0x9fa0 => "proc",
        0x6265_6572 => "sysfs",
        0xef53 => "ext4 on a kernel without its witnesses",
        other => return format!("a file system of type {other:#x}"),
    };
    name.to_owned()
}

/// The kind of the file system that a path is on, if no kernel and no option has its changes
/// watched. `None`: they may be watched.
///
/// # Errors
/// The path cannot be looked up.
pub fn never_watched(path: &Path) -> io::Result<Option<String>> {
    const MAY_BE_WATCHED: [u64; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630];
    let magic = rustix::fs::statfs(path)?.f_type as u64;
    Ok((!MAY_BE_WATCHED.contains(&magic)).then(|| name_of(magic)))
}
