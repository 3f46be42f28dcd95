//! The contract of a port.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use crate::frame::{Burst, Checksum, ETHERNET_HEADER_BYTES, FRAME_BYTES_MAX, GsoKind, Offload};
use crate::gather::{PARTS_MAX, SendError, parts_len};

/// What a port takes in [`Port::send`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Frames with [`Checksum::Partial`].
    pub checksum: bool,
    /// TCP super-frames over IPv4 and IPv6.
    pub tso: bool,
    /// UDP super-frames over IPv4 and IPv6.
    pub uso: bool,
    /// Bytes of the longest frame, Ethernet header included, that is not a super-frame. (A
    /// super-frame may have [`FRAME_BYTES_MAX`].)
    pub frame_bytes_max: usize,
}

impl Capabilities {
    /// Everything: partial checksums, super-frames of both kinds, frames as long as a buffer.
    pub const FULL: Self =
        Self { checksum: true, tso: true, uso: true, frame_bytes_max: FRAME_BYTES_MAX };

    /// No offload at all and frames of an Ethernet with an MTU of 1500: what software fallbacks are
    /// tested with.
    pub const PLAIN: Self = Self { checksum: false, tso: false, uso: false, frame_bytes_max: 1514 };

    /// Whether a frame with this metadata can be sent as it is.
    pub fn supports(&self, offload: &Offload) -> bool {
        let checksum = self.checksum || !matches!(offload.checksum, Checksum::Partial { .. });
        let gso = match offload.gso.map(|gso| gso.kind) {
            None => true,
            Some(GsoKind::Tcp4 | GsoKind::Tcp6) => self.tso,
            Some(GsoKind::Udp) => self.uso,
        };
        checksum && gso
    }

    /// What every port refuses before it looks closer; otherwise the bytes of the frame.
    ///
    /// # Errors
    /// [`SendError::TooLong`] above [`FRAME_BYTES_MAX`], [`SendError::Invalid`] without a whole
    /// Ethernet header, [`SendError::TooManyParts`], [`SendError::Unsupported`].
    pub fn check(&self, parts: &[IoSlice<'_>], offload: &Offload) -> Result<usize, SendError> {
        let frame_len = parts_len(parts);
        if frame_len > FRAME_BYTES_MAX {
            return Err(SendError::TooLong);
        }
        if frame_len < ETHERNET_HEADER_BYTES {
            return Err(SendError::Invalid);
        }
        if parts.len() > PARTS_MAX {
            return Err(SendError::TooManyParts);
        }
        if !self.supports(offload) {
            return Err(SendError::Unsupported);
        }
        Ok(frame_len)
    }
}

/// A place where frames come in and go out.
///
/// One thread at a time uses a port, and polls it: nothing here blocks. Nothing allocates after
/// creation, either.
pub trait Port {
    /// What [`send`](Port::send) takes.
    fn capabilities(&self) -> Capabilities;

    /// Receives some of what has arrived, at most [`Burst::capacity`] frames, and sets the length
    /// of `burst` to their number, which it also returns. Never blocks. More may be there unless it
    /// returns 0.
    ///
    /// Metadata of received frames is consistent: positions lie inside of the frame, sizes are not
    /// zero. What a hostile or broken peer sends otherwise is dropped and counted in
    /// [`receive_dropped`](Port::receive_dropped).
    ///
    /// # Errors
    /// The port is broken, e.g. the interface is gone. Frames received before the error are kept:
    /// the error comes with the next call.
    fn receive(&mut self, burst: &mut Burst) -> io::Result<usize>;

    /// Sends one frame, given as a gather list whose parts together start with the Ethernet header.
    /// `Ok` means taken over, not arrived. Never blocks.
    ///
    /// # Errors
    /// See [`SendError`]; the frame is dropped.
    fn send(&mut self, parts: &[IoSlice<'_>], offload: Offload) -> Result<(), SendError>;

    /// Pushes out what [`send`](Port::send) may have kept back for batching.
    ///
    /// # Errors
    /// The port is broken.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Writes out whatever is still buffered of frames, captures included; nothing is sent or
    /// received afterwards.
    ///
    /// # Errors
    /// What the last write said.
    fn finish(&mut self) -> io::Result<()> {
        self.flush()
    }

    /// A file descriptor that polls readable when frames are there, for sleeping; `None` for a port
    /// in memory.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Frames that arrived and that the port itself threw away since its creation (malformed
    /// metadata, cut short), or found no room.
    fn receive_dropped(&self) -> u64 {
        0
    }

    /// Frames that [`send`](Port::send) took over to be sent with others, and that could not be
    /// sent then.
    fn send_dropped(&self) -> u64 {
        0
    }
}

/// Implements [`Port`] by handing every call to the port behind a pointer.
macro_rules! forward_port {
    ($pointer:ty) => {
        impl<P: Port + ?Sized> Port for $pointer {
            fn capabilities(&self) -> Capabilities {
                (**self).capabilities()
            }
            fn receive(&mut self, burst: &mut Burst) -> io::Result<usize> {
                (**self).receive(burst)
            }
            fn send(&mut self, parts: &[IoSlice<'_>], offload: Offload) -> Result<(), SendError> {
                (**self).send(parts, offload)
            }
            fn flush(&mut self) -> io::Result<()> {
                (**self).flush()
            }
            fn finish(&mut self) -> io::Result<()> {
                (**self).finish()
            }
            fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
                (**self).wait_fd()
            }
            fn receive_dropped(&self) -> u64 {
                (**self).receive_dropped()
            }
            fn send_dropped(&self) -> u64 {
                (**self).send_dropped()
            }
        }
    };
}

forward_port!(&mut P);
forward_port!(Box<P>);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Gso;

    #[test]
    fn capabilities_cover_each_offload_separately() {
        let partial = Offload { checksum: Checksum::Partial { start: 34, offset: 16 }, gso: None };
        let tcp = Offload {
            gso: Some(Gso { kind: GsoKind::Tcp4, size: 1448, header_len: 66, ecn: false }),
            ..partial
        };
        let udp = Offload {
            gso: Some(Gso { kind: GsoKind::Udp, size: 1448, header_len: 42, ecn: false }),
            ..partial
        };
        assert!(Capabilities::PLAIN.supports(&Offload::default()));
        assert!(!Capabilities::PLAIN.supports(&partial));
        let no_uso = Capabilities { uso: false, ..Capabilities::FULL };
        assert!(no_uso.supports(&tcp) && !no_uso.supports(&udp));
        let no_tso = Capabilities { tso: false, ..Capabilities::FULL };
        assert!(no_tso.supports(&udp) && !no_tso.supports(&tcp));
        let no_checksum = Capabilities { checksum: false, ..Capabilities::FULL };
        assert!(!no_checksum.supports(&tcp));
    }

    #[test]
    fn parts_hold_a_super_frame_of_scattered_slots() {
        const SLOT_BYTES: usize = 2048;
        const { assert!(crate::PARTS_MAX > 2 + 65_536 / SLOT_BYTES) };
    }
}
