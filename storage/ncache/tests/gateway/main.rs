//! The whole storage side on a real device, a real file system, and units in memory or of a real
//! target.
//!
//! N1 to N7 are the invariants of the gateway: no tag on the unit; what COMMIT acknowledged
//! survives any power cut; a read after a write's reply returns it; `e2fsck -fn` is clean after
//! replay; no block shows another file's bytes; (N6 is the front end's;) memory is bounded.

mod cuts;
mod faults;
mod forgetting;
mod harness;
mod keys;
mod kill;
mod oracle;
mod skeleton;

/// Not a test: the supervisor of the others, which start this program again.
#[test]
fn supervisor_process() {
    if std::env::var_os("NICACHE_SUPERVISOR").is_some() {
        nicache_device::supervise().unwrap();
        std::process::exit(0);
    }
}
