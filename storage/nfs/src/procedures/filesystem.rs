//! FSSTAT, FSINFO and PATHCONF.

use nix::unistd::{PathconfVar, fpathconf};
use rustix::fs::{FileType, IFlags, fstatvfs, ioctl_getflags};

use super::request::{Request, put_status_and_post};
use crate::limits::{DIRECTORY_REPLY_BYTES_PREFERRED, PAYLOAD_BYTES_MAX};
use crate::protocol::Status;
use crate::xdr::put;

/// Hard links, symbolic links, the same answers of PATHCONF for all files, times that can be set.
const PROPERTIES: u32 = 0x01 | 0x02 | 0x08 | 0x10;
/// Attribute of directories whose names have no case (`FS_CASEFOLD_FL`).
const CASEFOLD: IFlags = IFlags::from_bits_retain(0x4000_0000);

impl Request<'_> {
    pub(super) fn file_system_state(&mut self, handle: &[u8], out: &mut Vec<u8>) -> Status {
        let found = self.object(handle).and_then(|object| {
            object.node.stat()?;
            Ok((fstatvfs(object.node.path())?, object))
        });
        match found {
            Ok((state, object)) => {
                put_status_and_post(out, Status::Ok, Some(&object));
                for blocks in [state.f_blocks, state.f_bfree, state.f_bavail] {
                    put::u64(out, blocks.saturating_mul(state.f_frsize));
                }
                for files in [state.f_files, state.f_ffree, state.f_favail] {
                    put::u64(out, files);
                }
                put::u32(out, 0); // It may change at any time.
                Status::Ok
            }
            Err(status) => {
                put_status_and_post(out, status, None);
                status
            }
        }
    }

    pub(super) fn file_system_information(&mut self, handle: &[u8], out: &mut Vec<u8>) -> Status {
        let object = match self.object(handle).and_then(|object| object.node.stat().map(|_| object))
        {
            Ok(object) => object,
            Err(status) => {
                put_status_and_post(out, status, None);
                return status;
            }
        };
        put_status_and_post(out, Status::Ok, Some(&object));
        for word in
            [PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MAX, 4096, PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MAX, 4096]
        {
            put::u32(out, word);
        }
        put::u32(out, DIRECTORY_REPLY_BYTES_PREFERRED);
        put::u64(out, object.export.file_bytes_max);
        put::u32(out, 0);
        put::u32(out, 1); // Times differ by a nanosecond at least.
        put::u32(out, PROPERTIES);
        Status::Ok
    }

    pub(super) fn path_configuration(&mut self, handle: &[u8], out: &mut Vec<u8>) -> Status {
        let found = self.object(handle).and_then(|object| {
            object.node.stat()?;
            Ok((fstatvfs(object.node.path())?.f_namemax, object))
        });
        let (name_bytes_max, object) = match found {
            Ok(found) => found,
            Err(status) => {
                put_status_and_post(out, status, None);
                return status;
            }
        };
        let links_max = fpathconf(object.node.path(), PathconfVar::LINK_MAX).ok().flatten();
        let is_caseless = object.node.kind == FileType::Directory
            && object
                .node
                .reader(object.export, self.thread)
                .is_ok_and(|open| ioctl_getflags(open).is_ok_and(|flags| flags.contains(CASEFOLD)));
        put_status_and_post(out, Status::Ok, Some(&object));
        put::u32(out, links_max.and_then(|max| u32::try_from(max).ok()).unwrap_or(u32::MAX));
        put::u32(out, u32::try_from(name_bytes_max).unwrap_or(255));
        put::bool(out, true); // Names that are too long are refused, not cut.
        put::bool(out, true); // Only the superuser gives files away.
        put::bool(out, is_caseless);
        put::bool(out, true); // Names are kept as they are given.
        Status::Ok
    }
}
