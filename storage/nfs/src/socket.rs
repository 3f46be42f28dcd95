//! A client's socket: how it is set up once it is accepted.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use rustix::net::sockopt;

/// After so long without a byte the kernel asks whether the client is still there,
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// then so often,
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// and after so many questions without an answer the connection ends.
const KEEPALIVE_COUNT: u32 = 4;
/// Bytes that the client does not acknowledge for so long end it, too.
const UNACKNOWLEDGED_MS_MAX: u32 = 120_000;

/// Sets a client's socket up: it does not block, does not hold small replies back, and ends when
/// the client has gone without a word.
pub(crate) fn set_up(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_COUNT)?;
    sockopt::set_tcp_user_timeout(stream, UNACKNOWLEDGED_MS_MAX)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn the_kernel_looks_after_clients_that_are_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        set_up(&stream).unwrap();
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), KEEPALIVE_IDLE);
        assert_eq!(sockopt::tcp_keepintvl(&stream).unwrap(), KEEPALIVE_INTERVAL);
        assert_eq!(sockopt::tcp_keepcnt(&stream).unwrap(), KEEPALIVE_COUNT);
        assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), UNACKNOWLEDGED_MS_MAX);
    }
}
