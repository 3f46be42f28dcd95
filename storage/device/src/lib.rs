//! A block device that this process serves, and a private mount of the ext4 on it.
//!
//! * [`Blocks`] (`blocks.rs`) is who answers the device's reads and writes; [`Plain`] is a logical
//!   unit as it is.
//! * [`Mounted`] (`mounted.rs`) is the server's side: it serves the device and holds the root of
//!   the file system.
//! * [`supervise`] (`supervisor.rs`) is the other process: it owns mount and device and outlives
//!   the server (`protocol.rs` is what they say to each other). A server that ended while it held
//!   the last reference to its own file system would wait for itself for ever.
//! * [`Transport`] (`transport.rs`) is how the kernel's requests come here, and `node.rs` where
//!   block devices come from: [`LoopOverFuse`](node::LoopOverFuse) (`fuse_file.rs`,
//!   `loop_device.rs`), or the kernel's ublk driver (`ublk/`, with a process of its own between the
//!   kernel and the server); `block_queue.rs` sets what both need.
//! * `detached.rs` makes mounts that are in no namespace: nobody else sees them, and they go with
//!   their descriptors.
//! * `isolation.rs` lets a killed server end although threads of it wait for its own device.
//! * [`Superblock`] (`superblock.rs`) says what is on a unit before the kernel sees it.
//!
//! Read first: Documentation/filesystems/fuse.rst ("Aborting a filesystem connection"), loop(4),
//! fsopen(2), fsmount(2).
//!
//! Deliberately absent: any knowledge of keys (`nicache-ncache`).
#![deny(clippy::disallowed_methods)]

mod block_queue;
mod blocks;
mod detached;
mod fuse_file;
mod isolation;
mod loop_device;
mod mounted;
mod node;
mod protocol;
mod superblock;
mod supervisor;
mod transport;
mod ublk;

pub use blocks::{Blocks, Plain};
pub use mounted::{DeviceError, MountOptions, Mounted};
pub use superblock::{Superblock, Unsuitable};
pub use supervisor::supervise;
pub use transport::Transport;
