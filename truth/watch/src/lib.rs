//! The watcher: tells every card what changed before the writer's call returns, and says which replies may be kept.
//!
//! * [`Witness`] (`witness.rs`): where look-ups come from. There are two:
//!   * [`KernelWatcher`] (`kernel.rs`) loads the eBPF witnesses of `ebpf/witness.bpf.c`, which write the revision table;
//!   * [`PreloadMemory`] (`preload.rs`) is the memory in which the library of `preload/` writes it.
//! * [`LookupEvent`]: what the server looked up; from the kernel's ring (`ring.rs`), or the library's (`shared_ring.rs`).
//! * [`Attribution`] (`attribution.rs`): which request a process of the server worked on when.
//! * [`Registrar`] (`registrar.rs`): judges whether a reply may become an entry, on which sources it depends, and whether it may stay.
//! * [`RemoteDatabase`] (`remote.rs`): a database on another machine.
//! * [`run_watcher`] (`service.rs`): the watcher's loop around a socket to the card.
//!
//! Deliberately absent: which process starts which, and how descriptors are inherited (the command's business).

mod acquaintances;
mod attribution;
mod catalogues;
mod clock;
mod computed;
mod contents;
mod data;
mod databases;
mod event;
mod explain;
mod fastcgi;
mod grace;
#[cfg(test)]
#[allow(dead_code, reason = "mounts alone are made here, and no file systems")]
#[path = "../tests/witness/filesystems/ground.rs"]
mod ground;
mod history;
mod kernel;
mod layers;
mod mappings;
mod members;
mod offspring;
mod openings;
mod peers;
mod pickled;
mod preload;
mod processes;
mod records;
mod registrar;
mod remote;
mod resolve;
mod retained;
mod ring;
mod service;
mod sessions;
mod settled;
mod shared_ring;
mod survey;
mod unwatched;
mod witness;

pub use attribution::{Attribution, Others};
pub use clock::now_ns;
pub use contents::{settle, settle_file, wait_for_changes};
pub use data::DataFolders;
pub use event::{
    EventKind, Identity, LookupEvent, Peer, RequestEvent, RequestStep, Sent, SqlEvent, SqlStep, Stillness,
};
pub use explain::{Dependents, EXPLAINED_MAX, ExplainedPath, Explanation, Use};
pub use history::{HISTORY_EVENTS_MAX, HISTORY_NS};
pub use kernel::{KernelWatcher, KernelWitness, WatchError, WitnessProgram};
pub use members::{MEMBER_NAME_BYTES_MAX, MemberName, Members, is_php_fpm};
pub use preload::{PRELOAD_LIBRARY, PRELOAD_VARIABLE, PreloadMemory, PreloadWitness};
pub use processes::DatabaseProcesses;
pub use registrar::{Registrar, RegistrarCounters};
pub use remote::{RemoteCounters, RemoteDatabase};
pub use resolve::{Node, Outcome, Passage, Permissions, Resolver, Walk};
pub use ring::{LookupRing, RING_BYTES};
pub use service::{Operator, run_watcher};
pub use sessions::SessionFiles;
pub use shared_ring::{CELLS, GIVEN_UP_NS, SHARED_RING_BYTES, SharedRing};
pub use unwatched::{never_watched, why_unwatched};
pub use witness::{Coverage, Drained, Witness};
