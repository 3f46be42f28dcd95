//! A doorbell: what one side rings when the other sleeps. On a real card, a register that the host
//! writes and an interrupt.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, write};

/// An eventfd. Rings before it is heard become one.
#[derive(Debug)]
pub struct Doorbell(OwnedFd);

impl Doorbell {
    /// A new one.
    ///
    /// # Errors
    /// What the system says.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// One that another process has made.
    pub fn from_file(file: OwnedFd) -> Self {
        Self(file)
    }

    /// Wakes the other side.
    pub fn ring(&self) {
        // It can only be full, and then the other side is woken anyway.
        let _ = write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes it silent again. False: it had not been rung.
    pub fn hear(&self) -> bool {
        let mut count = [0; 8];
        loop {
            match read(&self.0, &mut count) {
                Ok(_) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}

impl AsFd for Doorbell {
    /// Readable when it has been rung.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_add_up_to_one() {
        let bell = Doorbell::new().unwrap();
        assert!(!bell.hear());
        bell.ring();
        bell.ring();
        assert!(bell.hear());
        assert!(!bell.hear());
    }
}
