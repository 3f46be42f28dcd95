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
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcFilterBpfOption, TcMessage, TcOption};
use nicache_netlink::Netlink;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, netdevice, socket_with,
};

use crate::log::with_log;

/// Upper half of the handles. The lower one is any number that no other owner has.
const HANDLES: u32 = 0x6e69_0000;
const NUMBERS: u32 = 0x1_0000;
/// The programs' names, as libbpf has the kernel know them.
const NAMES: [&str; 2] = ["wire_ingress:", "host_ingress:"];

/// `clsact`, ingress.
const PARENT: u32 = 0xffff_fff2;

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
    let mut netlink = Netlink::open()?;
    let table = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    for name in table.lines().filter_map(|line| Some(line.split_once(':')?.0.trim())) {
        // An interface may have gone meanwhile.
        let Ok(interface) = netdevice::name_to_index(&netlink, name) else { continue };
        for handle in filters(&mut netlink, interface)? {
            // Held until the filter is gone.
            let Some(_claimed) = claim(interface, handle)? else { continue };
            let (removed, _) = with_log(|| hook(program, interface, handle).detach());
            // Another start may have been faster.
            if let Err(error) = removed
                && filters(&mut netlink, interface)?.contains(&handle)
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
fn filters(netlink: &mut Netlink, interface: u32) -> io::Result<Vec<u32>> {
    let mut question = TcMessage::with_index(interface as i32);
    question.header.parent = PARENT.into();
    let told = netlink.dump(&RouteNetlinkMessage::GetTrafficFilter(question))?;
    let own = |message: &RouteNetlinkMessage| match message {
        RouteNetlinkMessage::NewTrafficFilter(filter) => own_handle(filter),
        _ => None,
    };
    Ok(told.iter().filter_map(own).collect())
}

/// The handle of a filter, if it is one of these.
fn own_handle(filter: &TcMessage) -> Option<u32> {
    let options = filter.attributes.iter().filter_map(|attribute| match attribute {
        TcAttribute::Options(options) => Some(options),
        _ => None,
    });
    let is_known = |option: &TcOption| match option {
        TcOption::Bpf(TcFilterBpfOption::ProgName(name)) => {
            NAMES.iter().any(|known| name.starts_with(known))
        }
        _ => false,
    };
    let handle = u32::from(filter.header.handle);
    (handle & !(NUMBERS - 1) == HANDLES && options.flatten().any(is_known)).then_some(handle)
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
