//! What the card counts. One thread owns them; others get copies.

use nicache_http::BypassReason;

use crate::bus::Bus;

/// Why the card, not the request, let a request pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum CardBypass {
    /// The operator turned the cache off.
    Operator,
    /// The watcher's lease has run out.
    Lease,
    /// A conditional request on which servers differ.
    Conditional,
    /// No hold buffer or reply place was left.
    Resources,
    /// A range on which servers differ, or that they answer with a page of their own.
    Range,
}

impl CardBypass {
    /// All reasons.
    pub const ALL: [CardBypass; 5] =
        [CardBypass::Operator, CardBypass::Lease, CardBypass::Conditional, CardBypass::Resources, CardBypass::Range];

    /// The name in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            CardBypass::Operator => "operator",
            CardBypass::Lease => "lease",
            CardBypass::Conditional => "conditional",
            CardBypass::Resources => "resources",
            CardBypass::Range => "range",
        }
    }
}

/// All counters of one card, in units of events unless the name says otherwise.
#[derive(Clone, Debug)]
pub struct Counters {
    /// Requests answered from card memory.
    pub hits: u64,
    /// Of these: answered with 304.
    pub hits_not_modified: u64,
    /// Of the hits: requests that were expected, and answered the short way ([`CardConfig::prediction`](crate::CardConfig::prediction)).
    pub hits_predicted: u64,
    /// Of these: HEAD.
    pub hits_head: u64,
    /// Of these: answered with 206, and of these with several ranges.
    pub hits_range: u64,
    /// See above.
    pub hits_ranges: u64,
    /// Of the hits, those that L0 has answered, as far as they are counted ([`Card::settle_l0`](crate::Card::settle_l0)).
    pub hits_l0: u64,
    /// Replies that L0 was given.
    pub l0_published: u64,
    /// Connections that were lent to it.
    pub l0_lent: u64,
    /// Its replies that the card has sent again.
    pub l0_repeated: u64,
    /// Connections reset because their last reply was no longer there to be sent again.
    pub l0_lost: u64,
    /// Times that L0 was left out for a while because too many of its replies did not arrive.
    pub l0_pauses: u64,
    /// Connections that began with a header of the PROXY protocol.
    pub proxy_headers: u64,
    /// Requests that could have been hits and were forwarded.
    pub misses: u64,
    /// Of these: the card had the reply, but the client had yet to acknowledge bytes of the host, which was quicker.
    pub hits_handed_over: u64,
    /// Requests that the card left alone for what they are.
    pub bypasses_by_request: [u64; BypassReason::ALL.len()],
    /// Requests that the card left alone for its own reasons.
    pub bypasses_by_card: [u64; CardBypass::ALL.len()],
    /// HTTP bytes (heads and bodies) sent from card memory, retransmissions not counted.
    pub hit_bytes: u64,
    /// Bytes that hits kept off the bus: requests and replies with one set of network headers a segment.
    pub bus_bytes_saved: u64,
    /// Misses below a path that the operator has excluded.
    pub misses_excluded: u64,
    /// Misses of pages that are left alone, because their executions differ although nothing has changed.
    pub misses_differing: u64,
    /// Misses because the server has not given the entry's answer to a client of this class yet.
    pub misses_class: u64,
    /// Misses of pages that are left alone, because they are purged more often than used.
    pub misses_not_worth: u64,
    /// Requests of the card itself.
    pub recheck_requests: u64,
    /// Hits of dynamic entries.
    pub hits_dynamic: u64,
    /// Resources that requests may have changed (RFC 9111 section 4.4).
    pub invalidations: u64,
    /// Entries dropped by the operator.
    pub purges_by_operator: u64,
    /// Connections tracked since the start.
    pub flows: u64,
    /// Connections that passed untracked because the flow table was full.
    pub flows_untracked: u64,
    /// Connections whose HTTP the card stopped to follow.
    pub flows_opaque: u64,
    /// Times that the host closed an idle connection whose client did not hear of it.
    pub host_ends_absorbed: u64,
    /// Segments sent again by the card.
    pub retransmits: u64,
    /// Frames with a wrong checksum.
    pub corrupt: u64,
    /// Segments that came with IP options, with extension headers or in fragments.
    pub unwrapped: u64,
    /// Frames that the card before this one did not take in time.
    pub drops_elder: u64,
    /// Connections of an earlier card that were reset.
    pub orphans_reset: u64,
    /// Messages of routers that made segments to a client smaller.
    pub too_big_obeyed: u64,
    /// Such messages about nothing that is under way.
    pub too_big_ignored: u64,
    /// Segments dropped because they do not fit the connection (RFC 9293, RFC 5961).
    pub segments_unacceptable: u64,
    /// Connections forgotten before their handshake was complete, to make room for another one that began.
    pub half_open_evicted: u64,
    /// Connections that had been silent for long, ended to make room for another one that began.
    pub silent_evicted: u64,
    /// SYNs answered without keeping anything, as too many handshakes were under way.
    pub syn_cookies_sent: u64,
    /// Connections that such an answer has led to.
    pub syn_cookies_accepted: u64,
    /// Challenge acknowledgments sent (RFC 5961).
    pub challenges_sent: u64,
    /// Challenge acknowledgments not sent, as there were too many (RFC 5961 section 7).
    pub challenges_refused: u64,
    /// Connections ended because an idle client did not answer.
    pub clients_gone: u64,
    /// Connections ended because a client read too slowly.
    pub clients_slow: u64,
    /// Connections ended because a client kept its window closed.
    pub clients_window_closed: u64,
    /// Connections ended because a request head took too long.
    pub clients_head_slow: u64,
    /// Frames that a port refused.
    pub drops_wire: u64,
    /// Frames that the host port refused.
    pub drops_host: u64,
    /// Access records that found no place.
    pub access_lost: u64,
    /// Bytes over the bus.
    pub bus: Bus,
    /// What the cache counts.
    pub cache: nicache_cache::Counters,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            hits: 0,
            hits_not_modified: 0,
            hits_predicted: 0,
            hits_head: 0,
            hits_range: 0,
            hits_ranges: 0,
            hits_l0: 0,
            l0_published: 0,
            l0_lent: 0,
            l0_repeated: 0,
            l0_lost: 0,
            l0_pauses: 0,
            proxy_headers: 0,
            misses: 0,
            hits_handed_over: 0,
            bypasses_by_request: [0; BypassReason::ALL.len()],
            bypasses_by_card: [0; CardBypass::ALL.len()],
            hit_bytes: 0,
            bus_bytes_saved: 0,
            misses_excluded: 0,
            misses_differing: 0,
            misses_class: 0,
            misses_not_worth: 0,
            recheck_requests: 0,
            hits_dynamic: 0,
            invalidations: 0,
            purges_by_operator: 0,
            flows: 0,
            flows_untracked: 0,
            flows_opaque: 0,
            host_ends_absorbed: 0,
            retransmits: 0,
            corrupt: 0,
            unwrapped: 0,
            drops_elder: 0,
            orphans_reset: 0,
            too_big_obeyed: 0,
            too_big_ignored: 0,
            segments_unacceptable: 0,
            half_open_evicted: 0,
            silent_evicted: 0,
            syn_cookies_sent: 0,
            syn_cookies_accepted: 0,
            challenges_sent: 0,
            challenges_refused: 0,
            clients_gone: 0,
            clients_slow: 0,
            clients_window_closed: 0,
            clients_head_slow: 0,
            drops_wire: 0,
            drops_host: 0,
            access_lost: 0,
            bus: Bus::default(),
            cache: nicache_cache::Counters::default(),
        }
    }
}

impl Counters {
    /// Requests that passed for whatever reason but a miss.
    pub fn bypasses(&self) -> u64 {
        self.bypasses_by_request.iter().chain(&self.bypasses_by_card).sum()
    }
}
