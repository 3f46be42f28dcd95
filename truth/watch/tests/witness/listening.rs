//! Who begins to listen is told before anybody can be answered there.

use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, types};
use nicache_clock::monotonic_ns;
use rustix::net::{AddressFamily, Protocol, SocketAddrAny, SocketType, bind, listen, socket};

use crate::watcher;

#[test]
fn sockets_that_begin_to_listen() {
    let table = &watcher().1;
    assert!(table.listened_ns().is_some_and(|listened_ns| listened_ns <= monotonic_ns()));
    let v4: SocketAddrAny = "127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into();
    let v6: SocketAddrAny = "[::1]:0".parse::<std::net::SocketAddr>().unwrap().into();
    const MPTCP: u32 = 262;
    let mptcp = Protocol::from_raw(MPTCP.try_into().unwrap());
    for (family, at, protocol) in [
        (AddressFamily::INET, &v4, None),
        (AddressFamily::INET6, &v6, None),
        (AddressFamily::INET, &v4, Some(mptcp)),
    ] {
        // A kernel need not have MPTCP.
        let Ok(socket) = socket(family, SocketType::STREAM, protocol) else {
            assert!(protocol.is_some());
            continue;
        };
        bind(&socket, at).unwrap();
        let before = monotonic_ns();
        listen(&socket, 1).unwrap();
        let told = table.listened_ns().unwrap();
        assert!((before..=monotonic_ns()).contains(&told), "{family:?} {protocol:?}");
    }
    // A kernel that cannot (before 6.11) says so.
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &v4).unwrap();
    let mut ring = IoUring::new(2).unwrap();
    let request = opcode::Listen::new(types::Fd(socket.as_raw_fd()), 1).build();
    // SAFETY: it points to nothing, and the socket lives until its result is here.
    unsafe { ring.submission().push(&request) }.unwrap();
    ring.submit_and_wait(1).unwrap();
    match ring.completion().next().unwrap().result() {
        0 => assert_eq!(table.listened_ns(), None, "a ring may do so at any time"),
        error => assert_eq!(error, -libc::EINVAL),
    }
}
