//! Records of hits: the server never saw them, so its own log lacks them.

use nicache_tcp::frame::Address;

use crate::flow::reply::ReplyKind;
use crate::limits::{ACCESS_RECORDS_MAX, ACCESS_TEXT_BYTES};

/// One request that was answered from card memory.
#[derive(Clone, Copy, Debug)]
pub struct AccessRecord {
    /// Seconds since 1970.
    pub time: u64,
    /// Address of the client.
    pub client: Address,
    /// Was the request a HEAD?
    pub head: bool,
    /// HTTP/1.0?
    pub http10: bool,
    /// Status of the reply.
    pub status: u16,
    /// Bytes of the body.
    pub body_bytes: u32,
    target: Text,
    referer: Text,
    user_agent: Text,
}

/// Bytes of a request, cut to a fixed length.
#[derive(Clone, Copy, Debug)]
struct Text {
    bytes: [u8; ACCESS_TEXT_BYTES],
    len: u16,
}

impl Text {
    fn new(bytes: &[u8]) -> Self {
        let mut kept = [0; ACCESS_TEXT_BYTES];
        let len = bytes.len().min(ACCESS_TEXT_BYTES);
        kept[..len].copy_from_slice(&bytes[..len]);
        Self { bytes: kept, len: len as u16 }
    }

    fn get(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl AccessRecord {
    /// A record of the request that begins with `head`.
    pub fn new(
        time: u64,
        client: Address,
        kind: ReplyKind,
        http10: bool,
        body_bytes: u32,
        head: &[u8],
    ) -> Self {
        Self {
            time,
            client,
            head: kind == ReplyKind::HeadOnly,
            http10,
            status: match kind {
                ReplyKind::Full | ReplyKind::HeadOnly => 200,
                ReplyKind::Range | ReplyKind::Parts => 206,
                ReplyKind::NotModified => 304,
            },
            body_bytes,
            target: Text::new(head.split(|&byte| byte == b' ').nth(1).unwrap_or_default()),
            referer: Text::new(field(head, b"referer:")),
            user_agent: Text::new(field(head, b"user-agent:")),
        }
    }

    /// The request target, cut to 256 bytes.
    pub fn target(&self) -> &[u8] {
        self.target.get()
    }

    /// `Referer`, cut to 256 bytes; empty if there was none.
    pub fn referer(&self) -> &[u8] {
        self.referer.get()
    }

    /// `User-Agent`, cut to 256 bytes; empty if there was none.
    pub fn user_agent(&self) -> &[u8] {
        self.user_agent.get()
    }
}

/// The value of the first field whose line begins with `name` (lower case, with its colon), in a
/// head that was parsed before.
fn field<'a>(head: &'a [u8], name: &[u8]) -> &'a [u8] {
    let end = head.windows(4).position(|window| window == b"\r\n\r\n").unwrap_or(head.len());
    head[..end]
        .split(|&byte| byte == b'\n')
        .find_map(|line| {
            let (start, value) = line.split_at_checked(name.len())?;
            start.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
        })
        .unwrap_or_default()
}

/// Records since the last collection; bounded.
pub(crate) struct AccessLog {
    records: Vec<AccessRecord>,
    enabled: bool,
}

impl AccessLog {
    /// An empty log, which stays empty unless `enabled`.
    pub(crate) fn new(enabled: bool) -> Self {
        Self { records: Vec::with_capacity(if enabled { ACCESS_RECORDS_MAX } else { 0 }), enabled }
    }

    /// Adds a record; false if there was no room.
    #[inline]
    pub(crate) fn record(&mut self, make: impl FnOnce() -> AccessRecord) -> bool {
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
    pub(crate) fn drain(&mut self, mut take: impl FnMut(&AccessRecord)) {
        self.records.iter().for_each(&mut take);
        self.records.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_the_fields_of_its_own_request() {
        let head =
            b"GET /a?b HTTP/1.1\r\nHost: h\r\nuser-agent:  curl/8 \r\n\r\nGET /c HTTP/1.1\r\nReferer: other\r\n\r\n";
        let record = AccessRecord::new(1, Address::default(), ReplyKind::Full, false, 3, head);
        assert_eq!(record.target(), b"/a?b");
        assert_eq!(record.user_agent(), b"curl/8");
        assert_eq!(record.referer(), b"");
    }
}
