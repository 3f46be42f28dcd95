//! The card's way to the watcher: one socket for all shards, whose answers a reader thread hands
//! out. A watcher that takes another one's place has another socket.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use anyhow::Result;
use nicache_cache::CoherenceLink;
use nicache_coherence::{Answer, FILL_REQUEST_BYTES_MAX, MESSAGE_BYTES_MAX, Question};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::shard::Waker;

/// Where a shard's number stands in the number of a fill; the card's own numbers leave these bits
/// free.
const SHARD_SHIFT: u32 = 24;
const SHARD_MASK: u64 = 0xff << SHARD_SHIFT;

/// Asks the watcher for one shard.
pub(crate) struct WatcherLink {
    socket: Arc<OwnedFd>,
    shard: u64,
    answers: Receiver<Answer>,
}

/// The thread that hands out what watchers answer.
pub(crate) struct Verdicts {
    shards: u64,
    sockets: Sender<Talk>,
}

/// A socket to a watcher, and where what comes from it goes, by shard.
struct Talk {
    socket: Arc<OwnedFd>,
    senders: Vec<Sender<Answer>>,
}

impl Verdicts {
    /// Starts the thread, which waits for the first watcher.
    pub(crate) fn start(wakers: Vec<Waker>) -> Result<Self> {
        let (sockets, talks) = channel::<Talk>();
        let shards = wakers.len() as u64;
        let body = move || talks.iter().for_each(|talk| hand_out(&talk, &wakers));
        std::thread::Builder::new().name("verdicts".into()).spawn(body)?;
        Ok(Self { shards, sockets })
    }

    /// Links for all shards over one socket, whose answers are handed out once the watcher before
    /// has hung up. When this one does, no verdict comes any longer.
    pub(crate) fn connect(&self, socket: OwnedFd) -> Vec<WatcherLink> {
        let socket = Arc::new(socket);
        let link = |shard| {
            let (sender, answers) = channel();
            (sender, WatcherLink { socket: Arc::clone(&socket), shard, answers })
        };
        let (senders, links) = (0..self.shards).map(link).unzip();
        // Fails only if the thread has ended, and the process with it.
        let _ = self.sockets.send(Talk { socket: Arc::clone(&socket), senders });
        links
    }
}

impl CoherenceLink for WatcherLink {
    fn ask(&mut self, question: &Question<'_>) -> bool {
        let name = |id: u64| id & !SHARD_MASK | self.shard << SHARD_SHIFT;
        match question {
            Question::Fill(request) => {
                let mut request = request.clone();
                request.id = name(request.id);
                let mut out = [0; FILL_REQUEST_BYTES_MAX];
                self.send(request.encode(&mut out))
            }
            Question::Reinstate(request) => {
                let mut request = *request;
                request.id = name(request.id);
                self.send(&request.encode())
            }
        }
    }

    fn poll_answer(&mut self) -> Option<Answer> {
        self.answers.try_recv().ok()
    }
}

impl WatcherLink {
    fn send(&self, message: &[u8]) -> bool {
        send(&*self.socket, message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_ok()
    }
}

fn hand_out(talk: &Talk, wakers: &[Waker]) {
    let Talk { socket, senders } = talk;
    let mut buffer = [0; MESSAGE_BYTES_MAX + 1];
    loop {
        let len = match recv(socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((0, _)) => break,
            Ok((len, _)) => len,
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => break,
        };
        match Answer::decode(&buffer[..len]) {
            Ok(mut answer) => {
                let id = answer.id_mut();
                let shard = ((*id & SHARD_MASK) >> SHARD_SHIFT) as usize;
                *id &= !SHARD_MASK;
                if let (Some(sender), Some(waker)) = (senders.get(shard), wakers.get(shard)) {
                    // Fails only if the shard is gone, and the process with it.
                    let _ = sender.send(answer);
                    waker.wake();
                }
            }
            Err(error) => {
                tracing::error!(
                    "the watcher sent something odd, nothing of it is stored any longer: {error}"
                );
                return;
            }
        }
    }
    tracing::warn!(
        "the watcher is gone: nothing is served from card memory until another one watches"
    );
}
