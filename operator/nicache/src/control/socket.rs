//! The socket on which a running nicache answers commands, one after the other.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::command::{Request, Response, read_line, write_line};

/// How long a command may take to send its request, and to take the response.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long nobody is taken in after the system could not: it has no file descriptor left, say.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A bound control socket; its file goes with it.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    path: PathBuf,
    listener: UnixListener,
}

impl ControlSocket {
    /// Binds the path, replacing what a killed nicache left there: the caller holds the lock on the
    /// name, so nobody lives behind it.
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

    /// Answers requests as `respond` says, from a thread until the process ends, one client at a
    /// time. Its error becomes the response.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn answer(
        &self,
        respond: impl Fn(Request) -> Result<Response> + Send + 'static,
    ) -> Result<()> {
        let listener = self.listener.try_clone()?;
        let body = move || {
            for client in listener.incoming() {
                let answered = match client {
                    Ok(client) => answer_one(client, &respond),
                    Err(error) => {
                        std::thread::sleep(ACCEPT_PAUSE);
                        Err(error.into())
                    }
                };
                if let Err(error) = answered {
                    tracing::debug!("control socket: {error:#}");
                }
            }
        };
        std::thread::Builder::new().name("control".into()).spawn(body)?;
        Ok(())
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn answer_one(mut client: UnixStream, respond: impl Fn(Request) -> Result<Response>) -> Result<()> {
    client.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    client.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let response = read_line(&client).and_then(respond);
    let response =
        response.unwrap_or_else(|error| Response::Error { reason: format!("{error:#}") });
    write_line(&mut client, &response)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn ask(path: &Path, line: &[u8]) -> Result<Response> {
        let mut client = UnixStream::connect(path)?;
        client.write_all(line)?;
        client.shutdown(std::net::Shutdown::Write)?;
        read_line(client)
    }

    #[test]
    fn answers_refuses_and_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        std::fs::write(&path, "left by a nicache that was killed").unwrap();
        let socket = ControlSocket::bind(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        socket
            .answer(|request| match request {
                Request::ReloadForward => Ok(Response::ReloadedForward { rules: 7 }),
                _ => anyhow::bail!("not this one"),
            })
            .unwrap();
        let reload = serde_json::to_string(&Request::ReloadForward).unwrap() + "\n";
        // One that says nothing, and one that leaves before the response.
        drop(UnixStream::connect(&path).unwrap());
        UnixStream::connect(&path).unwrap().write_all(reload.as_bytes()).unwrap();
        assert_eq!(ask(&path, reload.as_bytes()).unwrap(), Response::ReloadedForward { rules: 7 });
        let refused = serde_json::to_string(&Request::Status).unwrap() + "\n";
        let reason = "not this one".to_owned();
        assert_eq!(ask(&path, refused.as_bytes()).unwrap(), Response::Error { reason });
        for odd in [&b"{}\n"[..], b"\n", b"\xff\xfe\n", b"no end"] {
            assert!(matches!(ask(&path, odd).unwrap(), Response::Error { .. }), "{odd:?}");
        }
        drop(socket);
        assert!(!path.exists());
    }
}
