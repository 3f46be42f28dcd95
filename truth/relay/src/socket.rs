//! How the sockets of a client and of the database are set up.
//!
//! Both ends may have asked their kernels to look after the other one, which is the relay now. So
//! the relay has to look after both of them.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use rustix::net::sockopt;

/// After so long without a byte the kernel asks whether the peer is still there,
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// then so often,
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// and after so many questions without an answer the connection ends.
const KEEPALIVE_COUNT: u32 = 4;
/// Bytes that the database does not acknowledge for so long end it, too, and its silence then lasts
/// as long. Not those for a client: it may take nothing of a reply for as long as it likes.
const UNACKNOWLEDGED_MS_MAX: u32 = 300_000;

/// Sets a client's socket up.
pub(crate) fn set_up_client(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_COUNT)?;
    Ok(())
}

/// Sets the database's socket up.
pub(crate) fn set_up_database(stream: &TcpStream) -> io::Result<()> {
    set_up_client(stream)?;
    sockopt::set_tcp_user_timeout(stream, UNACKNOWLEDGED_MS_MAX)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_kernel_looks_after_both_peers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let database = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (client, _) = listener.accept().unwrap();
        set_up_client(&client).unwrap();
        set_up_database(&database).unwrap();
        for (stream, unacknowledged) in [(&client, 0), (&database, UNACKNOWLEDGED_MS_MAX)] {
            assert!(stream.nodelay().unwrap() && sockopt::socket_keepalive(stream).unwrap());
            assert_eq!(sockopt::tcp_keepidle(stream).unwrap(), KEEPALIVE_IDLE);
            assert_eq!(sockopt::tcp_keepintvl(stream).unwrap(), KEEPALIVE_INTERVAL);
            assert_eq!(sockopt::tcp_keepcnt(stream).unwrap(), KEEPALIVE_COUNT);
            assert_eq!(sockopt::tcp_user_timeout(stream).unwrap(), unacknowledged);
        }
    }
}
