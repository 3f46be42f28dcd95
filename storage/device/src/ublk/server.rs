//! The server's side of a ublk device: its threads answer what the device owner hands over.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::abi::{Description, Operation, REQUEST_BYTES_MAX};
use super::slots::{Answer, Request, Slots, hand_over, take};
use crate::blocks::{Blocks, error_number, is_whole};

/// Requests, and the memory that their bytes are in.
pub(crate) struct UblkServer {
    requests: OwnedFd,
    slots: Slots,
}

impl UblkServer {
    pub(crate) fn new(requests: OwnedFd, memory: &OwnedFd) -> io::Result<Self> {
        Ok(Self { requests, slots: Slots::map(memory)? })
    }

    /// Serves them until the device owner is gone.
    pub(crate) fn serve(&self, blocks: &dyn Blocks, threads: usize) -> io::Result<()> {
        std::thread::scope(|scope| {
            for number in 0..threads.max(1) {
                std::thread::Builder::new()
                    .name(format!("device-{number}"))
                    .spawn_scoped(scope, || self.work(blocks))?;
            }
            Ok(())
        })
    }

    fn work(&self, blocks: &dyn Blocks) {
        while let Ok(Some(Request { tag, what })) = take(&self.requests, RecvFlags::empty()) {
            let result = self.execute(blocks, tag, what);
            if hand_over(&self.requests, Answer { tag, result }).is_err() {
                return;
            }
        }
    }

    /// Bytes, or an error's number below zero.
    fn execute(&self, blocks: &dyn Blocks, tag: u16, what: Description) -> i32 {
        let Description { operation, offset, bytes } = what;
        let has_data = matches!(operation, Operation::Read | Operation::Write);
        if has_data && !(is_whole(blocks, offset, bytes) && bytes <= REQUEST_BYTES_MAX) {
            return -Errno::INVAL.raw_os_error();
        }
        // SAFETY: the device owner leaves the slot of a request alone until it has the answer, and
        // a packet came to this thread alone.
        let slot = || unsafe { self.slots.slot(tag, bytes) };
        let done = match operation {
            Operation::Read => blocks.read(offset, slot()),
            Operation::Write => blocks.write(offset, slot()),
            Operation::Flush => blocks.flush(),
            Operation::Other => return -Errno::OPNOTSUPP.raw_os_error(),
        };
        match done {
            Ok(()) => bytes as i32,
            Err(error) => {
                tracing::error!("{error}");
                -error_number(&error)
            }
        }
    }
}
