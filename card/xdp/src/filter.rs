//! Programs at tc ingress of kernels without tcx (before Linux 6.6): filters of the `clsact`
//! queueing discipline, which stay when their process is killed.
//!
//! A filter's handle says that it is one of these, and a name among the abstract UNIX addresses of
//! the network namespace says that its owner lives: the kernel frees the name with the process,
//! however that ends, and the name means the same in every PID namespace. Whoever attaches one
//! removes those of dead owners first, at all interfaces.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::{TC_INGRESS, TcHook, TcHookBuilder};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect,
    netdevice, recv, send, socket_with,
};

use crate::log::with_log;

/// Upper half of the handles. The lower one is any number that no other owner has.
const HANDLES: u32 = 0x6e69_0000;
const NUMBERS: u32 = 0x1_0000;
/// The programs' names, as libbpf has the kernel know them.
const NAMES: [&[u8]; 2] = [b"wire_ingress:", b"host_ingress:"];

const RTM_NEWTFILTER: u16 = 44;
const RTM_GETTFILTER: u16 = 46;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// `NLM_F_REQUEST`, and `NLM_F_DUMP`: all of them.
const DUMP: u16 = 0x1 | 0x300;
/// `clsact`, ingress.
const PARENT: u32 = 0xffff_fff2;
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_NAME: u16 = 7;
/// Bytes of `nlmsghdr` and `tcmsg`.
const NLMSG_BYTES: usize = 16;
const TCMSG_BYTES: usize = 20;

/// A filter, removed when this is dropped (in the interface's network namespace). The queueing
/// discipline stays, as others may have filters there.
#[derive(Debug)]
pub(crate) struct Filter {
    program: OwnedFd,
    interface: u32,
    handle: u32,
    /// Its name says that the owner lives.
    _alive: OwnedFd,
}

impl Filter {
    /// Attaches a program behind those that are there, but for those of owners that are dead: they
    /// are removed, wherever they are in this network namespace.
    pub(crate) fn attach(program: BorrowedFd<'_>, interface: u32) -> io::Result<Self> {
        remove_dead(program)?;
        let (handle, alive) = new_handle(interface)?;
        add(program, interface, handle)?;
        Ok(Self { program: program.try_clone_to_owned()?, interface, handle, _alive: alive })
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        // The interface may be gone, and the filter with it.
        let _ = with_log(|| hook(self.program.as_fd(), self.interface, self.handle).detach());
    }
}

fn add(program: BorrowedFd<'_>, interface: u32, handle: u32) -> io::Result<()> {
    let mut hook = hook(program, interface, handle);
    // It complains when the queueing discipline is there already.
    let (attached, _) = with_log(|| hook.create().and_then(|mut hook| hook.attach()));
    attached.map(drop).map_err(|error| io::Error::other(format!("clsact: {error:#}")))
}

fn hook(program: BorrowedFd<'_>, interface: u32, handle: u32) -> TcHook {
    TcHookBuilder::new(program)
        .ifindex(interface as i32)
        .handle(handle)
        .priority(1)
        .hook(TC_INGRESS)
}

/// A handle that no owner has who lives, and what keeps it.
fn new_handle(interface: u32) -> io::Result<(u32, OwnedFd)> {
    for tried in 0..NUMBERS {
        let handle = HANDLES | (std::process::id().wrapping_add(tried) % NUMBERS);
        if let Some(alive) = claim(interface, handle)? {
            return Ok((handle, alive));
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

/// The name of a filter's owner, unless somebody who lives has it.
fn claim(interface: u32, handle: u32) -> io::Result<Option<OwnedFd>> {
    let name = format!("nicache-filter-{interface}-{handle:x}");
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    match bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?) {
        Ok(()) => Ok(Some(socket)),
        Err(rustix::io::Errno::ADDRINUSE) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Removes the filters whose owners are dead. `program` is any: filters are removed by their
/// handle.
fn remove_dead(program: BorrowedFd<'_>) -> io::Result<()> {
    let netlink = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    connect(&netlink, &SocketAddrNetlink::new(0, 0))?;
    let table = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    for name in table.lines().filter_map(|line| Some(line.split_once(':')?.0.trim())) {
        // An interface may have gone meanwhile.
        let Ok(interface) = netdevice::name_to_index(&netlink, name) else { continue };
        for handle in filters(netlink.as_fd(), interface)? {
            // Held until the filter is gone.
            let Some(_claimed) = claim(interface, handle)? else { continue };
            let (removed, _) = with_log(|| hook(program, interface, handle).detach());
            // Another start may have been faster.
            if let Err(error) = removed
                && filters(netlink.as_fd(), interface)?.contains(&handle)
            {
                return Err(io::Error::other(format!(
                    "the filter that a killed nicache has left at {name} cannot be removed: {error:#}"
                )));
            }
        }
    }
    Ok(())
}

/// The handles of such filters at an interface.
fn filters(netlink: BorrowedFd<'_>, interface: u32) -> io::Result<Vec<u32>> {
    // nlmsghdr: length, type, flags, sequence number, port. tcmsg: family, padding, interface,
    // handle, parent, info.
    let head = [
        &((NLMSG_BYTES + TCMSG_BYTES) as u32).to_ne_bytes()[..],
        &RTM_GETTFILTER.to_ne_bytes(),
        &DUMP.to_ne_bytes(),
    ];
    let body =
        [[0; 4], [0; 4], [0; 4], interface.to_ne_bytes(), [0; 4], PARENT.to_ne_bytes(), [0; 4]];
    send(netlink, &[head.concat(), body.concat()].concat(), SendFlags::empty())?;
    let (mut found, mut buffer) = (Vec::new(), vec![0; 65_536]);
    loop {
        let (length, _) = recv(netlink, &mut buffer[..], RecvFlags::empty())?;
        let mut rest = &buffer[..length];
        while let Some(message) = message(rest) {
            match u16_at(message, 4) {
                Some(NLMSG_DONE) => return Ok(found),
                Some(NLMSG_ERROR) => {
                    let number = u32_at(message, NLMSG_BYTES).unwrap_or(0) as i32;
                    return Err(io::Error::from_raw_os_error(-number));
                }
                Some(RTM_NEWTFILTER) => found.extend(own_handle(message)),
                _ => {}
            }
            rest = &rest[message.len().next_multiple_of(4).min(rest.len())..];
        }
    }
}

/// The first message, as long as it says.
fn message(bytes: &[u8]) -> Option<&[u8]> {
    bytes.get(..u32_at(bytes, 0)? as usize).filter(|message| message.len() >= NLMSG_BYTES)
}

/// The handle of a filter, if it is one of these.
fn own_handle(message: &[u8]) -> Option<u32> {
    let handle = u32_at(message, NLMSG_BYTES + 8)?;
    let options = attribute(message.get(NLMSG_BYTES + TCMSG_BYTES..)?, TCA_OPTIONS)?;
    let name = attribute(options, TCA_BPF_NAME)?;
    (handle & !(NUMBERS - 1) == HANDLES && NAMES.iter().any(|known| name.starts_with(known)))
        .then_some(handle)
}

fn attribute(mut rest: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16_at(rest, 0)?);
        if u16_at(rest, 2)? == wanted {
            return rest.get(4..length);
        }
        rest = rest.get(length.max(4).next_multiple_of(4)..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use nicache_namespaces::run;

    use super::*;

    /// In a network namespace with the interface `near`, whose number is given.
    fn in_namespace(test: impl FnOnce(u32) + Send + 'static) {
        let run = || {
            if let Err(error) = nicache_namespaces::enter_new() {
                return println!("skipped: no network namespace: {error}");
            }
            run("ip", "link add dev near type veth peer name far");
            test(run("ip", "-o link show dev near").split(':').next().unwrap().parse().unwrap());
        };
        std::thread::spawn(run).join().unwrap();
    }

    fn shown() -> String {
        run("tc", "filter show dev near ingress")
    }

    #[test]
    fn a_filter_goes_with_its_owner_and_leaves_others_alone() {
        in_namespace(|index| {
            let loaded = crate::program::load(0, 1).unwrap();
            let other = Filter::attach(loaded.host.ingress.as_fd(), index).unwrap();
            let one = Filter::attach(loaded.wire.ingress.as_fd(), index).unwrap();
            assert!(
                shown().contains("host_ingress") && shown().contains("wire_ingress"),
                "{}",
                shown()
            );
            drop(one);
            assert!(
                shown().contains("host_ingress") && !shown().contains("wire_ingress"),
                "{}",
                shown()
            );
            drop(other);
            assert!(!shown().contains("host_ingress"), "{}", shown());
        });
    }

    #[test]
    fn filters_of_dead_owners_are_removed_and_no_others() {
        in_namespace(|index| {
            let loaded = crate::program::load(0, 1).unwrap();
            let (wire, host) = (loaded.wire.ingress.as_fd(), loaded.host.ingress.as_fd());
            let _living = Filter::attach(host, index).unwrap();
            // Somebody else's, of the same name.
            add(wire, index, 7).unwrap();
            // The kernel closes a dead owner's descriptors.
            let (handle, alive) = new_handle(index).unwrap();
            add(wire, index, handle).unwrap();
            drop(alive);
            let wires = |text: String| text.matches("wire_ingress:[").count();
            assert_eq!(wires(shown()), 2, "{}", shown());
            // At another interface.
            let peer =
                run("ip", "-o link show dev far").split(':').next().unwrap().parse().unwrap();
            let _next = Filter::attach(wire, peer).unwrap();
            assert!(wires(shown()) == 1 && shown().contains("handle 0x7"), "{}", shown());
            assert!(shown().contains("host_ingress"), "{}", shown());
        });
    }
}
