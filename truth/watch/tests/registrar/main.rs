//! Fills judged on real files, and entries judged again: a thread in a network namespace of its own
//! plays the server.
//!
//! Needs the capabilities to load eBPF programs and an ext4 file system.

mod asked;
#[path = "../common/mod.rs"]
mod common;
mod copies;
mod fills;
#[path = "../witness/filesystems/ground.rs"]
mod ground;
mod overlays;
mod reinstatements;
mod scene;
mod unsettled;

#[test]
fn all_hold_where_the_kernel_stops_tasks_in_witnesses() {
    common::run_all_expecting_stops("all_hold_where_the_kernel_stops_tasks_in_witnesses");
}
