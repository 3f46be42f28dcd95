//! What the server did, as it saw it: the other side of what the clients saw.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Address and port of a client.
pub(crate) type Peer = (u32, u16);

/// One reply of the server.
#[derive(Clone, Debug, Default)]
pub struct HostReply {
    /// The request's number, if the request said one.
    pub request: Option<u64>,
    /// Who asked.
    pub peer: Peer,
    /// Everything written for it, interim replies included.
    pub bytes: Vec<u8>,
    /// When the request had been read.
    pub started_ns: u64,
    /// When the last byte was written; `None`: it was not.
    pub finished_ns: Option<u64>,
    /// Meant for this client alone.
    pub private: bool,
}

/// Requests as the clients sent them.
#[derive(Clone, Debug)]
pub struct SentRequest {
    /// Its bytes.
    pub bytes: Rc<[u8]>,
    /// Who sends it.
    pub peer: Peer,
}

/// Log of a run, shared by one thread.
#[derive(Debug, Default)]
pub struct HostLog {
    /// Replies by serial number.
    pub replies: Vec<HostReply>,
    /// Requests by number.
    pub requests: HashMap<u64, SentRequest>,
    /// Serial of the reply by request.
    pub answered: HashMap<u64, usize>,
    /// What clients sent that is not a request, by client.
    pub garbage: HashMap<Peer, Vec<u8>>,
    /// When the host sent FIN or RST to a client.
    pub ends: HashMap<Peer, Vec<u64>>,
    /// What was found wrong.
    pub violations: Vec<String>,
}

/// See [`HostLog`].
pub(crate) type SharedLog = Rc<RefCell<HostLog>>;

impl HostLog {
    /// Did the host end its side toward `peer` at or after `since_ns`?
    pub fn ended_since(&self, peer: Peer, since_ns: u64) -> bool {
        self.ends.get(&peer).is_some_and(|ends| ends.iter().any(|&at| at >= since_ns))
    }

    /// Notes something wrong.
    pub fn violation(&mut self, text: String) {
        if self.violations.len() < 20 {
            self.violations.push(text);
        }
    }
}
