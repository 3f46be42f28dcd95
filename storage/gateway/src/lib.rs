//! A pass-through file server: an NFS front end, the network-ready cache, a private mount of ext4,
//! and a logical unit, put together.
//!
//! * [`Gateway`] (`gateway.rs`) starts them in order and ends them in order.
//! * [`CopyMode`] (`copy_mode.rs`) is which of the paper's three ways payload takes.
//! * [`ExportLine`] (`export_line.rs`) is how operators write what is exported, and to whom.
//! * [`WebLine`] (`web_line.rs`) is how they write what is served by HTTP.
//! * [`load_or_make_key`] (`handle_key.rs`) keeps the secret of file handles across restarts, and
//!   two gateways from one unit; [`read_credentials`] (`credentials.rs`) reads those for CHAP.
//! * [`Figures`] (`figures.rs`) is what it has done, for people, programs and Prometheus;
//!   `metered.rs` times the logical unit.
//! * [`FileReport`] (`file_report.rs`) is what it has of a file, and why not the rest.
//! * [`Demo`] (`demo.rs`) is a unit for a first try: a sparse file behind a real target.
//!
//! Read first: Peng, Sharma, Chiueh, "NCache: a network-centric buffer cache for pass-through
//! servers" (ICDCS 2005), sections 3 and 4.
//!
//! Deliberately absent: command lines, control sockets (the command's), and every mechanism of the
//! crates below.

#![forbid(unsafe_code)]

mod copy_mode;
mod credentials;
mod demo;
mod export_line;
mod figures;
mod file_report;
mod gateway;
mod handle_key;
mod metered;
mod web_line;

pub use copy_mode::CopyMode;
pub use credentials::{CredentialsError, UnitCredentials, read_credentials};
pub use demo::Demo;
pub use export_line::{ExportLine, ExportLineError};
pub use figures::{CopyFigures, Figures, OperationFigures, UnitFigures, WebFigures};
pub use file_report::{FileReport, FileReportError, FileReporter, RangeReport, StateReport};
pub use gateway::{Gateway, GatewayConfig, GatewayError};
pub use handle_key::{KeptKey, KeyError, key_path, load_or_make_key};
pub use metered::Metered;
pub use web_line::{WebLine, WebLineError};
