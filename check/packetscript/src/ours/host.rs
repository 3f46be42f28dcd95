//! The host behind the card: smoltcp's TCP with the server of the script.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpCidr};

use crate::content::Responder;
use crate::endpoint;
use crate::packet::{CLIENT_MAC, IP_AT, SERVER_MAC};
use crate::script::{Object, ServerAction};

/// Connections that the host can have at a time.
const SOCKETS: usize = 24;
const RECEIVE_BYTES: usize = 64 * 1024;
const SEND_BYTES: usize = 256 * 1024;

/// A connection of the server's program.
struct Served {
    handle: SocketHandle,
    responder: Responder,
}

/// The host behind the card: smoltcp's TCP with the server of the script.
pub(super) struct Host {
    iface: Interface,
    sockets: SocketSet<'static>,
    served: Vec<Served>,
    device: Queues,
    objects: Vec<Object>,
    /// Bytes that the program may still read; `None`: all.
    allowance: Option<usize>,
}

impl Host {
    /// A host with a server of these objects.
    pub(super) fn new(ip: u8, mtu: u16, objects: &[Object]) -> Self {
        let mut device =
            Queues { incoming: VecDeque::new(), outgoing: VecDeque::new(), mtu: usize::from(mtu) };
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = 7;
        let mut iface = Interface::new(config, &mut device, Instant::ZERO);
        let prefix = if ip == 4 { 24 } else { 64 };
        iface.update_ip_addrs(|addresses| {
            let _ = addresses.push(IpCidr::new(endpoint::server(ip).into(), prefix));
        });
        match endpoint::client(ip) {
            IpAddr::V4(client) => drop(iface.routes_mut().add_default_ipv4_route(client)),
            IpAddr::V6(client) => drop(iface.routes_mut().add_default_ipv6_route(client)),
        }
        let mut sockets = SocketSet::new(Vec::new());
        let served = (0..SOCKETS)
            .map(|_| {
                let buffers = (vec![0u8; RECEIVE_BYTES], vec![0u8; SEND_BYTES]);
                let mut socket = tcp::Socket::new(
                    tcp::SocketBuffer::new(buffers.0),
                    tcp::SocketBuffer::new(buffers.1),
                );
                socket.set_nagle_enabled(false);
                socket.set_ack_delay(None);
                Served { handle: sockets.add(socket), responder: Responder::default() }
            })
            .collect();
        Self { iface, sockets, served, device, objects: objects.to_vec(), allowance: None }
    }

    /// A frame from the card.
    pub(super) fn handle_frame(&mut self, frame: &[u8]) {
        if let Some(packet) = frame.get(IP_AT..) {
            self.device.incoming.push_back(packet.to_vec());
        }
    }

    /// Works; the frames that it sends.
    pub(super) fn poll(&mut self, now: Duration, unix_s: u64) -> Vec<Vec<u8>> {
        self.iface.poll(instant(now), &mut self.device, &mut self.sockets);
        for served in &mut self.served {
            let socket = self.sockets.get_mut::<tcp::Socket<'_>>(served.handle);
            if !socket.is_open() {
                *served = Served { handle: served.handle, responder: Responder::default() };
                let _ = socket.listen(endpoint::SERVER_PORT);
                continue;
            }
            serve(socket, &mut served.responder, &self.objects, &mut self.allowance, unix_s);
        }
        self.iface.poll(instant(now), &mut self.device, &mut self.sockets);
        self.device.outgoing.drain(..).map(framed).collect()
    }

    /// When it wants to be polled again.
    pub(super) fn next_due(&mut self, now: Duration) -> Option<Duration> {
        let at = self.iface.poll_at(instant(now), &self.sockets)?;
        Some(Duration::from_micros(at.total_micros().max(0) as u64))
    }

    /// What the program is told to do.
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the methods' own lifetimes do not fit"
    )]
    pub(super) fn act(&mut self, action: ServerAction) {
        match action {
            ServerAction::Pause => self.allowance = Some(0),
            ServerAction::Read(bytes) => self.allowance = Some(bytes),
            ServerAction::Resume => self.allowance = None,
            ServerAction::Close | ServerAction::Shutdown => self.each_open(|socket| socket.close()),
            ServerAction::Reset => self.each_open(|socket| socket.abort()),
        }
    }

    fn each_open(&mut self, act: impl Fn(&mut tcp::Socket<'_>)) {
        for served in &self.served {
            let socket = self.sockets.get_mut::<tcp::Socket<'_>>(served.handle);
            if socket.is_active() {
                act(socket);
            }
        }
    }
}

/// Carries bytes between a socket and the program.
fn serve(
    socket: &mut tcp::Socket<'_>,
    responder: &mut Responder,
    objects: &[Object],
    allowance: &mut Option<usize>,
    unix_s: u64,
) {
    while socket.can_recv() && *allowance != Some(0) {
        let most = allowance.unwrap_or(usize::MAX);
        let taken = socket.recv(|bytes| {
            let bytes = &bytes[..bytes.len().min(most)];
            responder.handle(bytes, objects, unix_s);
            (bytes.len(), bytes.len())
        });
        let Ok(taken) = taken else { break };
        *allowance = allowance.map(|left| left - taken);
    }
    if socket.can_send() && !responder.output.is_empty() {
        let sent = socket.send_slice(&responder.output).unwrap_or(0);
        responder.output.drain(..sent);
    }
    let client_is_done = socket.state() == tcp::State::CloseWait;
    if responder.output.is_empty() && (responder.closes || client_is_done) {
        socket.close();
    }
}

fn instant(now: Duration) -> Instant {
    Instant::from_micros(now.as_micros() as i64)
}

/// An Ethernet frame around an IP packet of the host.
fn framed(packet: Vec<u8>) -> Vec<u8> {
    let kind =
        if packet.first().is_some_and(|byte| byte >> 4 == 6) { [0x86, 0xdd] } else { [0x08, 0x00] };
    [&CLIENT_MAC[..], &SERVER_MAC[..], &kind[..], &packet[..]].concat()
}

/// IP packets below smoltcp.
struct Queues {
    incoming: VecDeque<Vec<u8>>,
    outgoing: VecDeque<Vec<u8>>,
    mtu: usize,
}

struct Received(Vec<u8>);

struct Sending<'a>(&'a mut VecDeque<Vec<u8>>);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut packet = vec![0; len];
        let result = f(&mut packet);
        self.0.push_back(packet);
        result
    }
}

impl Device for Queues {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sending<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received, Sending<'_>)> {
        let packet = self.incoming.pop_front()?;
        Some((Received(packet), Sending(&mut self.outgoing)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sending<'_>> {
        Some(Sending(&mut self.outgoing))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        capabilities
    }
}
