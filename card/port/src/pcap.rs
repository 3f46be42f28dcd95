//! Writes every frame that goes through a port into a capture file.
//!
//! Read first: `draft-ietf-opsawg-pcap` (classic pcap, here with the magic for nanoseconds, in
//! little-endian, link type Ethernet).
//!
//! Super-frames are written whole, as captures on Linux have them. The format knows no directions
//! (addresses tell), and no metadata: a partial checksum is in the file as the sum of the
//! pseudo-header, which viewers report as wrong.
//!
//! Writing to a disk blocks. This is for tests and for looking into a problem, not for measuring.

use std::io::{self, BufWriter, IoSlice, Write};
use std::os::fd::BorrowedFd;

use crate::clock::Clock;
use crate::frame::{Burst, FRAME_BYTES_MAX, Offload};
use crate::gather::{SendError, parts_len};
use crate::port::{Capabilities, Port};

/// Bytes of each frame that are kept unless told otherwise: the longest super-frame.
pub const PCAP_SNAPLEN_DEFAULT: u32 = FRAME_BYTES_MAX as u32;

const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const VERSION_MAJOR: u16 = 2;
const VERSION_MINOR: u16 = 4;
const LINKTYPE_ETHERNET: u32 = 1;
const BUFFER_BYTES: usize = 1 << 20;

/// A port that writes the frames of both directions to `W`: what was received, and what the port
/// inside took over.
///
/// If writing fails, capturing ends and the traffic goes on; see [`error`](Pcap::error).
#[derive(Debug)]
pub struct Pcap<P, W: Write, C> {
    inner: P,
    clock: C,
    writer: BufWriter<W>,
    snaplen: u32,
    frames: u64,
    error: Option<io::Error>,
}

impl<P: Port, W: Write, C: Clock> Pcap<P, W, C> {
    /// Wraps `inner` and writes the head of the file. `clock` shows nanoseconds since 1970; a frame
    /// is cut after `snaplen` bytes.
    ///
    /// # Errors
    /// The head could not be written.
    pub fn new(inner: P, writer: W, clock: C, snaplen: u32) -> io::Result<Self> {
        let mut writer = BufWriter::with_capacity(BUFFER_BYTES, writer);
        let mut head = [0; 24];
        head[..4].copy_from_slice(&MAGIC_NANOSECONDS.to_le_bytes());
        head[4..6].copy_from_slice(&VERSION_MAJOR.to_le_bytes());
        head[6..8].copy_from_slice(&VERSION_MINOR.to_le_bytes());
        head[16..20].copy_from_slice(&snaplen.to_le_bytes());
        head[20..24].copy_from_slice(&LINKTYPE_ETHERNET.to_le_bytes());
        writer.write_all(&head)?;
        Ok(Self { inner, clock, writer, snaplen, frames: 0, error: None })
    }

    /// Frames written so far.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Why capturing ended, if it did.
    pub fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }

    /// Pushes buffered frames out to the writer. (Also done when the port is dropped.)
    ///
    /// # Errors
    /// The error that ended capturing, once; or one of the writer now.
    pub fn sync(&mut self) -> io::Result<()> {
        match self.error.take() {
            Some(error) => Err(error),
            None => self.writer.flush(),
        }
    }

    /// The port inside.
    pub fn get_ref(&self) -> &P {
        &self.inner
    }

    /// The port inside.
    pub fn get_mut(&mut self) -> &mut P {
        &mut self.inner
    }
}

/// Writes one record.
fn record<W: Write>(
    writer: &mut W,
    now_ns: u64,
    parts: &[IoSlice<'_>],
    snaplen: u32,
) -> io::Result<()> {
    let original = parts_len(parts);
    let mut left = original.min(snaplen as usize);
    let mut head = [0; 16];
    // Seconds are 32 bits in this format: good until 2106.
    head[..4].copy_from_slice(&((now_ns / 1_000_000_000) as u32).to_le_bytes());
    head[4..8].copy_from_slice(&((now_ns % 1_000_000_000) as u32).to_le_bytes());
    head[8..12].copy_from_slice(&(left as u32).to_le_bytes());
    head[12..].copy_from_slice(&(original as u32).to_le_bytes());
    writer.write_all(&head)?;
    for part in parts {
        let kept = &part[..part.len().min(left)];
        writer.write_all(kept)?;
        left -= kept.len();
    }
    Ok(())
}

impl<P: Port, W: Write, C: Clock> Pcap<P, W, C> {
    fn write(&mut self, now_ns: u64, parts: &[IoSlice<'_>]) {
        if self.error.is_some() {
            return;
        }
        match record(&mut self.writer, now_ns, parts, self.snaplen) {
            Ok(()) => self.frames += 1,
            Err(error) => self.error = Some(error),
        }
    }
}

impl<P: Port, W: Write, C: Clock> Port for Pcap<P, W, C> {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn receive(&mut self, burst: &mut Burst) -> io::Result<usize> {
        let count = self.inner.receive(burst)?;
        if count > 0 {
            let now_ns = self.clock.now_ns();
            for frame in burst.iter() {
                self.write(now_ns, &[IoSlice::new(frame.data())]);
            }
        }
        Ok(count)
    }

    fn send(&mut self, parts: &[IoSlice<'_>], offload: Offload) -> Result<(), SendError> {
        self.inner.send(parts, offload)?;
        let now_ns = self.clock.now_ns();
        self.write(now_ns, parts);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.inner.finish()?;
        self.sync()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_fd()
    }

    fn receive_dropped(&self) -> u64 {
        self.inner.receive_dropped()
    }

    fn send_dropped(&self) -> u64 {
        self.inner.send_dropped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::memory_wire::memory_wire;

    fn u32_at(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    #[test]
    fn both_directions_are_in_the_file() {
        let (a, mut b) = memory_wire(4, Capabilities::FULL, Capabilities::FULL);
        let clock = ManualClock::new(3_000_000_007);
        let mut file = Vec::new();
        {
            let mut a = Pcap::new(a, &mut file, clock.clone(), 20).unwrap();
            a.send(&[IoSlice::new(&[1; 15]), IoSlice::new(&[2; 15])], Offload::default()).unwrap();
            clock.advance_ns(1_000_000_000);
            b.send(&[IoSlice::new(&[3; 16])], Offload::default()).unwrap();
            let mut burst = Burst::new(2);
            assert_eq!(a.receive(&mut burst).unwrap(), 1);
            assert!(a.send(&[IoSlice::new(&[0; 3])], Offload::default()).is_err());
            assert_eq!(a.frames(), 2);
            a.sync().unwrap();
        }
        assert_eq!(file.len(), 24 + 16 + 20 + 16 + 16);
        assert_eq!(file[..8], [0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0]);
        assert_eq!((u32_at(&file, 16), u32_at(&file, 20)), (20, 1));
        // Cut after 20 of 30 bytes.
        assert_eq!([24, 28, 32, 36].map(|at| u32_at(&file, at)), [3, 7, 20, 30]);
        assert_eq!(file[40..60], [[1; 15].as_slice(), &[2; 5]].concat());
        assert_eq!([60, 64, 68, 72].map(|at| u32_at(&file, at)), [4, 7, 16, 16]);
        assert_eq!(file[76..], [3; 16]);
    }

    #[test]
    fn traffic_survives_a_full_disk() {
        struct FullDisk(usize);
        impl Write for FullDisk {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                if self.0 == 0 {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                let written = bytes.len().min(self.0);
                self.0 -= written;
                Ok(written)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (a, b) = memory_wire(64, Capabilities::FULL, Capabilities::FULL);
        let mut a = Pcap::new(a, FullDisk(1000), || 0, PCAP_SNAPLEN_DEFAULT).unwrap();
        let frame = vec![0; 60_000];
        for _ in 0..64 {
            a.send(&[IoSlice::new(&frame)], Offload::default()).unwrap();
        }
        assert_eq!(b.pending(), 64);
        assert!(a.frames() < 64);
        assert_eq!(a.error().map(io::Error::kind), Some(io::ErrorKind::StorageFull));
        assert!(a.sync().is_err());
    }
}
