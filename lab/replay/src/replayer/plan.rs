//! What is asked for, in which order and on which connections, and what the replies must be.

use super::expected::Expected;
use crate::sessions::{SessionConfig, Sessions};
use crate::static_site;
use crate::trace::Trace;

/// A request as far as its reply depends on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) object: u32,
    pub(crate) head: bool,
}

/// A trace ready to be replayed. It does not change, so replayers can share it.
#[derive(Debug)]
pub struct Plan {
    sessions: Sessions,
    expected: Expected,
}

impl Plan {
    /// Divides a trace into sessions and makes the bodies of its objects, in memory up to 2 GiB.
    pub fn new(trace: &Trace, config: &SessionConfig) -> Self {
        Self { sessions: Sessions::of(trace, config), expected: Expected::of(trace) }
    }

    /// The sessions that are replayed.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    pub(super) fn expected(&self) -> &Expected {
        &self.expected
    }

    /// The target of a request for an object.
    pub(super) fn target(&self, object: u32) -> String {
        String::from_utf8_lossy(&static_site::target(self.expected.id(object))).into_owned()
    }

    /// Appends a request. `closes`: the server is to close the connection after the reply.
    pub(super) fn write_request(&self, out: &mut Vec<u8>, asked: Asked, host: &str, closes: bool) {
        out.extend_from_slice(if asked.head { b"HEAD " } else { b"GET " });
        out.extend_from_slice(&static_site::target(self.expected.id(asked.object)));
        out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
        out.extend_from_slice(host.as_bytes());
        out.extend_from_slice(if closes { b"\r\nConnection: close\r\n\r\n" } else { b"\r\n\r\n" });
    }
}
