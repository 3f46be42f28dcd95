//! Several frames from the socket's queue with one system call, `recvmmsg`, straight into the
//! buffers of a burst.
//!
//! Read first: Linux `net/packet/af_packet.c`, `packet_recvmsg`. Beside each frame comes a control
//! message with the VLAN tag that the kernel has taken out of it (`PACKET_AUXDATA`).

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use arrayvec::ArrayVec;
use libc::{c_int, c_uint, c_void};
use rustix::io::Errno;

use super::note::{HEADER_BYTES, Note, vlan_tag};
use crate::frame::FrameBuf;

/// Most frames that are received at once.
pub(super) const BATCH_FRAMES_MAX: usize = 64;

/// A header of 16 bytes with 20 bytes (24 with padding).
const CONTROL_WORDS: usize = 5;

/// Receives into the buffers, one frame behind one header in each, as many as are there. Never
/// blocks.
pub(super) fn receive_batch(
    socket: BorrowedFd<'_>,
    buffers: &mut [FrameBuf],
    notes: &mut ArrayVec<Note, BATCH_FRAMES_MAX>,
) -> rustix::io::Result<()> {
    notes.clear();
    let mut control = ArrayVec::<[u64; CONTROL_WORDS], BATCH_FRAMES_MAX>::new();
    let mut parts = ArrayVec::<libc::iovec, BATCH_FRAMES_MAX>::new();
    let mut messages = ArrayVec::<libc::mmsghdr, BATCH_FRAMES_MAX>::new();
    for buffer in buffers.iter_mut().take(BATCH_FRAMES_MAX) {
        let space = buffer.space_mut(HEADER_BYTES);
        parts.push(libc::iovec {
            iov_base: space.as_mut_ptr().cast::<c_void>(),
            iov_len: space.len(),
        });
        control.push([0; CONTROL_WORDS]);
    }
    // The lists are full and do not move any longer.
    for (part, control) in parts.iter_mut().zip(control.iter_mut()) {
        // SAFETY: plain data, of which zeros are valid (pointers are null, lengths 0); it may have
        // private padding members.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = part;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(control) as _;
        messages.push(libc::mmsghdr { msg_hdr: header, msg_len: 0 });
    }
    let count = messages.len() as c_uint;
    let flags = libc::MSG_DONTWAIT;
    // SAFETY: `count` messages, each with one part that points to a buffer of its length and with
    // control memory of its length. All of it lives, exclusively borrowed, until the call returns,
    // and every byte pattern is valid in it.
    let received = unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            messages.as_mut_ptr(),
            count,
            flags as _,
            ptr::null_mut(),
        )
    };
    if received < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    for (message, control) in messages.iter().zip(&control).take(received as usize) {
        let mut note = Note {
            len: message.msg_len as usize,
            is_truncated: message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            ..Note::default()
        };
        read_control(control, message.msg_hdr.msg_controllen, &mut note);
        notes.push(note);
    }
    Ok(())
}

/// Reads the control messages in the first `len` bytes (`struct cmsghdr`: length with header,
/// level, type; then data, padded to words).
fn read_control(words: &[u64; CONTROL_WORDS], len: usize, note: &mut Note) {
    const HEADER_WORDS: usize = 2;
    let mut rest = &words[..(len / 8).min(CONTROL_WORDS)];
    while let [message_len, level_and_type, ..] = *rest {
        let [level, kind] = halves(level_and_type);
        let message_words = (message_len as usize).div_ceil(8);
        if message_words < HEADER_WORDS || message_words > rest.len() {
            return;
        }
        let (message, next) = rest.split_at(message_words);
        if let (libc::SOL_PACKET, libc::PACKET_AUXDATA, [status_and_len, _, vlan]) =
            (level as c_int, kind as c_int, &message[HEADER_WORDS..])
        {
            let [tci, tpid] = quarters(halves(*vlan)[0]);
            note.vlan_tag = vlan_tag(halves(*status_and_len)[0], tci, tpid);
        }
        rest = next;
    }
}

/// The two `u32` that lie in memory one after the other.
fn halves(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])]
}

/// The two `u16` that lie in memory one after the other.
fn quarters(half: u32) -> [u16; 2] {
    let [a, b, c, d] = half.to_ne_bytes();
    [u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d])]
}

// `struct cmsghdr` has a length of 8 bytes, `struct tpacket_auxdata` 20 bytes.
const _: () = assert!(size_of::<libc::cmsghdr>() == 16 && size_of::<libc::tpacket_auxdata>() == 20);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn word(bytes: [u8; 8]) -> u64 {
        u64::from_ne_bytes(bytes)
    }

    fn pair(low: u32, high: u32) -> u64 {
        let ([a, b, c, d], [e, f, g, h]) = (low.to_ne_bytes(), high.to_ne_bytes());
        word([a, b, c, d, e, f, g, h])
    }

    fn auxdata(status: u32) -> [u64; 5] {
        let ([a, b], [c, d]) = (0x2005u16.to_ne_bytes(), 0x88a8u16.to_ne_bytes());
        let head = pair(libc::SOL_PACKET as u32, libc::PACKET_AUXDATA as u32);
        [36, head, pair(status, 60), pair(60, 0), word([a, b, c, d, 0, 0, 0, 0])]
    }

    fn read(words: &[u64]) -> Note {
        let mut control = [0; CONTROL_WORDS];
        control[..words.len()].copy_from_slice(words);
        let mut note = Note::default();
        read_control(&control, words.len() * 8, &mut note);
        note
    }

    #[test]
    fn tags_are_found() {
        let tagged = auxdata(libc::TP_STATUS_VLAN_VALID | libc::TP_STATUS_VLAN_TPID_VALID);
        assert_eq!(read(&tagged).vlan_tag, Some([0x88, 0xa8, 0x20, 5]));
        assert_eq!(read(&auxdata(libc::TP_STATUS_VLAN_VALID)).vlan_tag, Some([0x81, 0, 0x20, 5]));
        assert_eq!(read(&auxdata(0)), Note::default());
        assert_eq!(read(&tagged[..4]), Note::default());
        let mut other = tagged;
        other[1] += 1;
        assert_eq!(read(&other), Note::default());
    }

    proptest! {
        #[test]
        fn whatever_lies_there_is_read_without_panic(
            words in proptest::array::uniform5(0u64..100),
            len in 0usize..100,
        ) {
            read_control(&words, len, &mut Note::default());
        }
    }
}
