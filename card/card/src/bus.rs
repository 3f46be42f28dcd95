//! What crossed between card and host, by class (I9: every byte is counted in exactly one class).

/// A class of bytes. Per-frame metadata (the virtio-net header) is overhead here; ARP, ICMP, UDP,
/// other ports and connections that are not tracked are [`Other`](BusClass::Other).
pub use nicache_crossing::BusClass;

/// Bytes of per-frame metadata: `struct virtio_net_hdr_v1`.
pub const FRAME_OVERHEAD_BYTES: u64 = 12;

/// Bytes over the bus since the start, by direction and class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bus {
    to_host: [u64; BusClass::ALL.len()],
    from_host: [u64; BusClass::ALL.len()],
    /// All bytes of all frames with their metadata, counted apart from the classes so the two
    /// can be compared.
    total: u64,
    frames: u64,
}

/// How the bytes of one frame divide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameBytes {
    /// Headers below the payload.
    pub network_headers: u64,
    /// Bytes of an HTTP head.
    pub application_headers: u64,
    /// Bytes of a body.
    pub content: u64,
    /// Bytes of none of these.
    pub other: u64,
}

impl FrameBytes {
    /// A frame that is not the service's.
    pub const fn other(bytes: usize) -> Self {
        Self { network_headers: 0, application_headers: 0, content: 0, other: bytes as u64 }
    }

    fn sum(&self) -> u64 {
        self.network_headers + self.application_headers + self.content + self.other
    }
}

impl Bus {
    /// Counts a frame of `len` bytes on its way to the host that became `frames` frames there, each
    /// with headers of `header_len` bytes.
    pub fn count_to_host(
        &mut self,
        len: usize,
        mut bytes: FrameBytes,
        frames: usize,
        header_len: usize,
    ) {
        debug_assert_eq!(bytes.sum(), len as u64);
        let repeated = (frames.saturating_sub(1) * header_len) as u64;
        bytes.network_headers += repeated;
        Self::add(&mut self.to_host, bytes);
        let more = frames.saturating_sub(1) as u64;
        self.to_host[BusClass::Overhead as usize] += more * FRAME_OVERHEAD_BYTES;
        self.total += len as u64 + repeated + (more + 1) * FRAME_OVERHEAD_BYTES;
        self.frames += more + 1;
    }

    /// Counts a frame of `len` bytes that came from the host.
    pub fn count_from_host(&mut self, len: usize, bytes: FrameBytes) {
        debug_assert_eq!(bytes.sum(), len as u64);
        Self::add(&mut self.from_host, bytes);
        self.total += len as u64 + FRAME_OVERHEAD_BYTES;
        self.frames += 1;
    }

    fn add(classes: &mut [u64; BusClass::ALL.len()], bytes: FrameBytes) {
        classes[BusClass::NetworkHeaders as usize] += bytes.network_headers;
        classes[BusClass::ApplicationHeaders as usize] += bytes.application_headers;
        classes[BusClass::Content as usize] += bytes.content;
        classes[BusClass::Other as usize] += bytes.other;
        classes[BusClass::Overhead as usize] += FRAME_OVERHEAD_BYTES;
    }

    /// Bytes of a class toward the host.
    pub fn to_host(&self, class: BusClass) -> u64 {
        self.to_host[class as usize]
    }

    /// Bytes of a class from the host.
    pub fn from_host(&self, class: BusClass) -> u64 {
        self.from_host[class as usize]
    }

    /// All bytes, counted by frame and not by class.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Frames in both directions.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Sum over all classes and both directions; equals [`Bus::total`].
    pub fn sum_of_classes(&self) -> u64 {
        self.to_host.iter().chain(&self.from_host).sum()
    }
}
