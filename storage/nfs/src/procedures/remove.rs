//! REMOVE, RMDIR, RENAME and LINK.

use std::ffi::CStr;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, linkat, renameat, unlinkat};

use super::request::{Object, Request};
use crate::arguments::{Name, Place};
use crate::attributes::{Wcc, put_post, put_wcc};
use crate::handle::HandleBytes;
use crate::kernel::handle_of;
use crate::protocol::Status;
use crate::xdr::put;

impl Request<'_> {
    pub(super) fn remove(&mut self, place: Place<'_>, out: &mut Vec<u8>) -> Status {
        self.take_away(place, AtFlags::empty(), Status::Inval, out)
    }

    pub(super) fn remove_directory(&mut self, place: Place<'_>, out: &mut Vec<u8>) -> Status {
        // RFC 1813, section 3.3.13.
        let dots = if place.name == Name(b"..") { Status::Exist } else { Status::Inval };
        self.take_away(place, AtFlags::REMOVEDIR, dots, out)
    }

    fn take_away(
        &mut self,
        place: Place<'_>,
        flags: AtFlags,
        dots: Status,
        out: &mut Vec<u8>,
    ) -> Status {
        let directory = match self.directory_to_change(place.directory) {
            Ok(directory) => directory,
            Err(status) => {
                put::u32(out, status as u32);
                put_wcc(out, &Wcc::default(), 0);
                return status;
            }
        };
        let change = directory.node.begin_change();
        let done = place.name.checked_entry(dots).and_then(|name| {
            let victim = self.handle_at(&directory, &name);
            unlinkat(directory.node.path(), &name, flags)?;
            self.forget_nameless(victim);
            self.harden_directory(&directory)
        });
        let wcc = directory.node.end_change(change);
        let status = done.err().unwrap_or(Status::Ok);
        put::u32(out, status as u32);
        put_wcc(out, &wcc, directory.export.fsid);
        status
    }

    /// The handle of what a name stands for, if the caller may know.
    fn handle_at(&self, directory: &Object<'_>, name: &CStr) -> Option<HandleBytes> {
        let kernel = handle_of(directory.node.path().as_fd(), name).ok()?;
        self.service.key.seal(directory.export.id, &kernel)
    }

    /// A file without a name is closed, so its space is free at once.
    fn forget_nameless(&self, handle: Option<HandleBytes>) {
        if let Some(handle) = handle
            && let Some(node) = self.service.nodes.get(&handle)
            && matches!(node.stat(), Err(Status::Stale))
        {
            self.service.nodes.forget(&handle);
        }
    }

    pub(super) fn rename(&mut self, from: Place<'_>, to: Place<'_>, out: &mut Vec<u8>) -> Status {
        let both = self.directory_to_change(from.directory).and_then(|source| {
            let target = self.directory_to_change(to.directory)?;
            Ok((source, target))
        });
        let (source, target) = match both {
            Ok(both) => both,
            Err(status) => {
                put::u32(out, status as u32);
                put_wcc(out, &Wcc::default(), 0);
                put_wcc(out, &Wcc::default(), 0);
                return status;
            }
        };
        let is_same = Arc::ptr_eq(&source.node, &target.node);
        let change = source.node.begin_change();
        let other_change = (!is_same).then(|| target.node.begin_change());
        let done = self.rename_between(&source, from.name, &target, to.name);
        let wcc = source.node.end_change(change);
        let other_wcc = other_change.map_or(wcc, |change| target.node.end_change(change));
        let status = done.err().unwrap_or(Status::Ok);
        put::u32(out, status as u32);
        put_wcc(out, &wcc, source.export.fsid);
        put_wcc(out, &other_wcc, target.export.fsid);
        status
    }

    fn rename_between(
        &mut self,
        source: &Object<'_>,
        from: Name<'_>,
        target: &Object<'_>,
        to: Name<'_>,
    ) -> Result<(), Status> {
        // Two exports may be on the same file system; to move between them would go around what
        // each of them allows.
        if source.node.export != target.node.export {
            return Err(Status::Xdev);
        }
        let (from, to) = (from.checked_entry(Status::Inval)?, to.checked_entry(Status::Inval)?);
        let victim = self.handle_at(target, &to);
        renameat(source.node.path(), &from, target.node.path(), &to)?;
        self.forget_nameless(victim);
        self.harden_directory(source)?;
        self.harden_directory(target)
    }

    pub(super) fn link(&mut self, file: &[u8], place: Place<'_>, out: &mut Vec<u8>) -> Status {
        let both = self.object(file).and_then(|file| {
            let directory = self.directory_to_change(place.directory)?;
            Ok((file, directory))
        });
        let (file, directory) = match both {
            Ok(both) => both,
            Err(status) => {
                put::u32(out, status as u32);
                put_post(out, None, 0);
                put_wcc(out, &Wcc::default(), 0);
                return status;
            }
        };
        let change = directory.node.begin_change();
        // The file's count of names is an attribute of it.
        let file_change = file.node.begin_change();
        let done = self.link_into(&file, &directory, place.name);
        let after = file.node.end_change(file_change).after;
        let wcc = directory.node.end_change(change);
        let status = done.err().unwrap_or(Status::Ok);
        put::u32(out, status as u32);
        put_post(out, after.as_ref(), file.export.fsid);
        put_wcc(out, &wcc, directory.export.fsid);
        status
    }

    fn link_into(
        &mut self,
        file: &Object<'_>,
        directory: &Object<'_>,
        name: Name<'_>,
    ) -> Result<(), Status> {
        if file.node.export != directory.node.export {
            return Err(Status::Xdev);
        }
        let name = name.checked_entry(Status::Exist)?;
        file.node.stat()?;
        // With the descriptor itself the kernel would ask for a capability that the caller does not
        // have.
        linkat(CWD, file.node.proc_path(), directory.node.path(), &name, AtFlags::SYMLINK_FOLLOW)?;
        self.harden_directory(directory)
    }
}
