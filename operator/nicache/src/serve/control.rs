//! What `nicache serve` answers commands.

use std::time::Instant;

use anyhow::{Result, bail};

use super::sampler::Sampler;
use super::shared::Shared;
use crate::control::{Request, Response};

/// The response to a request, of one that was started at `started`.
///
/// # Errors
/// The host does not answer, or `nicache serve` knows no such request.
pub(super) fn respond(
    request: &Request,
    shared: &Shared,
    started: Instant,
    sampler: &Sampler,
) -> Result<Response> {
    match request {
        Request::Status => shared.ask(started).map(|status| Response::Serve(Box::new(status))),
        Request::Sample => {
            sampler.take().map(|sample| Response::Sample(Box::new((*sample).clone())))
        }
        _ => bail!("`nicache serve` answers `nicache status` and `nicache top` only"),
    }
}
