//! `nicache serve` and `nicache forward` with real clients, real files and the real kernel between
//! them.

#[path = "../common/mod.rs"]
mod common;

mod bus;
mod crashes;
mod files;
mod forward;
mod forward_attachments;
mod forward_by_name;
mod forward_health;
mod forward_links;
mod forward_ports;
mod forward_reload;
mod forward_spill;
#[path = "../../../../truth/watch/tests/witness/filesystems/ground.rs"]
mod ground;
mod http;
mod live;
mod nfs;
mod oracle;
mod serving;
