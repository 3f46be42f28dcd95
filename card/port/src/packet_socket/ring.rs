//! The receive ring of a packet socket: slots in memory that is shared with the kernel, which
//! writes short frames there.
//!
//! Read first: Linux `Documentation/networking/packet_mmap.rst` (`TPACKET_V2`) and
//! `net/packet/af_packet.c`, `tpacket_rcv`.
//!
//! A frame that does not fit a slot, so every super-frame, is kept whole in the socket's queue, and
//! its slot says so (`PACKET_COPY_THRESH`). So a short frame costs no system call, and a long one
//! is copied once.
//!
//! ```text
//!  block 0                                        block 1
//!  │ slot 0 │ slot 1 │ ... │ slot 31 │ position │ │ slot 32 │ ...
//! ```
//!
//! The end of the first block, which the kernel does not use, has the number of the next slot to
//! read: a process that takes the socket over goes on there.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{tpacket_req, tpacket2_hdr};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::note::{HEADER_BYTES, Note, vlan_tag};
use super::options;
use crate::frame::FrameBuf;

/// Bytes of a slot: a frame of an Ethernet with an MTU of 1500 with tags, behind what the kernel
/// puts in front of it.
const SLOT_BYTES: usize = 2032;
const BLOCK_BYTES: usize = 1 << 16;
const BLOCK_SLOTS: usize = BLOCK_BYTES / SLOT_BYTES;
const BLOCKS: usize = 128;
/// Frames that may wait.
const SLOTS: u32 = (BLOCK_SLOTS * BLOCKS) as u32;
const RING_BYTES: usize = BLOCK_BYTES * BLOCKS;
const POSITION_OFFSET: usize = BLOCK_SLOTS * SLOT_BYTES;

const _: () = assert!(SLOT_BYTES.is_multiple_of(libc::TPACKET_ALIGNMENT));
const _: () = assert!(POSITION_OFFSET + 4 <= BLOCK_BYTES && POSITION_OFFSET.is_multiple_of(4));

/// The receive ring, mapped.
#[derive(Debug)]
pub(super) struct Ring {
    memory: NonNull<u8>,
    /// The next slot to read.
    next: u32,
}

// SAFETY: the mapping belongs to the value and is valid on every thread.
unsafe impl Send for Ring {}

/// What is in the next slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    Nothing,
    /// A frame, to be taken with [`Ring::take`].
    Frame,
    /// So many slots, one after the other, whose frames are in the socket's queue; to be passed
    /// with [`Ring::skip`].
    Queued(usize),
}

/// Gives the socket a ring. To be done before it is bound.
pub(super) fn prepare(socket: impl AsFd) -> io::Result<()> {
    let request = tpacket_req {
        tp_block_size: BLOCK_BYTES as u32,
        tp_block_nr: BLOCKS as u32,
        tp_frame_size: SLOT_BYTES as u32,
        tp_frame_nr: SLOTS,
    };
    let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
    options::set(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, version)?;
    options::set(&socket, libc::SOL_PACKET, libc::PACKET_COPY_THRESH, 1)?;
    options::set(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, request)
}

impl Ring {
    /// Maps the ring of a socket, and goes on where its last reader has stopped.
    pub(super) fn map(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let (protection, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a fresh mapping at an address of the kernel's choice; nothing else refers to it.
        let address =
            unsafe { mmap(std::ptr::null_mut(), RING_BYTES, protection, flags, socket, 0) }?;
        let memory = NonNull::new(address.cast())
            .ok_or_else(|| io::Error::other("mmap returned address 0"))?;
        let mut ring = Self { memory, next: 0 };
        ring.next = ring.position().load(Ordering::Relaxed) % SLOTS;
        // The position is noted before slots are released: a reader that was killed in between has
        // left some behind it.
        for _ in 0..SLOTS {
            let before = (ring.next + SLOTS - 1) % SLOTS;
            if ring.status(before).load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
                break;
            }
            ring.next = before;
        }
        Ok(ring)
    }

    /// Looks at what is next, and at no more than `frames` slots.
    pub(super) fn waiting(&self, frames: usize) -> Waiting {
        let queued = |ahead: usize| {
            let status = self.status((self.next + ahead as u32) % SLOTS).load(Ordering::Acquire);
            (status & libc::TP_STATUS_USER != 0).then_some(status & libc::TP_STATUS_COPY != 0)
        };
        match queued(0) {
            None => Waiting::Nothing,
            Some(false) => Waiting::Frame,
            Some(true) => Waiting::Queued(
                (1..frames.max(1)).take_while(|ahead| queued(*ahead) == Some(true)).count() + 1,
            ),
        }
    }

    /// Takes the frame out of the next slot, behind its header, as
    /// [`receive_batch`](super::batch::receive_batch) would.
    pub(super) fn take(&mut self, buffer: &mut FrameBuf) -> Note {
        let slot = self.slot(self.next);
        // SAFETY: within the mapping, aligned to 16 bytes; the kernel has handed the slot over, and
        // writes to it when it is released.
        let head = unsafe { slot.cast::<tpacket2_hdr>().read() };
        let (start, len) = (usize::from(head.tp_mac), head.tp_snaplen as usize);
        let mut note = Note {
            len: len + HEADER_BYTES,
            is_truncated: head.tp_len > head.tp_snaplen,
            vlan_tag: vlan_tag(head.tp_status, head.tp_vlan_tci, head.tp_vlan_tpid),
        };
        if start < HEADER_BYTES || len > SLOT_BYTES || start + len > SLOT_BYTES {
            note.is_truncated = true;
        } else {
            // SAFETY: the range lies within the slot, as was just seen, and belongs to us until the
            // slot is released.
            let bytes = unsafe {
                std::slice::from_raw_parts(slot.add(start - HEADER_BYTES).as_ptr(), note.len)
            };
            buffer.space_mut(HEADER_BYTES)[..note.len].copy_from_slice(bytes);
        }
        self.skip(1);
        note
    }

    /// Gives the next slots back to the kernel.
    pub(super) fn skip(&mut self, slots: usize) {
        let first = self.next;
        self.next = (first + slots as u32) % SLOTS;
        self.position().store(self.next, Ordering::Relaxed);
        for ahead in 0..slots as u32 {
            self.status((first + ahead) % SLOTS).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        }
    }

    fn slot(&self, number: u32) -> NonNull<u8> {
        let number = number as usize;
        let offset = number / BLOCK_SLOTS * BLOCK_BYTES + number % BLOCK_SLOTS * SLOT_BYTES;
        debug_assert!(offset + SLOT_BYTES <= RING_BYTES);
        // SAFETY: numbers are below `SLOTS`, so the slot lies within the mapping.
        unsafe { self.memory.add(offset) }
    }

    fn status(&self, number: u32) -> &AtomicU32 {
        // SAFETY: the first word of a slot, which is aligned to 16 bytes; the kernel, too, uses it
        // as an atomic.
        unsafe { self.slot(number).cast::<AtomicU32>().as_ref() }
    }

    fn position(&self) -> &AtomicU32 {
        // SAFETY: within the mapping and aligned, as asserted above; the kernel does not use it.
        unsafe { self.memory.add(POSITION_OFFSET).cast::<AtomicU32>().as_ref() }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: made by `map` with this length; no reference outlives `self`.
        let unmapped = unsafe { munmap(self.memory.as_ptr().cast(), RING_BYTES) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Frames dropped since this was asked last, as there was no free slot or no header could describe
/// them.
pub(super) fn take_drops(socket: impl AsFd) -> io::Result<u64> {
    let counts: options::Statistics =
        options::get(socket, libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
    Ok(u64::from(counts.drops))
}

/// Whether a socket has such a ring, so it can be mapped.
pub(super) fn is_prepared(socket: BorrowedFd<'_>) -> bool {
    let version = options::get::<libc::c_int>(socket, libc::SOL_PACKET, libc::PACKET_VERSION);
    socket.as_raw_fd() >= 0
        && version.is_ok_and(|version| version == libc::tpacket_versions::TPACKET_V2 as libc::c_int)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::collections::VecDeque;
    use std::os::fd::OwnedFd;

    /// Memory as a socket has it, without a kernel that writes to it.
    fn memory() -> OwnedFd {
        let fd = memfd_create("ring", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, RING_BYTES as u64).unwrap();
        fd
    }

    /// Writes a slot as the kernel does.
    fn produce(ring: &Ring, number: u32, frame: &[u8], status: u32) {
        let slot = ring.slot(number);
        let start = 76;
        let head = tpacket2_hdr {
            tp_status: libc::TP_STATUS_KERNEL,
            tp_len: frame.len() as u32,
            tp_snaplen: frame.len() as u32,
            tp_mac: start as u16,
            tp_net: 90,
            tp_sec: 0,
            tp_nsec: 0,
            tp_vlan_tci: 7,
            tp_vlan_tpid: 0x88a8,
            tp_padding: [0; 4],
        };
        // SAFETY: head and frame lie within the slot, which nobody reads meanwhile.
        unsafe {
            slot.cast::<tpacket2_hdr>().write(head);
            std::ptr::copy_nonoverlapping(frame.as_ptr(), slot.add(start).as_ptr(), frame.len());
        }
        ring.status(number).store(libc::TP_STATUS_USER | status, Ordering::Release);
    }

    #[test]
    fn slots_do_not_overlap_and_leave_the_position_alone() {
        let fd = memory();
        let ring = Ring::map(fd.as_fd()).unwrap();
        let start =
            |number: u32| ring.slot(number).as_ptr() as usize - ring.memory.as_ptr() as usize;
        for number in 0..SLOTS {
            let end = start(number) + SLOT_BYTES;
            assert!(end <= POSITION_OFFSET || start(number) >= POSITION_OFFSET + 4);
            assert!(number + 1 == SLOTS || start(number + 1) >= end);
        }
    }

    #[test]
    fn a_slot_that_contradicts_itself_is_truncated() {
        let fd = memory();
        let mut ring = Ring::map(fd.as_fd()).unwrap();
        let mut buffer = FrameBuf::new();
        for (mac, len, snaplen) in
            [(9, 60, 60), (76, 4000, 60), (2000, 60, 60), (76, 70_000, 70_000), (76, 60, u32::MAX)]
        {
            let number = ring.next;
            produce(&ring, number, &[1; 60], 0);
            let head = ring.slot(number).cast::<tpacket2_hdr>();
            // SAFETY: as in `produce`.
            unsafe {
                let broken =
                    tpacket2_hdr { tp_mac: mac, tp_len: len, tp_snaplen: snaplen, ..head.read() };
                head.write(broken);
            }
            assert_eq!(ring.waiting(8), Waiting::Frame);
            assert!(ring.take(&mut buffer).is_truncated, "{mac} {len} {snaplen}");
        }
        assert_eq!(ring.waiting(8), Waiting::Nothing);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Produce {
            is_queued: bool,
            count: usize,
        },
        Take,
        /// Another process goes on; the last one may have been killed after it had noted its
        /// position, with so many slots unreleased.
        TakeOver {
            unreleased: usize,
        },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (any::<bool>(), 1usize..1500)
                .prop_map(|(is_queued, count)| Step::Produce { is_queued, count }),
            Just(Step::Take),
            (0usize..5).prop_map(|unreleased| Step::TakeOver { unreleased }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        /// Against a queue that cannot be wrong, around the ring several times, through the hands
        /// of several readers.
        #[test]
        fn a_bounded_queue(steps in proptest::collection::vec(step(), 0..60)) {
            let fd = memory();
            let mut ring = Ring::map(fd.as_fd()).unwrap();
            let mut buffer = FrameBuf::new();
            let (mut head, mut serial, mut model) = (0u32, 0u64, VecDeque::new());
            for step in steps {
                match step {
                    Step::Produce { is_queued, count } => {
                        for _ in 0..count {
                            if ring.status(head).load(Ordering::Acquire) != libc::TP_STATUS_KERNEL {
                                prop_assert_eq!(model.len(), SLOTS as usize);
                                break;
                            }
                            produce(
                                &ring,
                                head,
                                &serial.to_ne_bytes(),
                                if is_queued {
                                    libc::TP_STATUS_COPY
                                } else {
                                    libc::TP_STATUS_VLAN_VALID
                                },
                            );
                            model.push_back((serial, is_queued));
                            (head, serial) = ((head + 1) % SLOTS, serial + 1);
                        }
                    }
                    Step::Take => {
                        for _ in 0..700 {
                            let run = model.iter().take_while(|(_, is_queued)| *is_queued).count();
                            match ring.waiting(64) {
                                Waiting::Nothing => prop_assert!(model.is_empty()),
                                Waiting::Queued(slots) => {
                                    prop_assert_eq!(slots, run.min(64));
                                    ring.skip(slots);
                                    model.drain(..slots);
                                }
                                Waiting::Frame => {
                                    let (serial, is_queued) = model.pop_front().unwrap();
                                    prop_assert!(!is_queued);
                                    let note = ring.take(&mut buffer);
                                    prop_assert_eq!(
                                        (note.len, note.is_truncated, note.vlan_tag),
                                        (18, false, Some([0x81, 0, 0, 7]))
                                    );
                                    buffer.set_len(8);
                                    prop_assert_eq!(buffer.data(), serial.to_ne_bytes());
                                }
                            }
                        }
                    }
                    Step::TakeOver { unreleased } => {
                        let ahead = unreleased.min(model.len()) as u32;
                        // All slots in use look alike: the noted position is believed.
                        let ahead = if model.len() == SLOTS as usize { 0 } else { ahead };
                        ring.position().store((ring.next + ahead) % SLOTS, Ordering::Relaxed);
                        drop(ring);
                        ring = Ring::map(fd.as_fd()).unwrap();
                    }
                }
            }
        }
    }
}
