//! A client for measurements, checks and tests: calls over one connection, several at once if the
//! caller likes. Not a file system.
//!
//! It encodes arguments and leaves most results to its user, as bytes.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use crate::limits::RECORD_BYTES_MAX;
use crate::protocol::{MOUNT, NFS, Procedure, Program, Status};
use crate::xdr::{Reader, put};

/// Ports that only a superuser's programs can have.
const RESERVED_PORTS: std::ops::Range<u16> = 600..1024;

/// Who the calls are from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct User {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// A connection to a server.
#[derive(Debug)]
pub struct Caller {
    stream: TcpStream,
    user: User,
    xid: u32,
    out: Vec<u8>,
    reply: Vec<u8>,
}

/// What a WRITE or a COMMIT said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// How it went.
    pub status: u32,
    /// The write verifier, if it went well.
    pub verifier: u64,
}

impl Caller {
    /// Connects, from a reserved port where one is to be had. `timeout` is for each reply.
    pub fn connect(address: SocketAddr, user: User, timeout: Duration) -> io::Result<Self> {
        let stream = match connect_reserved(address) {
            Ok(Some(stream)) => stream,
            Ok(None) => TcpStream::connect(address)?,
            Err(error) => return Err(error),
        };
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        let xid = first_xid(&stream)?;
        Ok(Self { stream, user, xid, out: Vec::new(), reply: Vec::new() })
    }

    /// The root of an export, by MOUNT.
    pub fn mount(&mut self, export: &str) -> io::Result<Vec<u8>> {
        let mut arguments = Vec::new();
        put::opaque(&mut arguments, export.as_bytes());
        self.put(MOUNT, 1, &arguments);
        let results = self.flush_and_receive()?;
        let mut reader = Reader::new(results);
        match reader.u32() {
            Ok(0) => reader.opaque(64).map(<[u8]>::to_vec).map_err(|_| garbage()),
            Ok(status) => {
                Err(io::Error::other(format!("mounting {export} was answered with {status}")))
            }
            Err(_) => Err(garbage()),
        }
    }

    /// Queues a call of NFS and says its number; [`flush`](Self::flush) sends what is queued.
    pub fn put_call(&mut self, procedure: Procedure, arguments: &[u8]) -> u32 {
        self.put(NFS, procedure as u32, arguments);
        self.xid
    }

    /// Sends what is queued.
    pub fn flush(&mut self) -> io::Result<()> {
        let sent = self.stream.write_all(&self.out);
        self.out.clear();
        sent
    }

    /// The number and the results of the next reply. Replies may come in another order than calls.
    pub fn receive(&mut self) -> io::Result<(u32, &[u8])> {
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark)?;
        let len = (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize;
        if !(24..=2 * RECORD_BYTES_MAX).contains(&len) {
            return Err(garbage());
        }
        self.reply.resize(len, 0);
        self.stream.read_exact(&mut self.reply)?;
        // REPLY, MSG_ACCEPTED, a verifier of no bytes, SUCCESS.
        if self.reply[4..24] != [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] {
            return Err(io::Error::other("the server refused a call"));
        }
        let xid = u32::from_be_bytes([self.reply[0], self.reply[1], self.reply[2], self.reply[3]]);
        Ok((xid, &self.reply[24..]))
    }

    /// One call of NFS and its results; the first word of them is the status.
    pub fn call(&mut self, procedure: Procedure, arguments: &[u8]) -> io::Result<&[u8]> {
        self.put_call(procedure, arguments);
        self.flush_and_receive()
    }

    /// The handle of a name, with or without an error of the server's as its status.
    pub fn look_up(&mut self, directory: &[u8], name: &str) -> io::Result<Result<Vec<u8>, u32>> {
        let results = self.call(Procedure::Lookup, &place(directory, name))?;
        let mut reader = Reader::new(results);
        match reader.u32().map_err(|_| garbage())? {
            0 => Ok(Ok(reader.opaque(64).map_err(|_| garbage())?.to_vec())),
            status => Ok(Err(status)),
        }
    }

    /// Makes a file, or takes the one that is there.
    pub fn create(&mut self, directory: &[u8], name: &str) -> io::Result<Vec<u8>> {
        let status = status_of(self.call(Procedure::Create, &create(directory, name))?)?;
        if status != Status::Ok as u32 {
            return Err(io::Error::other(format!("CREATE of {name} was answered with {status}")));
        }
        self.look_up(directory, name)?
            .map_err(|status| io::Error::other(format!("{name}: status {status}")))
    }

    /// WRITE. `stability` is 0 (unstable), 1 or 2, as in RFC 1813.
    pub fn write(
        &mut self,
        file: &[u8],
        offset: u64,
        data: &[u8],
        stability: u32,
    ) -> io::Result<Written> {
        let results = self.call(Procedure::Write, &write(file, offset, data, stability))?;
        // Attributes after, perhaps before; then count, committed, verifier.
        written(results, 8)
    }

    /// COMMIT of a whole file.
    pub fn commit(&mut self, file: &[u8]) -> io::Result<Written> {
        let results = self.call(Procedure::Commit, &commit(file))?;
        written(results, 0)
    }

    /// READ: the bytes, or the status.
    pub fn read(&mut self, file: &[u8], offset: u64, len: u32) -> io::Result<Result<Vec<u8>, u32>> {
        let results = self.call(Procedure::Read, &read(file, offset, len))?;
        let mut reader = Reader::new(results);
        let mut data = || {
            let status = reader.u32()?;
            if status != 0 {
                return Ok(Err(status));
            }
            if reader.bool()? {
                reader.bytes(84)?;
            }
            reader.bytes(8)?;
            Ok(Ok(reader.opaque(len as usize)?.to_vec()))
        };
        data().map_err(|_: crate::xdr::Garbage| garbage())
    }

    fn flush_and_receive(&mut self) -> io::Result<&[u8]> {
        self.flush()?;
        self.receive().map(|(_, results)| results)
    }

    fn put(&mut self, program: Program, procedure: u32, arguments: &[u8]) {
        self.xid = self.xid.wrapping_add(1);
        // AUTH_SYS of 28 bytes: a stamp, a name of 7 bytes, user, group, no other groups; and no
        // verifier.
        let head = [self.xid, 0, 2, program.number, program.version, procedure, 1, 28, 0, 7];
        let tail = [self.user.uid, self.user.gid, 0, 0, 0];
        let len = 4 * (head.len() + tail.len()) + 8 + arguments.len();
        put::u32(&mut self.out, 0x8000_0000 | len as u32);
        head.iter().for_each(|&word| put::u32(&mut self.out, word));
        self.out.extend_from_slice(b"nicache\0");
        tail.iter().for_each(|&word| put::u32(&mut self.out, word));
        self.out.extend_from_slice(arguments);
    }
}

/// The status at the beginning of results.
pub fn status_of(results: &[u8]) -> io::Result<u32> {
    Reader::new(results).u32().map_err(|_| garbage())
}

/// Arguments that are a handle.
#[must_use]
pub fn object(handle: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(80);
    put::opaque(&mut out, handle);
    out
}

/// Arguments that are a name in a directory.
#[must_use]
pub fn place(directory: &[u8], name: &str) -> Vec<u8> {
    let mut out = object(directory);
    put::opaque(&mut out, name.as_bytes());
    out
}

/// Arguments of an UNCHECKED CREATE with mode 0644.
#[must_use]
pub fn create(directory: &[u8], name: &str) -> Vec<u8> {
    let mut out = place(directory, name);
    [0, 1, 0o644, 0, 0, 0, 0, 0].iter().for_each(|&word| put::u32(&mut out, word));
    out
}

/// Arguments of WRITE.
#[must_use]
pub fn write(file: &[u8], offset: u64, data: &[u8], stability: u32) -> Vec<u8> {
    let mut out = object(file);
    put::u64(&mut out, offset);
    put::u32(&mut out, data.len() as u32);
    put::u32(&mut out, stability);
    put::opaque(&mut out, data);
    out
}

/// Arguments of READ.
#[must_use]
pub fn read(file: &[u8], offset: u64, len: u32) -> Vec<u8> {
    let mut out = object(file);
    put::u64(&mut out, offset);
    put::u32(&mut out, len);
    out
}

/// Arguments of COMMIT of a whole file.
#[must_use]
pub fn commit(file: &[u8]) -> Vec<u8> {
    let mut out = object(file);
    put::u64(&mut out, 0);
    put::u32(&mut out, 0);
    out
}

fn written(results: &[u8], before_verifier: usize) -> io::Result<Written> {
    let mut reader = Reader::new(results);
    let mut parse = || {
        let status = reader.u32()?;
        if status != 0 {
            return Ok(Written { status, verifier: 0 });
        }
        if reader.bool()? {
            reader.bytes(24)?;
        }
        if reader.bool()? {
            reader.bytes(84)?;
        }
        reader.bytes(before_verifier)?;
        Ok(Written { status, verifier: reader.u64()? })
    };
    parse().map_err(|_: crate::xdr::Garbage| garbage())
}

fn garbage() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the server's reply is not one of the protocol's")
}

/// Call numbers that differ from those of other connections.
fn first_xid(stream: &TcpStream) -> io::Result<u32> {
    let port = u32::from(stream.local_addr()?.port());
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Ok(port.rotate_left(16) ^ now.subsec_nanos())
}

/// None: the caller may have no reserved port.
fn connect_reserved(address: SocketAddr) -> io::Result<Option<TcpStream>> {
    let (family, any): (_, std::net::IpAddr) = match address {
        SocketAddr::V4(_) => (AddressFamily::INET, Ipv4Addr::UNSPECIFIED.into()),
        SocketAddr::V6(_) => (AddressFamily::INET6, Ipv6Addr::UNSPECIFIED.into()),
    };
    for port in RESERVED_PORTS.rev() {
        let socket = socket(family, SocketType::STREAM, None)?;
        match bind(socket.as_fd(), &SocketAddr::from((any, port))) {
            Ok(()) => {}
            Err(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => return Ok(None),
            Err(_) => continue,
        }
        match connect(socket.as_fd(), &address) {
            Ok(()) => return Ok(Some(TcpStream::from(socket))),
            // The last connection of this port is not over yet.
            Err(rustix::io::Errno::ADDRNOTAVAIL | rustix::io::Errno::ADDRINUSE) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}
