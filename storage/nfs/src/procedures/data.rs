//! READ, WRITE and COMMIT.

use nicache_payload::{Extent, Stability};
use rustix::fs::{Access, Stat};

use super::request::{Object, Request, put_object, put_status_and_post};
use crate::attributes::{Wcc, put_wcc};
use crate::limits::PAYLOAD_BYTES_MAX;
use crate::protocol::Status;
use crate::rpc::Replies;
use crate::xdr::put;

/// What a WRITE asks for.
#[derive(Debug)]
pub(super) struct Write {
    pub offset: u64,
    pub count: u32,
    pub stability: Stability,
    /// Bytes that the call says it has.
    pub data_bytes: u32,
    /// Bytes that it has.
    pub data: Vec<Extent>,
}

impl Request<'_> {
    pub(super) fn read(
        &mut self,
        handle: &[u8],
        offset: u64,
        count: u32,
        replies: &mut Replies,
    ) -> Status {
        let object = match self.object(handle) {
            Ok(object) => object,
            Err(status) => {
                put_status_and_post(replies.text(), status, None);
                return status;
            }
        };
        match self.read_from(&object, offset, count.min(PAYLOAD_BYTES_MAX)) {
            Ok((extents, bytes, stat)) => {
                let out = replies.text();
                put::u32(out, Status::Ok as u32);
                put_object(out, Some(&object), Some(&stat));
                put::u32(out, bytes);
                put::bool(out, offset.saturating_add(bytes.into()) >= stat.st_size.cast_unsigned());
                replies.put_payload(extents);
                Status::Ok
            }
            Err(status) => {
                put_status_and_post(replies.text(), status, Some(&object));
                self.forget_stale(status, handle);
                status
            }
        }
    }

    fn read_from(
        &mut self,
        object: &Object<'_>,
        offset: u64,
        count: u32,
    ) -> Result<(Vec<Extent>, u32, Stat), Status> {
        Self::check_regular(object)?;
        Self::check_data_access(object, Access::READ_OK)?;
        let file = object.node.reader(object.export, self.thread)?;
        // No file is longer than this, so there is nothing.
        let extents = if count == 0 || offset > object.export.file_bytes_max {
            Vec::new()
        } else {
            self.service.payload.read(file, object.node.id, offset, count)?
        };
        let bytes: usize = extents.iter().map(Extent::len).sum();
        let bytes =
            u32::try_from(bytes).ok().filter(|&bytes| bytes <= count).ok_or(Status::ServerFault)?;
        Ok((extents, bytes, object.node.stat()?))
    }

    pub(super) fn write(&mut self, handle: &[u8], write: Write, out: &mut Vec<u8>) -> Status {
        let object = match self.object(handle) {
            Ok(object) => object,
            Err(status) => {
                put::u32(out, status as u32);
                put_wcc(out, &Wcc::default(), 0);
                return status;
            }
        };
        let change = object.node.begin_change();
        // Asked for before the data go: if it changes meanwhile, the client sends them once more.
        let verifier = self.service.payload.verifier();
        let done = self.write_to(&object, &write).and_then(|()| {
            // The kernel tells of a write-back that failed once, and perhaps it told somebody else.
            // The client writes again.
            let is_doubtful = write.stability != Stability::Unstable
                && self.service.payload.verifier() != verifier;
            if is_doubtful { Err(Status::Jukebox) } else { Ok(()) }
        });
        let wcc = object.node.end_change(change);
        let status = done.err().unwrap_or(Status::Ok);
        put::u32(out, status as u32);
        put_wcc(out, &wcc, object.export.fsid);
        if status == Status::Ok {
            put::u32(out, write.count);
            put::u32(
                out,
                match write.stability {
                    Stability::Unstable => 0,
                    Stability::DataSync => 1,
                    Stability::FileSync => 2,
                },
            );
            put::u64(out, verifier);
        }
        self.forget_stale(status, handle);
        status
    }

    fn write_to(&mut self, object: &Object<'_>, write: &Write) -> Result<(), Status> {
        object.check_writable()?;
        Self::check_regular(object)?;
        let bytes: usize = write.data.iter().map(Extent::len).sum();
        if write.count != write.data_bytes
            || bytes != write.count as usize
            || write.count > PAYLOAD_BYTES_MAX
        {
            return Err(Status::Inval);
        }
        Self::check_data_access(object, Access::WRITE_OK)?;
        let end = write.offset.checked_add(write.count.into()).ok_or(Status::Fbig)?;
        if end > object.export.file_bytes_max {
            return Err(Status::Fbig);
        }
        let file = object.node.writer(object.export, self.thread)?;
        self.thread.act_as(&object.caller)?;
        object.node.stat()?;
        if write.count > 0 {
            self.service.payload.write(
                file,
                object.node.id,
                write.offset,
                &write.data,
                write.stability,
            )?;
        }
        Ok(())
    }

    pub(super) fn commit(&mut self, handle: &[u8], out: &mut Vec<u8>) -> Status {
        let object = match self.object(handle) {
            Ok(object) => object,
            Err(status) => {
                put::u32(out, status as u32);
                put_wcc(out, &Wcc::default(), 0);
                return status;
            }
        };
        let look = object.node.begin_look();
        let done = self.commit_all(&object);
        // Asked for afterwards: the kernel tells of a write-back that failed once, and perhaps it
        // told somebody else. Then the verifier is another one already.
        let verifier = self.service.payload.verifier();
        let wcc = object.node.end_look(look);
        let status = done.err().unwrap_or(Status::Ok);
        put::u32(out, status as u32);
        put_wcc(out, &wcc, object.export.fsid);
        if status == Status::Ok {
            put::u64(out, verifier);
        }
        self.forget_stale(status, handle);
        status
    }

    fn commit_all(&mut self, object: &Object<'_>) -> Result<(), Status> {
        object.check_writable()?;
        Self::check_regular(object)?;
        Self::check_data_access(object, Access::WRITE_OK)?;
        let file = object.node.writer(object.export, self.thread)?;
        object.node.stat()?;
        Ok(self.service.payload.commit(file, object.node.id)?)
    }
}
