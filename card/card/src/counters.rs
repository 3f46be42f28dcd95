//! What the card counts. One thread owns them; others get copies.

use nicache_http::BypassReason;
use nicache_reasons::reasons;

use crate::bus::Bus;

reasons! {
    /// Why the card, not the request, let a request pass.
    CardBypass {
        /// The operator turned the cache off.
        Operator => "operator",
        /// The watcher's lease has run out.
        Lease => "lease",
        /// A conditional request on which servers differ.
        Conditional => "conditional",
        /// No hold buffer or reply place was left.
        Resources => "resources",
        /// A range on which servers differ, or that they answer with a page of their own.
        Range => "range",
    }
}

nicache_counters::counters! {
    /// All counters of one card, in units of events unless the name says otherwise.
    #[derive(Clone, Debug, Default)]
    pub struct Counters {
        hits_not_modified: "Hits that were answered with 304.",
        hits_predicted: "Hits for requests that were expected, answered the short way.",
        hits_head: "Hits of HEAD requests.",
        hits_range: "Hits of a range, or of several.",
        hits_ranges: "Hits of several ranges.",
        hits_l0: "Hits that L0 has answered, before the card.",
        l0_published: "Replies that L0 was given.",
        l0_lent: "Connections lent to L0; one that is lent again counts again.",
        l0_repeated: "Replies of L0 that the card has sent again.",
        l0_lost: "Connections reset because the reply that L0 had given them is gone.",
        l0_pauses: "Pauses of L0 because too many of its replies did not arrive.",
        proxy_headers: "Connections that began with a header of the PROXY protocol.",
        hits_handed_over: "Misses of stored replies, because the server was about to answer anyway.",
        hit_bytes: "HTTP bytes sent from card memory, retransmissions not counted.",
        misses_excluded: "Misses below a path that the operator has excluded.",
        misses_differing: "Misses of pages put aside, because their executions differ.",
        misses_class: "Misses because the server has not answered a client of this class yet (Referer, language, kind of program).",
        misses_not_worth: "Misses of pages put aside, because they are purged before they are used.",
        recheck_requests: "Requests of the card itself.",
        hits_dynamic: "Hits of dynamic replies.",
        invalidations: "Resources that requests may have changed.",
        purges_by_operator: "Entries dropped by command.",
        flows: "Connections followed since the start.",
        flows_untracked: "Connections that passed because the flow table was full.",
        flows_opaque: "Connections whose HTTP the card stopped following.",
        host_ends_absorbed: "Idle connections that the server closed without the client's hearing of it.",
        retransmits: "Segments sent again by the card.",
        corrupt: "Frames with a wrong checksum.",
        unwrapped: "Segments that came with IP options, with extension headers or in fragments.",
        drops_older_card: "Frames that the card before this one did not take in time.",
        orphans_reset: "Connections of an earlier card that were reset.",
        too_big_obeyed: "Messages of routers that made segments to a client smaller.",
        too_big_ignored: "Messages of routers about segments that are too big, but not under way.",
        segments_unacceptable: "Segments dropped because they do not fit their connection.",
        half_open_evicted: "Connections forgotten before their handshake was complete, to make room for another one.",
        silent_evicted: "Connections that had been silent for long, ended to make room for another one.",
        syn_cookies_sent: "SYNs answered without keeping anything (SYN cookies), because too many handshakes were under way.",
        syn_cookies_accepted: "Connections that began with a SYN cookie.",
        challenges_sent: "Challenge acknowledgments: answers to segments that do not fit.",
        challenges_refused: "Challenge acknowledgments not sent, because there were too many.",
        clients_gone: "Connections ended because an idle client did not answer.",
        clients_slow: "Connections ended because a client read too slowly.",
        clients_window_closed: "Connections ended because a client kept its window closed.",
        clients_head_slow: "Connections ended because a request head took too long.",
        drops_wire: "Frames that the wire port refused.",
        drops_host: "Frames that the host port refused.",
        access_lost: "Hits that the access log had no room for.",
    }
    beside {
        /// Requests answered from card memory.
        pub hits: u64,
        /// Requests that could have been hits and were forwarded.
        pub misses: u64,
        /// Requests that the card passed for what they are.
        pub bypasses_by_request: [u64; BypassReason::ALL.len()],
        /// Requests that the card passed for its own reasons.
        pub bypasses_by_card: [u64; CardBypass::ALL.len()],
        /// Bytes that hits kept off the bus: requests and replies with one set of network headers a
        /// segment.
        pub bus_bytes_saved: u64,
        /// Bytes over the bus.
        pub bus: Bus,
        /// What the cache counts.
        pub cache: nicache_cache::Counters,
    }
    shown {
        "bus_total_bytes": "Bytes over the bus, counted by frame and not by class.", |counts| counts.bus.total();
        "bus_frames": "Frames over the bus.", |counts| counts.bus.frames();
    }
}

impl Counters {
    /// Requests that passed for whatever reason but a miss.
    pub fn bypasses(&self) -> u64 {
        self.bypasses_by_request.iter().chain(&self.bypasses_by_card).sum()
    }
}
