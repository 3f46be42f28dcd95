//! Visitors who log in.

use std::fmt;
use std::net::SocketAddr;

use anyhow::{Context, Result};

use crate::client::Client;

/// The password of all of them.
pub(crate) const PASSWORD: &str = "a password of length";

/// A visitor with an account.
#[derive(Clone, Copy)]
pub struct Login {
    name: &'static str,
    log_in: fn(SocketAddr, &str) -> Result<Client>,
}

impl Login {
    /// `log_in` gives a client with the cookies of the visitor of that name.
    pub(crate) fn new(name: &'static str, log_in: fn(SocketAddr, &str) -> Result<Client>) -> Self {
        Self { name, log_in }
    }

    /// The name, which each page shows to this visitor and to nobody else.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Logs in at the running server.
    pub fn log_in(&self, server: SocketAddr) -> Result<Client> {
        (self.log_in)(server, self.name).with_context(|| format!("{} cannot log in", self.name))
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Login").field(&self.name).finish()
    }
}
