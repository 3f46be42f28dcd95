//! Programs that run beside a test.

use std::net::{SocketAddr, TcpStream};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// A process that ends with the test: it is asked to, so it ends its own children.
#[derive(Debug)]
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

/// Waits until somebody listens at the address, as seen from the calling thread's namespace. Panics
/// after `limit`.
pub fn wait_for_listener(address: SocketAddr, limit: Duration) {
    let deadline = Instant::now() + limit;
    while let Err(error) = TcpStream::connect_timeout(&address, limit) {
        assert!(Instant::now() < deadline, "nobody listens at {address} after {limit:?}: {error}");
        std::thread::sleep(PAUSE);
    }
}
