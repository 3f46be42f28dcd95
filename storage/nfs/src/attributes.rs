//! Attributes as the protocol has them (RFC 1813, section 2.6: `fattr3`, `wcc_attr`, `wcc_data`).

use rustix::fs::{FileType, Stat, major, minor};

use crate::protocol::file_type;
use crate::xdr::put;

/// The protocol's number for a kind of file.
#[must_use]
pub(crate) fn kind(stat: &Stat) -> u32 {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => file_type::DIR,
        FileType::BlockDevice => file_type::BLK,
        FileType::CharacterDevice => file_type::CHR,
        FileType::Symlink => file_type::LNK,
        FileType::Socket => file_type::SOCK,
        FileType::Fifo => file_type::FIFO,
        FileType::RegularFile | FileType::Unknown => file_type::REG,
    }
}

/// A time: seconds since 1970 modulo 2³², and nanoseconds. Times before 1970 and after 2106 have no
/// form of their own; they wrap, as the kernel's own server has it.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "as said above; nanoseconds are below 10⁹"
)]
fn put_time(out: &mut Vec<u8>, seconds: i64, nanoseconds: u64) {
    put::u32(out, seconds as u32);
    put::u32(out, nanoseconds as u32);
}

/// `fattr3`, 84 bytes.
pub(crate) fn put_attributes(out: &mut Vec<u8>, stat: &Stat, fsid: u64) {
    put::u32(out, kind(stat));
    put::u32(out, stat.st_mode & 0o7777);
    put::u32(out, u32::try_from(stat.st_nlink).unwrap_or(u32::MAX));
    put::u32(out, stat.st_uid);
    put::u32(out, stat.st_gid);
    put::u64(out, stat.st_size.cast_unsigned());
    put::u64(out, stat.st_blocks.cast_unsigned() * 512);
    put::u32(out, major(stat.st_rdev));
    put::u32(out, minor(stat.st_rdev));
    put::u64(out, fsid);
    put::u64(out, stat.st_ino);
    put_time(out, stat.st_atime, stat.st_atime_nsec);
    put_time(out, stat.st_mtime, stat.st_mtime_nsec);
    put_time(out, stat.st_ctime, stat.st_ctime_nsec);
}

/// `post_op_attr`.
pub(crate) fn put_post(out: &mut Vec<u8>, stat: Option<&Stat>, fsid: u64) {
    put::bool(out, stat.is_some());
    if let Some(stat) = stat {
        put_attributes(out, stat, fsid);
    }
}

/// What a client compares to tell its own changes from others' (weak cache consistency). `before`
/// is there only if nobody else changed the object between the two looks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wcc {
    /// Before the change.
    pub before: Option<Stat>,
    /// After it.
    pub after: Option<Stat>,
}

/// `wcc_data`.
pub(crate) fn put_wcc(out: &mut Vec<u8>, wcc: &Wcc, fsid: u64) {
    put::bool(out, wcc.before.is_some());
    if let Some(stat) = &wcc.before {
        put::u64(out, stat.st_size.cast_unsigned());
        put_time(out, stat.st_mtime, stat.st_mtime_nsec);
        put_time(out, stat.st_ctime, stat.st_ctime_nsec);
    }
    put_post(out, wcc.after.as_ref(), fsid);
}
