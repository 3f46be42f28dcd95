//! How a command asks a nicache that is running, and which one it means if it was not told.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nicache_admin::Mode;

use super::command::{Request, Response, Status, read_line, write_line};
use super::{ANSWER_TIMEOUT, unexpected};

/// Folder of the control sockets.
pub fn run_folder() -> PathBuf {
    PathBuf::from("/run/nicache")
}

/// Asks a running nicache. `name`: which; `None`: the only one that can answer.
///
/// # Errors
/// None can, several can, or it refuses.
pub fn ask(name: Option<&str>, request: &Request) -> Result<Response> {
    ask_within(name, request, ANSWER_TIMEOUT * 2)
}

/// Asks a running nicache and waits for its answer for `limit` at most. `name`: which; `None`: the
/// only one that can answer.
///
/// # Errors
/// None can, several can, or it refuses.
pub fn ask_within(name: Option<&str>, request: &Request, limit: Duration) -> Result<Response> {
    let socket = find_socket(&run_folder(), name, &|mode| request.suits(mode))?;
    ask_at(&socket, request, limit)
}

/// The status of a nicache that runs a server behind a card. `name`: which; `None`: the only one.
///
/// # Errors
/// None runs, several do, it does not answer, or the one of that name does something else.
pub fn ask_server_status(name: Option<&str>) -> Result<Status> {
    server_status(&find_socket(&run_folder(), name, &|mode| mode == Mode::Run)?)
}

fn server_status(socket: &Path) -> Result<Status> {
    let other = match ask_at(socket, &Request::Status, ANSWER_TIMEOUT * 2)? {
        Response::Status(status) => return Ok(*status),
        Response::Serve(_) => "serve",
        Response::Nfs(_) => "nfs",
        Response::Forward(_) => "forward",
        _ => return Err(unexpected()),
    };
    bail!(
        "`{}` is a `nicache {other}`, and this is about a `nicache run`: say which one with --name",
        name_of(socket)
    )
}

fn ask_at(socket: &Path, request: &Request, limit: Duration) -> Result<Response> {
    let mut stream = UnixStream::connect(socket).with_context(|| {
        format!("no nicache answers at {} (is it running, and are you root?)", socket.display())
    })?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    write_line(&mut stream, request)?;
    match read_line(&stream).context("nicache did not answer")? {
        Response::Error { reason } => bail!("{reason}"),
        response => Ok(response),
    }
}

/// Where to ask. `suits`: which kinds can answer; it matters only where several run and none was
/// named.
fn find_socket(folder: &Path, name: Option<&str>, suits: &dyn Fn(Mode) -> bool) -> Result<PathBuf> {
    if let Some(name) = name {
        let path = folder.join(format!("{name}.sock"));
        if name.contains('/') || !path.exists() {
            bail!("no nicache named `{name}` is running{}", others(&live_sockets(folder)));
        }
        return Ok(path);
    }
    let mut live = live_sockets(folder);
    if live.len() > 1 {
        // One that does not say what it is may be the one that is meant.
        let able: Vec<PathBuf> =
            live.iter().filter(|path| mode_of(path).is_none_or(suits)).cloned().collect();
        match able.len() {
            0 => bail!("no nicache that runs can answer this{}", others(&live)),
            _ => live = able,
        }
    }
    match live.len() {
        0 => bail!("no nicache is running (or it is another user's: try sudo)"),
        1 => Ok(live.remove(0)),
        _ => bail!("several are running; say which with --name{}", others(&live)),
    }
}

/// What the nicache behind a socket does.
fn mode_of(socket: &Path) -> Option<Mode> {
    match ask_at(socket, &Request::Sample, ANSWER_TIMEOUT) {
        Ok(Response::Sample(sample)) => Some(sample.mode),
        _ => None,
    }
}

/// Sockets that somebody listens on.
fn live_sockets(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut sockets: Vec<PathBuf> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "sock"))
        .filter(|path| UnixStream::connect(path).is_ok())
        .collect();
    sockets.sort();
    sockets
}

fn name_of(socket: &Path) -> String {
    socket.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn others(sockets: &[PathBuf]) -> String {
    let names: Vec<String> = sockets.iter().map(|path| name_of(path)).collect();
    if names.is_empty() { String::new() } else { format!(" (running: {})", names.join(", ")) }
}

#[cfg(test)]
mod tests {
    use nicache_admin::Sample;
    use tempfile::TempDir;

    use super::super::ControlSocket;
    use super::*;

    fn running(folder: &TempDir, name: &str, mode: Mode) -> ControlSocket {
        let socket = ControlSocket::bind(&folder.path().join(format!("{name}.sock"))).unwrap();
        socket
            .answer(move |request| match request {
                Request::Sample => {
                    Ok(Response::Sample(Box::new(Sample { mode, ..Sample::default() })))
                }
                Request::Status => Ok(Response::Nfs(Box::default())),
                _ => bail!("not this one"),
            })
            .unwrap();
        socket
    }

    #[test]
    fn which_one_is_meant() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(format!("{name}.sock"));
        let find = |request: &Request| {
            find_socket(folder.path(), None, &|mode| request.suits(mode))
                .map_err(|error| error.to_string())
        };
        let status = find(&Request::Status).unwrap_err();
        assert!(status.contains("no nicache is running"), "{status}");
        let _one = running(&folder, "one", Mode::Run);
        drop(std::os::unix::net::UnixListener::bind(path("dead")).unwrap());
        assert_eq!(find(&Request::Status), Ok(path("one")));
        // The only one says itself what it cannot answer.
        assert_eq!(find(&Request::ReloadForward), Ok(path("one")));
        let _files = running(&folder, "files", Mode::Nfs);
        let several = find(&Request::Status).unwrap_err();
        assert!(several.contains("files, one"), "{several}");
        let who = Request::Who { source: "/etc".into() };
        assert_eq!(find(&who), Ok(path("one")));
        let none = find(&Request::ReloadForward).unwrap_err();
        assert!(none.contains("can answer this (running: files, one)"), "{none}");
        let _two = running(&folder, "two", Mode::Run);
        let both = find(&who).unwrap_err();
        assert!(both.contains("--name (running: one, two)"), "{both}");
        assert!(find_socket(folder.path(), Some("../one"), &|_| true).is_err());
    }

    #[test]
    fn another_kind_is_named_as_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let _files = running(&folder, "files", Mode::Nfs);
        let status = server_status(&folder.path().join("files.sock")).unwrap_err().to_string();
        assert!(status.contains("`files` is a `nicache nfs`"), "{status}");
    }
}
