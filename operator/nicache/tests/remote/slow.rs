//! A long way: what is said between a card's host and a relay arrives late, in both directions.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Accepts at one address and connects to another, from the namespace of the thread that makes it.
#[derive(Clone)]
pub(crate) struct Slow {
    milliseconds: Arc<AtomicU64>,
}

impl Slow {
    pub(crate) fn start(listen: &str, target: String) -> Self {
        let slow = Self { milliseconds: Arc::default() };
        let (listener, other) = (TcpListener::bind(listen).unwrap(), slow.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(&*target) else { continue };
                for stream in [&client, &server] {
                    stream.set_nodelay(true).unwrap();
                }
                other.copy(client.try_clone().unwrap(), server.try_clone().unwrap());
                other.copy(server, client);
            }
        });
        slow
    }

    pub(crate) fn set(&self, milliseconds: u64) {
        self.milliseconds.store(milliseconds, Ordering::SeqCst);
    }

    fn copy(&self, mut from: TcpStream, mut to: TcpStream) {
        let (sender, receiver) = channel::<(Instant, Vec<u8>)>();
        let slow = self.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 16384];
            while let Ok(len @ 1..) = from.read(&mut buffer) {
                let late = Duration::from_millis(slow.milliseconds.load(Ordering::SeqCst));
                if sender.send((Instant::now() + late, buffer[..len].to_vec())).is_err() {
                    break;
                }
            }
        });
        std::thread::spawn(move || {
            for (when, bytes) in receiver {
                std::thread::sleep(when.saturating_duration_since(Instant::now()));
                if to.write_all(&bytes).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Both);
        });
    }
}
