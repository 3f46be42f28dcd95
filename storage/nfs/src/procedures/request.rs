//! A call, and the files that it names: found by handle or by name, and looked at as the caller.

use std::ffi::CStr;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{Access, FileType, Mode, OFlags, Stat, openat};

use crate::attributes::put_post;
use crate::client::ClientRule;
use crate::credential::{Claim, Identity, squash};
use crate::export::Export;
use crate::impersonation::Impersonation;
use crate::kernel::{self, handle_of};
use crate::node::Node;
use crate::protocol::Status;
use crate::service::{ClientRules, Service};
use crate::xdr::put;

/// A call on its way through a procedure.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    /// What all share.
    pub service: &'a Service,
    /// The thread that executes it.
    pub thread: &'a mut Impersonation,
    /// Who the caller claims to be.
    pub claim: &'a Claim,
    /// What the client may use.
    pub rules: &'a ClientRules,
}

/// A file that a caller may try to use, and whom it is taken for there.
#[derive(Debug)]
pub(super) struct Object<'a> {
    pub(super) node: Arc<Node>,
    pub(super) export: &'a Export,
    pub(super) rule: ClientRule,
    pub(super) caller: Identity,
}

impl Object<'_> {
    /// Nothing may be changed by way of an export that is read-only for the client.
    pub(super) fn check_writable(&self) -> Result<(), Status> {
        if self.rule.is_read_only { Err(Status::Rofs) } else { Ok(()) }
    }

    pub(super) fn is_root(&self) -> bool {
        self.caller.uid == 0
    }
}

impl<'a> Request<'a> {
    /// The file of a handle. The thread acts as the caller afterwards.
    pub(super) fn object(&mut self, handle: &[u8]) -> Result<Object<'a>, Status> {
        let service = self.service;
        let node = match service.nodes.get(handle) {
            Some(node) => node,
            None => {
                let (id, kernel) = service.key.open(handle).ok_or(Status::BadHandle)?;
                // The export is gone since the handle was given.
                let (index, export) = service.export(id).ok_or(Status::Stale)?;
                if self.rules[index].is_none() {
                    return Err(Status::Acces);
                }
                let bytes = handle.try_into().map_err(|_| Status::BadHandle)?;
                service.nodes.insert(Node::open(export, index, bytes, kernel, self.thread)?)
            }
        };
        let rule = self.rules[node.export].ok_or(Status::Acces)?;
        let caller = squash(self.claim, rule.squash, rule.anonymous);
        let object = Object { export: &service.exports[node.export], node, rule, caller };
        self.thread.act_as(&object.caller)?;
        Ok(object)
    }

    /// The directory of a handle. The thread acts as the caller afterwards.
    pub(super) fn directory(&mut self, handle: &[u8]) -> Result<Object<'a>, Status> {
        let object = self.object(handle)?;
        object.node.check_directory(object.export, self.thread)?;
        self.thread.act_as(&object.caller)?;
        Ok(object)
    }

    /// The directory of a handle, to change it.
    pub(super) fn directory_to_change(&mut self, handle: &[u8]) -> Result<Object<'a>, Status> {
        let object = self.directory(handle)?;
        object.check_writable()?;
        Ok(object)
    }

    /// The file that a name in a directory stands for. The kernel judges whether the caller may
    /// look there.
    pub(super) fn entry(
        &mut self,
        directory: &Object<'a>,
        name: &CStr,
    ) -> Result<Arc<Node>, Status> {
        let service = self.service;
        let index = directory.node.export;
        let sealed = |kernel: &kernel::KernelHandle| {
            service.key.seal(directory.export.id, kernel).ok_or(Status::ServerFault)
        };
        let handle = sealed(&handle_of(directory.node.path().as_fd(), name)?)?;
        if let Some(node) = service.nodes.get(&handle) {
            return Ok(node);
        }
        let path = openat(
            directory.node.path(),
            name,
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        // The name may stand for another file by now.
        let kernel = handle_of(path.as_fd(), c"")?;
        Ok(service.nodes.insert(Node::of(index, sealed(&kernel)?, kernel, path)?))
    }

    /// The kernel says whether the caller, as whom the thread acts, may use a file so. Its owner
    /// may always read and write it, whatever its mode, because a local program that has it open
    /// might, too (RFC 1813, section 4.4); and who may execute it may read it, because that is how
    /// a client executes.
    pub(super) fn check_data_access(object: &Object<'_>, access: Access) -> Result<(), Status> {
        let Err(error) = kernel::may(object.node.path(), access) else { return Ok(()) };
        let status = Status::from(error);
        if status == Status::Acces {
            let may_execute = || kernel::may(object.node.path(), Access::EXEC_OK).is_ok();
            if object.node.stat()?.st_uid == object.caller.uid
                || (access == Access::READ_OK && may_execute())
            {
                return Ok(());
            }
        }
        Err(status)
    }

    /// Only regular files have data.
    pub(super) fn check_regular(object: &Object<'_>) -> Result<(), Status> {
        match object.node.kind {
            FileType::RegularFile => Ok(()),
            FileType::Directory => Err(Status::IsDir),
            _ => Err(Status::Inval),
        }
    }

    /// What was changed in a directory is durable, if the export says so.
    pub(super) fn harden_directory(&mut self, directory: &Object<'_>) -> Result<(), Status> {
        if directory.export.is_sync {
            rustix::fs::fsync(directory.node.reader(directory.export, self.thread)?)?;
        }
        Ok(())
    }
}

/// A status, and then attributes as far as the object is known.
pub(super) fn put_status_and_post(out: &mut Vec<u8>, status: Status, object: Option<&Object<'_>>) {
    put::u32(out, status as u32);
    put_object(out, object, object.and_then(|object| object.node.stat().ok()).as_ref());
}

pub(super) fn put_object(out: &mut Vec<u8>, object: Option<&Object<'_>>, stat: Option<&Stat>) {
    put_post(out, stat, object.map_or(0, |object| object.export.fsid));
}
