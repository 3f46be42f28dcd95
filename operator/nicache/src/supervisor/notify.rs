//! Tells a service manager that the server is ready (systemd: sd_notify(3), `Type=notify`).

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Tells it if there is one that wants to know; the message is a line such as `READY=1`.
pub(crate) fn tell(message: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&socket, message) {
        tracing::warn!("the service manager at {} cannot be told: {error}", socket.display());
    }
}

fn send(socket: &OsStr, message: &str) -> io::Result<()> {
    // A name that begins with @ is one without a file.
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_with_and_without_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("nicache-notify-{}", std::process::id());
        let with_file = UnixDatagram::bind(&path).unwrap();
        let without =
            UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        for (listener, address) in
            [(with_file, path.into_os_string()), (without, format!("@{name}").into())]
        {
            send(&address, "READY=1").unwrap();
            let mut buffer = [0; 32];
            assert_eq!(listener.recv(&mut buffer).unwrap(), 7);
            assert_eq!(&buffer[..7], b"READY=1");
        }
        assert!(send(folder.path().join("nobody").as_os_str(), "READY=1").is_err());
    }
}
