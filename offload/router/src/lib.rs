//! The forwarder on a real machine: what `nicache forward` is made of, besides processes.
//!
//! | file | what it is |
//! |---|---|
//! | [`config`] | `forward.toml`: read, checked, made into what [`nicache_forward`] takes |
//! | [`kernel`] | links, addresses, routes and neighbours, as the kernel has them and as they change |
//! | [`guard`] | what keeps the kernel from answering what the forwarder forwards |
//! | [`health`] | whether back ends answer |
//! | [`router`] | engine, forwarder and the kernel's tables in one loop |
//! | [`report`] | what there is to see |
//! | [`keep`] | connections in memory that outlives the process |
//! | [`demo`] | namespaces with clients and servers |
//!
//! [`nicache_forward`] decides and does no I/O; this crate does I/O and decides nothing about
//! packets.

#![forbid(unsafe_code)]

pub mod config;
pub mod demo;
pub mod guard;
pub mod health;
pub mod keep;
pub mod kernel;
pub mod report;
pub mod router;

pub use nicache_forward::services::Chosen;
