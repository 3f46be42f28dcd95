//! Where a trace's bytes come from: a file, standard input or any reader, unpacked as they are
//! read.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;

use crate::no_trace::NoTrace;

/// Bytes that are read at once of what is packed.
const PACKED_BUFFER_BYTES: usize = 128 * 1024;
/// Bytes that a packing is recognised by.
const MAGIC_BYTES: usize = 4;
/// RFC 1952, 2.3.1.
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
/// RFC 8878, 3.1.1; 3.1.2 for a skippable frame, without its first byte's low bits.
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const ZSTD_SKIPPABLE_MAGIC: &[u8] = &[0x2a, 0x4d, 0x18];

/// Largest window of a frame that is taken, as a power of two: what `zstd -d` takes without being
/// told otherwise.
const WINDOW_LOG_MAX: u32 = 27;

/// Why the bytes of a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be opened.
    #[error("cannot open {path}")]
    Open {
        /// The file.
        path: PathBuf,
        /// Why the file cannot be opened.
        source: io::Error,
    },
    /// The file, the pipe or the disk fails.
    #[error("cannot read the trace after {position} bytes")]
    Io {
        /// Bytes that were read until then.
        position: u64,
        /// Why it cannot be read on.
        source: io::Error,
    },
    /// The packed bytes are damaged or cut off.
    #[error(
        "its {packing} data is damaged or cut off near byte {position}; `{packing} -t` tests a file"
    )]
    Damaged {
        /// How they are packed.
        packing: Packing,
        /// Packed bytes that were read until then; some of them were not looked at yet.
        position: u64,
        /// What the unpacker says is wrong.
        source: io::Error,
    },
    /// What there is, is not a trace.
    #[error("it is not a trace: it is {0}")]
    NoTrace(NoTrace),
}

/// How a trace is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    None,
    /// gzip (RFC 1952), one member or several.
    Gzip,
    /// Zstandard (RFC 8878), one frame or several, with windows of at most 128 MiB.
    Zstd,
}

impl Packing {
    /// The packing of what begins so.
    pub fn of(start: &[u8]) -> Self {
        if start.starts_with(GZIP_MAGIC) {
            Self::Gzip
        } else if start.starts_with(ZSTD_MAGIC)
            || (start.get(1..4) == Some(ZSTD_SKIPPABLE_MAGIC) && start[0] >> 4 == 5)
        {
            Self::Zstd
        } else {
            Self::None
        }
    }
}

impl fmt::Display for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "unpacked",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        })
    }
}

/// The unpacked bytes of a trace.
pub(crate) struct Source<'a> {
    bytes: Box<dyn Read + Send + 'a>,
    packing: Packing,
    /// Packed bytes that were read.
    position: Arc<AtomicU64>,
    /// Packed bytes in all, if they are a file's.
    size: Option<u64>,
}

impl Source<'static> {
    /// A file; `-` is standard input.
    pub(crate) fn open(path: &Path) -> Result<Self, ReadError> {
        if path == Path::new("-") {
            return Source::new(io::stdin());
        }
        let failed = |source| ReadError::Open { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let mut source = Source::new(file)?;
        source.size = metadata.is_file().then_some(metadata.len());
        Ok(source)
    }
}

impl<'a> Source<'a> {
    /// Any bytes, packed or not.
    pub(crate) fn new(input: impl Read + Send + 'a) -> Result<Self, ReadError> {
        let failed = |source| ReadError::Io { position: 0, source };
        let position = Arc::new(AtomicU64::new(0));
        let mut input = Counted { input, read: Arc::clone(&position) };
        let mut start = Vec::new();
        input.by_ref().take(MAGIC_BYTES as u64).read_to_end(&mut start).map_err(failed)?;
        let packing = Packing::of(&start);
        let whole = Cursor::new(start).chain(input);
        let bytes: Box<dyn Read + Send + 'a> = match packing {
            Packing::None => Box::new(whole),
            Packing::Gzip => Box::new(MultiGzDecoder::new(buffered(whole))),
            Packing::Zstd => {
                let mut decoder = zstd::Decoder::with_buffer(buffered(whole)).map_err(failed)?;
                decoder.window_log_max(WINDOW_LOG_MAX).map_err(failed)?;
                Box::new(decoder)
            }
        };
        Ok(Source { bytes, packing, position, size: None })
    }

    /// Reads some bytes; 0 at the end.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, ReadError> {
        loop {
            match self.bytes.read(buffer) {
                Ok(read) => return Ok(read),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => {
                    let (position, packing) = (self.position(), self.packing);
                    // The decoders' own errors have no number of the system's.
                    let is_system = source.raw_os_error().is_some() || packing == Packing::None;
                    return Err(if is_system {
                        ReadError::Io { position, source }
                    } else {
                        ReadError::Damaged { packing, position, source }
                    });
                }
            }
        }
    }

    /// Packed bytes that were read.
    pub(crate) fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    /// Packed bytes in all, if that is known.
    pub(crate) fn size(&self) -> Option<u64> {
        self.size
    }

    /// How it is packed.
    pub(crate) fn packing(&self) -> Packing {
        self.packing
    }
}

impl fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("packing", &self.packing)
            .field("position", &self.position())
            .finish()
    }
}

fn buffered<R: Read>(input: R) -> impl BufRead {
    BufReader::with_capacity(PACKED_BUFFER_BYTES, input)
}

struct Counted<R> {
    input: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const TEXT: &[u8] = b"a trace that is long enough to be packed, packed, packed, packed";

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(bytes).unwrap();
        packer.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        let mut packer = zstd::Encoder::new(Vec::new(), 1).unwrap();
        packer.include_checksum(true).unwrap();
        packer.write_all(bytes).unwrap();
        packer.finish().unwrap()
    }

    fn read(packed: &[u8]) -> Result<Vec<u8>, ReadError> {
        let mut source = Source::new(packed)?;
        let (mut all, mut some) = (Vec::new(), [0; 7]);
        loop {
            match source.read(&mut some)? {
                0 => return Ok(all),
                read => all.extend_from_slice(&some[..read]),
            }
        }
    }

    #[test]
    fn members_and_frames_follow_each_other() {
        let skippable = [&[0x52, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        for packed in [
            TEXT.to_vec(),
            gzip(TEXT),
            [gzip(&TEXT[..20]), gzip(&TEXT[20..])].concat(),
            zstd(TEXT),
            [zstd(&TEXT[..20]), skippable.clone(), zstd(&TEXT[20..])].concat(),
            [skippable, zstd(TEXT)].concat(),
        ] {
            assert_eq!(read(&packed).unwrap(), TEXT);
        }
        assert_eq!(read(b"").unwrap(), b"");
        assert_eq!(read(b"x").unwrap(), b"x");
    }

    #[test]
    fn damage_is_told() {
        for (packing, packed) in [(Packing::Gzip, gzip(TEXT)), (Packing::Zstd, zstd(TEXT))] {
            let mut wrong = packed.clone();
            let at = packed.len() - 6;
            wrong[at] ^= 1;
            for damaged in [
                &packed[..packed.len() - 3],
                &packed[..5],
                &wrong[..],
                &[&packed[..], b"rest"].concat(),
            ] {
                let error = read(damaged).unwrap_err();
                assert!(
                    matches!(error, ReadError::Damaged { packing: told, .. } if told == packing),
                    "{error:?}"
                );
                assert!(error.to_string().contains(&packing.to_string()), "{error}");
            }
        }
    }

    #[test]
    fn a_window_that_would_take_too_much_memory_is_refused() {
        // A frame of one raw block, whose header tells the window as a power of two (RFC 8878,
        // 3.1.1.1.2).
        let frame =
            |log: u32| [0x28, 0xb5, 0x2f, 0xfd, 0x00, ((log - 10) << 3) as u8, 0x09, 0, 0, b'x'];
        assert_eq!(read(&frame(WINDOW_LOG_MAX)).unwrap(), b"x");
        assert!(matches!(read(&frame(WINDOW_LOG_MAX + 1)).unwrap_err(), ReadError::Damaged { .. }));
    }

    #[test]
    fn what_the_system_says_is_no_damage() {
        struct Failing;
        impl Read for Failing {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::from_raw_os_error(5))
            }
        }
        let packed = gzip(TEXT);
        let mut source = Source::new((&packed[..6]).chain(Failing)).unwrap();
        assert!(matches!(
            source.read(&mut [0; 99]).unwrap_err(),
            ReadError::Io { position: 6, .. }
        ));
        assert!(matches!(
            Source::open(Path::new("/no/such/trace")).unwrap_err(),
            ReadError::Open { .. }
        ));
    }
}
