//! What the kernel tells about the server's look-ups: the records of the ring.
//!
//! The layout is `struct lookup_event` of `ebpf/shared.h`.

use std::mem::offset_of;

use std::net::{Ipv4Addr, SocketAddrV4};

use nicache_coherence::{SourceSlot, Stamp};

use crate::databases::database::Database;
use crate::databases::kinds;

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A path was looked up: opened, stat'ed, its access asked for, its link read ...
    Lookup,
    /// An open directory was listed.
    Readdir,
    /// Bytes of an open file were sent to a socket; `dirfd` is the file's descriptor.
    Sendfile,
    /// From now on the server can look things up where no system call shows it.
    Hidden,
    /// The program does what no system call shows, from now until it ends.
    Hides {
        /// Nobody is answered by it.
        is_bystander: bool,
    },
    /// Something was changed; `inode` is set if it is the content of a file.
    Wrote,
    /// A name was removed; the path is as in a look-up.
    Removed,
    /// The process has another working directory, which the path leads to; no path: unknown.
    Moved,
    /// Something was sent to another program.
    Sent(Sent),
    /// A process that takes requests has taken one, or part of one; bytes are in the place of the
    /// path.
    Request(RequestEvent),
    /// Something happened on a connection of a database server; bytes are in the place of the path.
    Sql(SqlEvent),
    /// A database server has been started: process `ret`.
    DatabaseStarted(&'static dyn Database),
    /// A database server, or one of its processes, has ended: process `ret`.
    DatabaseGone {
        /// The first process of the server, if this one has not ended by itself.
        crashed: Option<u32>,
    },
    /// At this moment the server looked at what the witness does not see, or started a program that
    /// it cannot follow.
    Unseen,
    /// A process of the server has begun to tell.
    Started,
    /// A process of the server is about to end, and has said what it changed.
    Ended,
}

/// What happened on a connection of a database server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqlEvent {
    /// Inode number of the server's socket; for a database elsewhere, the relay's number.
    pub connection: u64,
    /// What kind of server it is.
    pub kind: &'static dyn Database,
    /// What happened.
    pub what: SqlStep,
    /// The server's first process, where it has one for each connection (PostgreSQL); 0: unknown.
    pub first: u32,
}

/// What happened on a connection of a database server, in a [`SqlEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqlStep {
    /// The server has received bytes. If the event is incomplete, not all of them are there.
    Received {
        /// Process of the client, in the initial PID namespace; 0: unknown.
        client: u32,
        /// The client asks through a network (TCP), which does not tell its process, from this
        /// port; 0: unknown.
        by_network: Option<u16>,
        /// Whoever saw them first was certain that they change nothing.
        certain: bool,
        /// What was received before may not be done yet.
        ahead: bool,
    },
    /// The server has sent a reply, whose first bytes are there.
    Sent,
    /// What it had received before is done.
    Idle,
    /// The client has ended the connection.
    Closed,
}

/// What a process of the server did with the connection on which it takes requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestEvent {
    /// Inode number of its socket.
    pub connection: u64,
    /// What it did.
    pub what: RequestStep,
    /// The process has threads, or several connections at once: nothing more is told of it.
    pub concurrent: bool,
}

/// What a process of the server did about requests, in a [`RequestEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestStep {
    /// The process has another connection than before.
    Connection,
    /// The process has read `ret` bytes that are part of FastCGI requests. If the event is
    /// incomplete, they are not there.
    FastCgi,
    /// The process has read from a client of the web server; `None` if that may be a program of
    /// this machine.
    Http(Option<SocketAddrV4>),
    /// The process has ended.
    Gone,
    /// The process has started the process that is in the place of the connection, at the behest of
    /// this one, which takes requests.
    Started(u32),
}

/// Something that the server has sent, other than to its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// To whom it was sent.
    pub to: Peer,
    /// Inode number of its own socket.
    pub connection: u64,
    /// The TCP port of its own end; 0: none.
    pub port: u16,
    /// What was sent was the end of a FastCGI request.
    pub ends_request: bool,
}

/// Whom the server talks to, other than its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// A program on this machine, by a socket in the file system or a pair of sockets: its process
    /// in the initial PID namespace, 0 if the kernel does not know it.
    Local(u32),
    /// At an address of the server's network.
    Ipv4(Ipv4Addr, u16),
    /// Of another family.
    Other(u32),
}

const AF_UNIX: u32 = 1;
const AF_INET: u32 = 2;

/// Device and inode number as the kernel knows them (`s_dev`, `i_ino`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Kernel encoding: `major << 20 | minor`.
    pub dev: u32,
    /// Inode number.
    pub ino: u64,
}

impl Identity {
    /// The revision slot.
    pub fn slot(self) -> SourceSlot {
        SourceSlot::of_inode(self.dev, self.ino)
    }
}

/// What the kernel knows of a file, at the moment in which it was opened, about changes that were
/// under way and those to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stillness {
    /// Somebody else had it open for writing. Its time is not told then: a writer moves the time
    /// first and the bytes later.
    pub being_written: bool,
    /// Somebody had asked for its change time: whatever changes the file next sets another one
    /// (since Linux 6.13).
    pub asked: bool,
    /// The file's changes are told by their times alone ([`Coverage`](crate::Coverage): Btrfs,
    /// tmpfs).
    pub only_times: bool,
}

/// The change time with the bits that `identify` of `ebpf/files.h` adds.
pub(crate) fn split_changed_ns(word: u64) -> (u64, Stillness) {
    const ASKED: u64 = 1 << 63;
    const ONLY_TIMES: u64 = 1 << 62;
    const BEING_WRITTEN: u64 = 1;
    let changed_ns = word & !(ASKED | ONLY_TIMES);
    let being_written = changed_ns == BEING_WRITTEN;
    let stillness =
        Stillness { being_written, asked: word & ASKED != 0, only_times: word & ONLY_TIMES != 0 };
    (if being_written { 0 } else { changed_ns }, stillness)
}

/// One look-up by the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupEvent {
    /// CLOCK_MONOTONIC, right after the look-up, before its system call returned.
    pub time_ns: u64,
    /// The table's clock at that time.
    pub clock: Stamp,
    /// What the system call returned.
    pub ret: i64,
    /// What kind of event.
    pub kind: EventKind,
    /// Process, in the initial pid namespace.
    pub tgid: u32,
    /// Thread, in the initial pid namespace.
    pub tid: u32,
    /// x86-64 number of the system call.
    pub nr: u32,
    /// Directory that a relative path starts at, or `AT_FDCWD`.
    pub dirfd: i32,
    /// The opened, listed, sent or written inode.
    pub inode: Option<Identity>,
    /// The file's type and permissions, as in `stat`.
    pub mode: u16,
    /// The file's owner: user and group.
    pub owner: (u32, u32),
    /// The file's size when it was opened, in bytes.
    pub size: u64,
    /// The file's change time then, in nanoseconds since 1970; 0: unknown.
    pub changed_ns: u64,
    /// What that says of changes to come.
    pub stillness: Stillness,
    /// Flags of open(2).
    pub open_flags: u32,
    /// The directory that `dirfd` stood for.
    pub directory: Option<Identity>,
    /// The path by which the process had opened that directory, if it is known.
    pub folder: Option<Box<[u8]>>,
    /// The path is cut or could not be read.
    pub incomplete: bool,
    /// A symbolic link at the end is not followed.
    pub nofollow: bool,
    /// The path was resolved under rules of its own (openat2).
    pub own_root: bool,
    /// The thread has its root, working directory and descriptors in common with the first of its
    /// process.
    pub of_process: bool,
    /// The opened or sent file is on an overlay.
    pub on_overlay: bool,
    /// The process that takes requests at whose behest this one was started; 0: of none.
    pub starter: u32,
    /// Process in its own PID namespace; 0 if the witness does not tell.
    pub inner_pid: u32,
    /// The path as the server wrote it.
    pub path: Box<[u8]>,
}

/// Tests look up as process 1.
const BLANK_PROCESS: u32 = if cfg!(test) { 1 } else { 0 };

#[repr(C)]
struct Head {
    time_ns: u64,
    clock: u64,
    ret: i64,
    ino: u64,
    dir_ino: u64,
    size: u64,
    changed_ns: u64,
    dev: u32,
    dir_dev: u32,
    tgid: u32,
    tid: u32,
    dirfd: i32,
    nr: u32,
    kind: u16,
    flags: u16,
    mode: u16,
    path_len: u16,
    open_flags: u32,
    reserved: u32,
    uid: u32,
    gid: u32,
}

/// Bytes of a record in front of the path.
pub(crate) const HEAD_BYTES: usize = size_of::<Head>();
const _: () = assert!(HEAD_BYTES == 104);

/// Bytes of the longest record of a look-up.
pub(crate) const EVENT_BYTES_MAX: usize = HEAD_BYTES + 256;

/// Length of the path, as the record's head says.
pub(crate) fn path_len(record: &[u8]) -> Option<usize> {
    record
        .get(offset_of!(Head, path_len)..)?
        .first_chunk()
        .map(|bytes| u16::from_ne_bytes(*bytes).into())
}

const FLAG_INODE: u16 = 1;
const FLAG_DIRECTORY: u16 = 2;
const FLAG_INCOMPLETE: u16 = 4;
const FLAG_NOFOLLOW: u16 = 8;
const FLAG_OWN_ROOT: u16 = 16;
const FLAG_CERTAIN: u16 = 32;
const FLAG_CONCURRENT: u16 = 64;
const FLAG_REQUEST_END: u16 = 128;
const FLAG_OF_PROCESS: u16 = 256;
const FLAG_OVERLAY: u16 = 512;
const FLAG_NETWORK: u16 = 1024;

impl LookupEvent {
    /// Whom to ask where its paths start, in the initial PID namespace: whoever has started the
    /// process, which is there longer than this; the process, which is there longer than its
    /// threads; or else the thread.
    pub fn owner(&self) -> u32 {
        match self.starter {
            0 if self.of_process => self.tgid,
            0 => self.tid,
            starter => starter,
        }
    }

    /// The process that has done it, or had it done by one that it has started.
    pub fn worker(&self) -> u32 {
        if self.starter == 0 { self.tgid } else { self.starter }
    }

    /// Was a file opened to be read, which takes the right to?
    pub fn opens_to_read(&self) -> bool {
        const S_IFMT: u32 = 0o170_000;
        let is_file = u32::from(self.mode) & S_IFMT == 0o100_000;
        let reads = self.open_flags & libc::O_ACCMODE as u32 != libc::O_WRONLY as u32;
        let has_rights = self.open_flags & libc::O_PATH as u32 == 0;
        self.kind == EventKind::Lookup
            && self.ret >= 0
            && self.inode.is_some()
            && is_file
            && reads
            && has_rights
    }

    /// May the program know the times of what was found? A call that looks it up for something else
    /// does not tell.
    pub fn shows_times(&self) -> bool {
        const OTHERS: [i64; 10] = [
            libc::SYS_access,
            libc::SYS_faccessat,
            libc::SYS_faccessat2,
            libc::SYS_readlink,
            libc::SYS_readlinkat,
            libc::SYS_statfs,
            libc::SYS_getxattr,
            libc::SYS_lgetxattr,
            libc::SYS_listxattr,
            libc::SYS_llistxattr,
        ];
        self.kind == EventKind::Lookup && self.ret >= 0 && !OTHERS.contains(&self.nr.into())
    }

    /// Does the path start at the working directory of its process?
    pub fn is_relative(&self) -> bool {
        self.dirfd == libc::AT_FDCWD && !self.path.starts_with(b"/") && !self.path.is_empty()
    }

    /// The path, if need be from the [folder](LookupEvent::folder) that it starts at; `None`: that
    /// is not known.
    pub(crate) fn path_from_folder(&self) -> Option<Box<[u8]>> {
        if self.path.starts_with(b"/") || self.dirfd == libc::AT_FDCWD {
            return Some(self.path.clone());
        }
        Some([self.folder.as_ref()?, &b"/"[..], &self.path].concat().into())
    }

    /// Reads a record; `None` if it is none that `ebpf/witness.bpf.c` or `preload/report.c` writes.
    pub fn decode(record: &[u8]) -> Option<Self> {
        let head = record.get(..HEAD_BYTES)?;
        let u16_at = |at: usize| head[at..].first_chunk().map(|bytes| u16::from_ne_bytes(*bytes));
        let u32_at = |at: usize| head[at..].first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
        let u64_at = |at: usize| head[at..].first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
        let flags = u16_at(offset_of!(Head, flags))?;
        let identity = |flag: u16, dev: usize, ino: usize| {
            let identity = Identity { dev: u32_at(dev)?, ino: u64_at(ino)? };
            (flags & flag != 0).then_some(identity)
        };
        let path_len = path_len(head)?;
        let (changed_ns, stillness) = split_changed_ns(u64_at(offset_of!(Head, changed_ns))?);
        Some(Self {
            time_ns: u64_at(offset_of!(Head, time_ns))?,
            clock: Stamp(u64_at(offset_of!(Head, clock))?),
            ret: u64_at(offset_of!(Head, ret))? as i64,
            kind: match u16_at(offset_of!(Head, kind))? {
                1 => EventKind::Lookup,
                2 => EventKind::Readdir,
                3 => EventKind::Sendfile,
                4 => EventKind::Hidden,
                5 => EventKind::Wrote,
                6 => EventKind::Removed,
                8 => EventKind::Moved,
                kind @ 9..=12 => {
                    let what = match kind {
                        9 => {
                            let peer = u32_at(offset_of!(Head, dir_dev))?;
                            let by_network = flags & FLAG_NETWORK != 0;
                            SqlStep::Received {
                                client: if by_network { 0 } else { peer },
                                by_network: by_network.then_some(peer as u16),
                                certain: flags & FLAG_CERTAIN != 0,
                                ahead: false,
                            }
                        }
                        10 => SqlStep::Sent,
                        11 => SqlStep::Idle,
                        _ => SqlStep::Closed,
                    };
                    let server = kinds::by_number(u32_at(offset_of!(Head, dev))?)?;
                    let first = u32_at(offset_of!(Head, open_flags))?;
                    EventKind::Sql(SqlEvent {
                        connection: u64_at(offset_of!(Head, ino))?,
                        kind: server,
                        what,
                        first,
                    })
                }
                13 => {
                    let first = u32_at(offset_of!(Head, dev))?;
                    EventKind::DatabaseGone { crashed: (first != 0).then_some(first) }
                }
                14 => EventKind::DatabaseStarted(kinds::by_number(u32_at(offset_of!(Head, dev))?)?),
                16 => EventKind::Hides { is_bystander: u32_at(offset_of!(Head, dev))? != 0 },
                32 => EventKind::Unseen,
                33 => EventKind::Started,
                34 => EventKind::Ended,
                7 => EventKind::Sent(Sent {
                    to: match (u32_at(offset_of!(Head, dev))?, u64_at(offset_of!(Head, ino))?) {
                        (AF_UNIX, process) => Peer::Local(process as u32),
                        (AF_INET, address) => {
                            Peer::Ipv4(Ipv4Addr::from((address >> 16) as u32), address as u16)
                        }
                        (family, _) => Peer::Other(family),
                    },
                    connection: u64_at(offset_of!(Head, dir_ino))?,
                    port: u32_at(offset_of!(Head, dir_dev))? as u16,
                    ends_request: flags & FLAG_REQUEST_END != 0,
                }),
                15 => EventKind::Request(RequestEvent {
                    connection: u64_at(offset_of!(Head, ino))?,
                    what: match (u32_at(offset_of!(Head, dev))?, u64_at(offset_of!(Head, dir_ino))?)
                    {
                        (1, _) => RequestStep::Connection,
                        (2, _) => RequestStep::FastCgi,
                        (3, 0) => RequestStep::Http(None),
                        (3, peer) => {
                            let address = Ipv4Addr::from((peer >> 16) as u32);
                            RequestStep::Http(Some(SocketAddrV4::new(address, peer as u16)))
                        }
                        (4, _) => RequestStep::Gone,
                        (5, starter) => RequestStep::Started(starter as u32),
                        _ => return None,
                    },
                    concurrent: flags & FLAG_CONCURRENT != 0,
                }),
                _ => return None,
            },
            tgid: u32_at(offset_of!(Head, tgid))?,
            tid: u32_at(offset_of!(Head, tid))?,
            nr: u32_at(offset_of!(Head, nr))?,
            dirfd: u32_at(offset_of!(Head, dirfd))? as i32,
            inode: identity(FLAG_INODE, offset_of!(Head, dev), offset_of!(Head, ino)),
            mode: u16_at(offset_of!(Head, mode))?,
            owner: (u32_at(offset_of!(Head, uid))?, u32_at(offset_of!(Head, gid))?),
            size: u64_at(offset_of!(Head, size))?,
            changed_ns,
            stillness,
            open_flags: u32_at(offset_of!(Head, open_flags))?,
            folder: None,
            directory: identity(
                FLAG_DIRECTORY,
                offset_of!(Head, dir_dev),
                offset_of!(Head, dir_ino),
            ),
            incomplete: flags & FLAG_INCOMPLETE != 0,
            nofollow: flags & FLAG_NOFOLLOW != 0,
            own_root: flags & FLAG_OWN_ROOT != 0,
            of_process: flags & FLAG_OF_PROCESS != 0,
            on_overlay: flags & FLAG_OVERLAY != 0,
            starter: 0,
            inner_pid: u32_at(offset_of!(Head, reserved))?,
            path: record.get(HEAD_BYTES..HEAD_BYTES + path_len)?.into(),
        })
    }
}

impl LookupEvent {
    /// Bytes on a connection of a database on another machine.
    pub(crate) fn elsewhere(time_ns: u64, clock: Stamp, sql: SqlEvent, bytes: &[u8]) -> Self {
        Self { clock, kind: EventKind::Sql(sql), path: bytes.into(), ..Self::blank(time_ns) }
    }

    /// An empty path was looked up by no process.
    pub(crate) fn blank(time_ns: u64) -> Self {
        Self {
            time_ns,
            clock: Stamp(0),
            ret: 0,
            kind: EventKind::Lookup,
            tgid: BLANK_PROCESS,
            tid: BLANK_PROCESS,
            nr: 2,
            dirfd: libc::AT_FDCWD,
            inode: None,
            mode: 0,
            owner: (0, 0),
            size: 0,
            changed_ns: 0,
            stillness: Stillness::default(),
            open_flags: 0,
            directory: None,
            folder: None,
            incomplete: false,
            nofollow: false,
            own_root: false,
            of_process: false,
            on_overlay: false,
            starter: 0,
            inner_pid: 0,
            path: Box::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_record_or_a_path_beyond_it_is_refused() {
        let mut record = vec![0_u8; HEAD_BYTES + 8];
        record[offset_of!(Head, kind)] = 1;
        record[offset_of!(Head, path_len)] = 8;
        assert_eq!(LookupEvent::decode(&record).unwrap().path.len(), 8);
        record[offset_of!(Head, path_len)] = 9;
        assert_eq!(LookupEvent::decode(&record), None);
        assert_eq!(LookupEvent::decode(&record[..HEAD_BYTES - 1]), None);
        record[offset_of!(Head, path_len)] = 0;
        record[offset_of!(Head, kind)] = 9;
        assert_eq!(LookupEvent::decode(&record), None);
    }
}
