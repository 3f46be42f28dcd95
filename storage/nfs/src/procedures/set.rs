//! SETATTR, and the attributes of files that are made.

use rustix::fs::{
    Access, AtFlags, FileType, Mode, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, chmod, chownat,
    utimensat,
};
use rustix::process::{Gid, Uid};

use super::request::{Object, Request};
use crate::arguments::{SetAttributes, SetTime, Time};
use crate::attributes::{Wcc, put_wcc};
use crate::protocol::Status;
use crate::xdr::put;

impl Request<'_> {
    pub(super) fn set_attributes(
        &mut self,
        handle: &[u8],
        attributes: &SetAttributes,
        guard: Option<Time>,
        out: &mut Vec<u8>,
    ) -> Status {
        let object = match self.object(handle) {
            Ok(object) => object,
            Err(status) => {
                put::u32(out, status as u32);
                put_wcc(out, &Wcc::default(), 0);
                return status;
            }
        };
        let held = guard.map(|_| object.node.hold_guard());
        let change = object.node.begin_change();
        let done = object
            .check_writable()
            .and_then(|()| check_guard(&object, guard))
            .and_then(|()| self.apply(&object, attributes))
            .and_then(|()| self.harden(&object));
        let wcc = object.node.end_change(change);
        drop(held);
        let status = done.err().unwrap_or(Status::Ok);
        put::u32(out, status as u32);
        put_wcc(out, &wcc, object.export.fsid);
        status
    }

    /// Sets attributes, as whom the thread acts. The size comes first, because it is the one that
    /// fails for want of something; the mode comes after the owner, because a new owner clears bits
    /// of it.
    pub(super) fn apply(
        &mut self,
        object: &Object<'_>,
        attributes: &SetAttributes,
    ) -> Result<(), Status> {
        let node = &object.node;
        check_times(attributes)?;
        if let Some(size) = attributes.size {
            Self::check_regular(object)?;
            if size > object.export.file_bytes_max {
                return Err(Status::Fbig);
            }
            Self::check_data_access(object, Access::WRITE_OK)?;
            let file = node.writer(object.export, self.thread)?;
            self.thread.act_as(&object.caller)?;
            self.service.payload.resize(file, node.id, size)?;
        }
        if attributes.uid.is_some() || attributes.gid.is_some() {
            // The kernel takes -1 as "leave it as it is".
            if attributes.uid == Some(u32::MAX) || attributes.gid == Some(u32::MAX) {
                return Err(Status::Inval);
            }
            let (uid, gid) = (attributes.uid.map(Uid::from_raw), attributes.gid.map(Gid::from_raw));
            chownat(node.path(), "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        // Symbolic links have no mode of their own.
        if let Some(mode) = attributes.mode
            && node.kind != FileType::Symlink
        {
            chmod(node.proc_path(), Mode::from_raw_mode(mode & 0o7777))?;
        }
        if (attributes.atime, attributes.mtime) != (SetTime::Keep, SetTime::Keep) {
            let times = Timestamps {
                last_access: timespec(attributes.atime),
                last_modification: timespec(attributes.mtime),
            };
            utimensat(node.path(), "", &times, AtFlags::EMPTY_PATH)?;
        }
        Ok(())
    }

    /// What was set is durable, if the export says so.
    pub(super) fn harden(&mut self, object: &Object<'_>) -> Result<(), Status> {
        if !object.export.is_sync {
            return Ok(());
        }
        match object.node.kind {
            FileType::RegularFile | FileType::Directory => {
                Ok(rustix::fs::fsync(object.node.reader(object.export, self.thread)?)?)
            }
            // What cannot be opened cannot be synchronized alone.
            _ => Ok(rustix::fs::syncfs(&object.export.root)?),
        }
    }
}

/// `NFS3ERR_NOT_SYNC` if the object was changed since the client looked (RFC 1813, section 3.3.2).
fn check_guard(object: &Object<'_>, guard: Option<Time>) -> Result<(), Status> {
    let Some(guard) = guard else { return Ok(()) };
    let stat = object.node.stat()?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "as the client was told"
    )]
    let present = Time { seconds: stat.st_ctime as u32, nanoseconds: stat.st_ctime_nsec as u32 };
    if present == guard { Ok(()) } else { Err(Status::NotSync) }
}

/// Larger numbers of nanoseconds mean something else to the kernel.
fn check_times(attributes: &SetAttributes) -> Result<(), Status> {
    let is_bad = |time| matches!(time, SetTime::To(Time { nanoseconds: 1_000_000_000.., .. }));
    if is_bad(attributes.atime) || is_bad(attributes.mtime) { Err(Status::Inval) } else { Ok(()) }
}

fn timespec(time: SetTime) -> Timespec {
    match time {
        SetTime::Keep => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        SetTime::Now => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        SetTime::To(time) => {
            Timespec { tv_sec: time.seconds.into(), tv_nsec: time.nanoseconds.into() }
        }
    }
}
