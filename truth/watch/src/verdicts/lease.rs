//! How long the cards may go on by the revision table alone.
//!
//! CLOCK_BOOTTIME, because a relay on another machine goes on while this one is suspended: it waits
//! for one lease and lets a change pass then.

use std::sync::Arc;

use nicache_clock::boottime_ns;
use nicache_coherence::{LEASE_NS, LEASE_RENEWAL_NS, RevisionTable};

use crate::statements::remote::RemoteDatabase;

/// The only place that makes the table's lease longer: never longer than every relay vouches whose
/// database something was kept of ([`nicache_relay::Validity`]).
pub(super) fn renew_lease(
    table: &RevisionTable,
    remotes: &[Arc<RemoteDatabase>],
    renewed_ns: &mut u64,
) {
    let now = boottime_ns();
    let mut is_time = now.saturating_sub(*renewed_ns) >= LEASE_RENEWAL_NS;
    for remote in remotes {
        is_time |= remote.handle_time(now);
    }
    if is_time {
        let until =
            remotes.iter().fold(now + LEASE_NS, |until, remote| remote.bound_lease(until, now));
        table.renew_lease(until);
        // A change and a look at the file must differ in time although no request is forwarded.
        table.advance_clock();
        *renewed_ns = now;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use nicache_clock::monotonic_ns;

    use super::*;

    /// Whose clock differs by that from CLOCK_MONOTONIC: it has been suspended.
    const SUSPENDED_S: u64 = 100_000;
    const INSIDE: &str = "NICACHE_TEST_SUSPENDED";

    #[test]
    fn a_lease_ends_while_the_machine_is_suspended() {
        if std::env::var_os(INSIDE).is_some() {
            let table = RevisionTable::on_heap();
            renew_lease(&table, &[], &mut 0);
            let awake_ns = monotonic_ns();
            assert!(table.lease_holds(boottime_ns()));
            assert!(table.lease_holds(awake_ns + SUSPENDED_S * 1_000_000_000));
            return;
        }
        if !Path::new("/proc/self/ns/time").exists() {
            eprintln!("not tried: this kernel has no time namespaces");
            return;
        }
        let inside = Command::new("unshare")
            .args(["--time", "--boottime", &SUSPENDED_S.to_string()])
            .arg(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "verdicts::lease::tests::a_lease_ends_while_the_machine_is_suspended",
            ])
            .env(INSIDE, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&inside.stdout);
        assert!(inside.status.success() && said.contains("1 passed"), "{said}");
    }
}
