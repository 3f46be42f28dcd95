//! Records of hits: the server never saw them, so its own log lacks them.

use crate::flow::reply::ReplyKind;
use crate::limits::{ACCESS_RECORDS_MAX, ACCESS_TARGET_BYTES};

/// One request that was answered from card memory.
#[derive(Clone, Copy, Debug)]
pub struct AccessRecord {
    /// Seconds since 1970.
    pub time: u64,
    /// IPv4 address of the client.
    pub client: u32,
    /// Was it HEAD?
    pub head: bool,
    /// HTTP/1.0?
    pub http10: bool,
    /// Status of the reply.
    pub status: u16,
    /// Bytes of the body.
    pub body_bytes: u32,
    target: [u8; ACCESS_TARGET_BYTES],
    target_len: u16,
}

impl AccessRecord {
    /// A record; a longer target is cut.
    pub fn new(time: u64, client: u32, kind: ReplyKind, http10: bool, body_bytes: u32, target: &[u8]) -> AccessRecord {
        let mut kept = [0; ACCESS_TARGET_BYTES];
        let len = target.len().min(ACCESS_TARGET_BYTES);
        kept[..len].copy_from_slice(&target[..len]);
        AccessRecord {
            time,
            client,
            head: kind == ReplyKind::HeadOnly,
            http10,
            status: if kind == ReplyKind::NotModified { 304 } else { 200 },
            body_bytes,
            target: kept,
            target_len: len as u16,
        }
    }

    /// The request target, cut to 256 bytes.
    pub fn target(&self) -> &[u8] {
        &self.target[..self.target_len as usize]
    }
}

/// Records since the last collection; bounded.
pub struct AccessLog {
    records: Vec<AccessRecord>,
    enabled: bool,
}

impl AccessLog {
    /// An empty log, which stays empty unless `enabled`.
    pub fn new(enabled: bool) -> AccessLog {
        AccessLog { records: Vec::with_capacity(if enabled { ACCESS_RECORDS_MAX } else { 0 }), enabled }
    }

    /// Adds a record; false if there was no room.
    #[inline]
    pub fn record(&mut self, make: impl FnOnce() -> AccessRecord) -> bool {
        if !self.enabled {
            return true;
        }
        if self.records.len() == ACCESS_RECORDS_MAX {
            return false;
        }
        self.records.push(make());
        true
    }

    /// Hands all records to `take`.
    pub fn drain(&mut self, mut take: impl FnMut(&AccessRecord)) {
        self.records.iter().for_each(&mut take);
        self.records.clear();
    }
}
