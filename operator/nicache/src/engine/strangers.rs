//! Tells an operator of headers and cookies that keep requests from the card, each once.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use nicache_cache::StrangeName;
use nicache_card::Card;
use nicache_port::Port;

use crate::control::StrangerReport;

/// Names told of in the life of the process.
const TOLD_MAX: usize = 100;

static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Writes those of the card's that are new to the log.
pub(crate) fn tell<W: Port, H: Port>(card: &mut Card<W, H>) {
    while let Some(stranger) = card.take_new_stranger() {
        let report = report(&stranger, 1);
        let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < TOLD_MAX && told.insert(report.to_string()) {
            tracing::info!(
                "requests go to the server because of the {report}: {}",
                report.advice()
            );
        }
    }
}

/// A name as others see it.
pub(crate) fn report(stranger: &StrangeName, requests: u64) -> StrangerReport {
    StrangerReport {
        is_cookie: stranger.is_cookie,
        name: String::from_utf8_lossy(&stranger.name).into_owned(),
        requests,
    }
}
