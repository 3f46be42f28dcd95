//! Receive steering: on which CPU the kernel works on frames that a TAP queue has sent it.
//!
//! What a TAP takes is received in the middle of the system call that sent it, past the queue of
//! received frames that real interfaces use (Linux `net/core/dev.c`). So the sender's CPU never
//! comes by the place where it frees buffers that other CPUs have handed back, and each time these
//! pile up they must interrupt it, which is dear in a virtual machine. Steering the queue to the
//! very CPU that sends (Receive Packet Steering, Linux `Documentation/networking/scaling.rst`)
//! leads the frames through that queue, and the interrupts are gone.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// A thread that moves between CPUs is followed this often at most; each time costs the kernel a
/// few µs.
const INTERVAL_NS: u64 = Duration::from_millis(50).as_nanos() as u64;

/// Keeps one queue's received frames on the CPU of the thread that sends them.
#[derive(Debug)]
pub struct ReceiveSteering {
    file: OwnedFd,
    cpu: Option<usize>,
    looked_ns: Option<u64>,
}

impl ReceiveSteering {
    /// For queue `queue` of `interface` in the calling thread's network namespace. The thread needs
    /// CAP_SYS_ADMIN and CAP_NET_ADMIN outside of user namespaces, the latter also later on.
    ///
    /// # Errors
    /// What the kernel says: no such queue, no privilege, or a kernel without steering.
    pub fn open(interface: &str, queue: usize) -> io::Result<Self> {
        let file = queue_file(interface, queue, OFlags::WRONLY)?;
        Ok(Self { file, cpu: None, looked_ns: None })
    }

    /// Steers to the calling thread's CPU if it has moved. To be called now and then; cheap.
    ///
    /// # Errors
    /// What the kernel says; the steering stays as it was.
    pub fn follow(&mut self, now_ns: u64) -> io::Result<()> {
        if self.looked_ns.is_some_and(|looked| now_ns.saturating_sub(looked) < INTERVAL_NS) {
            return Ok(());
        }
        self.looked_ns = Some(now_ns);
        let cpu = rustix::thread::sched_getcpu();
        if self.cpu != Some(cpu) {
            rustix::io::write(&self.file, mask(cpu).as_bytes())?;
            self.cpu = Some(cpu);
        }
        Ok(())
    }
}

/// The file with the CPUs of a queue.
pub(crate) fn queue_file(interface: &str, queue: usize, access: OFlags) -> io::Result<OwnedFd> {
    // What is mounted on /sys may show another namespace; this mount is seen by nobody else and
    // gone with its descriptor.
    let context = fsopen(c"sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let root = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    let path = format!("class/net/{interface}/queues/rx-{queue}/rps_cpus");
    Ok(rustix::fs::openat(&root, path, access | OFlags::CLOEXEC, Mode::empty())?)
}

/// The mask of one CPU as sysfs wants it: groups of 32 bits in hexadecimal, the highest first.
fn mask(cpu: usize) -> String {
    let low = ",00000000".repeat(cpu / 32);
    format!("{:x}{low}", 1u32 << (cpu % 32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_groups_of_32_bits() {
        assert_eq!([mask(0), mask(5), mask(31)], ["1", "20", "80000000"]);
        assert_eq!([mask(32), mask(65)], ["1,00000000", "2,00000000,00000000"]);
    }
}
