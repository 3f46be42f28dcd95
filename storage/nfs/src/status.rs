//! What the kernel's errors are called in NFS version 3 (RFC 1813, section 2.6).

use std::io;

use rustix::io::Errno;

use crate::protocol::Status;

impl From<Errno> for Status {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::PERM => Self::Perm,
            Errno::NOENT => Self::NoEnt,
            Errno::NXIO => Self::Nxio,
            // A file that runs as a program, a directory that something is mounted on, a link that the server would have to follow.
            Errno::ACCESS | Errno::TXTBSY | Errno::BUSY | Errno::LOOP => Self::Acces,
            Errno::EXIST => Self::Exist,
            Errno::XDEV => Self::Xdev,
            Errno::NODEV => Self::NoDev,
            Errno::NOTDIR => Self::NotDir,
            Errno::ISDIR => Self::IsDir,
            Errno::INVAL | Errno::OVERFLOW | Errno::ILSEQ => Self::Inval,
            Errno::FBIG => Self::Fbig,
            Errno::NOSPC => Self::NoSpc,
            Errno::ROFS => Self::Rofs,
            Errno::MLINK => Self::Mlink,
            Errno::NAMETOOLONG => Self::NameTooLong,
            Errno::NOTEMPTY => Self::NotEmpty,
            Errno::DQUOT => Self::Dquot,
            Errno::STALE => Self::Stale,
            Errno::OPNOTSUPP | Errno::NOSYS => Self::NotSupp,
            // The client asks again later.
            Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::AGAIN | Errno::TIMEDOUT | Errno::INTR => Self::Jukebox,
            _ => Self::Io,
        }
    }
}

impl From<io::Error> for Status {
    fn from(error: io::Error) -> Self {
        Errno::from_io_error(&error).map_or(Self::Io, Self::from)
    }
}
