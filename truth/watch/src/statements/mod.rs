//! What is read from databases and changed in them, from the statements that their servers receive.

pub(crate) mod asked;
pub(crate) mod catalogues;
pub(crate) mod client;
pub(crate) mod connections;
pub(crate) mod databases;
pub(crate) mod journal;
pub(crate) mod known_processes;
pub(crate) mod remote;
