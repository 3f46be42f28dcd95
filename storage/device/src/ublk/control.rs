//! Devices of the kernel's ublk driver: made, started and taken away.
//!
//! When the process that takes a device's requests dies, the driver cancels what was under way and
//! takes the disk away (`ublk_uring_cmd_cancel_fn` and `ublk_ch_release` of
//! drivers/block/ublk_drv.c). What stays is a character file that nobody can use, until somebody
//! deletes it: the supervisor, or whoever makes the next device.
//!
//! Read first: Documentation/block/ublk.rst, io_uring(7).

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue};
use nicache_initiator::BLOCK_BYTES;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use super::abi::{Command, DEPTH, DeviceInfo, FLAG_USER_COPY, REQUEST_BYTES_MAX};
use super::abi::{control_command, parameters};
use crate::block_queue::has_stable_pages;

/// The driver's file for commands.
pub(crate) const CONTROL: &str = "/dev/ublk-control";
/// The oldest that it was tried on. Deleting without waiting needs 6.9.
const KERNEL_LEAST: (u32, u32) = (6, 12);

type Ring = IoUring<squeue::Entry128, cqueue::Entry>;

/// Commands to the driver.
pub(crate) struct Control {
    file: OwnedFd,
    ring: Ring,
}

impl Control {
    fn open() -> io::Result<Self> {
        let named = |error: Errno| {
            io::Error::new(io::Error::from(error).kind(), format!("{CONTROL}: {error}"))
        };
        let file = open(CONTROL, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(named)?;
        Ok(Self { file, ring: Ring::builder().build(4)? })
    }

    /// Executes a command whose argument, if there is one, the kernel reads and writes.
    fn run(
        &mut self,
        command: Command,
        device: u32,
        buffer: Option<&mut [u8]>,
        data: u64,
    ) -> io::Result<()> {
        let (address, bytes) =
            buffer.map_or((0, 0), |buffer| (buffer.as_mut_ptr() as u64, buffer.len() as u16));
        // SAFETY: the buffer is borrowed until the end of this function, which does not return
        // before the command has ended.
        unsafe { self.push(command, device, address, bytes, data)? };
        let mut is_submitted = false;
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => is_submitted = true,
                // It is the wait that is repeated then.
                Err(error) if is_submitted || error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if let Some(ended) = self.ring.completion().next() {
                return result(&ended);
            }
        }
    }

    /// # Safety
    /// The kernel may use the memory until the command has ended.
    unsafe fn push(
        &mut self,
        command: Command,
        device: u32,
        address: u64,
        bytes: u16,
        data: u64,
    ) -> io::Result<()> {
        let entry = opcode::UringCmd80::new(Fd(self.file.as_raw_fd()), command.number())
            .cmd(control_command(device, address, bytes, data))
            .build();
        // SAFETY: the file is open as long as the ring is, and the memory is the caller's affair.
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)
    }

    fn info(&mut self, device: u32) -> io::Result<DeviceInfo> {
        let mut info = DeviceInfo::EMPTY;
        self.run(Command::DeviceInfo, device, Some(&mut info.0), 0)?;
        Ok(info)
    }

    /// Takes away what a device is, wherever it stands.
    fn remove(&mut self, device: u32) -> io::Result<()> {
        // Apart, because deleting keeps all others waiting.
        let stopped = self.run(Command::Stop, device, None, 0);
        self.run(Command::DeleteAsync, device, None, 0).and(stopped)
    }

    /// Deletes devices whose owner and whose server were killed: they have no disk any longer.
    fn remove_leftovers(&mut self) {
        let entries = fs::read_dir("/dev").into_iter().flatten().filter_map(Result::ok);
        for entry in entries {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("ublkc"));
            let Some(number) = number.and_then(|number| number.parse::<u32>().ok()) else {
                continue;
            };
            let Ok(info) = self.info(number) else { continue };
            let is_left = info.is_dead() && info.owner().is_some_and(is_gone);
            // If somebody has it open, its owner may be in another namespace of processes.
            if is_left && open_characters(number).is_ok() {
                match self.remove(number) {
                    Ok(()) => tracing::info!("/dev/ublkc{number} was left behind and is deleted"),
                    Err(error) => tracing::warn!("/dev/ublkc{number} was left behind: {error}"),
                }
            }
        }
    }
}

fn result(ended: &cqueue::Entry) -> io::Result<()> {
    if ended.result() < 0 { Err(io::Error::from_raw_os_error(-ended.result())) } else { Ok(()) }
}

fn is_gone(process: u32) -> bool {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    pid.is_none_or(|pid| test_kill_process(pid) == Err(Errno::SRCH))
}

/// The file by which a server gets its requests. Only one can have it open.
pub(crate) fn open_characters(number: u32) -> io::Result<OwnedFd> {
    let path = format!("/dev/ublkc{number}");
    let file = open(path.as_str(), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    file.map_err(|error| io::Error::new(io::Error::from(error).kind(), format!("{path}: {error}")))
}

/// Whether this kernel's driver can be used; if not, why.
pub(crate) fn is_usable() -> io::Result<()> {
    usable_control().map(drop)
}

fn usable_control() -> io::Result<Control> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    if !is_new_enough(&release) {
        let (major, minor) = KERNEL_LEAST;
        return Err(io::Error::other(format!("Linux {release} is older than {major}.{minor}")));
    }
    let mut control = Control::open()?;
    let mut features = [0; 8];
    control.run(Command::Features, u32::MAX, Some(&mut features), 0)?;
    if u64::from_ne_bytes(features) & FLAG_USER_COPY == 0 {
        return Err(io::Error::other("the driver does not let its server copy"));
    }
    Ok(control)
}

fn is_new_enough(release: &str) -> bool {
    let mut numbers = release.split(|char: char| !char.is_ascii_digit()).map(str::parse::<u32>);
    matches!((numbers.next(), numbers.next()), (Some(Ok(major)), Some(Ok(minor)))
        if (major, minor) >= KERNEL_LEAST)
}

/// Takes a device away whose process has died.
pub(crate) fn remove(number: u32) -> io::Result<()> {
    Control::open()?.remove(number)
}

/// A device that this process has made. Dropping it takes it away.
pub(crate) struct UblkDevice {
    control: Control,
    number: u32,
    path: String,
}

impl UblkDevice {
    /// Makes a device that waits for its server.
    pub(crate) fn add(capacity_bytes: u64) -> io::Result<Self> {
        let mut control = usable_control()?;
        control.remove_leftovers();
        let mut info = DeviceInfo::new(std::process::id());
        control.run(Command::Add, u32::MAX, Some(&mut info.0), 0)?;
        let number = info.number();
        let mut device = Self { control, number, path: format!("/dev/ublkb{number}") };
        let is_as_asked = info.flags() & FLAG_USER_COPY != 0
            && info.depth() == DEPTH
            && info.request_bytes_max() == REQUEST_BYTES_MAX;
        if !is_as_asked {
            return Err(io::Error::other(
                "the driver makes a device other than what was asked for",
            ));
        }
        let mut parameters = parameters(capacity_bytes, BLOCK_BYTES.trailing_zeros() as u8);
        device.control.run(Command::SetParameters, number, Some(&mut parameters), 0)?;
        Ok(device)
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Waits until a thread of this process takes requests, and makes the disk.
    pub(crate) fn start(&mut self) -> io::Result<()> {
        self.control.run(Command::Start, self.number, None, u64::from(std::process::id()))?;
        has_stable_pages(self.path.trim_start_matches("/dev/"))
    }
}

impl Drop for UblkDevice {
    fn drop(&mut self) {
        if let Err(error) = self.control.remove(self.number) {
            tracing::error!("{}: {error}", self.path);
        }
    }
}

/// Whether a file system, or somebody else who wants it alone, has the disk.
pub(crate) fn is_used(path: &str) -> bool {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    open(path, flags, Mode::empty()).is_err_and(|error| error == Errno::BUSY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_kernels_are_known_by_their_release() {
        for release in ["6.12.118+deb13-amd64", "6.18.44-fc", "7.0.0", "10.1"] {
            assert!(is_new_enough(release), "{release}");
        }
        for release in ["6.1.0-57-amd64", "6.11.9", "5.19", "6", "", "x.y", "-6.12"] {
            assert!(!is_new_enough(release), "{release}");
        }
    }

    #[test]
    fn processes_that_are_here_are_not_gone() {
        assert!(!is_gone(std::process::id()) && is_gone(0) && is_gone(u32::MAX));
        assert!(is_gone(i32::MAX as u32));
    }
}
