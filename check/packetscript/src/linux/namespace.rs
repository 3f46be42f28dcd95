//! A network namespace with a TAP interface and a listening socket. It has no name: it lives as
//! long as these two.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use nicache_port::{Tap, TapConfig, TapError, TapQueue};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::backend::BackendError;
use crate::endpoint;
use crate::packet::{CLIENT_MAC, SERVER_MAC};
use crate::script::Setup;

const INTERFACE: &str = "wire0";
/// A program's write of a whole reply fits into the socket's buffer: least, default and most bytes.
const SEND_BUFFER: &str = "4096 8388608 8388608";

/// Makes it.
pub(super) fn create(setup: &Setup) -> Result<(TapQueue, TcpListener), BackendError> {
    // A thread of its own enters the namespace and ends; what it has opened stays there.
    std::thread::scope(|scope| scope.spawn(|| inside(setup)).join()).unwrap_or_else(|_| {
        Err(BackendError::Unsupported("the thread of the namespace has panicked".to_owned()))
    })
}

fn inside(setup: &Setup) -> Result<(TapQueue, TcpListener), BackendError> {
    nicache_netns::enter_new().map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => BackendError::NotPermitted,
        _ => BackendError::io("a network namespace", error),
    })?;
    // Segments come one by one, with their sums: as a network card without any offload gets them.
    let config = TapConfig { checksum: false, tso: false, uso: false, ..TapConfig::default() };
    let mut queues = Tap::open_with(INTERFACE, 1, &config).map_err(|error| match error {
        TapError::NotPermitted => BackendError::NotPermitted,
        error => BackendError::Unsupported(error.to_string()),
    })?;
    let tap = queues.remove(0);
    sysctl("ipv4/tcp_wmem", SEND_BUFFER)?;
    for (name, value) in &setup.linux.sysctls {
        sysctl(&format!("ipv4/{name}"), value)?;
    }
    configure(setup)?;
    let listener = listen(setup).map_err(|error| BackendError::io("a listening socket", error))?;
    Ok((tap, listener))
}

fn configure(setup: &Setup) -> Result<(), BackendError> {
    let (client, server) = (endpoint::client(setup.ip), endpoint::server(setup.ip));
    let prefix = if setup.ip == 4 { 24 } else { 64 };
    let route = setup.linux.route.join(" ");
    let congestion = &setup.linux.congestion;
    if setup.ip == 6 {
        // No router solicitations, no duplicate address detection.
        ip(&format!("link set {INTERFACE} addrgenmode none"))?;
    }
    ip(&format!("link set {INTERFACE} address {} mtu {} up", mac(SERVER_MAC), setup.mtu))?;
    // TCP hands down one segment at a time: it does not hold some back to make a larger
    // super-frame.
    ip(&format!("link set {INTERFACE} gso_max_segs 1"))?;
    let no_detection = if setup.ip == 6 { "nodad" } else { "" };
    ip(&format!("address add {server}/{prefix} dev {INTERFACE} {no_detection}"))?;
    ip(&format!(
        "neighbor replace {client} lladdr {} dev {INTERFACE} nud permanent",
        mac(CLIENT_MAC)
    ))?;
    ip(&format!("route replace {client} dev {INTERFACE} congctl {congestion} {route}"))?;
    ip(&format!("route replace default via {client} dev {INTERFACE}"))
}

fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

fn ip(arguments: &str) -> Result<(), BackendError> {
    let done = nicache_netns::ip(arguments);
    done.map(drop).map_err(|error| BackendError::Unsupported(error.to_string()))
}

/// Sets a value of the namespace of the calling thread.
fn sysctl(name: &str, value: &str) -> Result<(), BackendError> {
    std::fs::write(format!("/proc/sys/net/{name}"), value)
        .map_err(|error| BackendError::io(format!("setting net.{name}"), error))
}

fn listen(setup: &Setup) -> io::Result<TcpListener> {
    let family = if setup.ip == 4 { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket: OwnedFd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if let Some(bytes) = setup.linux.receive_buffer {
        sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
    }
    sockopt::set_tcp_nodelay(&socket, true)?;
    if let Some((idle_s, interval_s, probes)) = setup.linux.keep_alive {
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, std::time::Duration::from_secs(idle_s.into()))?;
        sockopt::set_tcp_keepintvl(&socket, std::time::Duration::from_secs(interval_s.into()))?;
        sockopt::set_tcp_keepcnt(&socket, probes)?;
    }
    rustix::net::bind(
        &socket,
        &SocketAddr::new(endpoint::server(setup.ip), endpoint::SERVER_PORT),
    )?;
    rustix::net::listen(&socket, setup.linux.backlog)?;
    Ok(socket.into())
}
