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
            // A file that runs as a program, a directory that something is mounted on, a link that
            // the server would have to follow.
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
            Errno::NOMEM
            | Errno::MFILE
            | Errno::NFILE
            | Errno::AGAIN
            | Errno::TIMEDOUT
            | Errno::INTR => Self::Jukebox,
            _ => Self::Io,
        }
    }
}

impl From<io::Error> for Status {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind;
        if let Some(errno) = Errno::from_io_error(&error) {
            return errno.into();
        }
        // What storage says in words of its own.
        let status = match error.kind() {
            // It waited for as long as it does; the client asks again.
            ErrorKind::TimedOut
            | ErrorKind::WouldBlock
            | ErrorKind::ResourceBusy
            | ErrorKind::OutOfMemory => Self::Jukebox,
            ErrorKind::StorageFull => Self::NoSpc,
            ErrorKind::QuotaExceeded => Self::Dquot,
            ErrorKind::FileTooLarge => Self::Fbig,
            ErrorKind::ReadOnlyFilesystem => Self::Rofs,
            ErrorKind::Unsupported => Self::NotSupp,
            ErrorKind::InvalidInput => Self::Inval,
            _ => Self::Io,
        };
        tracing::debug!("payload: {error}");
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_asks_again_where_storage_only_waited() {
        let status = |kind| Status::from(io::Error::new(kind, "no room"));
        assert_eq!(status(io::ErrorKind::TimedOut), Status::Jukebox);
        assert_eq!(status(io::ErrorKind::StorageFull), Status::NoSpc);
        assert_eq!(status(io::ErrorKind::Other), Status::Io);
        assert_eq!(Status::from(io::Error::from_raw_os_error(libc::EDQUOT)), Status::Dquot);
    }
}
