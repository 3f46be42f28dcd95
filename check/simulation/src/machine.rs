//! A simulated machine: smoltcp over a [`Station`].

use std::cell::Cell;

use smoltcp::iface::{Config, Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::socket::tcp;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr, Ipv4Address};

use crate::device::{Station, SynChanges};

thread_local! {
    /// smoltcp asks for timestamps through a plain function, so the clock is bound to the thread.
    static TIMESTAMP_MS: Cell<u32> = const { Cell::new(0) };
}

/// Sets the clock that TCP timestamps show.
pub(crate) fn set_timestamp_clock(now_ns: u64) {
    TIMESTAMP_MS.with(|clock| clock.set((now_ns / 1_000_000) as u32 | 1));
}

fn timestamp_ms() -> u32 {
    TIMESTAMP_MS.with(Cell::get)
}

/// Virtual time in smoltcp's terms.
pub(crate) fn instant(now_ns: u64) -> Instant {
    Instant::from_micros((now_ns / 1000) as i64)
}

/// What a machine is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MachinePlan {
    /// IPv4 address 10.0.0.x and MAC.
    pub number: u8,
    /// IP bytes of the longest packet.
    pub mtu: usize,
    /// What is done to its SYNs.
    pub syn: SynChanges,
    /// For smoltcp's own choices.
    pub seed: u64,
    /// Its connections are probed when they are silent, so a peer that has forgotten them is
    /// found out.
    pub keep_alive: bool,
}

/// A simulated machine: smoltcp over a [`Station`].
pub(crate) struct Machine {
    /// Its TCP/IP.
    pub iface: Interface,
    /// Its sockets.
    pub sockets: SocketSet<'static>,
    /// Its network card.
    pub station: Station,
    plan: MachinePlan,
}

impl Machine {
    /// A machine without sockets.
    pub(crate) fn new(plan: MachinePlan) -> Self {
        let mut station = Station::new(plan.mtu, plan.syn);
        let mut config = Config::new(HardwareAddress::Ethernet(EthernetAddress(mac(plan.number))));
        config.random_seed = plan.seed;
        let mut iface = Interface::new(config, &mut station, Instant::ZERO);
        let address = IpCidr::new(IpAddress::Ipv4(Ipv4Address::new(10, 0, 0, plan.number)), 24);
        iface.update_ip_addrs(|addresses| {
            let _ = addresses.push(address);
        });
        Self { iface, sockets: SocketSet::new(Vec::new()), station, plan }
    }

    /// Its address as a number.
    pub(crate) fn address(&self) -> u32 {
        address(self.plan.number)
    }

    /// Its MAC.
    pub(crate) fn mac(&self) -> [u8; 6] {
        mac(self.plan.number)
    }

    /// Adds a TCP socket.
    pub(crate) fn add_socket(&mut self, receive_bytes: usize, send_bytes: usize) -> SocketHandle {
        let socket = self.new_socket(receive_bytes, send_bytes);
        self.sockets.add(socket)
    }

    /// A fresh TCP socket.
    pub(crate) fn new_socket(
        &self,
        receive_bytes: usize,
        send_bytes: usize,
    ) -> tcp::Socket<'static> {
        let mut socket = tcp::Socket::new(
            tcp::SocketBuffer::new(vec![0; receive_bytes]),
            tcp::SocketBuffer::new(vec![0; send_bytes]),
        );
        if self.has_timestamps() {
            socket.set_tsval_generator(Some(timestamp_ms));
        }
        if self.plan.keep_alive {
            socket.set_keep_alive(Some(Duration::from_secs(20)));
        }
        socket.set_nagle_enabled(false);
        socket.set_ack_delay(Some(Duration::from_millis(10)));
        socket
    }

    /// Does it offer timestamps?
    pub(crate) fn has_timestamps(&self) -> bool {
        !self.plan.syn.no_timestamps
    }

    /// Handles frames and timers; true if anything moved.
    pub(crate) fn poll(&mut self, now_ns: u64) -> bool {
        let had = self.station.incoming.len();
        let result = self.iface.poll(instant(now_ns), &mut self.station, &mut self.sockets);
        had > 0 || result == PollResult::SocketStateChanged || !self.station.outgoing.is_empty()
    }

    /// When it wants to be polled again.
    pub(crate) fn due_ns(&mut self, now_ns: u64) -> Option<u64> {
        let at = self.iface.poll_at(instant(now_ns), &self.sockets)?;
        Some(at.total_micros().max(0) as u64 * 1000)
    }
}

/// MAC of a machine.
pub(crate) fn mac(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, number]
}

/// Address of a machine.
pub(crate) fn address(number: u8) -> u32 {
    u32::from_be_bytes([10, 0, 0, number])
}
