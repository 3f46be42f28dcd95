//! The watcher: tells every card what changed before the writer's call returns, and says which replies may be kept.
//!
//! * [`KernelWatcher`] (`kernel.rs`): loads the eBPF witnesses of `ebpf/witness.bpf.c`, which write the revision table.
//! * [`LookupRing`], [`LookupEvent`]: what the server looked up, as the kernel saw it.
//! * [`Attribution`] (`attribution.rs`): which request a process of the server worked on when.
//! * [`Registrar`] (`registrar.rs`): judges whether a reply may become an entry, on which sources it depends, and whether it may stay.
//! * [`RemoteDatabase`] (`remote.rs`): a database on another machine.
//! * [`run_watcher`] (`service.rs`): the watcher's loop around a socket to the card.
//!
//! Deliberately absent: which process starts which, and how descriptors are inherited (the command's business).

mod attribution;
mod catalogues;
mod computed;
mod contents;
mod databases;
mod event;
mod explain;
mod fastcgi;
mod history;
mod kernel;
mod peers;
mod pickled;
mod processes;
mod records;
mod registrar;
mod remote;
mod resolve;
mod retained;
mod ring;
mod service;
mod sessions;
mod survey;

pub use attribution::{Attribution, Others};
pub use event::{EventKind, Identity, LookupEvent, Peer, RequestEvent, RequestStep, Sent, SqlEvent, SqlStep};
pub use explain::{Dependents, EXPLAINED_MAX, ExplainedPath, Explanation, Use};
pub use history::{HISTORY_EVENTS_MAX, HISTORY_NS};
pub use kernel::{Coverage, KernelWatcher, WatchError};
pub use processes::DatabaseProcesses;
pub use registrar::{Registrar, RegistrarCounters, now_ns};
pub use remote::{RemoteCounters, RemoteDatabase};
pub use resolve::Resolver;
pub use ring::{Drained, LookupRing, RING_BYTES};
pub use service::{Operator, run_watcher};
pub use sessions::SessionFiles;
