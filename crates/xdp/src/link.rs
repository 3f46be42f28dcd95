//! Programs at interfaces, held by descriptors.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_rs::{TC_INGRESS, TcHook, TcHookBuilder};

use crate::log::with_log;

/// `XDP_FLAGS_DRV_MODE` of linux/if_link.h.
const FLAG_NATIVE: u32 = 1 << 2;

/// Attaches an XDP program that the driver runs. The descriptor is the link: when it is closed, the program is detached.
///
/// The kernel's own place for such programs, behind drivers that have none ("generic"), is not used: frames were copied there or joined to super-frames before, AF_XDP hears neither of their
/// checksums nor of their VLAN tags, and from Linux 6.9 on programs at tc ingress, others' too, find them without their Ethernet header.
pub(crate) fn attach_xdp(program: BorrowedFd<'_>, interface: u32) -> io::Result<OwnedFd> {
    create(program, interface, libbpf_sys::BPF_XDP, FLAG_NATIVE)
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
    /// A filter of the `clsact` queueing discipline, removed when this is dropped (in the interface's network namespace). It stays if
    /// the process is killed; the queueing discipline stays in any case, as others may have filters there.
    Filter { program: OwnedFd, interface: u32 },
}

/// Attaches a program at tc ingress behind those that are there.
pub(crate) fn attach_ingress(program: BorrowedFd<'_>, interface: u32) -> io::Result<Ingress> {
    match create(program, interface, libbpf_sys::BPF_TCX_INGRESS, 0) {
        Ok(link) => Ok(Ingress::Link(link)),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => attach_filter(program, interface),
        Err(error) => Err(error),
    }
}

/// Attaches a program at tc egress behind those that are there (Linux 6.6 and newer). The descriptor is the link.
pub(crate) fn attach_egress(program: BorrowedFd<'_>, interface: u32) -> io::Result<OwnedFd> {
    create(program, interface, libbpf_sys::BPF_TCX_EGRESS, 0)
}

fn attach_filter(program: BorrowedFd<'_>, interface: u32) -> io::Result<Ingress> {
    let failed = |error: libbpf_rs::Error| io::Error::other(format!("clsact: {error:#}"));
    let mut hook = filter(program, interface);
    // It complains when the queueing discipline is there already.
    let (attached, _) = with_log(|| hook.create().and_then(|mut hook| hook.attach()));
    attached.map_err(failed)?;
    Ok(Ingress::Filter { program: program.try_clone_to_owned()?, interface })
}

fn filter(program: BorrowedFd<'_>, interface: u32) -> TcHook {
    // A handle of its own, so that a filter of somebody else is never replaced.
    let handle = std::process::id();
    TcHookBuilder::new(program).ifindex(interface as i32).handle(handle).priority(1).hook(TC_INGRESS)
}

impl Ingress {
    /// The link, if it is one.
    pub(crate) fn link(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Ingress::Link(link) => Some(link.as_fd()),
            Ingress::Filter { .. } => None,
        }
    }
}

impl Drop for Ingress {
    fn drop(&mut self) {
        if let Ingress::Filter { program, interface } = self {
            // The interface may be gone, and the filter with it.
            let _ = with_log(|| filter(program.as_fd(), *interface).detach());
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
    let result = unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), interface as i32, kind, &options) };
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    // SAFETY: a new descriptor that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn run(program: &str, arguments: &str) -> String {
        let output = Command::new(program).args(arguments.split_whitespace()).output().expect(program);
        assert!(output.status.success(), "{program} {arguments}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What kernels before 6.6 have.
    #[test]
    fn a_filter_goes_with_its_owner_and_leaves_others_alone() {
        let in_namespace = || {
            // Sound: only `UnshareFlags::FILES` is not.
            #[allow(deprecated)]
            if let Err(errno) = rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNET) {
                return println!("skipped: no network namespace: {errno}");
            }
            run("ip", "link add dev near type veth peer name far");
            let index: u32 = run("ip", "-o link show dev near").split(':').next().unwrap().parse().unwrap();
            let loaded = crate::program::load(0, 1).unwrap();
            let filters = || run("tc", "filter show dev near ingress");
            let other = attach_filter(loaded.host.ingress.as_fd(), index).unwrap();
            assert!(attach_filter(loaded.wire.ingress.as_fd(), index).is_err(), "the handle is taken");
            assert!(other.link().is_none());
            assert!(filters().contains("host_ingress") && !filters().contains("wire_ingress"), "{}", filters());
            drop(other);
            assert!(!filters().contains("host_ingress"), "{}", filters());
        };
        std::thread::spawn(in_namespace).join().unwrap();
    }
}
