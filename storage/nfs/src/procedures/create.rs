//! CREATE, MKDIR, SYMLINK and MKNOD.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, Timespec, Timestamps, makedev, mkdirat, mknodat, openat,
    symlinkat, utimensat,
};
use rustix::io::Errno;

use super::request::{Object, Request, put_object};
use crate::arguments::{CreateHow, Place, SetAttributes, Special};
use crate::attributes::{Wcc, put_wcc};
use crate::kernel::handle_of;
use crate::node::Node;
use crate::protocol::Status;
use crate::xdr::put;

/// How often a name is looked at again that comes and goes.
const TRIES: usize = 4;

impl<'a> Request<'a> {
    pub(super) fn create(
        &mut self,
        place: Place<'_>,
        how: &CreateHow,
        out: &mut Vec<u8>,
    ) -> Status {
        self.make(place, out, |this, directory, name| this.create_file(directory, name, how))
    }

    pub(super) fn make_directory(
        &mut self,
        place: Place<'_>,
        attributes: &SetAttributes,
        out: &mut Vec<u8>,
    ) -> Status {
        self.make(place, out, |this, directory, name| {
            mkdirat(directory.node.path(), name, mode(attributes))?;
            this.made(directory, name, attributes)
        })
    }

    pub(super) fn make_link(
        &mut self,
        place: Place<'_>,
        attributes: &SetAttributes,
        text: &[u8],
        out: &mut Vec<u8>,
    ) -> Status {
        self.make(place, out, |this, directory, name| {
            let text = CString::new(text).map_err(|_| Status::Inval)?;
            symlinkat(text, directory.node.path(), name)?;
            this.made(directory, name, attributes)
        })
    }

    pub(super) fn make_special(
        &mut self,
        place: Place<'_>,
        special: &Special,
        out: &mut Vec<u8>,
    ) -> Status {
        self.make(place, out, |this, directory, name| {
            let (attributes, kind, device) = match special {
                Special::Character(attributes, major, minor) => {
                    (attributes, FileType::CharacterDevice, makedev(*major, *minor))
                }
                Special::Block(attributes, major, minor) => {
                    (attributes, FileType::BlockDevice, makedev(*major, *minor))
                }
                Special::Socket(attributes) => (attributes, FileType::Socket, 0),
                Special::Fifo(attributes) => (attributes, FileType::Fifo, 0),
                Special::Other => return Err(Status::BadType),
            };
            mknodat(directory.node.path(), name, kind, mode(attributes), device)?;
            this.made(directory, name, attributes)
        })
    }

    /// What all four have in common. `make` gives the new file, if it still has its name.
    fn make(
        &mut self,
        place: Place<'_>,
        out: &mut Vec<u8>,
        make: impl FnOnce(&mut Self, &Object<'a>, &CStr) -> Result<Option<Arc<Node>>, Status>,
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
        let made = place.name.checked_entry(Status::Exist).and_then(|name| {
            let node = make(self, &directory, &name)?;
            self.harden_directory(&directory)?;
            Ok(node)
        });
        let wcc = directory.node.end_change(change);
        match made {
            Ok(node) => {
                put::u32(out, Status::Ok as u32);
                let stat = node.as_ref().and_then(|node| node.stat().ok());
                put::bool(out, node.is_some());
                if let Some(node) = node {
                    put::opaque(out, &node.handle);
                }
                put_object(out, Some(&directory), stat.as_ref());
                put_wcc(out, &wcc, directory.export.fsid);
                Status::Ok
            }
            Err(status) => {
                put::u32(out, status as u32);
                put_wcc(out, &wcc, directory.export.fsid);
                status
            }
        }
    }

    /// A file was made with its mode; its other attributes follow.
    fn made(
        &mut self,
        directory: &Object<'a>,
        name: &CStr,
        attributes: &SetAttributes,
    ) -> Result<Option<Arc<Node>>, Status> {
        let Ok(node) = self.entry_of(directory, name) else {
            // Somebody was quicker, or the caller may not look; it is made nevertheless.
            return Ok(None);
        };
        self.finish(directory, node, attributes).map(Some)
    }

    fn entry_of(&mut self, directory: &Object<'a>, name: &CStr) -> Result<Arc<Node>, Status> {
        self.thread.act_as(&directory.caller)?;
        self.entry(directory, name)
    }

    fn finish(
        &mut self,
        directory: &Object<'a>,
        node: Arc<Node>,
        attributes: &SetAttributes,
    ) -> Result<Arc<Node>, Status> {
        let object = Object {
            node,
            export: directory.export,
            rule: directory.rule,
            caller: directory.caller.clone(),
        };
        // Who makes a file owns it; only the superuser may give it away, and whoever asks for it in
        // vain has the file nevertheless.
        let (uid, gid) =
            if object.is_root() { (attributes.uid, attributes.gid) } else { (None, None) };
        let size =
            attributes.size.filter(|&size| size > 0 && object.node.kind == FileType::RegularFile);
        let rest = SetAttributes { mode: None, uid, gid, size, ..*attributes };
        if rest != SetAttributes::default() {
            self.thread.act_as(&object.caller)?;
            self.apply(&object, &rest)?;
            self.harden(&object)?;
        }
        Ok(object.node)
    }

    fn create_file(
        &mut self,
        directory: &Object<'a>,
        name: &CStr,
        how: &CreateHow,
    ) -> Result<Option<Arc<Node>>, Status> {
        let (asked, mode) = match how {
            CreateHow::Unchecked(attributes) | CreateHow::Guarded(attributes) => {
                (*attributes, mode(attributes))
            }
            // The client sets the mode when it has the handle.
            CreateHow::Exclusive(_) => (SetAttributes::default(), Mode::empty()),
        };
        for _ in 0..TRIES {
            let flags = OFlags::CREATE
                | OFlags::EXCL
                | OFlags::RDWR
                | OFlags::NOFOLLOW
                | OFlags::NONBLOCK
                | OFlags::CLOEXEC;
            match openat(directory.node.path(), name, flags, mode) {
                Ok(file) => {
                    if let CreateHow::Exclusive(verifier) = how {
                        utimensat(&file, "", &times_of(*verifier), AtFlags::EMPTY_PATH)?;
                        if directory.export.is_sync {
                            rustix::fs::fsync(&file)?;
                        }
                    }
                    let node = self.keep_new(directory, File::from(file))?;
                    return self.finish(directory, node, &asked).map(Some);
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            let node = match self.entry_of(directory, name) {
                Ok(node) => node,
                // It went away between the two looks.
                Err(Status::NoEnt | Status::Stale) => continue,
                Err(status) => return Err(status),
            };
            return self.take_existing(directory, node, how).map(Some);
        }
        Err(Status::Jukebox)
    }

    fn keep_new(&mut self, directory: &Object<'a>, file: File) -> Result<Arc<Node>, Status> {
        let kernel = handle_of(file.as_fd(), c"")?;
        let handle =
            self.service.key.seal(directory.export.id, &kernel).ok_or(Status::ServerFault)?;
        let path = file.as_fd().try_clone_to_owned()?;
        let node = Node::of(directory.node.export, handle, kernel, path)?.with_writer(file);
        Ok(self.service.nodes.insert(node))
    }

    /// What CREATE means where the name is taken.
    fn take_existing(
        &mut self,
        directory: &Object<'a>,
        node: Arc<Node>,
        how: &CreateHow,
    ) -> Result<Arc<Node>, Status> {
        if node.kind != FileType::RegularFile {
            return Err(Status::Exist);
        }
        match how {
            CreateHow::Guarded(_) => Err(Status::Exist),
            CreateHow::Exclusive(verifier) => {
                if was_made_with(&node.stat()?, *verifier) {
                    Ok(node)
                } else {
                    Err(Status::Exist)
                }
            }
            CreateHow::Unchecked(attributes) => {
                let object = Object {
                    node,
                    export: directory.export,
                    rule: directory.rule,
                    caller: directory.caller.clone(),
                };
                if let Some(size) = attributes.size {
                    let change = object.node.begin_change();
                    let done = self.apply(
                        &object,
                        &SetAttributes { size: Some(size), ..SetAttributes::default() },
                    );
                    object.node.end_change(change);
                    done?;
                    self.harden(&object)?;
                }
                Ok(object.node)
            }
        }
    }
}

/// The mode that a file is made with. Without one nobody may use it, until somebody says who may.
fn mode(attributes: &SetAttributes) -> Mode {
    Mode::from_raw_mode(attributes.mode.unwrap_or(0) & 0o7777)
}

/// An EXCLUSIVE verifier is kept in the new file's times until the client sets them, as the
/// kernel's own server does it: it outlasts a restart and needs no other place. Some file systems
/// (ext4 with inodes of 128 bytes) have 31 bits of seconds and nothing else, so two bits are left
/// out.
fn times_of(verifier: [u8; 8]) -> Timestamps {
    let bits = u64::from_be_bytes(verifier);
    let time = |word: u64| Timespec { tv_sec: (word & 0x7fff_ffff).cast_signed(), tv_nsec: 0 };
    Timestamps { last_access: time(bits >> 32), last_modification: time(bits) }
}

fn was_made_with(stat: &Stat, verifier: [u8; 8]) -> bool {
    let times = times_of(verifier);
    let is = |time: &Timespec, seconds: i64, nanoseconds: u64| {
        (time.tv_sec, time.tv_nsec.cast_unsigned()) == (seconds, nanoseconds)
    };
    stat.st_size == 0
        && is(&times.last_access, stat.st_atime, stat.st_atime_nsec)
        && is(&times.last_modification, stat.st_mtime, stat.st_mtime_nsec)
}
