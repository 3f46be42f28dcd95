//! The watcher's loop: look-ups in, fills judged, lease renewed, for all cards.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nicache_coherence::{FILL_VERDICT_BYTES_MAX, MESSAGE_BYTES_MAX, Question};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags};

use crate::verdicts::registrar::Registrar;

/// Longest pause between two looks at the ring, which takes some 13,000 look-ups; well below the
/// lease's renewal.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a card that does not read its verdicts is waited for; short beside the lease, as all
/// cards wait.
const PATIENCE: Duration = Duration::from_millis(2);

/// Questions answered together at most.
const BATCH_MAX: usize = 16;

/// Somebody who asks what the watcher knows, at a socket of their own, and brings new cards.
pub trait Operator {
    /// Where questions come in.
    fn socket(&self) -> BorrowedFd<'_>;

    /// Answers one that has come. The socket of a card (SOCK_SEQPACKET) that is to be served from
    /// now on, if one was brought.
    ///
    /// # Errors
    /// Nobody is there any longer; the watcher ends.
    fn answer(&mut self, registrar: &mut Registrar) -> io::Result<Option<OwnedFd>>;
}

/// Serves cards, each until it closes its end of its socket (SOCK_SEQPACKET), until there is
/// neither a card nor an operator to bring one, or the witness no longer sees everything. The lease
/// ends with the loop.
///
/// A datagram that is not a [`Question`] ends a card's service, too: it is not the card that it
/// should be.
///
/// # Errors
/// What polling says.
pub fn run_watcher(
    registrar: &mut Registrar,
    cards: Vec<OwnedFd>,
    operator: Option<&mut dyn Operator>,
) -> io::Result<()> {
    let result = serve(registrar, cards, operator);
    registrar.end_lease();
    result
}

fn serve(
    registrar: &mut Registrar,
    mut cards: Vec<OwnedFd>,
    mut operator: Option<&mut dyn Operator>,
) -> io::Result<()> {
    // One byte longer than any message, so a longer datagram is noticed.
    let mut batch = vec![([0; MESSAGE_BYTES_MAX + 1], 0); BATCH_MAX];
    let pause = Timespec { tv_sec: 0, tv_nsec: PAUSE.subsec_nanos().into() };
    while !cards.is_empty() || operator.is_some() {
        registrar.handle_time();
        registrar.handle_events();
        if registrar.is_blind() {
            return Ok(());
        }
        let is_asked = {
            let asked = operator.as_ref().map(|operator| operator.socket());
            let mut sockets: Vec<_> =
                cards.iter().map(|card| PollFd::new(card, PollFlags::IN)).collect();
            sockets.extend(asked.as_ref().map(|asked| PollFd::new(asked, PollFlags::IN)));
            match poll(&mut sockets, Some(&pause)) {
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => sockets.get(cards.len()).is_some_and(|asked| !asked.revents().is_empty()),
                Err(error) => return Err(error.into()),
            }
        };
        if is_asked && let Some(operator) = &mut operator {
            cards.extend(operator.answer(registrar)?);
        }
        cards.retain(|card| match serve_card(registrar, card.as_fd(), &mut batch) {
            Ok(Card::There) => true,
            Ok(Card::Gone) => false,
            Err(error) => {
                tracing::error!("a card sent what no card sends, or its socket broke; it is no longer served: {error}");
                false
            }
        });
    }
    Ok(())
}

/// Answers all questions that a card has asked.
fn serve_card(
    registrar: &mut Registrar,
    card: BorrowedFd<'_>,
    batch: &mut [([u8; MESSAGE_BYTES_MAX + 1], usize)],
) -> io::Result<Card> {
    loop {
        let mut count = 0;
        while count < batch.len()
            && let Some(len) = receive(card, &mut batch[count].0)?
        {
            if len == 0 {
                return Ok(Card::Gone);
            }
            batch[count].1 = len;
            count += 1;
        }
        if count == 0 {
            return Ok(Card::There);
        }
        if answer(registrar, batch[..count].iter().map(|(bytes, len)| &bytes[..*len]), card)?
            == Card::Gone
        {
            return Ok(Card::Gone);
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
        let question = Question::decode(question)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let sent = match question {
            Question::Fill(request) => {
                let mut out = [0; FILL_VERDICT_BYTES_MAX];
                send(socket, registrar.judge(&request, &mut resolver).encode(&mut out))
            }
            Question::Reinstate(request) => {
                send(socket, &registrar.reinstate(&request, &mut resolver).encode())
            }
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

/// Waits a little if the card is slow; then the verdict is lost to it, and nobody else waits for a
/// card that stands still.
fn send(socket: BorrowedFd<'_>, message: &[u8]) -> rustix::io::Result<()> {
    let patience = Timespec { tv_sec: 0, tv_nsec: PATIENCE.subsec_nanos().into() };
    let mut may_wait = true;
    loop {
        match rustix::net::send(socket, message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if may_wait => {
                let mut sockets = [PollFd::new(&socket, PollFlags::OUT)];
                retry_on_intr(|| poll(&mut sockets, Some(&patience)))?;
                may_wait = false;
            }
            Err(Errno::AGAIN) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use nicache_coherence::RevisionTable;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;
    use crate::witnesses::event::{EventKind, Identity, LookupEvent, RequestEvent, RequestStep};
    use crate::witnesses::witness::{Coverage, Drained, Witness};

    struct Blind(Coverage);

    impl Witness for Blind {
        fn drain(&mut self, _handle: &mut dyn FnMut(LookupEvent)) -> Drained {
            Drained::Corrupt
        }

        fn coverage(&self) -> &Coverage {
            &self.0
        }

        fn sees_everybody(&self) -> bool {
            true
        }

        fn is_blind(&self) -> bool {
            true
        }
    }

    /// What the server did.
    struct Script(Vec<LookupEvent>, Coverage);

    impl Witness for Script {
        fn drain(&mut self, handle: &mut dyn FnMut(LookupEvent)) -> Drained {
            self.0.drain(..).for_each(handle);
            Drained::All
        }

        fn coverage(&self) -> &Coverage {
            &self.1
        }

        fn sees_everybody(&self) -> bool {
            true
        }
    }

    /// A worker reads a file, which is in memory that it shares with others, and ends. A program
    /// that a page starts gets its number, and ends: nothing is forgotten for that.
    #[test]
    fn a_program_with_the_number_of_a_worker_takes_nothing_with_it() {
        const NUMBER: u32 = 4_194_000;
        let file = Identity { dev: 8 << 20, ino: 77 };
        let of = |kind| LookupEvent { kind, tgid: NUMBER, tid: NUMBER, ..LookupEvent::blank(1) };
        let step = |what| {
            let connection = u64::from(NUMBER);
            of(EventKind::Request(RequestEvent { connection, what, concurrent: false }))
        };
        let started = || LookupEvent { tgid: 7, tid: 7, ..step(RequestStep::Started(7)) };
        let read = |path: &[u8]| LookupEvent {
            inode: Some(file),
            mode: libc::S_IFREG as u16,
            path: path.into(),
            ..of(EventKind::Lookup)
        };
        let has = |events: Vec<LookupEvent>| {
            let table = RevisionTable::on_heap();
            let script = Script(events, Coverage { ext4: true, ..Coverage::default() });
            let mut registrar = Registrar::new(table, Box::new(script));
            registrar.handle_events();
            registrar.retained.has(file)
        };
        let gone = || step(RequestStep::Gone);
        let read = || read(b"/a.php");
        assert!(has(vec![read(), gone(), started(), gone()]));
        assert!(has(vec![read(), started(), gone()]), "its end was not told");
        let own = LookupEvent { starter: 7, ..read() };
        assert!(!has(vec![started(), own.clone()]), "put by, until it is known to be the server's");
        assert!(!has(vec![started(), own, gone()]));
    }

    /// So another watcher takes its place, although the card is still there.
    #[test]
    fn a_watcher_whose_witness_is_blind_ends() {
        let table = RevisionTable::on_heap();
        let mut registrar = Registrar::new(table.clone(), Box::new(Blind(Coverage::default())));
        let (card, _end) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        run_watcher(&mut registrar, vec![card], None).unwrap();
        assert!(!table.lease_holds(1), "nobody vouches any longer");
    }
}
