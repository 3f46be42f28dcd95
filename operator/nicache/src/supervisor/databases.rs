//! What relays have told of databases on other machines.

use std::time::Duration;

use super::watch_link::WatchLink;
use crate::control::Status;
use crate::inquiry::{DatabaseReport, FromWatch, ToWatch};

/// How long to wait for what only the watcher knows.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Each database with a relay. A watcher that stands still keeps none in step; whatever else there
/// is to know is known without it.
pub(super) fn databases(status: &Status, watch: &WatchLink) -> Vec<DatabaseReport> {
    if status.databases.is_empty() {
        return Vec::new();
    }
    match watch.ask(&ToWatch::Databases, TIMEOUT) {
        Ok(FromWatch::Databases { databases }) => databases,
        Ok(_) | Err(_) => status.databases.clone(),
    }
}
