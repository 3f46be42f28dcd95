//! How long it usually takes from one time to the next, of visits or of changes: an average that
//! follows what was seen last.

use std::time::Duration;

/// What the last time counts for in the usual one, as 1/n; and the longest that counts.
const LAST_WEIGHT: u32 = 4;
const NIGHT: Duration = Duration::from_secs(1800);

/// Stands for a time of which nothing is known yet: as good as never.
pub(super) const NEVER: Duration = Duration::from_secs(86_400);

/// A time that differs each time, a pause or a life, as it usually is: the last one has a quarter's
/// weight, and a night hardly more.
pub(super) fn usual_time(usual: Duration, last: Duration) -> Duration {
    if usual == NEVER { last } else { (usual * (LAST_WEIGHT - 1) + last.min(NIGHT)) / LAST_WEIGHT }
}
