//! ONC RPC version 2 (RFC 5531): the heads of calls and replies.

use nicache_payload::Extent;

use crate::limits::AUTHENTICATION_BYTES_MAX;
use crate::protocol::Program;
use crate::xdr::{Garbage, Reader, padding, put};

const CALL: u32 = 0;
const REPLY: u32 = 1;
const RPC_VERSION: u32 = 2;
const LAST_FRAGMENT: u32 = 0x8000_0000;

/// The head of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call<'a> {
    /// The client's number for it.
    pub xid: u32,
    /// The protocol's version; only 2 is served.
    pub rpc_version: u32,
    /// Which program and version.
    pub program: Program,
    /// Which procedure of it.
    pub procedure: u32,
    /// The kind of credential.
    pub flavor: u32,
    /// The credential's body.
    pub credential: &'a [u8],
    /// The procedure's arguments.
    pub arguments: &'a [u8],
}

impl<'a> Call<'a> {
    /// Reads the head of a call. What is not a call cannot be answered.
    pub fn read(record: &'a [u8]) -> Result<Self, Garbage> {
        let mut reader = Reader::new(record);
        let xid = reader.u32()?;
        if reader.u32()? != CALL {
            return Err(Garbage);
        }
        let rpc_version = reader.u32()?;
        let program = Program { number: reader.u32()?, version: reader.u32()? };
        let procedure = reader.u32()?;
        let flavor = reader.u32()?;
        let credential = reader.opaque(AUTHENTICATION_BYTES_MAX)?;
        // The verifier's flavor: neither AUTH_NONE nor AUTH_SYS has a verifier to check.
        reader.u32()?;
        reader.opaque(AUTHENTICATION_BYTES_MAX)?;
        Ok(Self {
            xid,
            rpc_version,
            program,
            procedure,
            flavor,
            credential,
            arguments: reader.rest(),
        })
    }
}

/// Why a call is not executed (RFC 5531, section 9).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Another version of RPC.
    RpcVersion,
    /// A credential that cannot be read.
    BadCredential,
    /// A kind of credential that is not served.
    TooWeak,
    /// No such program here.
    NoProgram,
    /// No such version of it; the only one that is served.
    NoVersion(u32),
    /// No such procedure.
    NoProcedure,
    /// Arguments that are none.
    GarbageArguments,
}

/// Replies that have not been sent: text, and payload by reference between it.
#[derive(Debug, Default)]
pub struct Replies {
    text: Vec<u8>,
    /// Payload, and in front of which byte of the text it goes.
    payload: Vec<(usize, Extent)>,
    /// Where the present reply begins in the text.
    start: usize,
    /// Payload of the present reply, in bytes.
    payload_bytes: usize,
}

impl Replies {
    /// Begins the reply to a call that is executed; its results follow in [`text`](Self::text).
    pub fn begin(&mut self, xid: u32) {
        self.begin_record(xid);
        for word in [0, 0, 0, 0] {
            put::u32(&mut self.text, word); // MSG_ACCEPTED, AUTH_NONE, no verifier, SUCCESS
        }
    }

    fn begin_record(&mut self, xid: u32) {
        self.start = self.text.len();
        self.payload_bytes = 0;
        for word in [0, xid, REPLY] {
            put::u32(&mut self.text, word);
        }
    }

    /// A whole reply to a call that is not executed.
    pub fn refuse(&mut self, xid: u32, refusal: Refusal) {
        self.begin_record(xid);
        let words: &[u32] = match refusal {
            Refusal::RpcVersion => &[1, 0, RPC_VERSION, RPC_VERSION],
            Refusal::BadCredential => &[1, 1, 1],
            Refusal::TooWeak => &[1, 1, 5],
            Refusal::NoProgram => &[0, 0, 0, 1],
            Refusal::NoVersion(version) => &[0, 0, 0, 2, version, version],
            Refusal::NoProcedure => &[0, 0, 0, 3],
            Refusal::GarbageArguments => &[0, 0, 0, 4],
        };
        words.iter().for_each(|&word| put::u32(&mut self.text, word));
        self.finish();
    }

    /// A whole reply that was sent before; `record` is what [`finish`](Self::finish) returned then.
    pub fn repeat(&mut self, record: &[u8]) {
        self.start = self.text.len();
        self.payload_bytes = 0;
        put::u32(&mut self.text, 0);
        self.text.extend_from_slice(record);
        self.finish();
    }

    /// Where the present reply's results go.
    pub fn text(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// Appends variable-length opaque data by reference.
    pub fn put_payload(&mut self, extents: Vec<Extent>) {
        let len: usize = extents.iter().map(Extent::len).sum();
        put::u32(&mut self.text, u32::try_from(len).expect("payload below 4 GiB"));
        let at = self.text.len();
        self.payload.extend(
            extents.into_iter().filter(|extent| !extent.is_empty()).map(|extent| (at, extent)),
        );
        self.text.extend_from_slice(&[0; 3][..padding(len)]);
        self.payload_bytes += len;
    }

    /// Ends the present reply. Returns it without its record mark and its payload.
    pub fn finish(&mut self) -> &[u8] {
        let len = self.text.len() - self.start - 4 + self.payload_bytes;
        let mark = LAST_FRAGMENT | u32::try_from(len).expect("replies below 2 GiB");
        self.text[self.start..self.start + 4].copy_from_slice(&mark.to_be_bytes());
        &self.text[self.start + 4..]
    }

    /// Takes back the present reply, which has no payload.
    pub fn forget(&mut self) {
        self.text.truncate(self.start);
    }

    /// Bytes of all replies.
    #[must_use]
    pub fn len(&self) -> usize {
        self.text.len() + self.payload.iter().map(|(_, extent)| extent.len()).sum::<usize>()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// All bytes in order, as slices.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let mut from = 0;
        let payload = self.payload.iter().flat_map(move |(at, extent)| {
            let text = &self.text[from..*at];
            from = *at;
            [text, extent.as_ref()]
        });
        let tail = self.payload.last().map_or(0, |&(at, _)| at);
        payload.chain([&self.text[tail..]]).filter(|slice| !slice.is_empty())
    }

    /// All bytes after the first `skip`, by reference; text is copied.
    pub fn drain_from(&mut self, mut skip: usize) -> Vec<Extent> {
        let text = Extent::from(std::mem::take(&mut self.text));
        let mut from = 0;
        let mut rest = Vec::new();
        let mut push = |mut extent: Extent| {
            let gone = skip.min(extent.len());
            skip -= gone;
            extent = extent.slice(gone..);
            if !extent.is_empty() {
                rest.push(extent);
            }
        };
        for (at, extent) in self.payload.drain(..) {
            push(text.slice(from..at));
            push(extent);
            from = at;
        }
        push(text.slice(from..));
        rest
    }

    /// Takes another's replies, to be sent after its own. Nothing is left of the other.
    pub fn append(&mut self, other: &mut Self) {
        if self.is_empty() {
            std::mem::swap(self, other);
            return;
        }
        let shift = self.text.len();
        self.text.extend_from_slice(&other.text);
        self.payload.extend(other.payload.drain(..).map(|(at, extent)| (at + shift, extent)));
        other.clear();
    }

    /// Forgets all, and keeps the memory.
    pub fn clear(&mut self) {
        self.text.clear();
        self.payload.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_goes_between_text_and_padding() {
        let mut replies = Replies::default();
        replies.begin(7);
        put::u32(replies.text(), 42);
        replies.put_payload(vec![
            Extent::from_static(b"abc"),
            Extent::from_static(b""),
            Extent::from_static(b"de"),
        ]);
        replies.finish();
        replies.refuse(8, Refusal::NoVersion(3));
        let mut expected = Vec::new();
        for word in [LAST_FRAGMENT | 40, 7, 1, 0, 0, 0, 0, 42, 5] {
            put::u32(&mut expected, word);
        }
        expected.extend_from_slice(b"abcde\0\0\0");
        for word in [LAST_FRAGMENT | 32, 8, 1, 0, 0, 0, 2, 3, 3] {
            put::u32(&mut expected, word);
        }
        assert_eq!(replies.slices().collect::<Vec<_>>().concat(), expected);
        assert_eq!(replies.len(), expected.len());
        let mut twice = Replies::default();
        for _ in 0..2 {
            let mut other = Replies {
                text: replies.text.clone(),
                payload: replies.payload.clone(),
                ..Replies::default()
            };
            twice.append(&mut other);
            assert!(other.is_empty());
        }
        assert_eq!(
            twice.slices().collect::<Vec<_>>().concat(),
            [&expected[..], &expected[..]].concat()
        );
        for skip in [0, 3, 36, 38, 41, 45, expected.len()] {
            let mut again = Replies {
                text: replies.text.clone(),
                payload: replies.payload.clone(),
                ..Replies::default()
            };
            assert_eq!(again.drain_from(skip).concat(), &expected[skip..]);
            assert!(again.is_empty());
        }
    }
}
