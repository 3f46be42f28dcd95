//! Every call by which a program of the server gives bytes to a socket or a file, really done: that
//! it has sent, or written, is told.

use std::fs::{self, File};
use std::io::IoSlice;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::process::Command;

use nicache_watch::{EventKind, LookupEvent, Peer, Witness};
use rustix::pipe::SpliceFlags;

use super::{ServerThread, directory_on_ext4};

/// A call that gives five bytes to a descriptor.
type Give = fn(BorrowedFd<'_>);

const BYTES: &[u8; 5] = b"hello";

fn pipe_with_bytes() -> (OwnedFd, OwnedFd) {
    let (out, into) = rustix::pipe::pipe().unwrap();
    assert_eq!(rustix::io::write(&into, BYTES).unwrap(), 5);
    (out, into)
}

fn splice_to(to: BorrowedFd<'_>) {
    let (out, _into) = pipe_with_bytes();
    assert_eq!(rustix::pipe::splice(out, None, to, None, 5, SpliceFlags::empty()).unwrap(), 5);
}

/// From the program's own memory.
fn vmsplice_to(to: BorrowedFd<'_>) {
    let (out, into) = rustix::pipe::pipe().unwrap();
    let part = rustix::pipe::IoSliceRaw::from_slice(BYTES);
    // SAFETY: the bytes are there for good.
    assert_eq!(unsafe { rustix::pipe::vmsplice(into, &[part], SpliceFlags::empty()) }.unwrap(), 5);
    assert_eq!(rustix::pipe::splice(out, None, to, None, 5, SpliceFlags::empty()).unwrap(), 5);
}

fn file_with_bytes() -> File {
    use std::io::{Seek, Write};
    let mut file = tempfile::tempfile_in(directory_on_ext4().path()).unwrap();
    file.write_all(BYTES).unwrap();
    file.rewind().unwrap();
    file
}

fn sendfile_to(to: BorrowedFd<'_>) {
    assert_eq!(rustix::fs::sendfile(to, file_with_bytes(), Some(&mut 0), 5).unwrap(), 5);
}

fn copy_to(to: BorrowedFd<'_>) {
    assert_eq!(rustix::fs::copy_file_range(file_with_bytes(), None, to, None, 5).unwrap(), 5);
}

/// `struct iocb` of linux/aio_abi.h.
#[repr(C)]
struct Request {
    data: u64,
    key: u32,
    flags: u32,
    what: u16,
    priority: i16,
    descriptor: i32,
    bytes: u64,
    len: u64,
    offset: i64,
    reserved: [u64; 2],
}

fn submit(what: u16, descriptor: BorrowedFd<'_>, bytes: &mut [u8]) {
    let mut context = 0_u64;
    let mut request = Request {
        data: 0,
        key: 0,
        flags: 0,
        what,
        priority: 0,
        descriptor: descriptor.as_raw_fd(),
        bytes: bytes.as_mut_ptr() as u64,
        len: bytes.len() as u64,
        offset: 0,
        reserved: [0; 2],
    };
    let requests = [&raw mut request];
    let mut done = [0_u64; 4];
    // SAFETY: the context, the request, its bytes and the result outlive the calls, the last of
    // which ends the context.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_io_setup, 1, &raw mut context), 0);
        assert_eq!(libc::syscall(libc::SYS_io_submit, context, 1, requests.as_ptr()), 1);
        let none = std::ptr::null_mut::<u8>();
        let events = libc::syscall(libc::SYS_io_getevents, context, 1, 1, &raw mut done, none);
        assert_eq!((events, done[2]), (1, bytes.len() as u64));
        assert_eq!(libc::syscall(libc::SYS_io_destroy, context), 0);
    }
}

fn submit_to(to: BorrowedFd<'_>) {
    submit(1, to, &mut BYTES.clone());
}

fn write_to(to: BorrowedFd<'_>) {
    assert_eq!(rustix::io::write(to, BYTES).unwrap(), 5);
}

fn writev_to(to: BorrowedFd<'_>) {
    assert_eq!(rustix::io::writev(to, &[IoSlice::new(BYTES)]).unwrap(), 5);
}

/// Behind what was written last.
fn pwritev2_to(to: BorrowedFd<'_>) {
    let flags = rustix::io::ReadWriteFlags::empty();
    assert_eq!(rustix::io::pwritev2(to, &[IoSlice::new(BYTES)], u64::MAX, flags).unwrap(), 5);
}

fn send_to(to: BorrowedFd<'_>) {
    assert_eq!(rustix::net::send(to, BYTES, rustix::net::SendFlags::empty()).unwrap(), 5);
}

fn message() -> (libc::iovec, libc::msghdr) {
    let part = libc::iovec { iov_base: BYTES.as_ptr().cast_mut().cast(), iov_len: 5 };
    // SAFETY: zeros stand for no address, no control bytes and no flags.
    (part, unsafe { std::mem::zeroed() })
}

fn ask_for_zero_copy(socket: BorrowedFd<'_>) -> bool {
    let (yes, level) = (1_i32, libc::SOL_SOCKET);
    // SAFETY: the option's value outlives the call.
    unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, libc::SO_ZEROCOPY, (&raw const yes).cast(), 4)
            == 0
    }
}

fn sendmsg_to(to: BorrowedFd<'_>) {
    let (mut part, mut message) = message();
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    // Not every socket has it.
    let flags = if ask_for_zero_copy(to) { libc::MSG_ZEROCOPY } else { 0 };
    // SAFETY: the message and its bytes outlive the call.
    assert_eq!(unsafe { libc::sendmsg(to.as_raw_fd(), &raw const message, flags) }, 5);
}

fn sendmmsg_to(to: BorrowedFd<'_>) {
    let (mut part, mut message) = message();
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    let mut message = libc::mmsghdr { msg_hdr: message, msg_len: 0 };
    // SAFETY: the message and its bytes outlive the call.
    assert_eq!(unsafe { libc::sendmmsg(to.as_raw_fd(), &raw mut message, 1, 0) }, 1);
}

const TO_SOCKETS: [(&str, Give); 10] = [
    ("write", write_to),
    ("writev", writev_to),
    ("pwritev2", pwritev2_to),
    ("send", send_to),
    ("sendmsg", sendmsg_to),
    ("sendmmsg", sendmmsg_to),
    ("sendfile", sendfile_to),
    ("splice", splice_to),
    ("vmsplice", vmsplice_to),
    ("io_submit", submit_to),
];

const TO_FILES: [(&str, Give); 8] = [
    ("write", write_to),
    ("writev", writev_to),
    ("pwritev2", pwritev2_to),
    ("sendfile", sendfile_to),
    ("splice", splice_to),
    ("vmsplice", vmsplice_to),
    ("copy_file_range", copy_to),
    ("io_submit", submit_to),
];

/// A server whose network is up, and what is told of it.
struct Told {
    server: ServerThread,
    watcher: nicache_watch::KernelWatcher,
    witness: nicache_watch::KernelWitness,
}

impl Told {
    fn start() -> Self {
        let server = ServerThread::start();
        let watcher = crate::common::load(server.netns).unwrap();
        let witness = watcher.witness().unwrap();
        server.run(|| {
            let up = Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap();
            assert!(up.success());
        });
        Self { server, watcher, witness }
    }

    /// What is told of `job`.
    fn of<T: Send + 'static>(
        &mut self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> (T, Vec<LookupEvent>) {
        self.witness.drain(&mut |_| {});
        let result = self.server.run(job);
        let mut events = Vec::new();
        self.witness.drain(&mut |event| events.push(event));
        (result, events)
    }
}

fn connection() -> (TcpListener, TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let accepted = listener.accept().unwrap().0;
    (listener, client, accepted)
}

/// A relay may pass on by any of these what another program is asked.
#[test]
fn whoever_gives_bytes_to_a_socket_has_sent_something() {
    let mut told = Told::start();
    for (name, give) in TO_SOCKETS {
        let (kept, events) = told.of(move || {
            let (listener, client, accepted) = connection();
            give(client.as_fd());
            (listener, client, accepted)
        });
        let own = rustix::fs::fstat(&kept.1).unwrap().st_ino;
        let to = kept.1.peer_addr().unwrap().port();
        let is_told = events.iter().any(|event| match event.kind {
            EventKind::Sent(sent) => {
                sent.connection == own && matches!(sent.to, Peer::Ipv4(_, port) if port == to)
            }
            // It is not known whom.
            EventKind::Hidden => name == "io_submit",
            _ => false,
        });
        assert!(is_told, "{name} to TCP: {events:?}");

        let (kept, events) = told.of(move || {
            let (ours, theirs) = UnixStream::pair().unwrap();
            give(ours.as_fd());
            (ours, theirs)
        });
        let own = rustix::fs::fstat(&kept.0).unwrap().st_ino;
        let is_told = events.iter().any(|event| match event.kind {
            EventKind::Sent(sent) => {
                sent.connection == own && sent.to == Peer::Local(std::process::id())
            }
            EventKind::Hidden => name == "io_submit",
            _ => false,
        });
        assert!(is_told, "{name} to a program of this machine: {events:?}");
    }
}

/// A web server's replies, by whatever call.
#[test]
fn what_clients_of_the_web_server_get_is_not_told() {
    let mut told = Told::start();
    for (name, give) in TO_SOCKETS {
        // Nobody answers by that one, and who does is not followed any longer.
        if name == "io_submit" {
            continue;
        }
        let kept = told.server.run(connection);
        let port = kept.0.local_addr().unwrap().port();
        told.watcher.table().unwrap().set_service_ports(&[port]);
        let accepted = kept.2.try_clone().unwrap();
        let ((), events) = told.of(move || give(accepted.as_fd()));
        let is_sent = |event: &LookupEvent| matches!(event.kind, EventKind::Sent(_));
        assert!(!events.iter().any(is_sent), "{name}: {events:?}");
        let file = events.iter().any(|event| event.kind == EventKind::Sendfile);
        assert_eq!(file, name == "sendfile", "{events:?}");
    }
}

#[test]
fn whoever_gives_bytes_to_a_file_has_written() {
    let mut told = Told::start();
    let folder = directory_on_ext4();
    for (name, give) in TO_FILES {
        let path = folder.path().join(name);
        let opened = path.clone();
        let ((), events) = told.of(move || give(File::create(opened).unwrap().as_fd()));
        assert_eq!(fs::read(&path).unwrap(), BYTES, "{name}");
        let ino = fs::metadata(&path).unwrap().ino();
        let is_told = events.iter().any(|event| {
            event.kind == EventKind::Wrote && event.inode.is_some_and(|inode| inode.ino == ino)
        });
        assert!(is_told, "{name}: {events:?}");
        let is_hidden = |event: &LookupEvent| event.kind == EventKind::Hidden;
        assert!(!events.iter().any(is_hidden), "{name}: {events:?}");
    }
}

/// A web server may read its files so.
#[test]
fn whoever_reads_by_asynchronous_calls_is_followed() {
    let mut told = Told::start();
    let ((), events) = told.of(|| {
        let mut bytes = [0; 5];
        submit(0, file_with_bytes().as_fd(), &mut bytes);
        assert_eq!(&bytes, BYTES);
    });
    let is_told =
        |event: &LookupEvent| matches!(event.kind, EventKind::Hidden | EventKind::Sent(_));
    assert!(!events.iter().any(is_told), "{events:?}");
}
