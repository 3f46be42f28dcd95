//! Every limit of the protocol and of the server, and how they relate.

/// Bytes of payload in one READ or WRITE at most (`rtmax`, `wtmax`).
pub const PAYLOAD_BYTES_MAX: u32 = 1 << 20;
/// Bytes of a request besides a WRITE's payload at most: two names, a symbolic link's text, a
/// credential.
pub const HEAD_BYTES_MAX: usize = 16 << 10;
/// Bytes of an RPC record at most, in all of its fragments.
pub const RECORD_BYTES_MAX: usize = PAYLOAD_BYTES_MAX as usize + HEAD_BYTES_MAX;
/// Fragments without a byte that a record may have. Others are bounded by its bytes.
pub const EMPTY_FRAGMENTS_MAX: u32 = 16;
/// Bytes of a reply to READDIR or READDIRPLUS at most, whatever the client asks for.
pub const DIRECTORY_REPLY_BYTES_MAX: u32 = 1 << 20;
/// Bytes that READDIR should ask for (`dtpref`).
pub const DIRECTORY_REPLY_BYTES_PREFERRED: u32 = 64 << 10;
/// Bytes of a credential or verifier (RFC 5531, section 8.2).
pub const AUTHENTICATION_BYTES_MAX: usize = 400;
/// Supplementary groups in an AUTH_SYS credential (RFC 5531, appendix A).
pub const GROUPS_MAX: usize = 16;
/// Bytes of a machine's name in an AUTH_SYS credential.
pub const MACHINE_NAME_BYTES_MAX: usize = 255;
/// Bytes of a file handle (RFC 1813, section 2.4).
pub const HANDLE_BYTES_MAX: usize = 64;
/// Bytes of a name that are read at all; the file system's own limit is below.
pub const NAME_BYTES_MAX: usize = 4096;
/// Bytes of a symbolic link's text that are read at all; the kernel's own limit is 4095.
pub const LINK_TEXT_BYTES_MAX: usize = 8192;
/// Bytes of a path in MOUNT (RFC 1813, section 5.1.4).
pub const MOUNT_PATH_BYTES_MAX: usize = 1024;
/// Mounts that MOUNT's DUMP remembers; it is a courtesy and decides nothing.
pub const MOUNTS_REMEMBERED_MAX: usize = 1024;
/// Bytes of one piece of received payload.
pub const CHUNK_BYTES: usize = 64 << 10;

const _: () = {
    assert!(
        2 * NAME_BYTES_MAX + 2 * HANDLE_BYTES_MAX + 2 * AUTHENTICATION_BYTES_MAX + 256
            < HEAD_BYTES_MAX
    );
    assert!(
        LINK_TEXT_BYTES_MAX
            + NAME_BYTES_MAX
            + HANDLE_BYTES_MAX
            + 2 * AUTHENTICATION_BYTES_MAX
            + 256
            < HEAD_BYTES_MAX
    );
    assert!((PAYLOAD_BYTES_MAX as usize).is_multiple_of(CHUNK_BYTES));
    assert!(RECORD_BYTES_MAX < 1 << 31);
};
