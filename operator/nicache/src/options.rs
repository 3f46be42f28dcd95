//! The settings of the commands: flags, the configuration file, and what comes of both.

mod admin;
mod as_text;
mod clients;
mod kinds;
mod milliseconds;
mod network;
mod nfs;
mod path;
mod plan;
mod publish;
mod rechecks;
mod remote_database;
pub(crate) mod run;
mod serve;
mod span;

pub(crate) use nicache_memory::Size;

pub(crate) use crate::policy::PolicyKind;

pub(crate) use admin::{AdminAddress, AdminOptions, reach};
pub(crate) use clients::ClientLimits;
pub(crate) use kinds::{HandshakeKind, LogFormat, PortKind, ReloadPhp, WatchKind};
pub use milliseconds::Milliseconds;
pub(crate) use network::{Network, Subnet};
pub(crate) use nfs::{NFS_EXAMPLES, NfsOptions};
pub(crate) use path::PathOptions;
pub(crate) use plan::{AttachPlan, RunPlan, WireOptions};
pub(crate) use publish::Publish;
pub(crate) use rechecks::Rechecks;
pub(crate) use remote_database::{BusAddress, Protocol, Relay, RemoteDatabase};
pub(crate) use run::RunOptions;
pub(crate) use serve::{CoherenceKind, LiveOption, RouteKind, SegmentationKind, ServeOptions};
