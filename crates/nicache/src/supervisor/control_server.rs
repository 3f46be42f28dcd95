//! The control socket: answers `nicache status`, `purge` and `bypass`.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::card_link::CardLink;
use crate::control::{Request, Response, Status, read_line, write_line};

const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);

/// A bound control socket; its file goes with it.
#[derive(Debug)]
pub struct ControlServer {
    path: PathBuf,
    listener: UnixListener,
}

impl ControlServer {
    /// Binds the path, replacing what a killed nicache left there: the caller holds the lock on the name, so nobody lives behind it.
    pub fn bind(path: &Path) -> Result<ControlServer> {
        let _ = std::fs::remove_file(path);
        let listener =
            UnixListener::bind(path).with_context(|| format!("cannot make the control socket {}", path.display()))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok(ControlServer { path: path.to_owned(), listener })
    }

    /// Serves from a thread until the process ends, one client at a time. `status`: what does not change.
    pub fn serve(self, status: Status, started: Instant, card: Arc<CardLink>) -> Result<ControlServer> {
        let listener = self.listener.try_clone()?;
        let body = move || {
            for client in listener.incoming().flatten() {
                if let Err(error) = answer(client, &status, started, &card) {
                    tracing::debug!("control socket: {error:#}");
                }
            }
        };
        std::thread::Builder::new().name("control".into()).spawn(body)?;
        Ok(self)
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn answer(mut client: UnixStream, status: &Status, started: Instant, card: &CardLink) -> Result<()> {
    client.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    client.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let response = read_line(&client).and_then(|request| respond(request, status, started, card));
    let response = response.unwrap_or_else(|error| Response::Error { reason: format!("{error:#}") });
    write_line(&mut client, &response)
}

fn respond(request: Request, status: &Status, started: Instant, card: &CardLink) -> Result<Response> {
    Ok(match request {
        Request::Status => {
            let counters = card.counters()?;
            Response::Status(Box::new(Status { uptime_s: started.elapsed().as_secs(), counters, ..status.clone() }))
        }
        Request::Card { question } => Response::Card { answer: card.ask(question)? },
    })
}
