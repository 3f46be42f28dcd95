//! The watcher's loop: look-ups in, fills judged, lease renewed, until the card hangs up.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nicache_coherence::{FILL_VERDICT_BYTES_MAX, MESSAGE_BYTES_MAX, Question};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::registrar::Registrar;

/// Longest pause between two looks at the ring, which takes some 13,000 look-ups; well below the lease's renewal.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves one card until it closes its end of `socket` (SOCK_SEQPACKET). The lease ends with the loop.
///
/// A datagram that is no [`Question`] ends it, too: the other side is not the card that it should be.
///
/// # Errors
/// What the socket says; [`io::ErrorKind::InvalidData`] for a malformed datagram.
pub fn run_watcher(registrar: &mut Registrar, socket: BorrowedFd<'_>) -> io::Result<()> {
    let result = serve(registrar, socket);
    registrar.end_lease();
    result
}

fn serve(registrar: &mut Registrar, socket: BorrowedFd<'_>) -> io::Result<()> {
    // One byte longer than any message, so that a longer datagram is noticed.
    let mut buffer = [0; MESSAGE_BYTES_MAX + 1];
    let pause = Timespec { tv_sec: 0, tv_nsec: PAUSE.subsec_nanos().into() };
    loop {
        registrar.handle_time();
        registrar.handle_events();
        match poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&pause)) {
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        while let Some(len) = receive(socket, &mut buffer)? {
            if len == 0 {
                return Ok(());
            }
            let question =
                Question::decode(&buffer[..len]).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            let sent = match question {
                Question::Fill(request) => {
                    let mut out = [0; FILL_VERDICT_BYTES_MAX];
                    send(socket, registrar.judge(&request).encode(&mut out))
                }
                Question::Reinstate(request) => send(socket, &registrar.reinstate(&request).encode()),
            };
            match sent {
                Err(Errno::PIPE | Errno::CONNRESET) => return Ok(()),
                result => result?,
            }
            registrar.handle_time();
        }
    }
}

fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match rustix::net::recv(socket, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((len, _)) => return Ok(Some(len)),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::CONNRESET) => return Ok(Some(0)),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits if the card is slow: a card that does not read its verdicts has no use for more.
fn send(socket: BorrowedFd<'_>, message: &[u8]) -> rustix::io::Result<()> {
    loop {
        match rustix::net::send(socket, message, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                poll(&mut [PollFd::new(&socket.as_fd(), PollFlags::OUT)], None)?;
            }
            Err(error) => return Err(error),
        }
    }
}
