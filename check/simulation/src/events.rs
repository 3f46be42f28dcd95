//! What happened in a run, so a quiet run cannot pass for a good one.

use std::collections::BTreeMap;

/// Every kind that a sweep must have seen.
pub const KINDS: &[&str] = &[
    "bypass_conditional",
    "bypass_lease",
    "bypass_range",
    "bypass_request",
    "card_retransmits",
    "changed_by_request",
    "client_aborts",
    "client_half_closes",
    "client_port_reused",
    "client_zero_window",
    "connections",
    "connections_card_handshake",
    "connections_without_sack",
    "connections_without_timestamps",
    "connections_without_window_scale",
    "contents_continued",
    "directories_disturbed",
    "evictions",
    "fill_changed_at_insert",
    "fill_incomplete",
    "fill_no_verdict",
    "fills_not_shared",
    "fills_refused_changed",
    "fills_refused_events_lost",
    "fills_refused_no_matching_file",
    "fills_refused_open_for_writing",
    "fills_stored",
    "flows_opaque",
    "flows_untracked",
    "frames_corrupted",
    "frames_delayed",
    "frames_duplicated",
    "frames_lost",
    "frames_reordered",
    "hit_after_hit",
    "hit_after_miss",
    "hits",
    "hits_chunked",
    "hits_close_delimited",
    "hits_http10",
    "hits_not_modified",
    "hits_of_head",
    "hits_pipelined_behind_hit",
    "hits_pipelined_behind_miss",
    "hits_range",
    "hits_ranges",
    "hits_split_over_segments",
    "hits_while_purged",
    "hits_with_status",
    "host_connections",
    "invalidations",
    "lookup_events_lost",
    "miss_after_hit",
    "miss_after_hit_after_miss",
    "misses",
    "not_found",
    "private_replies",
    "purges",
    "reinstated",
    "replies_chunked",
    "replies_close_delimited",
    "replies_interim",
    "replies_failed",
    "replies_partial_excused",
    "replies_range",
    "replies_ranges",
    "sequence_wraps_client",
    "sequence_wraps_host",
    "server_deaths",
    "server_idle_closes",
    "server_idle_closes_absorbed",
    "server_resets",
    "slow_replies",
    "super_frames_from_card",
    "super_frames_from_host",
    "vary_hits",
    "waits_collapsed",
    "watcher_deaths",
    "watchers_replaced",
    "writes",
    "writes_by_rename",
    "writes_during_reply",
];

/// Events by kind.
#[derive(Clone, Debug, Default)]
pub struct Events(BTreeMap<&'static str, u64>);

impl Events {
    /// Counts one event of this kind.
    pub fn count(&mut self, kind: &'static str) {
        self.add(kind, 1);
    }

    /// Counts several events of this kind.
    pub fn add(&mut self, kind: &'static str, events: u64) {
        debug_assert!(KINDS.contains(&kind), "{kind} is not listed");
        *self.0.entry(kind).or_default() += events;
    }

    /// Events of a kind.
    pub fn of(&self, kind: &str) -> u64 {
        self.0.get(kind).copied().unwrap_or(0)
    }

    /// Adds those of another run.
    pub fn merge(&mut self, other: &Self) {
        for (kind, events) in &other.0 {
            *self.0.entry(kind).or_default() += events;
        }
    }

    /// Kinds that never happened.
    pub fn missing(&self) -> Vec<&'static str> {
        KINDS.iter().copied().filter(|kind| self.of(kind) == 0).collect()
    }
}

impl std::fmt::Display for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for kind in KINDS {
            writeln!(f, "{:>10} {kind}", self.of(kind))?;
        }
        Ok(())
    }
}
