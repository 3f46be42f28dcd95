//! Frames that come from the wire go into buffers of the host, in the order in which it posted
//! them; or their headers do, and their payload into the cache.
//!
//! Read first: Yocum and Chase 2001, section 3 (post receive) and 4.2 (direct forwarding).
//!
//! A frame takes as many buffers as it needs. They are told when all of it is in them, or come back
//! unused when that cannot be.

use arrayvec::ArrayVec;
use nicache_bus::attachment::FRAMES;
use nicache_bus::descriptor::{
    CachePlace, GENERATION_BLOCK_BYTES, HEADER_PLACE_BYTES, LOOK_AHEAD_BYTES,
};
use nicache_bus::{
    BusClass, CardSide, Post, PushError, Received, ReceivedChecksum, ReceivedGso, RingError,
};
use nicache_port::{Checksum, FrameBuf, GsoKind, Offload};
use nicache_tcp::checksum::sum;

use crate::cache::Cache;
use crate::counters::FirmwareCounters;
use crate::dma::Dma;
use crate::split;

/// Buffers of one frame at most: the longest one in blocks of the cache, and some that are shorter.
pub(crate) const BUFFERS_MAX: usize = 64;

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivered {
    /// It is done with, handed over or dropped. So many entries of rings crossed.
    Done(u64),
    /// It needs more buffers than so many, or more room for reports than there is.
    Wait(u64),
}

/// Hands a frame to the host.
pub(crate) fn deliver(
    frame: &FrameBuf,
    port: u8,
    side: &mut CardSide,
    cache: &mut Cache,
    dma: &mut Dma,
    counters: &mut FirmwareCounters,
    now_ns: u64,
) -> Result<Delivered, RingError> {
    let available = side.free.available()?;
    let Some(first) = side.free.peek()?.map(Post::decode) else { return Ok(Delivered::Wait(0)) };
    let needed = buffers_needed(&first, frame.data());
    let room = side.received.room()?;
    if needed > FRAMES.min(BUFFERS_MAX) as u64 {
        // It would never fit. The first buffer comes back, so the host learns of it.
        counters.receive_refused += 1;
        side.free.pop()?;
        return give_back(&[first], side, counters);
    }
    if needed > available || needed > room {
        return Ok(Delivered::Wait(available.max(needed - 1)));
    }
    let mut taken = ArrayVec::<Post, BUFFERS_MAX>::new();
    let mut reports = ArrayVec::<Received, BUFFERS_MAX>::new();
    let mut filling = Filling { data: frame.data(), at: 0, cache, dma, now_ns };
    let mut is_over = false;
    while !is_over && taken.len() < BUFFERS_MAX.min(room as usize) {
        let Some(post) = side.free.pop()?.map(Post::decode) else { break };
        taken.push(post);
        let Some(report) = filling.fill(&post) else { break };
        is_over = filling.at == frame.len();
        reports.push(report);
        if !is_over && !post.chain {
            break;
        }
    }
    if !is_over {
        counters.receive_refused += 1;
        return give_back(&taken, side, counters);
    }
    counters.received += 1;
    let count = reports.len();
    reports[count - 1].is_last = true;
    let Offload { checksum, gso } = frame.offload();
    let first = &mut reports[0];
    (first.is_first, first.port) = (true, port);
    first.checksum = match checksum {
        Checksum::Unverified => ReceivedChecksum::Unverified,
        Checksum::Valid => ReceivedChecksum::Valid,
        Checksum::Partial { .. } => ReceivedChecksum::Partial,
    };
    first.gso = gso.map(|gso| {
        let kind = match gso.kind {
            GsoKind::Tcp4 => ReceivedGso::Tcp4,
            GsoKind::Tcp6 => ReceivedGso::Tcp6,
            GsoKind::Udp => ReceivedGso::Udp,
        };
        (kind, gso.size)
    });
    tell(reports.iter().copied(), side)?;
    // The posts and the reports.
    Ok(Delivered::Done(2 * count as u64))
}

/// How many buffers a frame needs, if those behind the first one have a block each.
fn buffers_needed(first: &Post, data: &[u8]) -> u64 {
    if !first.chain {
        return 1;
    }
    let block = GENERATION_BLOCK_BYTES as usize;
    let begun = match (first.split, split::header_len(data)) {
        (Some(_), Some(header_len)) if data.len() > header_len + LOOK_AHEAD_BYTES => {
            header_len + block.min(first.len.saturating_sub(HEADER_PLACE_BYTES) as usize)
        }
        _ => first.len as usize,
    };
    1 + data.len().saturating_sub(begun).div_ceil(block) as u64
}

/// A frame on its way into buffers.
struct Filling<'a> {
    data: &'a [u8],
    at: usize,
    cache: &'a mut Cache,
    dma: &'a mut Dma,
    now_ns: u64,
}

impl Filling<'_> {
    /// Fills a buffer with what comes next. `None`: it is not a buffer, or what it says cannot be.
    fn fill(&mut self, post: &Post) -> Option<Received> {
        let rest = &self.data[self.at..];
        let is_first = self.at == 0;
        let header_len = if is_first { split::header_len(self.data) } else { Some(0) };
        match (post.split, header_len) {
            (Some(place), Some(header_len))
                if !is_first || rest.len() > header_len + LOOK_AHEAD_BYTES =>
            {
                self.fill_split(post, place, header_len)
            }
            (split, _) => {
                let len = rest.len().min(post.len as usize);
                // A buffer that is too small for a frame that may not go on is not written to.
                if len == 0 || len < rest.len() && !post.chain {
                    return None;
                }
                self.dma.write(post.mmaddr, &rest[..len], BusClass::Other, self.now_ns).ok()?;
                self.at += len;
                let is_unused = split.is_some();
                Some(Received {
                    mmaddr: post.mmaddr,
                    len: len as u32,
                    is_unused,
                    ..Received::default()
                })
            }
        }
    }

    fn fill_split(
        &mut self,
        post: &Post,
        place: CachePlace,
        header_len: usize,
    ) -> Option<Received> {
        let (headers, payload) = self.data[self.at..].split_at(header_len);
        let room = GENERATION_BLOCK_BYTES.min(post.len.checked_sub(HEADER_PLACE_BYTES)?);
        let payload = &payload[..payload.len().min(room as usize)];
        let is_block = place.ncoffset.is_multiple_of(GENERATION_BLOCK_BYTES);
        if payload.is_empty()
            || !is_block
            || self.at + header_len + payload.len() < self.data.len() && !post.chain
        {
            return None;
        }
        if !headers.is_empty() {
            self.dma.write(post.mmaddr, headers, BusClass::NetworkHeaders, self.now_ns).ok()?;
        }
        self.cache
            .load(place.ncoffset, payload.len() as u32, place.generation)?
            .copy_from_slice(payload);
        if place.copy {
            let at = post.mmaddr + u64::from(HEADER_PLACE_BYTES);
            self.dma.write(at, payload, BusClass::Content, self.now_ns).ok()?;
        }
        self.at += header_len + payload.len();
        Some(Received {
            mmaddr: post.mmaddr,
            len: (header_len + payload.len()) as u32,
            header_len: header_len as u8,
            sum: sum(payload),
            is_split: true,
            is_copied: place.copy,
            ..Received::default()
        })
    }
}

/// Buffers come back with nothing in them.
fn give_back(
    posts: &[Post],
    side: &mut CardSide,
    counters: &mut FirmwareCounters,
) -> Result<Delivered, RingError> {
    if side.received.room()? < posts.len() as u64 {
        counters.untold += posts.len() as u64;
        return Ok(Delivered::Done(posts.len() as u64));
    }
    let unused = |post: &Post| Received {
        mmaddr: post.mmaddr,
        is_first: true,
        is_last: true,
        is_unused: true,
        ..Received::default()
    };
    tell(posts.iter().map(unused), side)?;
    Ok(Delivered::Done(2 * posts.len() as u64))
}

fn tell(reports: impl Iterator<Item = Received>, side: &mut CardSide) -> Result<(), RingError> {
    for report in reports {
        match side.received.push(report.encode()) {
            Ok(()) => {}
            Err(PushError::Peer(error)) => return Err(error),
            Err(PushError::Full) => unreachable!("there was room"),
        }
    }
    Ok(())
}
