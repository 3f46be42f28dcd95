//! GETATTR, LOOKUP, ACCESS and READLINK.

use rustix::fs::Access;

use super::request::{Object, Request, put_object, put_status_and_post};
use crate::arguments::Place;
use crate::attributes::{put_attributes, put_post};
use crate::kernel;
use crate::protocol::{Status, access};
use crate::xdr::put;

impl Request<'_> {
    pub(super) fn get_attributes(&mut self, handle: &[u8], out: &mut Vec<u8>) -> Status {
        let found =
            self.object(handle).and_then(|object| Ok((object.node.stat()?, object.export.fsid)));
        match found {
            Ok((stat, fsid)) => {
                put::u32(out, Status::Ok as u32);
                put_attributes(out, &stat, fsid);
                Status::Ok
            }
            Err(status) => {
                put::u32(out, status as u32);
                self.forget_stale(status, handle);
                status
            }
        }
    }

    /// A file that is gone need not stay open.
    pub(super) fn forget_stale(&self, status: Status, handle: &[u8]) {
        if status == Status::Stale {
            self.service.nodes.forget(handle);
        }
    }

    pub(super) fn look_up(&mut self, what: Place<'_>, out: &mut Vec<u8>) -> Status {
        let directory = match self.directory(what.directory) {
            Ok(directory) => directory,
            Err(status) => {
                put_status_and_post(out, status, None);
                return status;
            }
        };
        let found = what.name.checked().and_then(|name| {
            let node = self.entry(&directory, &name)?;
            let stat = node.stat()?;
            Ok((node, stat))
        });
        match found {
            Ok((node, stat)) => {
                put::u32(out, Status::Ok as u32);
                put::opaque(out, &node.handle);
                put_post(out, Some(&stat), directory.export.fsid);
                put_object(out, Some(&directory), directory.node.stat().ok().as_ref());
                Status::Ok
            }
            Err(status) => {
                put_status_and_post(out, status, Some(&directory));
                status
            }
        }
    }

    pub(super) fn access(&mut self, handle: &[u8], asked: u32, out: &mut Vec<u8>) -> Status {
        let found = self.object(handle).and_then(|object| {
            let stat = object.node.stat()?;
            Ok((granted(&object, asked), object, stat))
        });
        match found {
            Ok((granted, object, stat)) => {
                put::u32(out, Status::Ok as u32);
                put_object(out, Some(&object), Some(&stat));
                put::u32(out, granted);
                Status::Ok
            }
            Err(status) => {
                put_status_and_post(out, status, None);
                self.forget_stale(status, handle);
                status
            }
        }
    }

    pub(super) fn read_link(&mut self, handle: &[u8], out: &mut Vec<u8>) -> Status {
        let object = match self.object(handle) {
            Ok(object) => object,
            Err(status) => {
                put_status_and_post(out, status, None);
                return status;
            }
        };
        let text = match object.node.kind {
            rustix::fs::FileType::Symlink => {
                rustix::fs::readlinkat(object.node.path(), "", Vec::new()).map_err(Status::from)
            }
            _ => Err(Status::Inval),
        };
        match text {
            Ok(text) => {
                put_status_and_post(out, Status::Ok, Some(&object));
                put::opaque(out, text.as_bytes());
                Status::Ok
            }
            Err(status) => {
                put_status_and_post(out, status, Some(&object));
                status
            }
        }
    }
}

/// Which of the rights that were asked for the caller has, as whom the thread acts.
fn granted(object: &Object<'_>, asked: u32) -> u32 {
    let is_directory = object.node.kind == rustix::fs::FileType::Directory;
    let changes = access::MODIFY | access::EXTEND | if is_directory { access::DELETE } else { 0 };
    let mut rights = [
        (access::READ, Access::READ_OK),
        (if is_directory { access::LOOKUP } else { access::EXECUTE }, Access::EXEC_OK),
        // To change a directory one must be able to search it, too.
        (changes, if is_directory { Access::WRITE_OK | Access::EXEC_OK } else { Access::WRITE_OK }),
    ]
    .map(|(rights, needed)| (rights & asked, needed));
    if object.rule.is_read_only {
        rights[2].0 = 0;
    }
    rights
        .into_iter()
        .filter(|(rights, needed)| *rights != 0 && kernel::may(object.node.path(), *needed).is_ok())
        .fold(0, |sum, (rights, _)| sum | rights)
}
