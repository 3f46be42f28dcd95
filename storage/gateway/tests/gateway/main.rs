//! Whole gateways: a real target, the kernel's ext4, NFS over TCP.
//!
//! N1 to N7 are the invariants of ncache's tests; here they are tried from the client's side.

mod exports;
mod harness;
mod kill;
mod ways;

/// Not a test: the supervisor of the others, which start this program again.
#[test]
fn supervisor_process() {
    if std::env::var_os("NICACHE_SUPERVISOR").is_some() {
        nicache_device::supervise().unwrap();
        std::process::exit(0);
    }
}
