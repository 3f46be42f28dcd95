//! What a replay prints of its log and of the card.

use nicache_replay::Trace;

use crate::growth::Grown;

/// Prints what a log has.
pub(crate) fn show_trace(trace: &Trace) {
    let counts = trace.counts;
    println!(
        "trace      {} requests of {} clients for {} files of {:.1} MB together; of them {} were answered by 304, {} by 206",
        trace.requests.len(),
        trace.clients,
        trace.objects.len(),
        trace.footprint_bytes() as f64 / 1e6,
        counts.not_modified,
        counts.partial
    );
    if let Some(cut_off) = &trace.cut_off {
        println!("cut off    {cut_off}; the requests before that are taken");
    }
    println!(
        "left out   {} bad lines, {} requests with other methods, {} answered by other statuses",
        counts.bad_lines, counts.other_methods, counts.other_statuses
    );
    println!(
        "sizes      {} replies of {} files had fewer bytes than the file here (it changed, or was sent coded or in part), {} files have no size in the log",
        counts.other_sizes, counts.objects_of_other_sizes, counts.objects_without_size
    );
}

/// Prints what a card did.
pub(super) fn show_card(card: &Grown) {
    let of = |name: &str| card.get(name).copied().unwrap_or(0);
    println!(
        "card       {} hits, {} misses, {} bypasses, {} fills ({} stored), {} purges, {} reinstated, {} evictions, {} retransmissions",
        of("hits"),
        of("misses"),
        of("bypasses"),
        of("fills"),
        of("fills_stored"),
        of("purges_by_source"),
        of("reinstated"),
        of("evictions"),
        of("retransmits")
    );
    let refused: Vec<String> = card
        .iter()
        .filter(|(name, _)| name.starts_with("fill_"))
        .map(|(name, value)| format!("{value} {}", name.trim_start_matches("fill_")))
        .collect();
    println!(
        "not stored {}",
        if refused.is_empty() { "none".to_owned() } else { refused.join(", ") }
    );
}
