//! Requests of a connection, one after the other.

use super::reply::Manner;
use super::request::{Parsed, parse};
use super::service::Service;
use crate::stack::ConnectionId;

/// Replies of a connection that are prepared at most.
const REPLIES_MAX: usize = 64;

impl Service {
    pub(super) fn read_requests(&mut self, id: ConnectionId) {
        loop {
            let Some(session) = self.session(id) else { return };
            if session.is_last {
                // RFC 9112 section 9.6: the client's end is behind it.
                if let Some(connection) = self.connections.get(id) {
                    connection.consume(connection.input().len());
                }
                return;
            }
            if session.output.len() >= REPLIES_MAX {
                return;
            }
            if session.skip > 0 {
                let skip = session.skip;
                let Some(connection) = self.connections.get(id) else { return };
                let bytes = (connection.input().len() as u64).min(skip);
                connection.consume(bytes as usize);
                let Some(session) = self.session(id) else { return };
                session.skip -= bytes;
                if session.skip > 0 {
                    return;
                }
            }
            let parsed_before = self.session(id).map_or(0, |session| session.parsed);
            let Some(connection) = self.connections.get(id) else { return };
            let input = connection.input();
            let is_read_out = connection.is_read_out();
            if input.is_empty() || !nicache_http::is_worth_parsing(input, parsed_before) {
                if is_read_out {
                    self.no_more_requests(id);
                }
                return;
            }
            // The head is copied: replies are queued on the same connection.
            let input = input.to_vec();
            match parse(&input, &self.keys) {
                Parsed::Partial => {
                    if let Some(session) = self.session(id) {
                        session.parsed = input.len();
                    }
                    if is_read_out {
                        self.no_more_requests(id);
                    }
                    return;
                }
                Parsed::Lost { status } => {
                    if self.reply_with_page(id, status, None, Manner::default()).is_none() {
                        return self.wait(id);
                    }
                    self.done_with(id, input.len(), 0, false);
                }
                Parsed::Request { len, body, keep_alive, is_old, is_head, asked } => {
                    let manner = Manner { keep_alive, is_old, is_head };
                    let replied = match asked {
                        Ok(asked) => self.reply(id, &asked, manner),
                        Err(405) => self.reply_with_page(id, 405, Some("GET, HEAD"), manner),
                        Err(status) => self.reply_with_page(id, status, None, manner),
                    };
                    if replied.is_none() {
                        return self.wait(id);
                    }
                    self.done_with(id, len, body, keep_alive);
                }
            }
        }
    }

    fn done_with(&mut self, id: ConnectionId, head: usize, body: u64, keep_alive: bool) {
        if let Some(connection) = self.connections.get(id) {
            connection.consume(head);
        }
        if let Some(session) = self.session(id) {
            session.parsed = 0;
            session.skip = body;
            session.is_last = !keep_alive;
        }
    }

    fn no_more_requests(&mut self, id: ConnectionId) {
        if let Some(session) = self.session(id) {
            session.is_last = true;
        }
    }
}
