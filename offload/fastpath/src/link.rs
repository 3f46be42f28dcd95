//! A program at tc ingress.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_rs::{TC_INGRESS, TcHook, TcHookBuilder};
use rustix::io::Errno;

/// How the filter is known at an interface. Another one there was left by a forwarder that was
/// killed, and gives way.
const HANDLE: u32 = 0x6e66_0001;

/// A program at tc ingress, until this is dropped.
#[derive(Debug)]
pub(crate) enum Ingress {
    /// Linux 6.6 and newer (tcx): ends with the descriptor.
    Link {
        /// Keeps it there.
        _link: OwnedFd,
    },
    /// Older ones (clsact). It stays if the process is killed, and does nothing then: without
    /// packet sockets nothing is chosen.
    Filter { program: OwnedFd, interface: u32 },
}

impl Ingress {
    /// Attaches a program behind those that are there. The interface is in the calling thread's
    /// network namespace.
    pub(crate) fn attach(program: BorrowedFd<'_>, interface: u32) -> io::Result<Self> {
        match create(program, interface) {
            Ok(link) => Ok(Self::Link { _link: link }),
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                let mut hook = hook(program, interface);
                hook.replace(true);
                // It complains when the queueing discipline is there already.
                let attached = hook.create().and_then(|mut hook| hook.attach());
                attached.map_err(|error| io::Error::other(format!("clsact: {error:#}")))?;
                Ok(Self::Filter { program: program.try_clone_to_owned()?, interface })
            }
            Err(error) => Err(error),
        }
    }
}

impl Drop for Ingress {
    fn drop(&mut self) {
        if let Self::Filter { program, interface } = self {
            // The interface may be gone, and the filter with it.
            let _ = hook(program.as_fd(), *interface).detach();
        }
    }
}

fn hook(program: BorrowedFd<'_>, interface: u32) -> TcHook {
    TcHookBuilder::new(program)
        .ifindex(interface as i32)
        .handle(HANDLE)
        .priority(2)
        .hook(TC_INGRESS)
}

fn create(program: BorrowedFd<'_>, interface: u32) -> io::Result<OwnedFd> {
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as _,
        ..Default::default()
    };
    // SAFETY: the options are initialised and live during the call, which keeps nothing of them.
    let result = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            interface as i32,
            libbpf_sys::BPF_TCX_INGRESS,
            &options,
        )
    };
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    // SAFETY: a new descriptor that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}
