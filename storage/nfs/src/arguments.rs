//! The arguments of NFS version 3's procedures (RFC 1813, section 3.3), borrowed from the request.
//!
//! A name may be any bytes but a slash and zero; whether it may be *used* is for the procedure to
//! say ([`Name::checked`]), because that is an answer of the procedure's, not garbage.

use std::ffi::CString;

use nicache_payload::Stability;

use crate::limits::{HANDLE_BYTES_MAX, LINK_TEXT_BYTES_MAX, NAME_BYTES_MAX};
use crate::protocol::{Procedure, Status, file_type};
use crate::xdr::{Garbage, Reader};

/// A handle, as the client sent it.
pub type Handle<'a> = &'a [u8];

/// A name in a directory, as the client sent it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Name<'a>(pub &'a [u8]);

impl Name<'_> {
    /// The name for a system call. Names that no directory can have are `NFS3ERR_INVAL`, too long
    /// ones `NFS3ERR_NAMETOOLONG`.
    pub fn checked(self) -> Result<CString, Status> {
        if self.0.len() > 255 {
            return Err(Status::NameTooLong);
        }
        if self.0.is_empty() || self.0.contains(&b'/') {
            return Err(Status::Inval);
        }
        CString::new(self.0).map_err(|_| Status::Inval)
    }

    /// A name in a directory, for a system call; `.` and `..` are answered with `dots`. Names that
    /// no directory can have are `NFS3ERR_INVAL`, too long ones `NFS3ERR_NAMETOOLONG`.
    pub fn checked_entry(self, dots: Status) -> Result<CString, Status> {
        if matches!(self.0, b"." | b"..") { Err(dots) } else { self.checked() }
    }
}

/// A name in a directory (`diropargs3`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place<'a> {
    /// The directory.
    pub directory: Handle<'a>,
    /// The name.
    pub name: Name<'a>,
}

/// Seconds and nanoseconds (`nfstime3`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Time {
    /// Since 1970.
    pub seconds: u32,
    /// Below 10⁹, if the client is right.
    pub nanoseconds: u32,
}

/// What a time is set to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SetTime {
    /// The time stays as it is.
    #[default]
    Keep,
    /// To the server's clock.
    Now,
    /// To this.
    To(Time),
}

/// Attributes to set (`sattr3`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "the names are RFC 1813's")]
pub struct SetAttributes {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: SetTime,
    pub mtime: SetTime,
}

/// How a file is created (`createhow3`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreateHow {
    /// One that is there is taken.
    Unchecked(SetAttributes),
    /// One that is there is an error.
    Guarded(SetAttributes),
    /// One that is there is an error, unless it was made with the same verifier.
    Exclusive([u8; 8]),
}

/// What MKNOD makes (`mknoddata3`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Special {
    /// A character device: major and minor number.
    Character(SetAttributes, u32, u32),
    /// A block device: major and minor number.
    Block(SetAttributes, u32, u32),
    /// A socket.
    Socket(SetAttributes),
    /// A named pipe.
    Fifo(SetAttributes),
    /// Nothing that MKNOD can make.
    Other,
}

/// The arguments of one call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names are RFC 1813's")]
pub enum Arguments<'a> {
    Null,
    GetAttr {
        object: Handle<'a>,
    },
    SetAttr {
        object: Handle<'a>,
        attributes: SetAttributes,
        guard: Option<Time>,
    },
    Lookup {
        what: Place<'a>,
    },
    Access {
        object: Handle<'a>,
        access: u32,
    },
    ReadLink {
        link: Handle<'a>,
    },
    Read {
        file: Handle<'a>,
        offset: u64,
        count: u32,
    },
    /// The data follow the arguments and are not part of them.
    Write {
        file: Handle<'a>,
        offset: u64,
        count: u32,
        stability: Stability,
        data_bytes: u32,
    },
    Create {
        place: Place<'a>,
        how: CreateHow,
    },
    MkDir {
        place: Place<'a>,
        attributes: SetAttributes,
    },
    SymLink {
        place: Place<'a>,
        attributes: SetAttributes,
        text: &'a [u8],
    },
    MkNod {
        place: Place<'a>,
        special: Special,
    },
    Remove {
        place: Place<'a>,
    },
    RmDir {
        place: Place<'a>,
    },
    Rename {
        from: Place<'a>,
        to: Place<'a>,
    },
    Link {
        file: Handle<'a>,
        place: Place<'a>,
    },
    ReadDir {
        directory: Handle<'a>,
        cookie: u64,
        verifier: [u8; 8],
        count: u32,
    },
    ReadDirPlus {
        directory: Handle<'a>,
        cookie: u64,
        verifier: [u8; 8],
        directory_count: u32,
        count_max: u32,
    },
    FsStat {
        root: Handle<'a>,
    },
    FsInfo {
        root: Handle<'a>,
    },
    PathConf {
        object: Handle<'a>,
    },
    Commit {
        file: Handle<'a>,
        offset: u64,
        count: u32,
    },
}

fn handle<'a>(reader: &mut Reader<'a>) -> Result<Handle<'a>, Garbage> {
    reader.opaque(HANDLE_BYTES_MAX)
}

fn place<'a>(reader: &mut Reader<'a>) -> Result<Place<'a>, Garbage> {
    Ok(Place { directory: handle(reader)?, name: Name(reader.opaque(NAME_BYTES_MAX)?) })
}

fn time(reader: &mut Reader<'_>) -> Result<Time, Garbage> {
    Ok(Time { seconds: reader.u32()?, nanoseconds: reader.u32()? })
}

fn set_time(reader: &mut Reader<'_>) -> Result<SetTime, Garbage> {
    match reader.u32()? {
        0 => Ok(SetTime::Keep),
        1 => Ok(SetTime::Now),
        2 => time(reader).map(SetTime::To),
        _ => Err(Garbage),
    }
}

fn attributes(reader: &mut Reader<'_>) -> Result<SetAttributes, Garbage> {
    Ok(SetAttributes {
        mode: reader.optional(Reader::u32)?,
        uid: reader.optional(Reader::u32)?,
        gid: reader.optional(Reader::u32)?,
        size: reader.optional(Reader::u64)?,
        atime: set_time(reader)?,
        mtime: set_time(reader)?,
    })
}

impl<'a> Arguments<'a> {
    /// Reads the arguments of `procedure`. For WRITE, `bytes` ends where the data begin.
    pub fn read(procedure: Procedure, bytes: &'a [u8]) -> Result<Self, Garbage> {
        let r = &mut Reader::new(bytes);
        Ok(match procedure {
            Procedure::Null => Self::Null,
            Procedure::GetAttr => Self::GetAttr { object: handle(r)? },
            Procedure::SetAttr => Self::SetAttr {
                object: handle(r)?,
                attributes: attributes(r)?,
                guard: r.optional(time)?,
            },
            Procedure::Lookup => Self::Lookup { what: place(r)? },
            Procedure::Access => Self::Access { object: handle(r)?, access: r.u32()? },
            Procedure::ReadLink => Self::ReadLink { link: handle(r)? },
            Procedure::Read => Self::Read { file: handle(r)?, offset: r.u64()?, count: r.u32()? },
            Procedure::Write => Self::Write {
                file: handle(r)?,
                offset: r.u64()?,
                count: r.u32()?,
                stability: match r.u32()? {
                    0 => Stability::Unstable,
                    1 => Stability::DataSync,
                    2 => Stability::FileSync,
                    _ => return Err(Garbage),
                },
                data_bytes: r.u32()?,
            },
            Procedure::Create => Self::Create {
                place: place(r)?,
                how: match r.u32()? {
                    0 => CreateHow::Unchecked(attributes(r)?),
                    1 => CreateHow::Guarded(attributes(r)?),
                    2 => CreateHow::Exclusive(r.array()?),
                    _ => return Err(Garbage),
                },
            },
            Procedure::MkDir => Self::MkDir { place: place(r)?, attributes: attributes(r)? },
            Procedure::SymLink => Self::SymLink {
                place: place(r)?,
                attributes: attributes(r)?,
                text: r.opaque(LINK_TEXT_BYTES_MAX)?,
            },
            Procedure::MkNod => Self::MkNod {
                place: place(r)?,
                special: match r.u32()? {
                    file_type::CHR => Special::Character(attributes(r)?, r.u32()?, r.u32()?),
                    file_type::BLK => Special::Block(attributes(r)?, r.u32()?, r.u32()?),
                    file_type::SOCK => Special::Socket(attributes(r)?),
                    file_type::FIFO => Special::Fifo(attributes(r)?),
                    _ => Special::Other,
                },
            },
            Procedure::Remove => Self::Remove { place: place(r)? },
            Procedure::RmDir => Self::RmDir { place: place(r)? },
            Procedure::Rename => Self::Rename { from: place(r)?, to: place(r)? },
            Procedure::Link => Self::Link { file: handle(r)?, place: place(r)? },
            Procedure::ReadDir => Self::ReadDir {
                directory: handle(r)?,
                cookie: r.u64()?,
                verifier: r.array()?,
                count: r.u32()?,
            },
            Procedure::ReadDirPlus => Self::ReadDirPlus {
                directory: handle(r)?,
                cookie: r.u64()?,
                verifier: r.array()?,
                directory_count: r.u32()?,
                count_max: r.u32()?,
            },
            Procedure::FsStat => Self::FsStat { root: handle(r)? },
            Procedure::FsInfo => Self::FsInfo { root: handle(r)? },
            Procedure::PathConf => Self::PathConf { object: handle(r)? },
            Procedure::Commit => {
                Self::Commit { file: handle(r)?, offset: r.u64()?, count: r.u32()? }
            }
        })
    }

    /// Where a WRITE's data begin in its arguments and how many bytes they say they are; `None`
    /// while `bytes` does not reach that far.
    pub fn write_data(bytes: &[u8]) -> Result<Option<(usize, u32)>, Garbage> {
        let mut r = Reader::new(bytes);
        let Ok(len) = r.u32() else { return Ok(None) };
        if len as usize > HANDLE_BYTES_MAX {
            return Err(Garbage);
        }
        let fixed = len as usize + crate::xdr::padding(len as usize) + 8 + 4 + 4;
        if r.bytes(fixed).is_err() {
            return Ok(None);
        }
        let Ok(data_bytes) = r.u32() else { return Ok(None) };
        Ok(Some((4 + fixed + 4, data_bytes)))
    }
}
