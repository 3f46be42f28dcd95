//! What `nicache forward` answers commands.

use std::net::SocketAddr;

use anyhow::{Result, bail};

use super::messages::{Answer, Question};
use super::orders::{Asked, Orders};
use super::sampler::Sampler;
use crate::control::{Request, Response, misfit};

/// For ever, as far as connections go: a year.
const DRAIN_MS_MAX: u64 = 365 * 86_400_000;

/// The response to a request.
///
/// # Errors
/// The forwarder does not answer, refuses, or `nicache forward` knows no such request.
pub(super) fn respond(request: Request, orders: &Orders, sampler: &Sampler) -> Result<Response> {
    match request {
        Request::Status => {
            let Asked { answer, about } = orders.ask(Question::Report)?;
            match answer {
                Answer::Report(report) => {
                    Ok(Response::Forward(Box::new(super::status::ForwardStatus {
                        about,
                        report: *report,
                    })))
                }
                _ => Err(misfit("the forwarder")),
            }
        }
        Request::Sample => Ok(Response::Sample(Box::new((*sampler.take()?).clone()))),
        Request::ForwardWhy { asked } => match orders.ask(Question::Why { asked })?.answer {
            Answer::Why(report) => Ok(Response::ForwardWhy(report)),
            _ => Err(misfit("the forwarder")),
        },
        Request::Drain { address, within_ms } => drain(orders, address, within_ms),
        Request::ReloadForward => match orders.ask(orders.reload()?)?.answer {
            Answer::Rules { taken } => {
                Ok(Response::ReloadedForward { rules: taken.map_err(anyhow::Error::msg)? })
            }
            _ => Err(misfit("the forwarder")),
        },
        Request::Upgrade { program } => {
            Ok(Response::Upgraded { card_pid: orders.upgrade(program)? })
        }
        _ => bail!(
            "`nicache forward` answers `nicache status`, `top`, `upgrade`, `forward why`, `forward drain` and `forward reload` only"
        ),
    }
}

fn drain(orders: &Orders, address: SocketAddr, within_ms: Option<u64>) -> Result<Response> {
    let within_ms = within_ms.map(|ms| ms.min(DRAIN_MS_MAX));
    match orders.ask(Question::Drain { address, within_ms })?.answer {
        Answer::Drained { back_ends: 0 } => {
            bail!("{address} is not a back end: `nicache status` lists those that are")
        }
        Answer::Drained { back_ends } => Ok(Response::Drained { back_ends }),
        _ => Err(misfit("the forwarder")),
    }
}
