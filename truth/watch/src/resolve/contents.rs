//! Reads a file that nobody can be changing, and hashes it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nicache_coherence::{BODY_HASH_BYTES, RefusalReason, Rule};
use rustix::fs::SeekFrom;
use rustix::io::{Errno, retry_on_intr};

use crate::resolve::node::Node;

/// Bytes read at once.
const CHUNK_BYTES: usize = 256 * 1024;

/// Waits for whoever is changing the file, makes sure that nobody has it open for writing or mapped
/// writable, and hashes its bytes (BLAKE3). `tick` is called between chunks, because a large file
/// takes long.
///
/// # Errors
/// [`RefusalReason::OpenForWriting`], [`RefusalReason::Changed`] if it is not as long as it was, or
/// [`RefusalReason::Io`].
pub(crate) fn hash(
    node: &Node,
    mut tick: impl FnMut(),
) -> Result<[u8; BODY_HASH_BYTES], RefusalReason> {
    let file = settle(node)?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; CHUNK_BYTES.min(node.size as usize + 1)];
    let mut done: u64 = 0;
    loop {
        match rustix::io::pread(&file, &mut buffer[..], done) {
            Ok(0) => break,
            Ok(read) => {
                hasher.update(&buffer[..read]);
                done += read as u64;
                if done > node.size {
                    return Err(RefusalReason::Changed);
                }
                tick();
            }
            Err(Errno::INTR) => {}
            Err(_) => return Err(RefusalReason::Io),
        }
    }
    if done == node.size { Ok(hasher.finalize().into()) } else { Err(RefusalReason::Changed) }
}

/// Waits for whoever is changing the file, and makes sure that nobody has it open for writing or
/// mapped writable.
///
/// # Errors
/// [`RefusalReason::OpenForWriting`] or [`RefusalReason::Io`].
pub fn settle(node: &Node) -> Result<OwnedFd, RefusalReason> {
    let file = node.open().map_err(|_| RefusalReason::Io)?;
    settle_file(&file)?;
    // A mapping of a file on an overlay is one of the layer's file, and outlives the overlay's.
    for layer in node.layers() {
        settle(layer)?;
    }
    Ok(file)
}

/// Waits for whoever is changing the file. Others may have it open for writing, because each of
/// their changes is told after its effect.
///
/// # Errors
/// [`RefusalReason::Io`].
pub(crate) fn settle_with_writers(node: &Node) -> Result<OwnedFd, RefusalReason> {
    let file = node.open().map_err(|_| RefusalReason::Io)?;
    wait_for_changes(file.as_fd()).map_err(|_| RefusalReason::Io)?;
    Ok(file)
}

/// Waits for whoever is changing a file that is open already, and makes sure that nobody has it
/// open for writing or mapped writable.
///
/// # Errors
/// See [`settle`].
pub fn settle_file(file: &OwnedFd) -> Result<(), RefusalReason> {
    ensure_no_writer(file)?;
    // The few changes that need no open file (truncate) hold the lock, too.
    wait_for_changes(file.as_fd()).map_err(|_| RefusalReason::Io)
}

/// Waits for the changes of a file that are under way: takes and releases the inode's lock, which
/// each of them holds.
///
/// # Errors
/// What the system says.
pub fn wait_for_changes(file: BorrowedFd<'_>) -> io::Result<()> {
    match retry_on_intr(|| rustix::fs::seek(file, SeekFrom::Hole(0))) {
        Ok(_) | Err(Errno::NXIO) => {}
        Err(error) => return Err(error.into()),
    }
    // XFS takes the lock for reading alone.
    match retry_on_intr(|| rustix::io::pread(file, &mut [0; 1], 0)) {
        Ok(_) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A read lease is granted only if no descriptor is open for writing, and a shared writable mapping
/// keeps its descriptor's file open (fcntl(2), F_SETLEASE).
fn ensure_no_writer(file: &OwnedFd) -> Result<(), RefusalReason> {
    // A writer that comes while the lease is held makes the kernel send a signal, whose default
    // (SIGIO) ends the process. SIGURG is ignored unless somebody asks for it.
    fcntl(file, F_SETSIG, libc::SIGURG).map_err(|_| RefusalReason::Io)?;
    match fcntl(file, libc::F_SETLEASE, libc::F_RDLCK) {
        Err(_) if !Rule::OpenForWriting.holds() => Ok(()),
        Ok(()) => fcntl(file, libc::F_SETLEASE, libc::F_UNLCK).map_err(|_| RefusalReason::Io),
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
            Err(RefusalReason::OpenForWriting)
        }
        Err(_) => Err(RefusalReason::Io),
    }
}

/// Not in the libc crate for all targets; asm-generic/fcntl.h.
const F_SETSIG: libc::c_int = 10;

fn fcntl(file: &OwnedFd, command: libc::c_int, argument: libc::c_int) -> io::Result<()> {
    // SAFETY: both commands take an int and touch no memory of ours.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
