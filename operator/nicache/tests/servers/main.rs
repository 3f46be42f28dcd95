//! Real servers, unmodified, each with the same requests and the same edits.
//!
//! What a client gets through the card must be what the same server gives beside it, over the
//! loopback interface of its own namespace: status, fields but for `Date`, body. Which requests the
//! card answers itself is what [docs/servers.md](../../../../docs/servers.md) says, to the cell.
#![allow(unsafe_code)]

mod apache;
mod caddy;
mod cases;
#[path = "../common/mod.rs"]
mod common;
mod edits;
mod go;
mod lighttpd;
mod nginx;
mod node;
mod others;
mod python;
mod site;
mod stage;
mod table;
mod wire;
