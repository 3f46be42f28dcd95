//! The client: smoltcp's TCP, with conversations of HTTP on it.

use std::cell::Cell;
use std::collections::VecDeque;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr, Ipv4Address};

use super::{card_address, card_mac};

/// MAC address of the client.
pub(crate) const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
/// IPv4 address of the client.
pub(crate) const CLIENT_ADDRESS: [u8; 4] = [10, 77, 0, 1];
/// After which silence a client asks whether the host is still there.
const KEEP_ALIVE: smoltcp::time::Duration = smoltcp::time::Duration::from_secs(60);
/// Bytes that a conversation receives before they are taken.
const RECEIVE_BYTES: usize = 128 << 10;
const SEND_BYTES: usize = 16 << 10;
/// How long the host waits for a client.
const HOST_WAITS_NS: u64 = 60_000_000_000;

thread_local! {
    /// The clock of the client's timestamps (RFC 7323), in milliseconds.
    static STAMP_MS: Cell<u32> = const { Cell::new(0) };
}

/// A reply as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// Its status.
    pub status: u16,
    /// Its body.
    pub body: Vec<u8>,
}

/// One connection of the client.
#[derive(Debug)]
pub(crate) struct Conversation {
    handle: SocketHandle,
    /// Bytes that are still to be sent.
    to_send: VecDeque<u8>,
    /// Bytes that are sent at a time at most.
    pub sends_at_most: usize,
    /// Whether what comes is taken.
    pub reads: bool,
    /// Whether the client sends no more when everything is sent.
    pub closes: bool,
    /// Everything that has come.
    pub received: Vec<u8>,
    /// Where the first reply begins that has not been read.
    parsed: usize,
    /// Nothing more will come.
    pub is_over: bool,
    /// When something came last, in nanoseconds.
    heard_ns: u64,
    /// When it was over the host lacked a part of what was said, and had been silent for as long as
    /// it waits for that.
    was_unheard: bool,
}

/// Which conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConversationId(pub usize);

/// The client: smoltcp's TCP, with conversations of HTTP on it.
pub(crate) struct Client {
    interface: Interface,
    sockets: SocketSet<'static>,
    ether: Ether,
    conversations: Vec<Conversation>,
    port: u16,
    /// Whether no frame comes from it, or to it.
    pub is_out_of_reach: bool,
    /// Whether connections have timestamps. Without them, a sender that repeats much waits ever
    /// longer (RFC 6298 section 5, Karn's algorithm), and is taken for idle on the worst wires.
    pub timestamps: bool,
}

#[derive(Default)]
struct Ether {
    incoming: VecDeque<Vec<u8>>,
    outgoing: VecDeque<Vec<u8>>,
}

impl Client {
    /// Without a connection.
    pub(crate) fn new(seed: u64, now_ns: u64) -> Self {
        let mut ether = Ether::default();
        let mut config = Config::new(HardwareAddress::Ethernet(EthernetAddress(CLIENT_MAC)));
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut ether, instant(now_ns));
        interface.update_ip_addrs(|addresses| {
            let [a, b, c, d] = CLIENT_ADDRESS;
            addresses.push(IpCidr::new(IpAddress::v4(a, b, c, d), 24)).unwrap();
        });
        Self {
            interface,
            sockets: SocketSet::new(Vec::new()),
            ether,
            conversations: Vec::new(),
            port: 40_000,
            is_out_of_reach: false,
            timestamps: false,
        }
    }

    /// Begins a conversation with a card's address.
    pub(crate) fn connect(&mut self, card: usize) -> ConversationId {
        let buffer = |bytes: usize| SocketBuffer::new(vec![0; bytes]);
        let mut socket = Socket::new(buffer(RECEIVE_BYTES), buffer(SEND_BYTES));
        socket.set_nagle_enabled(false);
        // A reset that is lost is not repeated: a client that only waits hears of it when it asks.
        socket.set_keep_alive(Some(KEEP_ALIVE));
        if self.timestamps {
            socket.set_tsval_generator(Some(|| STAMP_MS.get()));
        }
        self.port += 1;
        let server = (IpAddress::Ipv4(Ipv4Address::from(card_address(card))), 80);
        socket.connect(self.interface.context(), server, self.port).unwrap();
        let handle = self.sockets.add(socket);
        self.conversations.push(Conversation {
            handle,
            to_send: VecDeque::new(),
            sends_at_most: usize::MAX,
            reads: true,
            closes: false,
            received: Vec::new(),
            parsed: 0,
            is_over: false,
            heard_ns: 0,
            was_unheard: false,
        });
        ConversationId(self.conversations.len() - 1)
    }

    /// A conversation.
    pub(crate) fn get(&mut self, id: ConversationId) -> &mut Conversation {
        &mut self.conversations[id.0]
    }

    /// What TCP says of it.
    pub(crate) fn state(&self, id: ConversationId) -> State {
        self.sockets.get::<Socket<'_>>(self.conversations[id.0].handle).state()
    }

    /// Its port.
    pub(crate) fn port(&self, id: ConversationId) -> u16 {
        self.sockets
            .get::<Socket<'_>>(self.conversations[id.0].handle)
            .local_endpoint()
            .map_or(0, |end| end.port)
    }

    /// Sends these bytes, too.
    pub(crate) fn say(&mut self, id: ConversationId, bytes: &[u8]) {
        self.conversations[id.0].to_send.extend(bytes);
    }

    /// Asks for a path.
    pub(crate) fn ask(&mut self, id: ConversationId, path: &str) {
        self.say(id, format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
    }

    /// Ends a conversation at once.
    pub(crate) fn abort(&mut self, id: ConversationId) {
        self.sockets.get_mut::<Socket<'_>>(self.conversations[id.0].handle).abort();
    }

    /// The client has nothing more to say.
    pub(crate) fn close_all(&mut self) {
        self.conversations.iter_mut().for_each(|conversation| conversation.closes = true);
    }

    /// Whether a conversation ended because the host had not heard all of it for long.
    pub(crate) fn was_unheard(&self, id: ConversationId) -> bool {
        self.conversations[id.0].was_unheard
    }

    /// Whether everything was said and all conversations are over.
    pub(crate) fn is_done(&self) -> bool {
        self.conversations.iter().all(|conversation| conversation.is_over)
    }

    /// For failures.
    pub(crate) fn describe(&self) -> String {
        let tell = |conversation: &Conversation| {
            let socket = self.sockets.get::<Socket<'_>>(conversation.handle);
            format!(
                "{} to send, {} received, {}",
                conversation.to_send.len(),
                conversation.received.len(),
                socket.state()
            )
        };
        self.conversations.iter().map(tell).collect::<Vec<_>>().join("; ")
    }

    /// A frame has come.
    pub(crate) fn take_frame(&mut self, frame: &[u8]) {
        if !self.is_out_of_reach {
            self.ether.incoming.push_back(frame.to_vec());
        }
    }

    /// Frames to be sent, each with the card by whose wire it goes.
    pub(crate) fn take_frames(&mut self) -> Vec<(usize, Vec<u8>)> {
        if self.is_out_of_reach {
            self.ether.outgoing.clear();
        }
        let wire_of = |frame: &[u8]| match &frame[..6] {
            // A question about an address goes where the answer is.
            [0xff, ..] => frame
                .get(38..42)
                .map_or(0, |address| usize::from(address[3].wrapping_sub(card_address(0)[3]))),
            mac => usize::from(mac[5].wrapping_sub(card_mac(0)[5])),
        };
        self.ether.outgoing.drain(..).map(|frame| (wire_of(&frame), frame)).collect()
    }

    /// Goes on with all conversations. True: bytes have moved between them and TCP.
    pub(crate) fn poll(&mut self, now_ns: u64) -> bool {
        STAMP_MS.set((now_ns / 1_000_000) as u32);
        self.interface.poll(instant(now_ns), &mut self.ether, &mut self.sockets);
        let mut moved = false;
        for conversation in &mut self.conversations {
            let socket = self.sockets.get_mut::<Socket<'_>>(conversation.handle);
            moved |= conversation.go_on(socket, now_ns);
        }
        if moved {
            self.interface.poll(instant(now_ns), &mut self.ether, &mut self.sockets);
        }
        moved
    }

    /// When to poll again, if nothing comes.
    pub(crate) fn next_due_ns(&mut self, now_ns: u64) -> Option<u64> {
        let due = self.interface.poll_at(instant(now_ns), &self.sockets)?;
        Some((due.total_micros().max(0) as u64 * 1000).max(now_ns))
    }

    /// The next reply of a conversation, if it is there as a whole.
    ///
    /// # Panics
    /// If it is not a reply.
    pub(crate) fn next_reply(&mut self, id: ConversationId) -> Option<Reply> {
        let conversation = &mut self.conversations[id.0];
        let bytes = &conversation.received[conversation.parsed..];
        let mut fields = [httparse::EMPTY_HEADER; 32];
        let mut head = httparse::Response::new(&mut fields);
        let httparse::Status::Complete(len) = head.parse(bytes).unwrap() else { return None };
        let status = head.code.unwrap();
        let length =
            head.headers.iter().find(|field| field.name.eq_ignore_ascii_case("content-length"));
        let length =
            length.map_or(0, |field| std::str::from_utf8(field.value).unwrap().parse().unwrap());
        let body = bytes.get(len..len + length)?.to_vec();
        conversation.parsed += len + length;
        Some(Reply { status, body })
    }

    /// What has come of a reply that is not there as a whole: its body.
    pub(crate) fn rest(&mut self, id: ConversationId) -> Vec<u8> {
        let conversation = &mut self.conversations[id.0];
        let bytes = &conversation.received[conversation.parsed..];
        let head = bytes.windows(4).position(|end| end == b"\r\n\r\n");
        head.map_or(Vec::new(), |at| bytes[at + 4..].to_vec())
    }
}

impl Conversation {
    fn go_on(&mut self, socket: &mut Socket<'_>, now_ns: u64) -> bool {
        let mut moved = false;
        let unsaid = self.to_send.len() + socket.send_queue();
        if !self.to_send.is_empty() && socket.can_send() {
            let bytes = self.to_send.make_contiguous();
            let len = bytes.len().min(self.sends_at_most);
            // What was sent at a time is a segment of its own.
            if self.sends_at_most == usize::MAX || socket.send_queue() == 0 {
                let sent = socket.send_slice(&bytes[..len]).unwrap();
                self.to_send.drain(..sent);
                moved |= sent > 0;
            }
        }
        while self.reads && socket.can_recv() {
            let taken = socket.recv(|bytes| (bytes.len(), bytes.to_vec())).unwrap();
            moved |= !taken.is_empty();
            self.received.extend(taken);
            self.heard_ns = now_ns;
        }
        if self.closes && self.to_send.is_empty() && socket.may_send() {
            socket.close();
            moved = true;
        }
        let is_over = matches!(socket.state(), State::Closed | State::TimeWait)
            || self.reads && socket.state() == State::CloseWait && !socket.can_recv();
        if is_over && !self.is_over {
            moved = true;
            self.was_unheard = unsaid > 0 && now_ns - self.heard_ns >= HOST_WAITS_NS;
        }
        self.is_over = is_over;
        moved
    }
}

fn instant(now_ns: u64) -> Instant {
    Instant::from_micros((now_ns / 1000) as i64)
}

impl Device for Ether {
    type RxToken<'a> = Incoming;
    type TxToken<'a> = Outgoing<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Incoming, Outgoing<'_>)> {
        Some((Incoming(self.incoming.pop_front()?), Outgoing(&mut self.outgoing)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Outgoing<'_>> {
        Some(Outgoing(&mut self.outgoing))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        capabilities
    }
}

struct Incoming(Vec<u8>);

impl RxToken for Incoming {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(&self.0)
    }
}

struct Outgoing<'a>(&'a mut VecDeque<Vec<u8>>);

impl TxToken for Outgoing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, fill: F) -> R {
        let mut frame = vec![0; len];
        let result = fill(&mut frame);
        self.0.push_back(frame);
        result
    }
}
