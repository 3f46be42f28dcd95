//! A proxy between a client and a server that keeps what each side sent, in order.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// What was sent on one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Client(Vec<u8>),
    Server(Vec<u8>),
}

type Connections = Arc<Mutex<Vec<Vec<Sent>>>>;

pub(crate) struct Proxy {
    pub socket: PathBuf,
    connections: Connections,
    pumps: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

fn pump(mut from: UnixStream, mut to: UnixStream, keep: impl Fn(Vec<u8>)) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        // Kept first, so an answer never comes before its question.
        keep(buffer[..length].to_vec());
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

impl Proxy {
    pub(crate) fn start(socket: PathBuf, server: &Path) -> Self {
        let listener = UnixListener::bind(&socket).unwrap();
        let connections: Connections = Arc::default();
        let pumps: Arc<Mutex<Vec<JoinHandle<()>>>> = Arc::default();
        let (server, all, handles) = (server.to_owned(), connections.clone(), pumps.clone());
        // Ends with the process: it waits in accept.
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                let upstream = UnixStream::connect(&server).unwrap();
                let at = {
                    let mut all = all.lock().unwrap();
                    all.push(Vec::new());
                    all.len() - 1
                };
                for (from, to, by_client) in [
                    (client.try_clone().unwrap(), upstream.try_clone().unwrap(), true),
                    (upstream, client, false),
                ] {
                    let all = all.clone();
                    let keep = move |bytes| {
                        let sent =
                            if by_client { Sent::Client(bytes) } else { Sent::Server(bytes) };
                        all.lock().unwrap()[at].push(sent);
                    };
                    handles.lock().unwrap().push(std::thread::spawn(move || pump(from, to, keep)));
                }
            }
        });
        Self { socket, connections, pumps }
    }

    /// What was sent since the last call. The clients have ended.
    pub(crate) fn take(&self) -> Vec<Vec<Sent>> {
        let pumps: Vec<_> = self.pumps.lock().unwrap().drain(..).collect();
        for pump in pumps {
            pump.join().unwrap();
        }
        core::mem::take(&mut *self.connections.lock().unwrap())
    }
}
