//! The process that takes the requests of a ublk device, and hands them to the server.
//!
//! It has no files of the file system and does not wait for any. The driver ends what a dying
//! process had under way only when nobody has the device's character file any longer. A mapping of
//! it counts (`ublk_ch_release` since Linux 6.15). In the server's memory that mapping would stay
//! as long as threads of the server that wait for pages of the file system: they would wait for
//! themselves. So the mapping is here. When the server is gone, this process answers in its place,
//! with errors; when it is gone itself, the driver does.
//!
//! One thread has the ring: it takes requests and hands results back, and the driver accepts both
//! from no other. The other one makes the disk, and takes it away when the supervisor is gone and
//! no file system has it.
//!
//! Nothing is allocated for a request: when memory is short, it may be what frees some.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use io_uring::types::Fd;
use io_uring::{IoUring, opcode, squeue};
use rustix::event::{EventfdFlags, PollFd, Timespec, eventfd, poll};
use rustix::io::{Errno, pread, pwrite, read, write};
use rustix::mm::{MapFlags, MlockAllFlags, ProtFlags, mlockall, mmap, munmap};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair};
use rustix::process::configure_io_flusher_behavior;

use super::abi::{
    ABORTED, COMMIT_AND_FETCH, DEPTH, DESCRIPTION_BYTES, Description, FETCH, Operation,
    REQUEST_BYTES_MAX, bytes_at, request_command,
};
use super::control::{UblkDevice, is_used, open_characters};
use super::slots::{Answer, Request, Slots, hand_over, take};
use crate::protocol::{FromOwner, ToSupervisor, receive, send};

/// Completions that are not those of requests: the server has answered, or the other thread has
/// something to say.
const ANSWERS: u64 = u64::MAX;
const WOKEN: u64 = u64::MAX - 1;
const PAGE_BYTES: usize = 4096;
const DESCRIPTIONS_BYTES: usize = (DEPTH as usize * DESCRIPTION_BYTES).next_multiple_of(PAGE_BYTES);
/// How often it is looked whether a file system still has the disk.
const LOOK: Duration = Duration::from_millis(10);

/// Is the owner of a new device, until the supervisor is gone and no file system has the disk.
pub(crate) fn own(supervisor: &OwnedFd, capacity_bytes: u64) -> io::Result<()> {
    // As the threads of the server that answer: the kernel must not make these write to the device.
    let _ = configure_io_flusher_behavior(true);
    let _ = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT);
    let device = UblkDevice::add(capacity_bytes)?;
    let characters = open_characters(device.number())?;
    let descriptions = Descriptions::map(&characters)?;
    let (slots, memory) = Slots::new()?;
    let (server, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    send(supervisor, &FromOwner::Requests, Some(theirs.as_fd()))?;
    send(supervisor, &FromOwner::Memory, Some(memory.as_fd()))?;
    drop((theirs, memory));
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let is_cut = AtomicBool::new(false);
    let mut owner = Owner {
        characters: characters.as_fd(),
        descriptions: &descriptions,
        slots: &slots,
        server: server.as_fd(),
        wake: wake.as_fd(),
        is_cut: &is_cut,
        with_driver: 0,
        with_server: [None; DEPTH as usize],
    };
    std::thread::scope(|scope| {
        let control = scope.spawn(|| manage(device, supervisor, &is_cut, wake.as_fd()));
        // The driver wants the requests of a queue to be taken by one thread, from the first on.
        let served = IoUring::new(u32::from(DEPTH) + 2).and_then(|mut ring| owner.run(&mut ring));
        if let Err(error) = served {
            // The disk goes with this process, and the other thread may wait for ever.
            tracing::error!("the owner of a device: {error}");
            let _ = send(supervisor, &FromOwner::Failed { reason: error.to_string() }, None);
            std::process::exit(1);
        }
        control
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("a thread of the device owner died")))
    })
}

/// Makes the disk and takes it away when its time has come.
fn manage(
    mut device: UblkDevice,
    supervisor: &OwnedFd,
    is_cut: &AtomicBool,
    wake: BorrowedFd<'_>,
) -> io::Result<()> {
    let cut = || {
        is_cut.store(true, Ordering::Release);
        let _ = write(wake, &1_u64.to_ne_bytes());
    };
    // If it fails, dropping the device ends the other thread, too.
    device.start()?;
    let is_told =
        send(supervisor, &FromOwner::Started { device: device.path().to_owned() }, None).is_ok();
    // Until the supervisor wants an end, or is gone.
    while is_told && let Ok(Some((message, _))) = receive(supervisor) {
        if let ToSupervisor::Abort = message {
            cut();
        }
    }
    while is_used(device.path()) {
        wait(LOOK);
    }
    Ok(())
}

fn wait(time: Duration) {
    let pause = Timespec::try_from(time).unwrap_or_default();
    let _ = poll(&mut [] as &mut [PollFd<'_>], Some(&pause));
}

/// What requests want, by their tags: memory that the driver writes.
struct Descriptions(*const u8);

impl Descriptions {
    fn map(characters: &OwnedFd) -> io::Result<Self> {
        let (access, flags) = (ProtFlags::READ, MapFlags::SHARED);
        // SAFETY: a new mapping, of a size that the driver checks.
        let at = unsafe {
            mmap(std::ptr::null_mut(), DESCRIPTIONS_BYTES, access, flags, characters, 0)?
        };
        Ok(Self(at.cast::<u8>().cast_const()))
    }

    /// What the request of a tag wants that the driver has handed over.
    fn of(&self, tag: u16) -> Option<Description> {
        let mut bytes = [0; DESCRIPTION_BYTES];
        let from = usize::from(tag.min(DEPTH - 1)) * DESCRIPTION_BYTES;
        for (at, byte) in bytes.iter_mut().enumerate() {
            // SAFETY: inside the mapping, which is as long as this lives. The driver does not write
            // to it before the request is answered.
            *byte = unsafe { self.0.add(from + at).read_volatile() };
        }
        Description::parse(&bytes)
    }
}

impl Drop for Descriptions {
    fn drop(&mut self) {
        // SAFETY: the mapping of this value, which nobody refers to any longer.
        let _ = unsafe { munmap(self.0.cast_mut().cast(), DESCRIPTIONS_BYTES) };
    }
}

struct Owner<'r> {
    characters: BorrowedFd<'r>,
    descriptions: &'r Descriptions,
    slots: &'r Slots,
    server: BorrowedFd<'r>,
    wake: BorrowedFd<'r>,
    is_cut: &'r AtomicBool,
    /// Commands that the driver has.
    with_driver: u32,
    /// What the server was asked for, by tag.
    with_server: [Option<Description>; DEPTH as usize],
}

impl Owner<'_> {
    /// Takes requests and hands results back, until the disk is gone.
    fn run(&mut self, ring: &mut IoUring) -> io::Result<()> {
        let poll = |file: BorrowedFd<'_>, name: u64| {
            opcode::PollAdd::new(Fd(file.as_raw_fd()), libc::POLLIN as u32).build().user_data(name)
        };
        for tag in 0..DEPTH {
            self.tell_driver(ring, FETCH, tag, 0)?;
        }
        push(ring, &poll(self.server, ANSWERS))?;
        push(ring, &poll(self.wake, WOKEN))?;
        let mut ended: Vec<(u64, i32)> = Vec::with_capacity(usize::from(DEPTH) * 2 + 4);
        while self.with_driver > 0 || self.with_server.iter().any(Option::is_some) {
            match ring.submit_and_wait(1) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
                Ok(_) => {}
            }
            ended.extend(ring.completion().map(|one| (one.user_data(), one.result())));
            for (name, result) in ended.drain(..) {
                match name {
                    ANSWERS => {
                        if self.take_answers(ring)? {
                            push(ring, &poll(self.server, ANSWERS))?;
                        } else {
                            self.cut(ring)?;
                        }
                    }
                    WOKEN => {
                        let _ = read(self.wake, &mut [0; 8]);
                        push(ring, &poll(self.wake, WOKEN))?;
                        if self.is_cut.load(Ordering::Acquire) {
                            self.cut(ring)?;
                        }
                    }
                    tag => {
                        self.with_driver -= 1;
                        match result {
                            0 => self.begin(ring, tag as u16)?,
                            ABORTED => {}
                            error => return Err(io::Error::from_raw_os_error(-error)),
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Hands a request to the server, or says why not.
    fn begin(&mut self, ring: &mut IoUring, tag: u16) -> io::Result<()> {
        match self.hand_to_server(tag) {
            Ok(what) => {
                self.with_server[usize::from(tag)] = Some(what);
                Ok(())
            }
            Err(error) => self.tell_driver(ring, COMMIT_AND_FETCH, tag, -error.raw_os_error()),
        }
    }

    fn hand_to_server(&self, tag: u16) -> Result<Description, Errno> {
        if self.is_cut.load(Ordering::Acquire) {
            return Err(Errno::IO);
        }
        let what = self.descriptions.of(tag).ok_or(Errno::INVAL)?;
        if what.operation == Operation::Write {
            if what.bytes > REQUEST_BYTES_MAX {
                return Err(Errno::INVAL);
            }
            // SAFETY: the server does not have this request yet, and this is the only thread.
            let slot = unsafe { self.slots.slot(tag, what.bytes) };
            copy_all(slot.len(), |at| {
                pread(self.characters, &mut slot[at..], bytes_at(tag) + at as u64)
            })?;
        }
        hand_over(self.server, Request { tag, what }).map_err(|_| Errno::IO)?;
        Ok(what)
    }

    /// Whether the server is still there.
    fn take_answers(&mut self, ring: &mut IoUring) -> io::Result<bool> {
        loop {
            let Answer { tag, result } = match take(self.server, RecvFlags::DONTWAIT) {
                Ok(Some(answer)) => answer,
                Ok(None) => return Ok(false),
                Err(_) => return Ok(true),
            };
            let what = self.with_server.get_mut(usize::from(tag)).and_then(Option::take);
            // It was answered in the server's place.
            let Some(what) = what else { continue };
            let result = self.finish(tag, what, result);
            self.tell_driver(ring, COMMIT_AND_FETCH, tag, result)?;
        }
    }

    fn finish(&self, tag: u16, what: Description, result: i32) -> i32 {
        if what.operation != Operation::Read || result < 0 {
            return result;
        }
        // SAFETY: the server has answered, and this is the only thread.
        let slot = unsafe { self.slots.slot(tag, what.bytes) };
        let copied = copy_all(slot.len(), |at| {
            pwrite(self.characters, &slot[at..], bytes_at(tag) + at as u64)
        });
        copied.map_or_else(|error| -error.raw_os_error(), |()| result)
    }

    /// From now on nobody answers but this process, with errors.
    fn cut(&mut self, ring: &mut IoUring) -> io::Result<()> {
        self.is_cut.store(true, Ordering::Release);
        for tag in 0..DEPTH {
            if self.with_server[usize::from(tag)].take().is_some() {
                self.tell_driver(ring, COMMIT_AND_FETCH, tag, -Errno::IO.raw_os_error())?;
            }
        }
        Ok(())
    }

    fn tell_driver(
        &mut self,
        ring: &mut IoUring,
        command: u32,
        tag: u16,
        result: i32,
    ) -> io::Result<()> {
        let entry = opcode::UringCmd16::new(Fd(self.characters.as_raw_fd()), command)
            .cmd(request_command(tag, result))
            .build()
            .user_data(u64::from(tag));
        self.with_driver += 1;
        push(ring, &entry)
    }
}

fn push(ring: &mut IoUring, entry: &squeue::Entry) -> io::Result<()> {
    // SAFETY: entries here refer to no memory, and their files are open as long as the ring is.
    unsafe { ring.submission().push(entry) }.map_err(io::Error::other)
}

/// Copies all of a request's bytes, or says why not.
fn copy_all(
    bytes: usize,
    mut copy: impl FnMut(usize) -> Result<usize, Errno>,
) -> Result<(), Errno> {
    let mut at = 0;
    while at < bytes {
        match copy(at) {
            Ok(0) => return Err(Errno::IO),
            Ok(copied) => at += copied,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
