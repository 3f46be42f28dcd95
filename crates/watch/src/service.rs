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

/// Questions answered together at most.
const BATCH_MAX: usize = 16;

/// Somebody who asks what the watcher knows, at a socket of their own.
pub trait Operator {
    /// Where questions come in.
    fn socket(&self) -> BorrowedFd<'_>;

    /// Answers one that has come.
    ///
    /// # Errors
    /// Nobody is there any more; the watcher ends.
    fn answer(&mut self, registrar: &mut Registrar) -> io::Result<()>;
}

/// Serves one card until it closes its end of `socket` (SOCK_SEQPACKET). The lease ends with the loop.
///
/// A datagram that is no [`Question`] ends it, too: the other side is not the card that it should be.
///
/// # Errors
/// What the socket says; [`io::ErrorKind::InvalidData`] for a malformed datagram.
pub fn run_watcher(
    registrar: &mut Registrar,
    socket: BorrowedFd<'_>,
    operator: Option<&mut dyn Operator>,
) -> io::Result<()> {
    let result = serve(registrar, socket, operator);
    registrar.end_lease();
    result
}

fn serve(registrar: &mut Registrar, socket: BorrowedFd<'_>, mut operator: Option<&mut dyn Operator>) -> io::Result<()> {
    // One byte longer than any message, so that a longer datagram is noticed.
    let mut batch = vec![([0; MESSAGE_BYTES_MAX + 1], 0); BATCH_MAX];
    let pause = Timespec { tv_sec: 0, tv_nsec: PAUSE.subsec_nanos().into() };
    loop {
        registrar.handle_time();
        registrar.handle_events();
        let is_asked = {
            let asked = operator.as_ref().map(|operator| operator.socket());
            let mut sockets = vec![PollFd::new(&socket, PollFlags::IN)];
            sockets.extend(asked.as_ref().map(|asked| PollFd::new(asked, PollFlags::IN)));
            match poll(&mut sockets, Some(&pause)) {
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => sockets.get(1).is_some_and(|asked| !asked.revents().is_empty()),
                Err(error) => return Err(error.into()),
            }
        };
        if is_asked && let Some(operator) = &mut operator {
            operator.answer(registrar)?;
        }
        loop {
            let mut count = 0;
            while count < BATCH_MAX
                && let Some(len) = receive(socket, &mut batch[count].0)?
            {
                if len == 0 {
                    return Ok(());
                }
                batch[count].1 = len;
                count += 1;
            }
            if count == 0 {
                break;
            }
            if answer(registrar, batch[..count].iter().map(|(bytes, len)| &bytes[..*len]), socket)? == Card::Gone {
                return Ok(());
            }
        }
    }
}

#[derive(PartialEq, Eq)]
enum Card {
    There,
    Gone,
}

/// Answers questions that have come together: what they have in common is looked up once.
fn answer<'a>(
    registrar: &mut Registrar,
    questions: impl Iterator<Item = &'a [u8]>,
    socket: BorrowedFd<'_>,
) -> io::Result<Card> {
    let mut resolver = registrar.resolver();
    for question in questions {
        let question = Question::decode(question).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let sent = match question {
            Question::Fill(request) => {
                let mut out = [0; FILL_VERDICT_BYTES_MAX];
                send(socket, registrar.judge(&request, &mut resolver).encode(&mut out))
            }
            Question::Reinstate(request) => send(socket, &registrar.reinstate(&request, &mut resolver).encode()),
        };
        match sent {
            Err(Errno::PIPE | Errno::CONNRESET) => return Ok(Card::Gone),
            result => result?,
        }
        registrar.handle_time();
    }
    Ok(Card::There)
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
