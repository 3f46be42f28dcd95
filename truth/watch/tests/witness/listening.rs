//! Who begins to listen is told before anybody can be answered there.

use std::fs::File;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, types};
use nicache_clock::monotonic_ns;
use rustix::fs::{FlockOperation, flock};
use rustix::net::{AddressFamily, Protocol, SocketAddrAny, SocketType, bind, listen, socket};

use crate::common::{expects_stops, load};

#[test]
fn sockets_that_begin_to_listen() {
    // A ring that is asked to listen is noticed on the whole machine.
    let alone = File::open("/var/tmp").unwrap();
    flock(&alone, FlockOperation::LockExclusive).unwrap();
    let watcher = load(0).unwrap();
    let table = watcher.table().unwrap();
    let Some(begun_ns) = table.listened_ns() else {
        // Where nobody sees what rings are asked for, who listens is asked each time.
        assert!(expects_stops());
        return;
    };
    assert!(begun_ns <= monotonic_ns());
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
    let before = monotonic_ns();
    // SAFETY: it points to nothing, and the socket lives until its result is here.
    unsafe { ring.submission().push(&request) }.unwrap();
    ring.submit_and_wait(1).unwrap();
    match ring.completion().next().unwrap().result() {
        // A ring may do so at any time, unless the function itself is seen.
        0 => assert!(table.listened_ns().is_none_or(|told| told >= before)),
        error => assert_eq!(error, -libc::EINVAL),
    }
}
