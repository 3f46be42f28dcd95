//! What the kernel's witnesses have noted, read by a program (`ebpf/notes.h`, which says why).

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use libbpf_rs::{MapCore, MapFlags, MapHandle};

/// The program.
pub(super) const READER: &str = "find_note";

/// Whose notes, as `ebpf/notes.h` numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum NotesOf {
    /// Processes of database servers.
    Databases = 0,
    /// Programs outside the server's network that are the server's.
    Members = 1,
    /// Files that somebody has mapped to store to them.
    Mappings = 2,
}

/// One of the maps.
#[derive(Clone, Debug)]
pub(crate) struct Notes {
    map: Arc<MapHandle>,
    reader: Arc<OwnedFd>,
    of: NotesOf,
}

/// `struct note_question`.
#[repr(C)]
#[derive(Default)]
struct Question {
    map: u32,
    value: u32,
    key: [u64; 2],
}

impl Notes {
    pub(super) fn new(map: Arc<MapHandle>, reader: Arc<OwnedFd>, of: NotesOf) -> Self {
        Self { map, reader, of }
    }

    /// What is noted under the key: a process, or an inode and its device.
    pub(crate) fn find(&self, key: [u64; 2]) -> io::Result<Option<u32>> {
        let mut question = Question { map: self.of as u32, value: 0, key };
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: mem::size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
            // The answer comes back there, too.
            ctx_in: (&raw mut question).cast(),
            ctx_size_in: mem::size_of::<Question>() as u32,
            ..Default::default()
        };
        // SAFETY: the program reads and writes `question`, which is as long as is said and outlives
        // the call; the other pointers are null.
        let result = unsafe {
            libbpf_sys::bpf_prog_test_run_opts(self.reader.as_raw_fd(), &raw mut options)
        };
        match result {
            0 => Ok((options.retval == 1).then_some(question.value)),
            error => Err(io::Error::from_raw_os_error(-error)),
        }
    }

    /// Notes something; `key` and `value` as the map has them.
    pub(crate) fn note(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.map.update(key, value, MapFlags::ANY).map_err(io::Error::other)
    }
}
