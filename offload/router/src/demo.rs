//! Namespaces with clients and real servers around a forwarder, for `nicache forward --demo`.
//!
//! ```text
//!  this machine ── nic0 ──┐                        ┌── nginx a
//!  client 1 ── veth ──────┤ namespace `middle`:    ├── nginx b
//!  client 2 ── veth ──────┤ machine, client1..3,   └── nginx c
//!  client 3 ── veth ──────┘ server1..3: the forwarder's interfaces
//! ```
//!
//! Namespaces have no names and belong to threads of this process; the kernel takes them down, with
//! all interfaces, when it ends.

mod load;
mod stage;

pub use load::{Load, Loaded};
pub use stage::{FILE_BYTES, Stage, file_byte};
