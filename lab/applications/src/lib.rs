//! Real web applications from Debian's packages, each prepared in a private folder: database,
//! application server, web server, content.
//!
//! ```text
//! Application ── prepare ──▶ Site ── with(), server() ──▶ commands for `nicache run`, or Running
//!                             │
//!                             ├─ pages()   URLs that anybody may ask for, and what they show
//!                             └─ edits()   ways to change what they show, each with a marker to look for
//! ```
//!
//! Nothing of the machine's own configuration is read for writing or changed, no service of the
//! machine is used, and everything talks through Unix sockets in the folder, so any number of
//! copies run at once. Only the web server's port is chosen by the caller.
#![forbid(unsafe_code)]

mod application;
mod client;
mod edit;
mod folder;
mod login;
mod packages;
mod preparation;
mod program;
mod running;
mod site;
mod template;

pub use application::Application;
pub use client::{Client, Reply};
pub use edit::Edit;
pub use login::Login;
pub use running::Running;
pub use site::{Page, Settings, Site};
