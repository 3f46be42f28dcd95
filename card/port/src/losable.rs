//! A port that may be lost: what has others, too, goes on with these.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use crate::frame::{Burst, Offload};
use crate::gather::SendError;
use crate::port::{Capabilities, Port};

/// A port, or what is left of one that broke, for instance because its interface is gone: nothing
/// is received there, and what is sent is dropped and counted.
#[derive(Debug)]
pub struct Losable<P>(Inner<P>);

#[derive(Debug)]
enum Inner<P> {
    There(P),
    Lost { why: String, receive_dropped: u64, send_dropped: u64 },
}

impl<P: Port> Losable<P> {
    /// A port that is there.
    pub fn new(port: P) -> Self {
        Self(Inner::There(port))
    }

    /// One that is lost from the start.
    pub fn absent(why: String) -> Self {
        Self(Inner::Lost { why, receive_dropped: 0, send_dropped: 0 })
    }

    /// Why it is lost, if it is.
    pub fn lost(&self) -> Option<&str> {
        match &self.0 {
            Inner::There(_) => None,
            Inner::Lost { why, .. } => Some(why),
        }
    }

    fn lose(&mut self, error: &io::Error) {
        if let Inner::There(port) = &self.0 {
            let (receive_dropped, send_dropped) = (port.receive_dropped(), port.send_dropped());
            self.0 = Inner::Lost { why: error.to_string(), receive_dropped, send_dropped };
        }
    }
}

impl<P: Port> Port for Losable<P> {
    fn capabilities(&self) -> Capabilities {
        match &self.0 {
            Inner::There(port) => port.capabilities(),
            Inner::Lost { .. } => Capabilities::FULL,
        }
    }

    /// Never fails: a port that breaks is lost.
    fn receive(&mut self, burst: &mut Burst) -> io::Result<usize> {
        let Inner::There(port) = &mut self.0 else {
            burst.clear();
            return Ok(0);
        };
        match port.receive(burst) {
            Ok(count) => Ok(count),
            Err(error) => {
                burst.clear();
                self.lose(&error);
                Ok(0)
            }
        }
    }

    fn send(&mut self, parts: &[IoSlice<'_>], offload: Offload) -> Result<(), SendError> {
        match &mut self.0 {
            Inner::There(port) => port.send(parts, offload),
            Inner::Lost { send_dropped, .. } => {
                *send_dropped += 1;
                Ok(())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Inner::There(port) = &mut self.0
            && let Err(error) = port.flush()
        {
            self.lose(&error);
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Inner::There(port) => port.finish(),
            Inner::Lost { .. } => Ok(()),
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.0 {
            Inner::There(port) => port.wait_fd(),
            Inner::Lost { .. } => None,
        }
    }

    fn receive_dropped(&self) -> u64 {
        match &self.0 {
            Inner::There(port) => port.receive_dropped(),
            Inner::Lost { receive_dropped, .. } => *receive_dropped,
        }
    }

    fn send_dropped(&self) -> u64 {
        match &self.0 {
            Inner::There(port) => port.send_dropped(),
            Inner::Lost { send_dropped, .. } => *send_dropped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One whose interface goes after so many receives.
    struct Going(u32);

    impl Port for Going {
        fn capabilities(&self) -> Capabilities {
            Capabilities::PLAIN
        }
        fn receive(&mut self, _: &mut Burst) -> io::Result<usize> {
            self.0 = self.0.checked_sub(1).ok_or(io::ErrorKind::NotConnected)?;
            Ok(0)
        }
        fn send(&mut self, _: &[IoSlice<'_>], _: Offload) -> Result<(), SendError> {
            Ok(())
        }
        fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
            None
        }
        fn receive_dropped(&self) -> u64 {
            5
        }
        fn send_dropped(&self) -> u64 {
            2
        }
    }

    #[test]
    fn a_port_that_breaks_drops_what_is_sent_and_keeps_its_counters() {
        let (mut port, mut burst) = (Losable::new(Going(1)), Burst::new(4));
        let frame = [0; 60];
        assert_eq!((port.receive(&mut burst).unwrap(), port.lost()), (0, None));
        assert!(port.send(&[IoSlice::new(&frame)], Offload::default()).is_ok());
        assert_eq!((port.receive_dropped(), port.send_dropped()), (5, 2));
        for _ in 0..3 {
            assert_eq!(port.receive(&mut burst).unwrap(), 0);
            assert!(port.lost().is_some());
        }
        assert!(port.send(&[IoSlice::new(&frame)], Offload::default()).is_ok());
        assert!(port.flush().is_ok() && port.wait_fd().is_none());
        assert_eq!((port.receive_dropped(), port.send_dropped()), (5, 3));
        assert_eq!(Losable::<Going>::absent("gone".to_owned()).lost(), Some("gone"));
    }
}
