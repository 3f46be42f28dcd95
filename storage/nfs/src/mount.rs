//! MOUNT version 3 (RFC 1813, section 5): from an export's path to its root's handle.
//!
//! What is mounted is not recorded for any purpose but to be asked for; who may use an export is
//! checked at each request.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

use crate::credential::{AUTH_SYS, Claim, squash};
use crate::impersonation::Impersonation;
use crate::kernel::handle_of;
use crate::limits::MOUNT_PATH_BYTES_MAX;
use crate::protocol::Status;
use crate::rpc::Refusal;
use crate::service::{ClientRules, Service};
use crate::xdr::{Reader, put};

/// A call of MOUNT.
#[derive(Debug)]
pub(crate) struct MountRequest<'a> {
    /// What all share.
    pub service: &'a Service,
    /// The thread that executes it.
    pub thread: &'a mut Impersonation,
    /// Who the caller claims to be.
    pub claim: &'a Claim,
    /// What the client may use.
    pub rules: &'a ClientRules,
    /// Where the call comes from.
    pub peer: SocketAddr,
}

impl MountRequest<'_> {
    /// Executes procedure number `procedure` and appends its results.
    pub(crate) fn execute(
        &mut self,
        procedure: u32,
        arguments: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let mut reader = Reader::new(arguments);
        let mut path =
            || reader.opaque(MOUNT_PATH_BYTES_MAX).map_err(|_| Refusal::GarbageArguments);
        let client = self.peer.ip().to_canonical();
        let mounts =
            || self.service.mounts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match procedure {
            0 => {}
            1 => {
                let path = path()?;
                match self.root(path) {
                    Ok(handle) => {
                        put::u32(out, Status::Ok as u32);
                        put::opaque(out, &handle);
                        put::u32(out, 1);
                        put::u32(out, AUTH_SYS);
                        self.service
                            .mounts
                            .lock()
                            .unwrap_or_else(std::sync::PoisonError::into_inner)
                            .add(client, path);
                    }
                    Err(status) => put::u32(out, mount_status(status)),
                }
            }
            2 => {
                for (who, path) in &mounts().list {
                    put::bool(out, true);
                    put::opaque(out, who.to_string().as_bytes());
                    put::opaque(out, path);
                }
                put::bool(out, false);
            }
            3 => mounts().remove(client, Some(path()?)),
            4 => mounts().remove(client, None),
            5 => {
                for export in &self.service.exports {
                    put::bool(out, true);
                    put::opaque(out, export.name.as_bytes());
                    for rule in &export.clients {
                        put::bool(out, true);
                        put::opaque(out, rule.network.to_string().as_bytes());
                    }
                    put::bool(out, false);
                }
                put::bool(out, false);
            }
            _ => return Err(Refusal::NoProcedure),
        }
        Ok(())
    }

    /// The handle of an export's root, or of a directory below it that the caller can reach.
    fn root(&mut self, path: &[u8]) -> Result<crate::handle::HandleBytes, Status> {
        let path = std::str::from_utf8(path).map_err(|_| Status::NoEnt)?;
        let path = path.trim_end_matches('/');
        let below = |name: &str| match path.strip_prefix(name.trim_end_matches('/')) {
            Some("") => Some(String::new()),
            Some(rest) => rest.strip_prefix('/').map(str::to_owned),
            None => None,
        };
        let exports = self.service.exports.iter().enumerate();
        let found =
            exports.filter_map(|(index, export)| Some((index, export, below(&export.name)?)));
        let (index, export, rest) =
            found.max_by_key(|(_, export, _)| export.name.len()).ok_or(Status::NoEnt)?;
        let rule = self.rules[index].ok_or(Status::Acces)?;
        let handle = if rest.is_empty() {
            handle_of(export.root.as_fd(), c"")?
        } else {
            self.thread.act_as(&squash(self.claim, rule.squash, rule.anonymous))?;
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
            handle_of(openat2(&export.root, rest, flags, Mode::empty(), resolve)?.as_fd(), c"")?
        };
        self.service.key.seal(export.id, &handle).ok_or(Status::ServerFault)
    }
}

/// `mountstat3` has fewer values.
fn mount_status(status: Status) -> u32 {
    match status {
        Status::Perm
        | Status::NoEnt
        | Status::Io
        | Status::Acces
        | Status::NotDir
        | Status::Inval
        | Status::NameTooLong
        | Status::NotSupp => status as u32,
        _ => Status::ServerFault as u32,
    }
}
