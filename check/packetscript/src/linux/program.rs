//! The server's program on the kernel's sockets: a thread that reads requests and writes each reply
//! at once.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt;

use crate::backend::BackendError;
use crate::content::Responder;
use crate::script::{Object, ServerAction, Setup};

const READ_BYTES: usize = 64 * 1024;

/// The running program.
pub(super) struct Program {
    actions: Option<Sender<(ServerAction, Sender<()>)>>,
    bell: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Program {
    /// Starts it on a listening socket.
    pub(super) fn start(listener: TcpListener, setup: &Setup) -> Result<Self, BackendError> {
        let pair = UnixStream::pair().and_then(|(bell, heard)| {
            bell.set_nonblocking(true)?;
            heard.set_nonblocking(true)?;
            Ok((bell, heard))
        });
        let (bell, heard) = pair.map_err(|error| BackendError::io("a pair of sockets", error))?;
        let (actions, inbox) = channel();
        let objects = setup.objects.clone();
        let body = move || {
            Server { listener, heard, inbox, objects, connections: Vec::new(), allowance: None }
                .run();
        };
        let thread = std::thread::Builder::new()
            .name("script server".to_owned())
            .spawn(body)
            .map_err(|error| BackendError::io("a thread", error))?;
        Ok(Self { actions: Some(actions), bell, thread: Some(thread) })
    }

    /// Has it do something, and waits until it has.
    pub(super) fn act(&mut self, action: ServerAction) -> Result<(), BackendError> {
        let gone = || BackendError::Unsupported("the server's program is gone".to_owned());
        let (done, wait) = channel();
        self.actions.as_ref().ok_or_else(gone)?.send((action, done)).map_err(|_| gone())?;
        self.bell.write_all(&[1]).map_err(|error| BackendError::io("waking the program", error))?;
        wait.recv_timeout(Duration::from_secs(10)).map_err(|_| gone())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.actions.take());
        let _ = self.bell.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Served {
    stream: TcpStream,
    responder: Responder,
    /// The client has closed.
    is_read_out: bool,
    /// Nothing is sent any longer.
    is_shut: bool,
}

struct Server {
    listener: TcpListener,
    heard: UnixStream,
    inbox: Receiver<(ServerAction, Sender<()>)>,
    objects: Vec<Object>,
    connections: Vec<Served>,
    /// Bytes that may still be read; `None`: all.
    allowance: Option<usize>,
}

impl Server {
    fn run(mut self) {
        loop {
            let mut fds = vec![
                PollFd::new(&self.heard, PollFlags::IN),
                PollFd::new(&self.listener, PollFlags::IN),
            ];
            for served in &self.connections {
                let mut wanted = PollFlags::empty();
                if !served.is_read_out && self.allowance != Some(0) {
                    wanted |= PollFlags::IN;
                }
                if !served.responder.output.is_empty() {
                    wanted |= PollFlags::OUT;
                }
                fds.push(PollFd::new(&served.stream, wanted));
            }
            // A connection that is reset or closed by both sides is not polled over and over: it is
            // forgotten below.
            match poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
            let failed: Vec<bool> = fds[2..]
                .iter()
                .map(|fd| fd.revents().intersects(PollFlags::ERR | PollFlags::HUP))
                .collect();
            drop(fds);
            if !self.listen_to_actions() {
                return;
            }
            while let Ok((stream, _)) = self.listener.accept() {
                if stream.set_nonblocking(true).is_ok() {
                    let responder = Responder::default();
                    self.connections.push(Served {
                        stream,
                        responder,
                        is_read_out: false,
                        is_shut: false,
                    });
                }
            }
            self.serve(&failed);
        }
    }

    fn serve(&mut self, failed: &[bool]) {
        let mut at = 0;
        let (objects, allowance) = (&self.objects, &mut self.allowance);
        self.connections.retain_mut(|served| {
            let has_failed = failed.get(at).copied().unwrap_or(false);
            at += 1;
            served.work(objects, allowance).is_ok() && !has_failed
        });
    }

    /// Does what it is told; false at the end.
    fn listen_to_actions(&mut self) -> bool {
        match self.heard.read(&mut [0; 64]) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) if is_passing(&error) => {}
            Err(_) => return false,
        }
        while let Ok((action, done)) = self.inbox.try_recv() {
            match action {
                ServerAction::Pause => self.allowance = Some(0),
                ServerAction::Read(bytes) => self.allowance = Some(bytes),
                ServerAction::Resume => self.allowance = None,
                ServerAction::Close => self.connections.clear(),
                ServerAction::Shutdown => {
                    for served in &mut self.connections {
                        served.is_shut = served.stream.shutdown(Shutdown::Write).is_ok();
                    }
                }
                ServerAction::Reset => {
                    for served in &self.connections {
                        let _ = sockopt::set_socket_linger(&served.stream, Some(Duration::ZERO));
                    }
                    self.connections.clear();
                }
            }
            self.serve(&[]);
            let _ = done.send(());
        }
        true
    }
}

/// Whether a call is to be made again later.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

impl Served {
    /// Reads, answers, writes. An error: it is over.
    fn work(&mut self, objects: &[Object], allowance: &mut Option<usize>) -> io::Result<()> {
        let unix_s = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |time| time.as_secs());
        let mut bytes = vec![0; READ_BYTES];
        while !self.is_read_out && *allowance != Some(0) {
            let most = allowance.unwrap_or(READ_BYTES).min(READ_BYTES);
            match self.stream.read(&mut bytes[..most]) {
                Ok(0) => self.is_read_out = true,
                Ok(count) => {
                    *allowance = allowance.map(|left| left - count);
                    self.responder.handle(&bytes[..count], objects, unix_s);
                }
                Err(error) if is_passing(&error) => break,
                Err(error) => return Err(error),
            }
        }
        while !self.responder.output.is_empty() {
            match self.stream.write(&self.responder.output) {
                Ok(count) => drop(self.responder.output.drain(..count)),
                Err(error) if is_passing(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        // Dropped: the kernel sends what is left, then a FIN.
        if (self.responder.closes || self.is_read_out) && !self.is_shut {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }
}
