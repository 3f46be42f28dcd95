//! The control socket of `nicache serve` and `nicache nfs`, which answers `nicache status` and
//! `top`.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::sampler::Sampler;
use super::shared::Shared;
use crate::control::{Request, Response, read_line, write_line};

const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);

/// A bound control socket; its file goes with it.
#[derive(Debug)]
pub(crate) struct StatusServer {
    path: PathBuf,
    listener: UnixListener,
}

impl StatusServer {
    /// Binds the path, replacing what a killed nicache left there.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn bind(path: &Path) -> Result<Self> {
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
    pub(crate) fn serve(
        &self,
        shared: Arc<Shared>,
        started: Instant,
        sampler: Arc<Sampler>,
    ) -> Result<()> {
        self.answer(move |request| match request {
            Request::Status => shared.ask(started).map(|status| Response::Serve(Box::new(status))),
            Request::Sample => {
                sampler.take().map(|sample| Response::Sample(Box::new((*sample).clone())))
            }
            _ => bail!("`nicache serve` answers `nicache status` and `nicache top` only"),
        })
    }

    /// Answers requests as `answer` says, from a thread until the process ends, one client at a
    /// time.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn answer(
        &self,
        answer: impl Fn(Request) -> Result<Response> + Send + 'static,
    ) -> Result<()> {
        let listener = self.listener.try_clone()?;
        let body = move || {
            for mut client in listener.incoming().flatten() {
                let answered = (|| -> Result<()> {
                    client.set_read_timeout(Some(CLIENT_TIMEOUT))?;
                    client.set_write_timeout(Some(CLIENT_TIMEOUT))?;
                    let response = read_line(&client).and_then(&answer);
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

impl Drop for StatusServer {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
