//! Replies become packets.

use std::sync::Arc;

use arrayvec::ArrayVec;
use nicache_bus::Window;
use nicache_tcp::frame::{HEADERS_BYTES_MAX, write_headers};
use nicache_tcp::{HeadRepr, Time};

use super::live::Behind;
use super::output::{Next, Source};
use super::service::{Broken, IDLE, Service, forget, free};
use crate::driver::{Driver, TransmitError};
use crate::files::LoadError;
use crate::mbuf::{Headers, Mbuf};
use crate::page_cache::PageCache;
use crate::stack::{Connection, ConnectionId, PACKET_PARTS_MAX};

impl Service {
    /// Hands to TCP what it may have.
    pub(super) fn fill_queue(&mut self, id: ConnectionId) {
        let Self {
            connections,
            sessions,
            pages,
            places,
            window,
            site,
            cards,
            counters,
            streams,
            limits,
            now,
            ..
        } = self;
        let (Some(connection), Some(session)) = (connections.get(id), &mut sessions[id.0 as usize])
        else {
            return;
        };
        while connection.unacknowledged_bytes() < limits.queue_bytes {
            let mut source =
                Source { pages, window, table: site.table().map(Arc::as_ref), limits: *limits };
            match session.output.next(&mut source, |block, gone| forget(cards, block, gone)) {
                Ok(Next::Buffer(buffer)) if connection.can_send() => connection.send(buffer),
                Ok(Next::Buffer(buffer)) => free(pages, places, buffer),
                Ok(Next::Live(stream)) => match streams[stream].next(id, pages) {
                    Ok(Some(buffer)) if connection.can_send() => {
                        // Whoever had everything has as long for this as anybody.
                        if connection.unacknowledged_bytes() == 0 {
                            session.idle_due = *now + IDLE;
                        }
                        counters.content_bytes += u64::from(buffer.len());
                        connection.send(buffer);
                    }
                    Ok(Some(buffer)) => free(pages, places, buffer),
                    // A viewer that has closed its side is not waited for.
                    Ok(None) if connection.is_read_out() => {
                        session.output.clear(pages, |pages, buffer| free(pages, places, buffer));
                        connection.finish();
                        return;
                    }
                    Ok(None) => return,
                    // It is cut in the next turn.
                    Err(Behind) => return,
                },
                Ok(Next::Nothing) => {
                    if session.is_last {
                        connection.finish();
                    }
                    return;
                }
                // Pages come back when clients acknowledge what they have.
                Err(LoadError::NoRoom) => return self.wait(id),
                Err(LoadError::Changed | LoadError::Io) => {
                    counters.cut += 1;
                    session.output.clear(pages, |pages, buffer| free(pages, places, buffer));
                    session.is_last = true;
                    connection.abort();
                    return;
                }
            }
        }
    }

    /// Sends what TCP may send now.
    pub(super) fn transmit(&mut self, id: ConnectionId, now: Time) -> Result<(), (usize, Broken)> {
        let Some(session) = self.session(id) else { return Ok(()) };
        let card = session.card;
        let failed = |error: TransmitError| match error {
            TransmitError::Card(error) => (card, Broken::Card(error)),
            TransmitError::Window(error) => (card, Broken::Window(error)),
            TransmitError::Full | TransmitError::TooLong => {
                unreachable!("there was room, and parts are counted")
            }
        };
        loop {
            let Self { connections, pages, window, cards, ip_id, .. } = self;
            // Without its card, what is sent is lost; TCP repairs it when the card is back.
            let (Some(connection), Some(driver)) = (connections.get(id), &mut cards[card].driver)
            else {
                return Ok(());
            };
            if !driver.has_room(pages).map_err(|error| (card, error.into()))? {
                self.is_ring_full = true;
                self.wait(id);
                return Ok(());
            }
            let Some(outgoing) = connection.poll(now) else { return Ok(()) };
            let mut sent = 0;
            loop {
                let mut parts = ArrayVec::<Mbuf, PACKET_PARTS_MAX>::new();
                let left = outgoing.len - sent;
                let len = if left > 0 {
                    connection.queue().gather(outgoing.head.seq + sent, left, &mut parts)
                } else {
                    0
                };
                let mut head = outgoing.head;
                head.seq = outgoing.head.seq + sent;
                let is_end = sent + len >= outgoing.len;
                if !is_end {
                    head.flags = without_end(head.flags);
                }
                if sent > 0 {
                    // RFC 3168 section 6.1.2: the first segment alone tells.
                    head.flags = head.flags.without(nicache_tcp::Flags::CWR);
                }
                *ip_id = ip_id.wrapping_add(1);
                send(driver, connection, &head, len, outgoing.mss, &parts, *ip_id, pages, window)
                    .map_err(failed)?;
                sent += len;
                if is_end || len == 0 {
                    break;
                }
                if !driver.has_room(pages).map_err(|error| (card, error.into()))? {
                    // Not sent, as if it had been lost.
                    break;
                }
            }
        }
    }
}

/// Of a packet that others of the same burst follow.
fn without_end(flags: nicache_tcp::Flags) -> nicache_tcp::Flags {
    flags.without(nicache_tcp::Flags::FIN | nicache_tcp::Flags::PSH)
}

#[expect(clippy::too_many_arguments, reason = "what a packet is made of")]
fn send(
    driver: &mut Driver,
    connection: &Connection,
    head: &HeadRepr,
    len: u32,
    mss: u16,
    parts: &[Mbuf],
    ip_id: u16,
    pages: &mut PageCache,
    window: &Window,
) -> Result<(), TransmitError> {
    let mut bytes = [0; HEADERS_BYTES_MAX];
    let addresses = connection.ends().to_client();
    let header_len = write_headers(&addresses, head, len, ip_id, &mut bytes);
    let segment = if len > u32::from(mss) { mss } else { 0 };
    let headers =
        Headers { bytes: &bytes[..header_len], transport: addresses.tcp_at() as u8, segment };
    driver.transmit(&headers, parts, pages, window)
}
