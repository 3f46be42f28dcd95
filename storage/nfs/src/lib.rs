//! An NFSv3 server over TCP for directories of local file systems (RFC 1813), with MOUNT and a port
//! mapper.
//!
//! Names, attributes and permissions are the kernel's: a request becomes system calls that are made
//! as the caller, on files that are found by the kernel's own handles. Payload goes by way of
//! [`Payload`](nicache_payload::Payload) and is never touched: a READ's reply refers to extents, a
//! WRITE's data are received where they stay.
//!
//! Read first: `answer.rs` (from a request to its reply), then `procedures.rs` (what all procedures
//! have in common), then any procedure. `record.rs`, `xdr.rs`, `rpc.rs`, `arguments.rs` and
//! `duplicates.rs` and `room.rs` do no I/O; `socket.rs`, `connection.rs`, `worker.rs`, `shared.rs`
//! and `server.rs` are the sockets and threads.
//!
//! Deliberately absent: locks (NLM and NSM: clients mount with `nolock`), UDP but for the port
//! mapper, ACLs, Kerberos, NFS version 4.

#![deny(unsafe_code)]

mod answer;
pub mod arguments;
mod attributes;
pub mod caller;
mod chunk;
mod client;
mod connection;
mod credential;
mod duplicates;
mod export;
mod handle;
mod impersonation;
mod kernel;
pub mod limits;
mod metrics;
mod mount;
mod mounts;
mod node;
mod original;
pub mod portmap;
mod procedures;
pub mod protocol;
mod record;
mod room;
pub mod rpc;
mod server;
mod service;
mod shared;
mod socket;
mod status;
mod worker;
pub mod xdr;

pub use chunk::{Chunk, ChunkPool};
pub use client::{ClientRule, Network, NetworkError};
pub use connection::PauseLimits;
pub use credential::{Anonymous, Claim, Identity, Squash};
pub use export::{ExportConfig, ExportError};
pub use handle::HandleKey;
pub use impersonation::Impersonation;
pub use metrics::{Metrics, ProcedureMetrics};
pub use original::Original;
pub use record::{Record, RecordError, RecordReader};
pub use server::{Server, ServerConfig, ServerError, Sizes};
