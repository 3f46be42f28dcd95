//! All limits of this crate, and the relations between them.

/// Longest request or reply head that is looked at, in bytes, the final empty line included.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Longest request head that every server takes by default, in bytes. nginx and Apache take lines
/// of 8 KiB each, Node 16 KiB in all; this leaves some room.
pub const SHARED_HEAD_BYTES_MAX: usize = 8000;

/// Most header fields in one head.
pub const HEADERS_MAX: usize = 64;

/// Longest reply head that becomes a template, in bytes: a long `Content-Security-Policy` and a
/// dozen of `Link` fields fit.
pub const TEMPLATE_BYTES_MAX: usize = 8 * 1024;

/// Most field names of `Vary` that an entry keeps (those that every key holds anyhow are not
/// counted).
pub const VARY_NAMES_MAX: usize = 4;

/// Longest field name of `Vary` that an entry keeps, in bytes.
pub const VARY_NAME_BYTES_MAX: usize = 32;

/// Longest extension of one chunk (RFC 9112 section 7.1.1), in bytes.
pub const CHUNK_EXTENSION_BYTES_MAX: usize = 256;

/// Longest trailer section of a chunked body (RFC 9112 section 7.1.2), in bytes.
pub const TRAILER_BYTES_MAX: usize = 4096;

/// Most hexadecimal digits of a chunk size: 15 digits cannot overflow a `u64`, nor a sum of a few
/// of them.
pub(crate) const CHUNK_SIZE_DIGITS_MAX: u8 = 15;

/// Most decimal digits of a Content-Length: 18 digits cannot overflow a `u64`.
pub(crate) const CONTENT_LENGTH_DIGITS_MAX: usize = 18;

const _: () =
    assert!(TEMPLATE_BYTES_MAX <= HEAD_BYTES_MAX && SHARED_HEAD_BYTES_MAX < HEAD_BYTES_MAX);
const _: () = assert!(HEAD_BYTES_MAX <= u16::MAX as usize, "key.rs packs field lengths in 16 bits");
const _: () = assert!(VARY_NAME_BYTES_MAX <= u8::MAX as usize);
