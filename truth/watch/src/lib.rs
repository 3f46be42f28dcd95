//! The watcher: tells every card what changed before the writer's call returns, and says which
//! replies may be kept.
//!
//! ```text
//!  witnesses/ ─── events ──▶ attribution/   which request did it?
//!     kernel     │           memory/        what has the server in its memory?
//!     preload    │           statements/    what was read and changed in databases/?
//!                └─────────▶ resolve/       where do look-ups lead?
//!                              │
//!  card ─── question ───▶ verdicts/ ─── may it become an entry, may it stay? ──▶ card
//! ```
//!
//! * [`Witness`] (`witnesses/witness.rs`): where look-ups come from. There are two:
//!   * [`KernelWatcher`] (`kernel.rs`) loads the eBPF witnesses of `ebpf/witness.bpf.c`, which
//!     write the revision table, and [`Overseer`] (`overseer.rs`) looks after these;
//!   * [`PreloadMemory`] (`preload.rs`) is the memory in which the library of `preload/` writes it.
//! * [`LookupEvent`]: what the server looked up; from the kernel's ring (`ring.rs`), or the
//!   library's (`shared_ring.rs`).
//! * [`Attribution`] (`attribution/requests.rs`): which request a process of the server worked on
//!   when.
//! * [`Database`] (`databases/database.rs`): a kind of database server, one folder each.
//! * [`RemoteDatabase`] (`statements/remote.rs`): a database on another machine.
//! * [`Registrar`] (`verdicts/registrar.rs`): judges whether a reply may become an entry, on which
//!   sources it depends, and whether it may stay.
//! * [`run_watcher`] (`verdicts/service.rs`): the watcher's loop around a socket to the card.
//!
//! Deliberately absent: which process starts which, and how descriptors are inherited (the
//! command's business).
#![deny(clippy::disallowed_methods)]

mod attribution;
mod databases;
#[cfg(test)]
#[allow(dead_code, reason = "mounts alone are made here, and no file systems")]
#[path = "../tests/witness/filesystems/ground.rs"]
mod ground;
mod memory;
mod processes;
mod resolve;
mod statements;
mod verdicts;
mod witnesses;

pub use attribution::requests::{Attribution, Others};
pub use databases::database::{Database, Place};
pub use databases::processes::DatabaseProcesses;
pub use databases::sql::{Session, Texts};
pub use memory::data::DataFolders;
pub use memory::sessions::SessionFiles;
pub use resolve::contents::{settle, settle_file, wait_for_changes};
pub use resolve::node::{Node, Permissions};
pub use resolve::resolver::{Outcome, Passage, Resolver, Walk};
pub use resolve::unwatched::{never_watched, why_unwatched};
pub use statements::remote::{RemoteCounters, RemoteDatabase};
pub use verdicts::explain::{Dependents, EXPLAINED_MAX, ExplainedPath, Explanation, Use};
pub use verdicts::registrar::{Registrar, RegistrarCounters};
pub use verdicts::service::{Operator, run_watcher};
pub use witnesses::event::{
    EventKind, Identity, LookupEvent, Peer, RequestEvent, RequestStep, Sent, SqlEvent, SqlStep,
    Stillness,
};
pub use witnesses::history::{HISTORY_EVENTS_MAX, HISTORY_NS};
pub use witnesses::kernel::{KernelWatcher, KernelWitness, WatchError, WitnessProgram};
pub use witnesses::members::{MEMBER_NAME_BYTES_MAX, MemberName, Members, is_php_fpm};
pub use witnesses::overseer::{Blindness, Overseer};
pub use witnesses::preload::{PRELOAD_LIBRARY, PRELOAD_VARIABLE, PreloadMemory, PreloadWitness};
pub use witnesses::ring::{LookupRing, RING_BYTES};
pub use witnesses::shared_ring::{CELLS, GIVEN_UP_NS, SHARED_RING_BYTES, SharedRing};
pub use witnesses::witness::{Coverage, Drained, Witness};
