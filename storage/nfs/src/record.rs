//! Records on a TCP connection (RFC 5531, section 11), put together without I/O.
//!
//! A small request is copied out of the receive buffer once, so the next one can be received
//! while it is executed. A WRITE's payload is received where it stays: as soon as the arguments in
//! front of it are there, the reader asks for the rest in memory of its own. To have no payload in
//! the receive buffer by then, it asks for no more than the last WRITE's arguments took; a client
//! that writes sends the same ones again, with another offset.
//!
//! Call [`next_record`](RecordReader::next_record) until it needs bytes, receive into
//! [`room`](RecordReader::room), tell [`handle_received`](RecordReader::handle_received), and so
//! on.

use std::io::IoSliceMut;
use std::sync::Arc;

use arrayvec::ArrayVec;
use nicache_payload::Extent;
use thiserror::Error;

use crate::arguments::Arguments;
use crate::chunk::{Chunk, ChunkPool};
use crate::limits::{
    CHUNK_BYTES, EMPTY_FRAGMENTS_MAX, HEAD_BYTES_MAX, PAYLOAD_BYTES_MAX, RECORD_BYTES_MAX,
};
use crate::protocol::{NFS, Procedure};
use crate::rpc::Call;

/// Bytes of the receive buffer.
const INBOX_BYTES: usize = 64 << 10;
const LAST_FRAGMENT: u32 = 0x8000_0000;
/// Bytes from which on it is known which procedure a call is for.
const PROCEDURE_KNOWN_BYTES: usize = 24;

/// The connection cannot go on, because nobody knows where the next record begins or the client
/// means harm.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum RecordError {
    /// A record that is longer than any call can be.
    #[error("an RPC record of more than {RECORD_BYTES_MAX} bytes")]
    TooLong,
    /// Arguments that are longer than any call's can be.
    #[error("an RPC call with more than {HEAD_BYTES_MAX} bytes besides a WRITE's data")]
    HeadTooLong,
    /// Fragments that hold nothing, again and again.
    #[error("an RPC record with more than {EMPTY_FRAGMENTS_MAX} empty fragments")]
    EmptyFragments,
}

/// A whole record.
#[derive(Debug, Default)]
pub struct Record {
    /// Everything in front of a WRITE's data; everything for other calls.
    pub head: Vec<u8>,
    /// A WRITE's data, as many as it says; fewer if the record ended before.
    pub data: Vec<Extent>,
    /// Bytes of the data that were copied out of the receive buffer, because they came with what
    /// was in front of them.
    pub copied_bytes: usize,
}

/// What the bytes of the present record are.
#[derive(Debug)]
enum Part {
    /// The head; whether it is a WRITE's is not known.
    Undecided,
    /// The head of another call.
    Head,
    /// A WRITE's data: the chunk that is filled, its filled bytes, and the bytes that chunks are
    /// still to be made for.
    Data { chunk: Option<Chunk>, filled: usize, left: usize },
    /// What follows a WRITE's data.
    Padding,
}

/// Puts records together.
#[derive(Debug)]
pub struct RecordReader {
    inbox: Box<[u8]>,
    start: usize,
    end: usize,
    /// Bytes of the present fragment that have not come; `None` between fragments.
    fragment_left: Option<usize>,
    is_last: bool,
    empty_fragments: u32,
    record_bytes: usize,
    part: Part,
    record: Record,
    /// Bytes of a WRITE's record in front of its data, with the record mark; 0 if the last call was
    /// none.
    write_head_bytes: usize,
    pool: Arc<ChunkPool>,
}

impl RecordReader {
    /// A reader at the beginning of a connection.
    #[must_use]
    pub fn new(pool: Arc<ChunkPool>) -> Self {
        Self {
            inbox: vec![0; INBOX_BYTES].into(),
            start: 0,
            end: 0,
            fragment_left: None,
            is_last: false,
            empty_fragments: 0,
            record_bytes: 0,
            part: Part::Undecided,
            record: Record::default(),
            write_head_bytes: 0,
            pool,
        }
    }

    /// Whether a record has begun and is not whole, or bytes are there that have not been looked
    /// at.
    #[must_use]
    pub fn is_in_record(&self) -> bool {
        self.fragment_left.is_some() || self.record_bytes > 0 || self.start < self.end
    }

    /// Whether bytes are there that have not been looked at.
    #[must_use]
    pub fn has_bytes(&self) -> bool {
        self.start < self.end
    }

    /// The next record, if it is there.
    pub fn next_record(&mut self) -> Result<Option<Record>, RecordError> {
        loop {
            if self.fragment_left.is_none() && !self.begin_fragment()? {
                return Ok(None);
            }
            let left = self.fragment_left.unwrap_or(0);
            if left == 0 {
                self.fragment_left = None;
                if self.is_last {
                    return Ok(Some(self.end_record()));
                }
                continue;
            }
            if self.start == self.end {
                return Ok(None);
            }
            let taken = self.take(left)?;
            self.start += taken;
            self.fragment_left = Some(left - taken);
        }
    }

    fn begin_fragment(&mut self) -> Result<bool, RecordError> {
        let Some(mark) = self.inbox[self.start..self.end].first_chunk() else { return Ok(false) };
        let mark = u32::from_be_bytes(*mark);
        self.start += 4;
        let len = (mark & !LAST_FRAGMENT) as usize;
        self.is_last = mark & LAST_FRAGMENT != 0;
        self.record_bytes = self.record_bytes.saturating_add(len);
        if self.record_bytes > RECORD_BYTES_MAX {
            return Err(RecordError::TooLong);
        }
        if len == 0 {
            self.empty_fragments += 1;
            if self.empty_fragments > EMPTY_FRAGMENTS_MAX {
                return Err(RecordError::EmptyFragments);
            }
        }
        self.fragment_left = Some(len);
        Ok(true)
    }

    fn end_record(&mut self) -> Record {
        if let Part::Data { chunk: Some(chunk), filled, .. } =
            std::mem::replace(&mut self.part, Part::Undecided)
            && filled > 0
        {
            self.record.data.push(chunk.freeze(filled));
        }
        self.record_bytes = 0;
        self.empty_fragments = 0;
        std::mem::take(&mut self.record)
    }

    /// Takes at most `left` bytes out of the receive buffer for the present part, and says how
    /// many.
    fn take(&mut self, left: usize) -> Result<usize, RecordError> {
        let there = &self.inbox[self.start..self.end.min(self.start + left)];
        match &mut self.part {
            Part::Padding => Ok(there.len()),
            Part::Head => {
                if self.record.head.len() + there.len() > HEAD_BYTES_MAX {
                    return Err(RecordError::HeadTooLong);
                }
                self.record.head.extend_from_slice(there);
                self.write_head_bytes = 0;
                Ok(there.len())
            }
            Part::Data { chunk, filled, .. } => {
                let room =
                    chunk.as_mut().map_or(&mut [][..], |chunk| &mut chunk.bytes_mut()[*filled..]);
                let taken = room.len().min(there.len());
                room[..taken].copy_from_slice(&there[..taken]);
                self.record.copied_bytes += taken;
                self.fill(taken);
                Ok(taken)
            }
            Part::Undecided => {
                let had = self.record.head.len();
                let fits = there.len().min(HEAD_BYTES_MAX - had);
                if fits == 0 {
                    return Err(RecordError::HeadTooLong);
                }
                self.record.head.extend_from_slice(&there[..fits]);
                match decide(&self.record.head) {
                    Decision::Later => Ok(fits),
                    Decision::Other => {
                        self.record.head.truncate(had);
                        self.part = Part::Head;
                        Ok(0)
                    }
                    Decision::Write { head, data } => {
                        self.record.head.truncate(head);
                        self.write_head_bytes = head + 4;
                        self.part = match data {
                            0 => Part::Padding,
                            _ => Part::Data {
                                chunk: Some(self.pool.take(data.min(CHUNK_BYTES))),
                                filled: 0,
                                left: data.saturating_sub(CHUNK_BYTES),
                            },
                        };
                        Ok(head - had)
                    }
                }
            }
        }
    }

    /// `taken` more bytes of the present chunk are filled.
    fn fill(&mut self, taken: usize) {
        let Part::Data { chunk, filled, left } = &mut self.part else { return };
        *filled += taken;
        let is_full = chunk.as_ref().is_some_and(|chunk| chunk.as_ref().len() == *filled);
        if !is_full {
            return;
        }
        if let Some(full) = chunk.take() {
            self.record.data.push(full.freeze(usize::MAX));
        }
        if *left == 0 {
            self.part = Part::Padding;
        } else {
            let next = CHUNK_BYTES.min(*left);
            self.part =
                Part::Data { chunk: Some(self.pool.take(next)), filled: 0, left: *left - next };
        }
    }

    /// Where the next bytes go. First come, first filled.
    pub fn room(&mut self) -> ArrayVec<IoSliceMut<'_>, 2> {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        } else if self.end == self.inbox.len() {
            self.inbox.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let bound = if self.write_head_bytes == 0 { usize::MAX } else { self.inbox_need() };
        let mut room = ArrayVec::new();
        if self.start == self.end
            && let Part::Data { chunk: Some(chunk), filled, left } = &mut self.part
            && let Some(in_fragment) = self.fragment_left
        {
            let bytes = &mut chunk.bytes_mut()[*filled..];
            let len = bytes.len().min(in_fragment);
            room.push(IoSliceMut::new(&mut bytes[..len]));
            if *left > 0 {
                return room;
            }
        }
        let inbox = &mut self.inbox[self.end..];
        let len = inbox.len().min(bound);
        room.push(IoSliceMut::new(&mut inbox[..len]));
        room
    }

    /// Bytes that the receive buffer should get while the client writes: up to the next data.
    fn inbox_need(&self) -> usize {
        let there = self.end - self.start;
        let in_fragment = self.fragment_left.unwrap_or(0);
        let need = match &self.part {
            Part::Data { chunk, filled, left } => {
                let data = chunk.as_ref().map_or(0, |chunk| chunk.as_ref().len()) - filled + left;
                in_fragment.saturating_sub(data) + self.write_head_bytes
            }
            Part::Padding => in_fragment + self.write_head_bytes,
            Part::Undecided | Part::Head => {
                let had = self.record.head.len() + 4 * usize::from(self.fragment_left.is_some());
                self.write_head_bytes.saturating_sub(had)
            }
        };
        need.saturating_sub(there).max(4)
    }

    /// `len` bytes were received into the room.
    pub fn handle_received(&mut self, mut len: usize) {
        if self.start == self.end
            && let Part::Data { chunk: Some(chunk), filled, .. } = &self.part
            && let Some(left) = self.fragment_left
        {
            let direct = (chunk.as_ref().len() - filled).min(left).min(len);
            self.fragment_left = Some(left - direct);
            self.fill(direct);
            len -= direct;
        }
        self.end += len;
    }
}

enum Decision {
    Later,
    Other,
    Write { head: usize, data: usize },
}

/// Whether a record that begins with `head` is a WRITE, and where its data begin.
fn decide(head: &[u8]) -> Decision {
    let Some(known) = head.first_chunk::<PROCEDURE_KNOWN_BYTES>() else { return Decision::Later };
    let word = |i: usize| {
        u32::from_be_bytes([known[4 * i], known[4 * i + 1], known[4 * i + 2], known[4 * i + 3]])
    };
    if (word(1), word(2), word(3), word(4), word(5))
        != (0, 2, NFS.number, NFS.version, Procedure::Write as u32)
    {
        return Decision::Other;
    }
    let Ok(call) = Call::read(head) else {
        // A credential that is too long never gets right; a head that is not whole may.
        return if head.len() >= 2048 { Decision::Other } else { Decision::Later };
    };
    let front = head.len() - call.arguments.len();
    match Arguments::write_data(call.arguments) {
        Ok(None) => Decision::Later,
        // More than any WRITE may have: the procedure refuses it, and the record's bound ends it.
        Ok(Some((at, data))) if data > PAYLOAD_BYTES_MAX => {
            let _ = at;
            Decision::Other
        }
        Ok(Some((at, data))) => Decision::Write { head: front + at, data: data as usize },
        Err(_) => Decision::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::put;

    fn call(procedure: u32, arguments: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for word in [9, 0, 2, NFS.number, NFS.version, procedure, 0, 0, 0, 0] {
            put::u32(&mut out, word);
        }
        out.extend_from_slice(arguments);
        out
    }

    fn write(data: &[u8]) -> Vec<u8> {
        let mut arguments = Vec::new();
        put::opaque(&mut arguments, b"handle");
        put::u64(&mut arguments, 77);
        put::u32(&mut arguments, data.len() as u32);
        put::u32(&mut arguments, 2);
        put::opaque(&mut arguments, data);
        call(Procedure::Write as u32, &arguments)
    }

    /// The record in fragments of at most `fragment` bytes.
    fn marked(record: &[u8], fragment: usize) -> Vec<u8> {
        let mut out = Vec::new();
        let count = record.chunks(fragment).count();
        for (i, piece) in record.chunks(fragment).enumerate() {
            put::u32(&mut out, piece.len() as u32 | if i + 1 == count { LAST_FRAGMENT } else { 0 });
            out.extend_from_slice(piece);
        }
        out
    }

    /// Feeds `stream` in receives of at most `step` bytes.
    fn read_all(stream: &[u8], step: usize) -> Result<(Vec<Record>, RecordReader), RecordError> {
        let mut reader = RecordReader::new(ChunkPool::new(1 << 20));
        let mut records = Vec::new();
        let mut rest = stream;
        loop {
            while let Some(record) = reader.next_record()? {
                records.push(record);
            }
            if rest.is_empty() {
                return Ok((records, reader));
            }
            let mut budget = step;
            let mut received = 0;
            for mut slice in reader.room() {
                let n = slice.len().min(budget).min(rest.len());
                slice[..n].copy_from_slice(&rest[..n]);
                rest = &rest[n..];
                budget -= n;
                received += n;
            }
            assert!(received > 0, "a reader that needs bytes has room");
            reader.handle_received(received);
        }
    }

    #[test]
    fn records_are_the_same_however_they_come() {
        let data: Vec<u8> =
            (0..200_001u32).map(|i| i.to_le_bytes()[0] ^ i.to_le_bytes()[1]).collect();
        let sent = [
            write(&data),
            call(1, b"abcd"),
            write(b""),
            write(b"x"),
            write(&data[..65_536]),
            call(3, &[7; 9000]),
            write(&data),
        ];
        for (fragment, step) in [
            (1 << 20, 1 << 20),
            (1 << 20, 1),
            (7, 1 << 20),
            (1000, 333),
            (65_536, 65_536),
            (1 << 20, 200),
            (1, 1),
        ] {
            let stream: Vec<u8> = sent.iter().flat_map(|record| marked(record, fragment)).collect();
            let (records, reader) = read_all(&stream, step).unwrap();
            assert!(!reader.is_in_record());
            assert_eq!(records.len(), sent.len());
            for ((record, sent), data_bytes) in
                records.iter().zip(&sent).zip([200_001, 0, 0, 1, 65_536, 0, 200_001])
            {
                let whole = [record.head.clone(), record.data.concat()].concat();
                assert_eq!(
                    whole,
                    sent[..whole.len()],
                    "fragments of {fragment}, receives of {step}"
                );
                assert!(sent.len() - whole.len() < 4, "only padding is left out");
                let len: usize = record.data.iter().map(Extent::len).sum();
                assert_eq!(len, data_bytes);
            }
        }
    }

    #[test]
    fn a_client_that_writes_has_its_payload_received_where_it_stays() {
        let stream: Vec<u8> =
            std::iter::repeat_n(marked(&write(&[5; 65_536]), 1 << 20), 20).flatten().collect();
        let (records, _) = read_all(&stream, 1 << 20).unwrap();
        let copied: Vec<usize> = records.iter().map(|record| record.copied_bytes).collect();
        assert!(copied[0] <= 65_536, "the first one is unexpected");
        assert_eq!(copied[1..], [0; 19]);
    }

    #[test]
    fn a_record_without_end_is_an_error() {
        let mut long = Vec::new();
        put::u32(&mut long, LAST_FRAGMENT | (RECORD_BYTES_MAX as u32 + 1));
        assert_eq!(read_all(&long, 99).unwrap_err(), RecordError::TooLong);
        let fragments = marked(&vec![0; RECORD_BYTES_MAX + 1], 65_536);
        assert!(matches!(
            read_all(&fragments, 4096).unwrap_err(),
            RecordError::TooLong | RecordError::HeadTooLong
        ));
        assert_eq!(
            read_all(&marked(&call(1, &vec![0; HEAD_BYTES_MAX]), 1 << 20), 99).unwrap_err(),
            RecordError::HeadTooLong
        );
        assert_eq!(read_all(&[0; 4 * 99], 99).unwrap_err(), RecordError::EmptyFragments);
    }

    #[test]
    fn a_write_that_says_more_than_it_has_is_a_record_with_less() {
        let whole = write(&[1; 5000]);
        let (records, _) = read_all(&marked(&whole[..whole.len() - 1000], 1 << 20), 700).unwrap();
        assert_eq!(records[0].data.concat().len(), 4000);
    }
}
