//! One connection of a server (RFC 9293), from the client's SYN to the end.
//!
//! Segments go in ([`Connection::handle_segment`]), request bytes wait in [`Connection::input`]
//! until they are taken, buffers to send are queued ([`Connection::send`]), and what is to be sent
//! comes out ([`Connection::poll`]). No I/O, no clock.

use std::time::Duration;

use nicache_tcp::challenge::{ChallengeBudget, Challenged};
use nicache_tcp::close::{Event, State};
use nicache_tcp::ecn::EcnReceiver;
use nicache_tcp::frame::{Addresses, FlowKey, Mac, Tags};
use nicache_tcp::handshake::{Limits, SynReceived, SynTimeout, answer};
use nicache_tcp::patience::{Impatience, ReadRules, Reading};
use nicache_tcp::receiver::{Accept, Receiver};
use nicache_tcp::rst::{self, Verdict};
use nicache_tcp::splice::window_field;
use nicache_tcp::timestamps::{Paws, TsClock};
use nicache_tcp::{
    AckInfo, Flags, HeadRepr, SegmentHead, Sender, SenderConfig, Seq, SynOptions, Time,
    TimeoutOutcome, Timestamps,
};

use super::queue::SendQueue;
use crate::mbuf::Mbuf;

/// Request bytes that are taken before somebody reads them.
pub const REQUEST_WINDOW_BYTES: u32 = 16 << 10;
/// How long an acknowledgment waits for something to go with (RFC 9293 section 3.8.6.3: less than
/// 500 ms).
const DELAYED_ACK: Duration = Duration::from_millis(40);
/// Payload of one packet at most, if the card cuts it.
const SUPER_FRAME_BYTES: u32 = 65_535 - 20 - 60;

/// The two ends of a connection, with their addresses of the Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Addresses and ports.
    pub key: FlowKey,
    /// Where segments of the client come from.
    pub client_mac: Mac,
    /// Where they go to.
    pub server_mac: Mac,
}

impl Ends {
    /// The addresses of what is sent to the client.
    pub fn to_client(&self) -> Addresses {
        Addresses {
            source_mac: self.server_mac,
            destination_mac: self.client_mac,
            tags: Tags::default(),
            source: self.key.server,
            destination: self.key.client,
        }
    }
}

/// Settings of all connections.
#[derive(Clone, Copy, Debug)]
pub struct StackConfig {
    /// What is offered in a handshake.
    pub limits: Limits,
    /// Of the sender.
    pub sender: SenderConfig,
    /// Whether packets are longer than segments, for the card to cut.
    pub card_cuts: bool,
    /// How slowly clients may read.
    pub read: ReadRules,
}

/// What to send: a header, and for payload its place in the stream.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// The header.
    pub head: HeadRepr,
    /// Payload bytes, from `head.seq` on in [`Connection::queue`].
    pub len: u32,
    /// Payload bytes of each segment.
    pub mss: u16,
}

/// What a segment has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reaction {
    /// There are more bytes in [`Connection::input`], or these were the last.
    pub readable: bool,
    /// Bytes were acknowledged: buffers may be freed, and there is room for more.
    pub acked: bool,
    /// The connection is over, and may be forgotten.
    pub over: bool,
    /// The segment does not fit the connection: the client is told where that stands, at a limited
    /// rate ([`Connection::challenge`], RFC 5961 section 7).
    pub challenge: bool,
}

#[derive(Debug)]
struct Stamps {
    clock: TsClock,
    client: Paws,
}

#[derive(Debug)]
enum Phase {
    /// The third segment is awaited.
    Opening {
        timer: SynReceived,
        options: SynOptions,
        due: bool,
    },
    Open,
}

/// One TCP connection of a server (RFC 9293), from the client's SYN to the end. No I/O, no clock.
#[derive(Debug)]
pub struct Connection {
    ends: Ends,
    phase: Phase,
    close: State,
    start: Seq,
    sender: Sender,
    receiver: Receiver,
    our_scale: u8,
    client_scale: u8,
    mss: u16,
    packet_bytes_max: u32,
    stamps: Option<Stamps>,
    queue: SendQueue,
    input: Vec<u8>,
    ack_now: bool,
    ack_due: Option<Time>,
    /// Segments with bytes that were not acknowledged.
    unacknowledged: u8,
    last_ack: Seq,
    fin_queued: bool,
    reset: Option<Seq>,
    /// A segment in the handshake acknowledged what was never sent: it is told so, and the
    /// handshake goes on.
    refused: Option<Seq>,
    ecn: EcnReceiver,
    challenged: Challenged,
    reading: Reading,
    read: ReadRules,
    /// Why it was ended by this side.
    impatience: Option<Impatience>,
}

impl Connection {
    /// A client's SYN, answered by the next [`poll`](Self::poll). `start` is our initial sequence
    /// number, `stamp_offset` that of our clock.
    pub fn accept(
        ends: Ends,
        syn: &SegmentHead,
        start: Seq,
        stamp_offset: u32,
        config: &StackConfig,
        now: Time,
    ) -> Self {
        let clock = TsClock::new(stamp_offset);
        let options = syn.syn_options.unwrap_or_default();
        let agreed = answer(&options, &config.limits, clock.at(now));
        let stamps = agreed
            .options
            .timestamps
            .map(|theirs| Stamps { clock, client: Paws::new(theirs.ecr, now) });
        let sender =
            Sender::new(&config.sender, start + 1, agreed.peer, u32::from(syn.window), now);
        Self {
            ends,
            phase: Phase::Opening {
                timer: SynReceived::new(now),
                options: agreed.options,
                due: true,
            },
            close: State::Established,
            start,
            sender,
            receiver: Receiver::new(syn.seq + 1, REQUEST_WINDOW_BYTES),
            our_scale: agreed.our_scale,
            client_scale: agreed.peer.window_scale,
            mss: agreed.peer.mss,
            packet_bytes_max: if config.card_cuts {
                SUPER_FRAME_BYTES
            } else {
                u32::from(agreed.peer.mss)
            },
            stamps,
            queue: SendQueue::new(start + 1),
            input: Vec::new(),
            ack_now: false,
            ack_due: None,
            unacknowledged: 0,
            last_ack: syn.seq + 1,
            fin_queued: false,
            reset: None,
            refused: None,
            ecn: EcnReceiver::new(agreed.peer.ecn),
            challenged: Challenged::default(),
            reading: Reading::default(),
            read: config.read,
            impatience: None,
        }
    }

    /// Is its handshake under way?
    pub fn is_opening(&self) -> bool {
        matches!(self.phase, Phase::Opening { .. })
    }

    /// Why it was ended by this side, if the client was too slow.
    pub fn impatience(&self) -> Option<Impatience> {
        self.impatience
    }

    /// Answers a segment that does not fit, if `budget` allows it. `random`: a number that clients
    /// cannot know.
    pub fn challenge(&mut self, budget: &mut ChallengeBudget, random: u32, now: Time) {
        self.ack_now |= budget.allows(&mut self.challenged, now, random);
    }

    /// Its two ends.
    pub fn ends(&self) -> &Ends {
        &self.ends
    }

    /// From now on what is sent goes another way, between these addresses of the Ethernet.
    pub fn reroute(&mut self, server_mac: [u8; 6], client_mac: [u8; 6]) {
        (self.ends.server_mac, self.ends.client_mac) = (server_mac, client_mac);
    }

    /// Request bytes that nobody has taken yet.
    pub fn input(&self) -> &[u8] {
        &self.input
    }

    /// The first bytes of the input are done with.
    pub fn consume(&mut self, bytes: usize) {
        self.input.drain(..bytes);
        if self.receiver.release(bytes as u32, u32::from(self.mss)) {
            self.ack_now = true;
        }
    }

    /// Whether the client has sent its last byte.
    pub fn is_read_out(&self) -> bool {
        self.receiver.finished()
    }

    /// Whether something may still be sent.
    pub fn can_send(&self) -> bool {
        self.reset.is_none() && !self.fin_queued && self.close.can_send()
    }

    /// Bytes that the client has not acknowledged.
    pub fn unacknowledged_bytes(&self) -> u32 {
        self.queue.bytes()
    }

    /// What is queued, for the payload of an [`Outgoing`].
    pub fn queue(&self) -> &SendQueue {
        &self.queue
    }

    /// Queues a buffer.
    pub fn send(&mut self, buffer: Mbuf) {
        if self.can_send() {
            self.sender.enqueue(buffer.len());
            self.queue.push(buffer);
        }
    }

    /// Nothing follows what is queued.
    pub fn finish(&mut self) {
        if self.can_send() {
            self.fin_queued = true;
            self.sender.enqueue_fin();
        }
    }

    /// Ends the connection at once.
    pub fn abort(&mut self) {
        self.reset = Some(self.sender.nxt());
    }

    /// Frees the buffers that the client has acknowledged.
    pub fn release(&mut self, free: impl FnMut(Mbuf)) {
        self.queue.release(self.sender.una(), free);
    }

    /// Frees all buffers: the connection is forgotten.
    pub fn clear(&mut self, free: impl FnMut(Mbuf)) {
        self.queue.clear(free);
    }

    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        self.close.is_over()
    }

    /// Whether it is over in order, so its numbers must wait (TIME-WAIT).
    pub fn must_wait(&self) -> bool {
        self.close == State::TimeWait
    }

    /// What it will send and expects next, for TIME-WAIT.
    pub fn next_numbers(&self) -> (Seq, Seq) {
        (self.sender.nxt(), self.receiver.nxt())
    }

    /// The client's last timestamp, if there are any.
    pub fn ts_recent(&self) -> Option<u32> {
        self.stamps.as_ref().map(|stamps| stamps.client.recent())
    }

    /// A segment of the client.
    pub fn handle_segment(&mut self, head: &SegmentHead, payload: &[u8], now: Time) -> Reaction {
        let mut reaction = Reaction::default();
        if head.flags.rst() {
            match rst::judge(head.seq, self.receiver.nxt(), self.receiver.window()) {
                Verdict::Accept => {
                    self.close = self.close.after(Event::Aborted);
                    reaction.over = true;
                }
                Verdict::ChallengeAck => reaction.challenge = true,
                Verdict::Drop => {}
            }
            return reaction;
        }
        if head.flags.syn() {
            // The client's own SYN again, or one that RFC 5961 section 4.2 wants challenged.
            match &mut self.phase {
                Phase::Opening { due, .. } => *due = true,
                Phase::Open => reaction.challenge = true,
            }
            return reaction;
        }
        if !head.flags.ack() {
            return reaction;
        }
        // RFC 9293 section 3.10.7.4: of what is not near the window, not even the acknowledgment
        // counts.
        let end = head.seq + head.segment_len(payload.len() as u32);
        // Bytes that come again are acknowledged each time: their sender waits for that.
        let repeated = !payload.is_empty();
        if end.lt(self.last_ack) || head.seq.gt(self.receiver.nxt() + self.receiver.window()) {
            (self.ack_now, reaction.challenge) = (self.ack_now | repeated, !repeated);
            return reaction;
        }
        if let Some(stamps) = &mut self.stamps {
            if !stamps.client.accepts(head.timestamps, false, now) {
                (self.ack_now, reaction.challenge) = (self.ack_now | repeated, !repeated);
                return reaction;
            }
            if let Some(theirs) = head.timestamps {
                stamps.client.update(theirs, head.seq, self.last_ack, now);
            }
        }
        if let Phase::Opening { timer, .. } = &self.phase {
            if head.ack != self.start + 1 {
                // RFC 9293 section 3.10.7.4: an acknowledgment of what was never sent.
                self.refused = Some(head.ack);
                return reaction;
            }
            if let Some(rtt) = timer.rtt(now) {
                self.sender.observe_rtt(rtt);
            } else if let (Some(stamps), Some(theirs)) = (&self.stamps, head.timestamps) {
                self.sender.observe_echo(stamps.clock.ticks(theirs.ecr), now);
            }
            if timer.is_lossy() {
                self.sender.handle_lost_handshake();
            }
            self.phase = Phase::Open;
        }
        if !self.take_acknowledgment(head, payload.len() as u32, now, &mut reaction) {
            return reaction;
        }
        self.take_bytes(head, payload, now, &mut reaction);
        reaction.over = self.close.is_over();
        reaction
    }

    fn take_acknowledgment(
        &mut self,
        head: &SegmentHead,
        len: u32,
        now: Time,
        reaction: &mut Reaction,
    ) -> bool {
        let info = AckInfo {
            seq: head.seq,
            ack: head.ack,
            window: head.window_bytes(self.client_scale),
            sack: head.sack,
            ts_ecr: self
                .stamps
                .as_ref()
                .zip(head.timestamps)
                .map(|(ours, theirs)| ours.clock.ticks(theirs.ecr)),
            carries_data: len > 0 || head.flags.fin(),
            ece: head.flags.contains(Flags::ECE),
        };
        let outcome = self.sender.handle_ack(&info, now);
        if outcome.invalid.is_some() {
            (self.ack_now, reaction.challenge) = (self.ack_now | (len > 0), len == 0);
            return false;
        }
        let outstanding = self.sender.end().saturating_since(self.sender.una());
        self.reading.handle_progress(outcome.newly_acked, outstanding, now);
        reaction.acked = outcome.newly_acked > 0;
        if outcome.fin_acked {
            self.close = self.close.after(Event::FinAcked);
        }
        true
    }

    fn take_bytes(
        &mut self,
        head: &SegmentHead,
        payload: &[u8],
        now: Time,
        reaction: &mut Reaction,
    ) {
        if !payload.is_empty() {
            self.ecn.handle_data(head.ecn, head.flags);
        }
        match self.receiver.handle_data(head.seq, payload.len() as u32, head.flags.fin()) {
            Accept::InOrder { skip, take, fin } => {
                let (skip, take) = (skip as usize, take as usize);
                self.input.extend_from_slice(&payload[skip..skip + take]);
                if take > 0 {
                    self.unacknowledged += 1;
                    self.ack_due.get_or_insert(now + DELAYED_ACK);
                    // RFC 9293 section 3.8.6.3: at least for every second segment.
                    self.ack_now |= self.unacknowledged > 1;
                }
                if fin {
                    self.ack_now = true;
                    self.close = self.close.after(Event::FinReceived);
                }
                reaction.readable = take > 0 || fin;
            }
            Accept::Duplicate | Accept::Gap | Accept::OutOfWindow => self.ack_now = true,
        }
    }

    /// What is to be sent next, if anything.
    pub fn poll(&mut self, now: Time) -> Option<Outgoing> {
        if let Some(seq) = self.reset {
            if self.close == State::Closed {
                return None;
            }
            self.close = State::Closed;
            return Some(self.outgoing(seq, Flags::RST | Flags::ACK, 0, now));
        }
        if let Some(seq) = self.refused.take() {
            return Some(self.outgoing(seq, Flags::RST, 0, now));
        }
        if let Phase::Opening { options, due, .. } = &mut self.phase {
            if !std::mem::take(due) {
                return None;
            }
            let mut options = *options;
            if let (Some(theirs), Some(stamps)) = (&mut options.timestamps, &self.stamps) {
                *theirs = Timestamps { val: stamps.clock.at(now), ecr: stamps.client.recent() };
            }
            let mut outgoing = self.outgoing(self.start, Flags::SYN | Flags::ACK, 0, now);
            outgoing.head.syn_options = Some(options);
            // Never scaled in a SYN (RFC 7323 section 2.2).
            outgoing.head.window = window_field(self.receiver.window(), 0);
            return Some(outgoing);
        }
        if let Some(transmit) = self.sender.poll_transmit(now, self.packet_bytes_max) {
            let mut flags = Flags::ACK;
            if transmit.fin {
                flags = flags | Flags::FIN;
                self.close = self.close.after(Event::FinSent);
            }
            if transmit.len > 0 && transmit.seq + transmit.len == self.sender.end() {
                flags = flags | Flags::PSH;
            }
            if transmit.cwr {
                flags = flags | Flags::CWR;
            }
            let mut outgoing =
                self.outgoing(transmit.seq, flags | self.ecn.flags(), transmit.len, now);
            outgoing.head.ecn = transmit.ecn;
            return Some(outgoing);
        }
        if std::mem::take(&mut self.ack_now) || self.ack_due.is_some_and(|due| due <= now) {
            return Some(self.outgoing(self.sender.nxt(), Flags::ACK | self.ecn.flags(), 0, now));
        }
        None
    }

    fn outgoing(&mut self, seq: Seq, flags: Flags, len: u32, now: Time) -> Outgoing {
        let timestamps = self
            .stamps
            .as_ref()
            .map(|stamps| Timestamps { val: stamps.clock.at(now), ecr: stamps.client.recent() });
        (self.ack_now, self.ack_due, self.unacknowledged) = (false, None, 0);
        self.last_ack = self.receiver.nxt();
        let head = HeadRepr {
            src_port: self.ends.key.server_port,
            dst_port: self.ends.key.client_port,
            seq,
            ack: self.receiver.nxt(),
            flags,
            window: window_field(self.receiver.window(), self.our_scale),
            timestamps,
            ..HeadRepr::default()
        };
        Outgoing { head, len, mss: self.mss }
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    pub fn next_timeout(&self) -> Option<Time> {
        let timer = match &self.phase {
            Phase::Opening { timer, .. } => Some(timer.next_timeout()),
            Phase::Open => self.sender.next_timeout(),
        };
        let reading = self.reading.next_timeout(&self.read, self.sender.window_closed_since());
        [timer, self.ack_due, reading].into_iter().flatten().min()
    }

    /// Time has come to `now`. True: the client is gone, and the connection may be forgotten.
    pub fn handle_timeout(&mut self, now: Time) -> bool {
        if let Some(impatience) =
            self.reading.handle_timeout(&self.read, self.sender.window_closed_since(), now)
        {
            self.impatience = Some(impatience);
            self.abort();
            return false;
        }
        let is_gone = match &mut self.phase {
            Phase::Opening { timer, due, .. } => match timer.handle_timeout(now) {
                SynTimeout::Nothing => false,
                SynTimeout::Retransmit => {
                    *due = true;
                    false
                }
                SynTimeout::GaveUp => true,
            },
            Phase::Open => {
                self.sender.next_timeout().is_some_and(|at| at <= now)
                    && self.sender.handle_timeout(now) == TimeoutOutcome::GaveUp
            }
        };
        if is_gone {
            self.close = State::Closed;
        }
        is_gone
    }
}

#[cfg(test)]
mod tests {
    use nicache_bus::BusClass;

    use nicache_tcp::SackBlocks;

    use super::*;
    use crate::mbuf::Owner;

    const CLIENT_START: Seq = Seq(u32::MAX - 3);
    const START: Seq = Seq(1000);

    fn config() -> StackConfig {
        let limits = Limits {
            mss: 1460,
            window_scale: Some(7),
            sack: true,
            timestamps: true,
            ecn: true,
            v6: false,
        };
        StackConfig {
            limits,
            sender: SenderConfig::default(),
            card_cuts: true,
            read: ReadRules::default(),
        }
    }

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    fn head(seq: Seq, ack: Seq, flags: Flags, now: Time) -> SegmentHead {
        SegmentHead {
            src_port: 40_000,
            dst_port: 80,
            seq,
            ack,
            flags,
            window: 500,
            header_len: 32,
            timestamps: Some(Timestamps { val: now.as_millis() as u32 + 77, ecr: 0 }),
            sack: SackBlocks::EMPTY,
            syn_options: None,
            unknown_option: false,
            ecn: Default::default(),
        }
    }

    fn accepted() -> Connection {
        let key = FlowKey { client_port: 40_000, server_port: 80, ..FlowKey::default() };
        let ends = Ends { key, client_mac: [1; 6], server_mac: [2; 6] };
        let stamps = Timestamps { val: 77, ecr: 0 };
        let options = SynOptions {
            mss: Some(1460),
            window_scale: Some(8),
            sack_permitted: true,
            timestamps: Some(stamps),
            ecn: false,
        };
        let syn = SegmentHead {
            syn_options: Some(options),
            ..head(CLIENT_START, Seq(0), Flags::SYN, at(0))
        };
        Connection::accept(ends, &syn, START, 0, &config(), at(0))
    }

    fn opened() -> Connection {
        let mut connection = accepted();
        let syn_ack = connection.poll(at(0)).unwrap();
        assert_eq!((syn_ack.head.seq, syn_ack.head.ack), (START, CLIENT_START + 1));
        assert_eq!(syn_ack.head.syn_options.unwrap().window_scale, Some(7));
        assert!(connection.poll(at(0)).is_none());
        let third = head(CLIENT_START + 1, START + 1, Flags::ACK, at(1));
        assert_eq!(connection.handle_segment(&third, b"", at(1)), Reaction::default());
        connection
    }

    fn bytes(mmaddr: u64, len: u32) -> Mbuf {
        Mbuf::Bytes { mmaddr, len, class: BusClass::Other, owner: Owner::Nobody }
    }

    #[test]
    fn a_request_and_its_reply() {
        let mut connection = opened();
        let request = head(CLIENT_START + 1, START + 1, Flags::ACK | Flags::PSH, at(2));
        assert!(connection.handle_segment(&request, b"GET /", at(2)).readable);
        assert_eq!(connection.input(), b"GET /");
        connection.consume(5);
        connection.send(bytes(100, 300));
        connection.send(bytes(4096, 2000));
        let reply = connection.poll(at(2)).unwrap();
        assert_eq!(
            (reply.head.seq, reply.len, reply.head.ack),
            (START + 1, 2300, CLIENT_START + 6)
        );
        assert!(reply.head.flags.psh() && connection.poll(at(2)).is_none());
        let ack = head(CLIENT_START + 6, START + 2301, Flags::ACK, at(3));
        assert!(connection.handle_segment(&ack, b"", at(3)).acked);
        let mut freed = Vec::new();
        connection.release(|buffer| freed.push(buffer));
        assert_eq!((freed.len(), connection.unacknowledged_bytes()), (2, 0));
    }

    #[test]
    fn what_is_lost_is_sent_again() {
        let mut connection = accepted();
        connection.poll(at(0)).unwrap();
        let again = connection.next_timeout().unwrap();
        assert!(!connection.handle_timeout(again));
        assert!(connection.poll(again).unwrap().head.flags.syn(), "the SYN-ACK");
        let third = head(CLIENT_START + 1, START + 1, Flags::ACK, again);
        connection.handle_segment(&third, b"", again);
        connection.send(bytes(0, 100));
        assert_eq!(connection.poll(again).unwrap().len, 100);
        let later = connection.next_timeout().unwrap();
        assert!(!connection.handle_timeout(later));
        let repeated = connection.poll(later).unwrap();
        assert_eq!((repeated.head.seq, repeated.len), (START + 1, 100));
    }

    #[test]
    fn both_ways_to_close() {
        for client_first in [true, false] {
            let mut connection = opened();
            if client_first {
                let fin = head(CLIENT_START + 1, START + 1, Flags::ACK | Flags::FIN, at(2));
                assert!(
                    connection.handle_segment(&fin, b"", at(2)).readable
                        && connection.is_read_out()
                );
                connection.finish();
                assert!(connection.poll(at(2)).unwrap().head.flags.fin());
                let last = head(CLIENT_START + 2, START + 2, Flags::ACK, at(3));
                assert!(
                    connection.handle_segment(&last, b"", at(3)).over && !connection.must_wait()
                );
            } else {
                connection.finish();
                assert!(connection.poll(at(2)).unwrap().head.flags.fin() && !connection.can_send());
                let ack = head(CLIENT_START + 1, START + 2, Flags::ACK, at(3));
                assert!(!connection.handle_segment(&ack, b"", at(3)).over);
                let fin = head(CLIENT_START + 1, START + 2, Flags::ACK | Flags::FIN, at(4));
                assert!(connection.handle_segment(&fin, b"", at(4)).over && connection.must_wait());
                assert_eq!(connection.poll(at(4)).unwrap().head.ack, CLIENT_START + 2);
            }
        }
    }

    #[test]
    fn strangers_cannot_end_it() {
        let mut connection = opened();
        let blind = head(CLIENT_START + 100, START + 1, Flags::RST, at(2));
        let reaction = connection.handle_segment(&blind, b"", at(2));
        assert!(!reaction.over && reaction.challenge, "RFC 5961");
        let mut budget = ChallengeBudget::default();
        connection.challenge(&mut budget, 1, at(2));
        assert!(connection.poll(at(2)).is_some());
        let syn = head(CLIENT_START + 1, Seq(0), Flags::SYN, at(2));
        let reaction = connection.handle_segment(&syn, b"", at(2));
        assert!(!reaction.over && reaction.challenge);
        connection.challenge(&mut budget, 1, at(2));
        assert!(connection.poll(at(2)).is_none(), "RFC 5961 section 7: not again so soon");
        let unsent = head(CLIENT_START + 1, START + 500, Flags::ACK, at(2));
        connection.handle_segment(&unsent, b"x", at(2));
        assert!(connection.input().is_empty() && connection.poll(at(2)).is_some());
        let right = head(CLIENT_START + 1, START + 1, Flags::RST, at(2));
        assert!(connection.handle_segment(&right, b"", at(2)).over);
    }

    #[test]
    fn strangers_cannot_spoil_a_handshake() {
        let mut connection = accepted();
        connection.poll(at(0)).unwrap();
        let wrong = head(CLIENT_START + 1, START + 77, Flags::ACK, at(1));
        assert!(!connection.handle_segment(&wrong, b"", at(1)).over);
        let reset = connection.poll(at(1)).unwrap().head;
        assert!(reset.flags.rst() && reset.seq == START + 77 && !connection.is_over());
        let third = head(CLIENT_START + 1, START + 1, Flags::ACK, at(2));
        assert!(connection.handle_segment(&third, b"GET /", at(2)).readable);
    }

    #[test]
    fn strangers_cannot_acknowledge() {
        let mut connection = opened();
        connection.send(bytes(0, 100));
        assert_eq!(connection.poll(at(2)).unwrap().len, 100);
        for seq in [
            CLIENT_START + 1 + REQUEST_WINDOW_BYTES + 1,
            CLIENT_START - 5,
            CLIENT_START + (1 << 31),
        ] {
            let blind = head(seq, START + 101, Flags::ACK, at(3));
            let reaction = connection.handle_segment(&blind, b"", at(3));
            assert!(!reaction.acked && reaction.challenge, "{seq:?}");
        }
        let right = head(CLIENT_START + 1, START + 101, Flags::ACK, at(4));
        assert!(connection.handle_segment(&right, b"", at(4)).acked);
    }

    #[test]
    fn a_client_that_crawls_is_reset() {
        let mut connection = opened();
        connection.send(bytes(0, 100_000));
        while connection.poll(at(2)).is_some() {}
        let (mut acked, mut reset) = (0, false);
        for second in 1..100 {
            let now = at(second * 1_000);
            acked += 20;
            let ack = head(CLIENT_START + 1, START + 1 + acked, Flags::ACK, now);
            connection.handle_segment(&ack, b"", now);
            connection.handle_timeout(now);
            while let Some(outgoing) = connection.poll(now) {
                reset |= outgoing.head.flags.rst();
            }
            if reset {
                assert!(second >= 30, "after {second} s");
                break;
            }
        }
        assert!(reset && connection.impatience() == Some(Impatience::SlowReader));
    }

    #[test]
    fn a_request_does_not_wait_for_ever_for_its_acknowledgment() {
        let mut connection = opened();
        let part = head(CLIENT_START + 1, START + 1, Flags::ACK, at(2));
        connection.handle_segment(&part, b"GE", at(2));
        assert!(connection.poll(at(2)).is_none());
        let due = connection.next_timeout().unwrap();
        assert_eq!(due, at(42));
        connection.handle_timeout(due);
        assert_eq!(connection.poll(due).unwrap().head.ack, CLIENT_START + 3);
        let more = head(CLIENT_START + 3, START + 1, Flags::ACK, at(50));
        connection.handle_segment(&more, b"T", at(50));
        let more = head(CLIENT_START + 4, START + 1, Flags::ACK, at(50));
        connection.handle_segment(&more, b" ", at(50));
        assert_eq!(
            connection.poll(at(50)).unwrap().head.ack,
            CLIENT_START + 5,
            "every second segment at once"
        );
    }

    #[test]
    fn more_than_the_window_is_not_taken() {
        let mut connection = opened();
        let mut seq = CLIENT_START + 1;
        for _ in 0..20 {
            connection.handle_segment(
                &head(seq, START + 1, Flags::ACK, at(2)),
                &[b'x'; 1000],
                at(2),
            );
            seq += 1000;
        }
        assert_eq!(connection.input().len(), REQUEST_WINDOW_BYTES as usize);
        assert_eq!(connection.poll(at(2)).unwrap().head.window, 0);
        connection.consume(REQUEST_WINDOW_BYTES as usize);
        assert!(
            connection.poll(at(3)).unwrap().head.window > 0,
            "the client is told that there is room"
        );
    }
}
