//! The control socket of `nicache forward`.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::messages::{Answer, Question};
use super::orders::{Asked, Orders};
use super::sampler::Sampler;
use crate::control::{Request, Response, read_line, write_line};

const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
/// For ever, as far as connections go: a year.
const DRAIN_MS_MAX: u64 = 365 * 86_400_000;

/// A bound control socket; its file goes with it.
#[derive(Debug)]
pub(super) struct ControlServer {
    path: PathBuf,
    listener: UnixListener,
}

impl ControlServer {
    /// Binds the path, replacing what a killed nicache left there.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn bind(path: &Path) -> Result<Self> {
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path)
            .with_context(|| format!("cannot make the control socket {}", path.display()))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok(Self { path: path.to_owned(), listener })
    }

    /// Answers from a thread until the process ends, one client at a time.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn serve(&self, orders: Arc<Orders>, sampler: Arc<Sampler>) -> Result<()> {
        let listener = self.listener.try_clone()?;
        let body = move || {
            for mut client in listener.incoming().flatten() {
                let answered = (|| -> Result<()> {
                    client.set_read_timeout(Some(CLIENT_TIMEOUT))?;
                    client.set_write_timeout(Some(CLIENT_TIMEOUT))?;
                    let response =
                        read_line(&client).and_then(|request| respond(request, &orders, &sampler));
                    let response = response
                        .unwrap_or_else(|error| Response::Error { reason: format!("{error:#}") });
                    write_line(&mut client, &response)
                })();
                if let Err(error) = answered {
                    tracing::debug!("control socket: {error:#}");
                }
            }
        };
        std::thread::Builder::new().name("control".into()).spawn(body)?;
        Ok(())
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn respond(request: Request, orders: &Orders, sampler: &Sampler) -> Result<Response> {
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
                _ => bail!("the forwarder gave an unexpected answer: is it of another version?"),
            }
        }
        Request::Sample => Ok(Response::Sample(Box::new((*sampler.take()?).clone()))),
        Request::ForwardWhy { asked } => match orders.ask(Question::Why { asked })?.answer {
            Answer::Why(report) => Ok(Response::ForwardWhy(report)),
            _ => bail!("the forwarder gave an unexpected answer: is it of another version?"),
        },
        Request::Drain { address, within_ms } => drain(orders, address, within_ms),
        Request::ReloadForward => match orders.ask(orders.reload()?)?.answer {
            Answer::Rules { taken } => {
                Ok(Response::ReloadedForward { rules: taken.map_err(anyhow::Error::msg)? })
            }
            _ => bail!("the forwarder gave an unexpected answer: is it of another version?"),
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
        _ => bail!("the forwarder gave an unexpected answer: is it of another version?"),
    }
}
