//! Programs at interfaces, held by descriptors.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::error::SteeringError;
use crate::filter::Filter;

/// `XDP_FLAGS_DRV_MODE` of linux/if_link.h.
const FLAG_NATIVE: u32 = 1 << 2;

/// Attaches an XDP program that the driver runs. The descriptor is the link: when it is closed, the
/// program is detached.
///
/// The kernel's own place for such programs, behind drivers that have none ("generic"), is not
/// used: frames were copied there or joined to super-frames before, AF_XDP hears neither of their
/// checksums nor of their VLAN tags, and from Linux 6.9 on programs at tc ingress, others' too,
/// find them without their Ethernet header.
pub(crate) fn attach_xdp(program: BorrowedFd<'_>, interface: u32) -> io::Result<OwnedFd> {
    create(program, interface, libbpf_sys::BPF_XDP, FLAG_NATIVE)
}

/// Attaches an XDP program that the driver of `interface` runs. If that fails, the error says what
/// it means to the operator. The descriptor is the link: closing it detaches the program.
pub(crate) fn attach_native(
    program: BorrowedFd<'_>,
    interface: &str,
    index: u32,
) -> Result<OwnedFd, SteeringError> {
    attach_xdp(program, index).map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => SteeringError::NotPermitted(error.to_string()),
        _ if is_taken(&error) => SteeringError::Busy(interface.to_owned()),
        _ => SteeringError::NoXdp { interface: interface.to_owned(), error },
    })
}

/// Whether another program is at work at the interface.
pub(crate) fn is_taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}

/// A program at tc ingress.
#[derive(Debug)]
pub(crate) enum Ingress {
    /// Linux 6.6 and newer: ends with the descriptor.
    Link(OwnedFd),
    /// Older ones: goes when this is dropped, and stays if the process is killed.
    Filter {
        /// Keeps it there.
        _filter: Filter,
    },
}

/// Attaches a program at tc ingress behind those that are there.
pub(crate) fn attach_ingress(program: BorrowedFd<'_>, interface: u32) -> io::Result<Ingress> {
    match create(program, interface, libbpf_sys::BPF_TCX_INGRESS, 0) {
        Ok(link) => Ok(Ingress::Link(link)),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            Ok(Ingress::Filter { _filter: Filter::attach(program, interface)? })
        }
        Err(error) => Err(error),
    }
}

/// Attaches a program at tc egress behind those that are there (Linux 6.6 and newer). The
/// descriptor is the link.
pub(crate) fn attach_egress(program: BorrowedFd<'_>, interface: u32) -> io::Result<OwnedFd> {
    create(program, interface, libbpf_sys::BPF_TCX_EGRESS, 0)
}

impl Ingress {
    /// The link, if it is one.
    pub(crate) fn link(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Link(link) => Some(link.as_fd()),
            Self::Filter { .. } => None,
        }
    }
}

fn create(
    program: BorrowedFd<'_>,
    interface: u32,
    kind: libbpf_sys::bpf_attach_type,
    flags: u32,
) -> io::Result<OwnedFd> {
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as _,
        flags,
        ..Default::default()
    };
    // SAFETY: the options are initialised and live during the call, which keeps nothing of them.
    let result = unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), interface as i32, kind, &options)
    };
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    // SAFETY: a new descriptor that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}
