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
    /// Attaches a program before those that are there: one that lets a frame pass would be the last
    /// that sees it, and nobody would forward what the filter keeps from the forwarder. The
    /// interface is in the calling thread's network namespace.
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
        flags: libbpf_sys::BPF_F_BEFORE,
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

#[cfg(test)]
mod tests {
    use nicache_namespaces::Namespace;

    use super::*;
    use crate::Programs;

    /// A program of two instructions: `r0 = verdict; exit`.
    fn program(verdict: i32) -> OwnedFd {
        let instruction = |code: u32, imm: i32| libbpf_sys::bpf_insn {
            code: code as u8,
            imm,
            ..Default::default()
        };
        let instructions = [
            instruction(libbpf_sys::BPF_ALU64 | libbpf_sys::BPF_MOV | libbpf_sys::BPF_K, verdict),
            instruction(libbpf_sys::BPF_JMP | libbpf_sys::BPF_EXIT, 0),
        ];
        // SAFETY: the strings end with a zero, and everything lives during the call.
        let result = unsafe {
            libbpf_sys::bpf_prog_load(
                libbpf_sys::BPF_PROG_TYPE_SCHED_CLS,
                c"verdict".as_ptr(),
                c"GPL".as_ptr(),
                instructions.as_ptr(),
                instructions.len() as _,
                std::ptr::null_mut(),
            )
        };
        assert!(result >= 0, "{}", io::Error::from_raw_os_error(-result));
        // SAFETY: a new descriptor that nobody else knows.
        unsafe { OwnedFd::from_raw_fd(result) }
    }

    /// The programs at an interface, by their numbers, in the order in which they run.
    fn programs_at(interface: u32) -> Vec<u32> {
        let mut ids = [0u32; 8];
        let mut options = libbpf_sys::bpf_prog_query_opts {
            sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as _,
            prog_ids: ids.as_mut_ptr(),
            ..Default::default()
        };
        options.__bindgen_anon_1.count = ids.len() as u32;
        // SAFETY: the array has as many places as the options say, and lives during the call.
        let result = unsafe {
            libbpf_sys::bpf_prog_query_opts(
                interface as i32,
                libbpf_sys::BPF_TCX_INGRESS,
                &raw mut options,
            )
        };
        assert_eq!(result, 0, "{}", io::Error::from_raw_os_error(-result));
        ids.into_iter().take_while(|id| *id != 0).collect()
    }

    /// Somebody else's program says that frames are to go on their usual way.
    #[test]
    fn it_runs_before_those_that_are_there() {
        const TCX_PASS: i32 = 0;
        let Some(namespace) = Namespace::new() else { return };
        namespace.ip("link add left type veth peer name right");
        namespace.run(|| {
            let shown = ["-o", "link", "show", "left"];
            let listed = std::process::Command::new("ip").args(shown).output().unwrap();
            let text = String::from_utf8(listed.stdout).unwrap();
            let index = text.split(':').next().unwrap().parse().unwrap();
            let Ok(other) = create(program(TCX_PASS).as_fd(), index) else { return };
            let before = programs_at(index);
            assert_eq!(before.len(), 1);
            let mut programs = Programs::load(4).unwrap();
            programs.attach(index).unwrap();
            let after = programs_at(index);
            assert!(after.len() == 2 && after[1] == before[0], "{before:?}, then {after:?}");
            drop(other);
        });
    }
}
