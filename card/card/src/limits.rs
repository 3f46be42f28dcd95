//! Limits of the card that several files share; others stand beside the table that they bound. All
//! memory that these describe is allocated at start (I7).

use std::time::Duration;

/// Flows that one card tracks at most; a further connection passes untouched.
pub const FLOWS_DEFAULT: usize = 16_384;

/// Bytes of an IP packet on the wire at most, if nothing else is set.
pub const MTU_DEFAULT: u16 = 1500;

/// Bytes of one hold buffer: client bytes that the card has acknowledged and not yet answered or
/// handed to the host. A request head and what a client pipelines behind it must fit.
pub const HOLD_BYTES: usize = 16 * 1024;

/// Room in front of it for a header of the PROXY protocol, which the host gets first.
pub const PREFACE_ROOM_BYTES: usize = nicache_http::PREFACE_BYTES_MAX;

/// One hold buffer for this many flows; a flow needs one only while a miss or a pipelined request
/// waits.
pub const FLOWS_PER_HOLD: usize = 8;

/// Replies that a client may have outstanding from the card on one connection (pipelining).
pub const REPLIES_MAX: usize = 8;

/// Replies with several ranges that clients have yet to acknowledge; further requests for such go
/// to the host.
pub const PART_SETS_MAX: usize = 256;

/// Parts of one gathered frame: headers, reply head and slots of a 64 KB super-frame, with room for
/// pipelined replies.
pub const GATHER_MAX: usize = 48;

/// Bytes of TCP payload in one super-frame. An IPv4 packet must stay below 64 KiB with its headers.
pub const SUPER_FRAME_BYTES: u32 = 65_535 - 20 - 60;

/// Receive window that the card advertises while it parses requests itself.
pub const REQUEST_WINDOW_BYTES: u32 = 64 * 1024;

/// Bytes a second that the client must take of a reply that becomes an entry, averaged over
/// [`FILL_LOOK`]: the host sends no faster, and meanwhile nobody else's request for the same can
/// become one.
pub const FILL_BYTES_PER_SECOND: u32 = 4096;
/// Short, because those who wait for the reply wait for its client; longer than a round trip and
/// the repetition of a lost segment.
pub const FILL_LOOK: Duration = Duration::from_secs(1);

/// Bytes that a rendered reply head may take, with the heads of parts behind it.
pub const RENDERED_HEAD_BYTES_MAX: usize = nicache_http::TEMPLATE_BYTES_MAX + 3 * 1024;

/// Hits recorded for the access log between two collections; more are counted, not recorded.
pub const ACCESS_RECORDS_MAX: usize = 4096;

/// Bytes of the target, `Referer` and `User-Agent` each that an access record keeps.
pub const ACCESS_TEXT_BYTES: usize = 256;

const _: () = assert!(PART_SETS_MAX <= u16::MAX as usize);
const _: () = assert!(
    RENDERED_HEAD_BYTES_MAX > nicache_http::TEMPLATE_BYTES_MAX + nicache_cache::LINE_BYTES_MAX + 32
);
const _: () = assert!(HOLD_BYTES >= nicache_http::HEAD_BYTES_MAX);
const _: () = assert!(SUPER_FRAME_BYTES as usize + 134 <= 65_600);
