//! Which sockets listen. The kernel looks through these alone; its tables as text
//! (`/proc/net/tcp`) list all connections, too, and take milliseconds to read on a machine with
//! much memory, however few there are. They are for another network, and for a kernel that has no
//! other way.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};

use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};
use netlink_packet_sock_diag::{AF_INET, AF_INET6, IPPROTO_TCP, SockDiagMessage};
use rustix::net::netlink::SOCK_DIAG;

use crate::{Netlink, TRIES, odd};

/// A TCP socket that listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listening {
    /// The one at which it listens; unspecified: at all of its family.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
    /// The socket's inode number, as in `/proc/PID/fd`.
    pub inode: u64,
}

/// The TCP sockets that listen in the calling thread's network namespace.
pub fn listening() -> Vec<Listening> {
    /// The kernel has once not told.
    static IS_SILENT: AtomicBool = AtomicBool::new(false);
    told_or(&IS_SILENT, told, || in_tables("thread-self"))
}

/// Those that listen in the network namespace of a process. Empty if the process is gone.
pub fn listening_of(process: u32) -> Vec<Listening> {
    let network = |process: &str| {
        std::fs::metadata(format!("/proc/{process}/ns/net")).ok().map(|file| file.ino())
    };
    let name = process.to_string();
    match network(&name) {
        None => Vec::new(),
        there if there == network("thread-self") => listening(),
        Some(_) => in_tables(&name),
    }
}

/// Asks the kernel unless it has once not told; else reads. A kernel that lacks the module starts a
/// program to look for it, each time that it is asked.
fn told_or(
    is_silent: &AtomicBool,
    told: impl FnOnce() -> io::Result<Vec<Listening>>,
    read: impl FnOnce() -> Vec<Listening>,
) -> Vec<Listening> {
    if is_silent.load(Ordering::Relaxed) {
        return read();
    }
    told().unwrap_or_else(|error| {
        if error.kind() != io::ErrorKind::Interrupted {
            is_silent.store(true, Ordering::Relaxed);
        }
        read()
    })
}

/// By `sock_diag(7)`.
fn told() -> io::Result<Vec<Listening>> {
    let mut netlink = Netlink::of(Some(SOCK_DIAG))?;
    let mut all = Vec::new();
    for family in [AF_INET, AF_INET6] {
        all.extend(netlink.listening(family)?);
    }
    Ok(all)
}

/// By the tables as text (proc_pid_net(5)).
fn in_tables(process: &str) -> Vec<Listening> {
    let table =
        |name| std::fs::read_to_string(format!("/proc/{process}/net/{name}")).unwrap_or_default();
    (table("tcp") + &table("tcp6")).lines().filter_map(in_line).collect()
}

/// `sl local rem st tx:rx tr:tm retrnsmt uid timeout inode ...`, of which the addresses are words
/// as the machine has them in memory.
fn in_line(line: &str) -> Option<Listening> {
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (address, port) = fields.get(1)?.split_once(':')?;
    let word = |at| Some(u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let address: IpAddr = match address.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            Ipv6Addr::from(<[u8; 16]>::try_from(words.concat()).ok()?).into()
        }
        _ => return None,
    };
    let port = u16::from_str_radix(port, 16).ok()?;
    let inode = fields.get(9)?.parse().ok()?;
    (*fields.get(3)? == LISTEN).then_some(Listening { address, port, inode })
}

impl Netlink {
    fn listening(&mut self, family: u8) -> io::Result<Vec<Listening>> {
        let request = SockDiagMessage::InetRequest(InetRequest {
            family,
            protocol: IPPROTO_TCP,
            extensions: ExtensionFlags::empty(),
            states: StateFlags::LISTEN,
            socket_id: if family == AF_INET { SocketId::new_v4() } else { SocketId::new_v6() },
        });
        for _ in 0..TRIES {
            let answer = self.ask(request.clone(), NLM_F_DUMP)?;
            if answer.is_whole {
                return answer
                    .messages
                    .into_iter()
                    .map(|message| one(message.map_err(odd)?))
                    .collect();
            }
        }
        Err(io::ErrorKind::Interrupted.into())
    }
}

fn one(message: SockDiagMessage) -> io::Result<Listening> {
    match message {
        SockDiagMessage::InetResponse(response) => {
            let header = response.header;
            let (address, port) = (header.socket_id.source_address, header.socket_id.source_port);
            Ok(Listening { address, port, inode: header.inode.into() })
        }
        _ => Err(odd("not a socket of the internet family".into())),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use nicache_namespaces::Namespace;

    use super::*;

    fn sorted(all: Vec<Listening>) -> Vec<(SocketAddr, u64)> {
        let all = all.into_iter();
        let mut all: Vec<_> =
            all.map(|one| (SocketAddr::new(one.address, one.port), one.inode)).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn those_that_listen_are_told_and_no_others() {
        let Some(namespace) = Namespace::new() else { return };
        namespace.ip("link set lo up");
        namespace.run(|| {
            assert_eq!(told().unwrap(), []);
            let at = ["127.0.0.1:80", "0.0.0.0:81", "[::1]:80", "[::]:82", "[::ffff:127.0.0.1]:83"];
            let listeners = at.map(|at| TcpListener::bind(at).unwrap());
            let client = TcpStream::connect(at[0]).unwrap();
            let _connection = listeners[0].accept().unwrap();
            let inode =
                |listener: &TcpListener| rustix::fs::fstat(listener.as_fd()).unwrap().st_ino;
            let mut expected: Vec<(SocketAddr, u64)> = at
                .iter()
                .zip(&listeners)
                .map(|(at, listener)| (at.parse().unwrap(), inode(listener)))
                .collect();
            expected.sort_unstable();
            assert_eq!(sorted(told().unwrap()), expected);
            assert_eq!(sorted(in_tables("thread-self")), expected);
            assert_eq!(sorted(listening()), expected);
            drop((client, listeners));
        });
    }

    #[test]
    fn those_of_another_network_are_those_of_its_process() {
        let Some(namespace) = Namespace::new() else { return };
        namespace.ip("link set lo up");
        let (listener, thread) = namespace.run(|| {
            let listener = TcpListener::bind("127.0.0.1:80").unwrap();
            (listener, rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs())
        });
        let inode = rustix::fs::fstat(listener.as_fd()).unwrap().st_ino;
        assert_eq!(sorted(listening_of(thread)), [("127.0.0.1:80".parse().unwrap(), inode)]);
        assert!(listening_of(std::process::id()).iter().all(|one| one.inode != inode));
        assert_eq!(listening_of(u32::MAX), []);
    }

    #[test]
    fn many_come_in_several_pieces() {
        let Some(namespace) = Namespace::new() else { return };
        namespace.ip("link set lo up");
        namespace.run(|| {
            let listeners: Vec<TcpListener> =
                (0..800).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
            let told = sorted(told().unwrap());
            assert_eq!(told.len(), listeners.len());
            assert_eq!(told, sorted(in_tables("thread-self")));
        });
    }

    #[test]
    fn a_kernel_that_does_not_tell_is_asked_once() {
        let is_silent = AtomicBool::new(false);
        let one = Listening { address: Ipv4Addr::LOCALHOST.into(), port: 80, inode: 1 };
        let ask = |told: io::Result<Vec<Listening>>| told_or(&is_silent, || told, || vec![one]);
        assert_eq!(ask(Ok(Vec::new())), []);
        // Its table has changed all the time.
        assert_eq!(ask(Err(io::ErrorKind::Interrupted.into())), [one]);
        assert_eq!(ask(Ok(Vec::new())), []);
        assert_eq!(ask(Err(io::ErrorKind::NotFound.into())), [one]);
        let never = || unreachable!("it has not told once");
        assert_eq!(told_or(&is_silent, never, || vec![one]), [one]);
    }

    #[test]
    fn only_lines_of_listening_sockets_count() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 71 1 0 100 0 0 10 0
   1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 72 1 0 100 0 0 10 0
   2: 0100007F:0051 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 73 1 0 100 0 0 10 0
";
        let all: Vec<Listening> = table.lines().filter_map(in_line).collect();
        assert_eq!(
            sorted(all),
            [("0.0.0.0:80".parse().unwrap(), 71), ("127.0.0.1:8080".parse().unwrap(), 72)]
        );
        assert_eq!("garbage\n\n: :\na b:c d 0A\n".lines().filter_map(in_line).count(), 0);
    }
}
