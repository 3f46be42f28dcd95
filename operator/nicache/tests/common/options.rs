//! Connections whose packets are not plain.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};
use std::os::fd::AsRawFd;

use super::{SOON, uninterrupted};

/// The option of IPv4 that records a route, and padding; for IPv6 a header of destination options
/// that is all padding.
const RECORD_ROUTE: &[u8] = &[7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const PADDING: &[u8] = &[0, 0, 1, 4, 0, 0, 0, 0];

/// Asks on one connection again and again, each of whose packets has the options: the bodies.
pub(crate) fn ask_with_options(server: IpAddr, requests: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let (level, name, options) = match server {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_OPTIONS, RECORD_ROUTE),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_DSTOPTS, PADDING),
    };
    let mut stream = TcpStream::connect((server, 80)).unwrap();
    // SAFETY: the descriptor is the stream's, and the option is as long as is said.
    let set = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            level,
            name,
            options.as_ptr().cast(),
            options.len() as libc::socklen_t,
        )
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    stream.set_read_timeout(Some(SOON)).unwrap();
    requests.iter().map(|request| exchange(&mut stream, request)).collect()
}

/// The body of a reply with a length.
pub(crate) fn exchange(stream: &mut TcpStream, request: &[u8]) -> Vec<u8> {
    stream.write_all(request).unwrap();
    let mut reply = Vec::new();
    loop {
        let head = reply.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(head) = head {
            let text = String::from_utf8_lossy(&reply[..head]).to_ascii_lowercase();
            let len = text
                .split("content-length: ")
                .nth(1)
                .and_then(|rest| rest.lines().next())
                .unwrap_or("0");
            let len: usize = len.trim().parse().unwrap();
            if reply.len() >= head + 4 + len {
                return reply.split_off(head + 4);
            }
        }
        let mut more = [0; 65_536];
        let count = uninterrupted(|| stream.read(&mut more))
            .unwrap_or_else(|error| panic!("{error} after {} bytes", reply.len()));
        assert!(count > 0, "closed after {} bytes", reply.len());
        reply.extend_from_slice(&more[..count]);
    }
}
