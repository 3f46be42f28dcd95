//! What a TCP socket has been given to send, and its peer has not yet acknowledged.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{Getter, Opcode, ioctl};

/// `SIOCOUTQ` of linux/sockios.h, which is this.
const OUTPUT_QUEUE: Opcode = libc::TIOCOUTQ as Opcode;

/// Bytes that were written to a TCP socket and that its peer has not acknowledged; an end of output
/// counts as one.
///
/// # Errors
/// It is not a socket, or it listens.
pub fn unacknowledged(socket: impl AsFd) -> io::Result<usize> {
    // SAFETY: the kernel writes an int, which is what this reads.
    let bytes = unsafe { ioctl(socket, Getter::<OUTPUT_QUEUE, c_int>::new()) }?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use rustix::net::sockopt;

    use super::*;

    #[test]
    fn it_counts_what_waits() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        assert_eq!(unacknowledged(&client).unwrap(), 0);
        assert!(unacknowledged(&listener).is_err());
        // More than a peer that does not read has room for.
        sockopt::set_socket_recv_buffer_size(&peer, 4096).unwrap();
        client.set_nonblocking(true).unwrap();
        while client.write(&[0; 65536]).is_ok() {}
        assert!(unacknowledged(&client).unwrap() > 0);
    }
}
