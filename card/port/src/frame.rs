//! Frames, bursts of frames, and the offload metadata that travels with a frame.
//!
//! The metadata follows virtio 1.2, section 5.1.6 (struct virtio_net_hdr), in decoded and checked
//! form.

use std::io::IoSlice;

use crate::gather::{SendError, parts_len};

/// Bytes of a frame buffer: an IP packet of 65,535 bytes with its Ethernet header, two VLAN tags
/// and some slack.
pub const FRAME_BYTES_MAX: usize = 65_536 + 64;

/// Bytes before each frame in its buffer, for what a port reads together with the frame. With them
/// and the Ethernet header the IP header is aligned to 16 bytes.
pub(crate) const HEADROOM_BYTES: usize = 18;

/// Bytes of an Ethernet header without VLAN tags; no frame is shorter.
pub const ETHERNET_HEADER_BYTES: usize = 14;

/// Bytes of a VLAN tag: TPID and TCI (IEEE 802.1Q).
pub(crate) const VLAN_TAG_BYTES: usize = 4;

const _: () = assert!(FRAME_BYTES_MAX >= 65_535 + ETHERNET_HEADER_BYTES + 2 * 4);
/// Positions in a frame are u16 in the metadata; headers lie in the first 64 KiB.
const _: () = assert!(FRAME_BYTES_MAX < 2 * (u16::MAX as usize + 1));

/// What is known about the transport checksum of a frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Checksum {
    /// Nothing: the receiver has to verify it.
    #[default]
    Unverified,
    /// It is right, or the frame came from a machine-internal sender that needs none.
    Valid,
    /// The checksum field holds the sum of the pseudo-header only; somebody further on has to
    /// complete it (virtio `NEEDS_CSUM`). Such a frame never was on a real wire, so there is
    /// nothing to verify.
    Partial {
        /// Where summing starts (the transport header), in bytes from the start of the frame.
        start: u16,
        /// Where the checksum field is, in bytes from `start`.
        offset: u16,
    },
}

/// What kind of super-frame this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GsoKind {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP datagrams (IPv4 or IPv6) with the same header: "USO", virtio `GSO_UDP_L4`.
    Udp,
}

/// A super-frame: one header and the payload of many segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gso {
    /// Protocols.
    pub kind: GsoKind,
    /// Payload bytes of each segment but the last, which may be shorter. Not 0.
    pub size: u16,
    /// Bytes of all headers (Ethernet, IP, transport) that each segment repeats.
    pub header_len: u16,
    /// The TCP header has CWR set, which only the first segment may carry (RFC 3168, section
    /// 6.1.2).
    pub ecn: bool,
}

/// The metadata of a frame. The default suits a plain frame of which nothing is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Offload {
    /// State of the transport checksum. [`Checksum::Partial`] whenever `gso` is there.
    pub checksum: Checksum,
    /// Whether this is a super-frame.
    pub gso: Option<Gso>,
}

impl Offload {
    /// The metadata of the same frame with `bytes` less before the transport header; `None` if
    /// there were not so many.
    #[must_use]
    pub fn nearer(self, bytes: u16) -> Option<Self> {
        let checksum = match self.checksum {
            Checksum::Partial { start, offset } => {
                Checksum::Partial { start: start.checked_sub(bytes)?, offset }
            }
            other => other,
        };
        let gso = match self.gso {
            Some(gso) => Some(Gso { header_len: gso.header_len.checked_sub(bytes)?, ..gso }),
            None => None,
        };
        Some(Self { checksum, gso })
    }

    /// The metadata of the same frame with `bytes` more bytes in front of the network header;
    /// `None` if a position does not fit.
    fn shifted(self, bytes: u16) -> Option<Self> {
        let checksum = match self.checksum {
            Checksum::Partial { start, offset } => {
                Checksum::Partial { start: start.checked_add(bytes)?, offset }
            }
            other => other,
        };
        let gso = match self.gso {
            Some(gso) => Some(Gso { header_len: gso.header_len.checked_add(bytes)?, ..gso }),
            None => None,
        };
        Some(Self { checksum, gso })
    }
}

/// An owned buffer of [`FRAME_BYTES_MAX`] bytes with one frame in it.
pub struct FrameBuf {
    /// The headroom, the frame, and one byte that shows that a frame was too long.
    bytes: Box<[u8]>,
    /// Where the frame starts: behind the headroom, or in it once something was inserted near its
    /// front.
    start: usize,
    len: usize,
    offload: Offload,
}

impl FrameBuf {
    /// An empty buffer. Allocates; its pages are touched when they are first written.
    pub fn new() -> Self {
        let bytes = vec![0; HEADROOM_BYTES + FRAME_BYTES_MAX + 1].into_boxed_slice();
        Self { bytes, start: HEADROOM_BYTES, len: 0, offload: Offload::default() }
    }

    /// Length of the frame in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no frame.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The frame, from its Ethernet header on.
    pub fn data(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    /// The frame, to be changed in place.
    pub fn data_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }

    /// Where a port reads `header` bytes of its own with a frame behind them: these,
    /// [`FRAME_BYTES_MAX`] bytes, and one more.
    pub(crate) fn space_mut(&mut self, header: usize) -> &mut [u8] {
        self.start = HEADROOM_BYTES;
        &mut self.bytes[HEADROOM_BYTES - header..]
    }

    /// Inserts a VLAN tag (TPID and TCI) between the addresses and the Ethertype, and shifts the
    /// positions in the metadata behind it. The payload stays where it is: the addresses move into
    /// the headroom. `None` if headroom or positions do not suffice; the frame is unchanged.
    pub(crate) fn insert_vlan_tag(&mut self, tag: [u8; VLAN_TAG_BYTES]) -> Option<()> {
        const ADDRESSES: usize = ETHERNET_HEADER_BYTES - 2;
        if !(ETHERNET_HEADER_BYTES..=FRAME_BYTES_MAX - VLAN_TAG_BYTES).contains(&self.len) {
            return None;
        }
        let start = self.start.checked_sub(VLAN_TAG_BYTES)?;
        let offload = self.offload.shifted(VLAN_TAG_BYTES as u16)?;
        self.bytes.copy_within(self.start..self.start + ADDRESSES, start);
        self.bytes[start + ADDRESSES..start + ADDRESSES + VLAN_TAG_BYTES].copy_from_slice(&tag);
        (self.start, self.len, self.offload) = (start, self.len + VLAN_TAG_BYTES, offload);
        Some(())
    }

    /// The last `N` bytes before the frame.
    pub(crate) fn headroom<const N: usize>(&self) -> [u8; N] {
        let mut header = [0; N];
        header.copy_from_slice(&self.bytes[HEADROOM_BYTES - N..HEADROOM_BYTES]);
        header
    }

    /// Sets the length of the frame.
    ///
    /// # Panics
    /// If `len` is more than [`FRAME_BYTES_MAX`]: a bug of the caller.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= FRAME_BYTES_MAX, "frame of {len} bytes");
        self.len = len;
    }

    /// Checksum and segmentation of the frame, as far as they are left to whoever sends it.
    pub fn offload(&self) -> Offload {
        self.offload
    }

    /// Sets the metadata.
    pub fn set_offload(&mut self, offload: Offload) {
        self.offload = offload;
    }

    /// Copies a frame, given as a gather list, into the buffer.
    ///
    /// # Errors
    /// [`SendError::TooLong`] if it does not fit; the buffer is unchanged.
    pub fn copy_from(&mut self, parts: &[IoSlice<'_>], offload: Offload) -> Result<(), SendError> {
        if parts_len(parts) > FRAME_BYTES_MAX {
            return Err(SendError::TooLong);
        }
        let mut len = 0;
        for part in parts {
            let at = HEADROOM_BYTES + len;
            self.bytes[at..at + part.len()].copy_from_slice(part);
            len += part.len();
        }
        (self.start, self.len, self.offload) = (HEADROOM_BYTES, len, offload);
        Ok(())
    }

    /// Writes a byte into every page, so none is first touched on the packet path (1.4 µs
    /// each).
    fn touch(&mut self) {
        for page in self.bytes.chunks_mut(4096) {
            page[0] = 1;
        }
    }
}

impl Default for FrameBuf {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for FrameBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrameBuf")
            .field("len", &self.len)
            .field("offload", &self.offload)
            .finish_non_exhaustive()
    }
}

/// A fixed array of frame buffers, allocated once, of which the first [`len`](Burst::len) hold the
/// frames last received.
#[derive(Debug)]
pub struct Burst {
    frames: Box<[FrameBuf]>,
    len: usize,
}

impl Burst {
    /// Room for `frames` frames. Costs [`FRAME_BYTES_MAX`] bytes each, touched at once.
    pub fn new(frames: usize) -> Self {
        let mut frames: Box<[FrameBuf]> = (0..frames).map(|_| FrameBuf::new()).collect();
        frames.iter_mut().for_each(FrameBuf::touch);
        Self { frames, len: 0 }
    }

    /// Frames last received.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Frames that fit.
    pub fn capacity(&self) -> usize {
        self.frames.len()
    }

    /// The frames last received, in order.
    pub fn frames(&self) -> &[FrameBuf] {
        &self.frames[..self.len]
    }

    /// The frames last received, to be changed in place.
    pub fn frames_mut(&mut self) -> &mut [FrameBuf] {
        &mut self.frames[..self.len]
    }

    /// Iterates over the frames last received.
    pub fn iter(&self) -> std::slice::Iter<'_, FrameBuf> {
        self.frames().iter()
    }

    /// Iterates over the frames last received, to be changed in place.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, FrameBuf> {
        self.frames_mut().iter_mut()
    }

    /// Forgets the frames.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// The next free buffer for a port that is filling the burst, if there is one; it counts once
    /// [`push`](Burst::push) is called.
    pub fn next_free(&mut self) -> Option<&mut FrameBuf> {
        self.frames.get_mut(self.len)
    }

    /// All buffers, for a port that fills several at once; they count once
    /// [`set_len`](Burst::set_len) is called.
    pub(crate) fn buffers_mut(&mut self) -> &mut [FrameBuf] {
        &mut self.frames
    }

    /// Sets how many of the buffers hold frames.
    ///
    /// # Panics
    /// If there are not so many: a bug of the caller.
    pub(crate) fn set_len(&mut self, len: usize) {
        assert!(len <= self.frames.len(), "burst of {len} frames");
        self.len = len;
    }

    /// Counts the buffer that [`next_free`](Burst::next_free) gave.
    ///
    /// # Panics
    /// If the burst is full: a bug of the caller.
    pub fn push(&mut self) {
        assert!(self.len < self.frames.len(), "burst is full");
        self.len += 1;
    }
}

impl<'a> IntoIterator for &'a Burst {
    type Item = &'a FrameBuf;
    type IntoIter = std::slice::Iter<'a, FrameBuf>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut Burst {
    type Item = &'a mut FrameBuf;
    type IntoIter = std::slice::IterMut<'a, FrameBuf>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gather_list_is_joined() {
        let mut frame = FrameBuf::new();
        let parts = [IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"cde")];
        frame.copy_from(&parts, Offload::default()).unwrap();
        assert_eq!(frame.data(), b"abcde");
    }

    #[test]
    fn a_frame_that_does_not_fit_leaves_the_buffer_alone() {
        let mut frame = FrameBuf::new();
        frame.copy_from(&[IoSlice::new(b"abc")], Offload::default()).unwrap();
        let long = vec![0; FRAME_BYTES_MAX];
        let parts = [IoSlice::new(b"x"), IoSlice::new(&long)];
        assert!(matches!(frame.copy_from(&parts, Offload::default()), Err(SendError::TooLong)));
        assert_eq!(frame.data(), b"abc");
        frame.copy_from(&[IoSlice::new(&long)], Offload::default()).unwrap();
        assert_eq!(frame.len(), FRAME_BYTES_MAX);
    }

    #[test]
    fn a_tag_goes_behind_the_addresses() {
        let mut frame = FrameBuf::new();
        let bytes: Vec<u8> = (0..60).collect();
        let gso = Gso { kind: GsoKind::Tcp4, size: 8, header_len: 50, ecn: false };
        let offload =
            Offload { checksum: Checksum::Partial { start: 34, offset: 16 }, gso: Some(gso) };
        frame.copy_from(&[IoSlice::new(&bytes)], offload).unwrap();
        frame.insert_vlan_tag([0x81, 0, 0, 5]).unwrap();
        assert_eq!(frame.data(), [&bytes[..12], &[0x81, 0, 0, 5], &bytes[12..]].concat());
        assert_eq!(frame.offload().checksum, Checksum::Partial { start: 38, offset: 16 });
        assert_eq!(frame.offload().gso.unwrap().header_len, 54);

        // The next frame starts where the first one did.
        frame.copy_from(&[IoSlice::new(&bytes[..20])], Offload::default()).unwrap();
        assert_eq!(frame.data(), &bytes[..20]);
        frame.set_len(13);
        assert!(frame.insert_vlan_tag([0; 4]).is_none());
        frame.set_len(FRAME_BYTES_MAX);
        assert!(frame.insert_vlan_tag([0; 4]).is_none());
    }

    #[test]
    fn a_burst_counts_what_was_pushed() {
        let mut burst = Burst::new(2);
        assert_eq!((burst.len(), burst.capacity()), (0, 2));
        for value in 1..=2u8 {
            burst
                .next_free()
                .unwrap()
                .copy_from(&[IoSlice::new(&[value])], Offload::default())
                .unwrap();
            burst.push();
        }
        assert!(burst.next_free().is_none());
        assert_eq!(burst.iter().map(|frame| frame.data()[0]).collect::<Vec<_>>(), [1, 2]);
        burst.clear();
        assert!(burst.is_empty() && burst.frames().is_empty());
    }
}
