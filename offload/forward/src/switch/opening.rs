//! From the name to the back end's acknowledgment of the first bytes.

use nicache_tcp::handshake::TIMESTAMPS_BYTES;
use nicache_tcp::splice::window_field;
use nicache_tcp::{
    AckInfo, Flags, HeadRepr, PeerLimits, SegmentHead, Sender, SenderConfig, Splice, SynOptions,
    Time, TimeoutOutcome, Timestamps,
};

use super::client::{Ending, right_segment};
use super::frames::OWN_BYTES_MAX;
use super::learned::mss_of;
use super::{Drain, Echo, Lacks, SYN_TIMES, Spliced, Step, Switched, Waiting};
use crate::begin::Begun;
use crate::conntrack::{ConnectionId, Phase};
use crate::counters::Drop;
use crate::decision::{Decision, Head, Moment};
use crate::first_bytes::proxy;
use crate::forwarder::Forwarder;
use crate::packet::Packet;
use crate::segmenting::ANY_SIZE;
use crate::tcp_track::Direction;
use crate::tuple::Tuple;
use crate::view::{TcpView, Transport, View};

/// Timers that are looked at in one call at most.
const EXPIRED_MAX: usize = 256;
/// How far behind a client's acknowledgment the back end's numbers are taken for its own: all of
/// them.
const BASE_BEHIND: u32 = 1 << 30;

impl Forwarder {
    /// Begins the connection with a back end of a set.
    pub(super) fn connect(
        &mut self,
        place: u32,
        set: u16,
        packet: &Packet<'_>,
        moment: Moment,
    ) -> Result<(), Ending> {
        let now = moment.now;
        let waiting = self.switch().get(place).ok_or(Ending::Refused)?;
        let (tuple, service) = (waiting.tuple, usize::from(waiting.service));
        let is_told = self
            .services
            .config(service)
            .by_name
            .as_ref()
            .is_some_and(|by_name| by_name.proxy_protocol);
        let switch = self.switch();
        let waiting = switch.places[place as usize].as_deref_mut().ok_or(Ending::Refused)?;
        if is_told {
            let before = waiting.bytes.capacity();
            drop(waiting.bytes.splice(..0, proxy::header(&tuple)));
            switch.bytes += waiting.bytes.capacity() - before;
        }
        // As the client's SYN would be, if it had come now.
        let segment = TcpView {
            seq: waiting.receiver.nxt() - waiting.bytes.len() as u32 - 1,
            ack: nicache_tcp::Seq(0),
            flags: Flags::SYN,
            window: unscaled(waiting),
            scale: waiting.options.window_scale,
            payload_len: 0,
        };
        let view = View { transport: Transport::Tcp(segment), ..packet.view };
        let packet = Packet {
            frame: packet.frame,
            view,
            interface: packet.interface,
            offload: packet.offload,
        };
        let ruled = self.rules.find(&tuple, packet.interface);
        let begun = self.begin_with(&packet, &tuple, Some((service, set)), ruled, moment);
        let Ok(Begun::Connection(id)) = begun else { return Err(Ending::NoBackEnd) };
        self.counters.switch_chosen += 1;
        if let Some(note) = self.conntrack.note_mut(id) {
            note.switched = Some(Switched {
                splice: Splice::default(),
                lacks: Lacks::default(),
                takes: [ANY_SIZE; 2],
                echo: Echo::default(),
                place: Some(place),
            });
        }
        self.switch().step(place, Step::Connecting { id, syns: 0 }, now);
        self.ask_back_end(place, now);
        Ok(())
    }

    /// The SYN, for the first time or again.
    fn ask_back_end(&mut self, place: u32, now: Time) {
        let Some(waiting) = self.switch().get(place) else { return };
        let Step::Connecting { id, syns } = waiting.step else { return };
        let Some(wait) = SYN_TIMES.get(syns).copied() else {
            return self.end_waiting(place, Ending::Silent, now);
        };
        let options = SynOptions {
            timestamps: waiting
                .options
                .timestamps
                .map(|_| Timestamps { val: waiting.recent.recent(), ecr: 0 }),
            ..waiting.options
        };
        let service = waiting.service;
        let options = self.switch().learned.question(service, options);
        let Some(waiting) = self.switch().get(place) else { return };
        let repr = HeadRepr {
            seq: waiting.receiver.nxt() - waiting.bytes.len() as u32 - 1,
            flags: Flags::SYN,
            window: unscaled(waiting),
            syn_options: Some(options),
            ..HeadRepr::default()
        };
        let Some(tuple) =
            self.conntrack.get(id).map(|connection| connection.outgoing(Direction::Original))
        else {
            return self.end_waiting(place, Ending::Silent, now);
        };
        let is_sent = self.tell_back_end(&tuple, repr, &[], now);
        // Without a MAC address nothing was sent, and it will soon be known.
        let wait = if is_sent || syns > 0 { wait } else { wait / 10 };
        self.switch().step(place, Step::Connecting { id, syns: syns + 1 }, now + wait);
    }

    /// A segment of a connection that a name was chosen for. `Ok(Err)`: it is done with. `Ok(Ok)`:
    /// how it is changed, and how it looks to the back end.
    pub(crate) fn handle_switched(
        &mut self,
        packet: &Packet<'_>,
        (id, direction): (ConnectionId, Direction),
        switched: Switched,
        head: &mut Head,
        moment: Moment,
    ) -> Result<Result<(Spliced, View), Decision>, Drop> {
        if let Some(place) = switched.place
            && let Some(waiting) = self.switch().get(place)
            && matches!(waiting.step, Step::Connecting { .. })
        {
            return match direction {
                Direction::Original => {
                    let (tuple, service) = (waiting.tuple, waiting.service);
                    self.handle_waiting(packet, &tuple, service, head, moment).map(Err)
                }
                Direction::Reply => {
                    self.handle_back_end(place, id, packet, head, moment.now).map(Err)
                }
            };
        }
        let bytes = &packet.frame[packet.view.transport_at..packet.view.headers_end];
        let tcp = nicache_tcp::parse(bytes).map_err(|_| Drop::Malformed)?;
        let Transport::Tcp(segment) = packet.view.transport else { return Err(Drop::Malformed) };
        if direction == Direction::Reply && tcp.flags.syn() {
            let is_forgotten = switched.place.is_none()
                && self
                    .conntrack
                    .get(id)
                    .is_some_and(|connection| connection.answers_again(&segment));
            if !is_forgotten {
                // The answer to our SYN, again: the client has had one of ours.
                return Err(Drop::Switch);
            }
            // Both ends have forgotten the connection. The client's next SYN is answered here: its
            // name comes behind that.
            let tcp = right_segment(packet)?;
            self.end(id, moment.now);
            return self.answer_stray(packet, &tcp, head, moment.now).map(Err);
        }
        let splice = switched.splice;
        let (mut numbers, seen) = match direction {
            Direction::Original => {
                let acked = splice.out_to_host(tcp.ack);
                let rewrite = splice.to_host(&tcp, acked - BASE_BEHIND);
                let window = rewrite.window.unwrap_or(segment.window);
                (rewrite, TcpView { ack: acked, window, ..segment })
            }
            Direction::Reply => {
                // An acknowledgment never goes back.
                let mut told = splice.in_to_client(tcp.ack);
                if let Some(place) = switched.place
                    && let Some(waiting) = self.switch().get(place)
                {
                    told = waiting.receiver.nxt();
                }
                (splice.to_client(&tcp, told), segment)
            }
        };
        let options = switched.restamp(direction, &tcp, &mut numbers, moment.now);
        if packet.view.fragment.is_some() && options.is_some_and(|options| options.growth > 0) {
            // The places of the other fragments would be wrong.
            return Err(Drop::Switch);
        }
        if let Some(place) = switched.place {
            self.follow_drain(place, direction, &tcp, segment.payload_len, moment.now);
        }
        Ok(Ok((
            Spliced { numbers, options, takes: switched.takes[direction as usize] },
            View { transport: Transport::Tcp(seen), ..packet.view },
        )))
    }

    /// The back end's answer to a SYN.
    fn handle_back_end(
        &mut self,
        place: u32,
        id: ConnectionId,
        packet: &Packet<'_>,
        head: &mut Head,
        now: Time,
    ) -> Result<Decision, Drop> {
        let tcp = right_segment(packet)?;
        let Some(waiting) = self.switch().get(place) else { return Err(Drop::Switch) };
        let start = waiting.receiver.nxt() - waiting.bytes.len() as u32;
        if !tcp.flags.ack() || tcp.flags.rst() && tcp.ack != start {
            return Err(Drop::Switch);
        }
        if tcp.ack != start {
            // It has an older connection between the same ends (RFC 9293 section 3.10.7.3).
            return self.answer_stray(packet, &tcp, head, now);
        }
        if tcp.flags.rst() {
            self.end_waiting(place, Ending::Refused, now);
            return Ok(Decision::Taken);
        }
        let Some(options) = tcp.syn_options.filter(|_| tcp.flags.syn()) else {
            return Err(Drop::Switch);
        };
        let (asked, service, is_v6) =
            (waiting.options, waiting.service, packet.view.source.is_ipv6());
        let lacks = Lacks::of(&asked, &options);
        // The client was told a size before this was known, and a back end that does without
        // timestamps leaves no room for those that are put in.
        let takes = [&options, &asked].map(|said| mss_of(said, is_v6));
        self.counters.switch_unstamped += u64::from(lacks.timestamps);
        self.switch().learned.handle_answer(service, &asked, &options, is_v6);
        let waiting = self.switch().get(place).ok_or(Drop::Switch)?;
        let tsval =
            options.timestamps.filter(|_| asked.timestamps.is_some()).map(|stamps| stamps.val);
        let scale = waiting.scale;
        let scales = asked.window_scale.zip(options.window_scale);
        let splice = Splice {
            out_delta: waiting.ours.0.wrapping_sub(tcp.seq.0),
            in_delta: 0,
            ts_delta: match (asked.timestamps, tsval) {
                (None, _) => 0,
                (Some(_), Some(tsval)) => waiting.clock.delta_from(tsval, now),
                (Some(_), None) => waiting.clock.at(Time::ZERO),
            },
            client_scale: asked.window_scale.unwrap_or(0),
            card_scale: scale,
            host_scale: scales.map_or(0, |(_, theirs)| theirs),
            host_peer_scale: scales.map_or(0, |(ours, _)| ours),
        };
        let segment_bytes = segment_bytes(&options, is_v6, tsval.is_some());
        let peer = PeerLimits {
            mss: segment_bytes,
            window_scale: splice.host_scale,
            sack: asked.sack_permitted && options.sack_permitted,
            timestamps: tsval.is_some(),
            ecn: false,
        };
        let total = waiting.bytes.len() as u32;
        let echo = Echo::new(waiting.recent, waiting.receiver.nxt());
        let window =
            window_field(u32::from(waiting.window) << splice.client_scale, splice.host_peer_scale);
        let mut sender =
            Sender::new(&SenderConfig::default(), start, peer, u32::from(tcp.window), now);
        sender.enqueue(total);
        let ack = tcp.seq + 1;
        // The connection as it is between client and back end, as if all of this had passed.
        let shown =
            TcpView { seq: start, ack, flags: Flags::ACK, window, scale: None, payload_len: 0 };
        self.conntrack.handle(id, Direction::Reply, &packet.view, now);
        for payload_len in [0, total] {
            let transport = Transport::Tcp(TcpView { payload_len, ..shown });
            self.conntrack.handle(id, Direction::Original, &View { transport, ..packet.view }, now);
        }
        if let Some(note) = self.conntrack.note_mut(id) {
            note.switched = Some(Switched { splice, lacks, takes, echo, place: Some(place) });
        }
        let drain = Box::new(Drain { sender, segment_bytes, start, ack, tsval });
        self.switch().step(place, Step::Draining { id, drain }, now);
        self.drain(place, now);
        Ok(Decision::Taken)
    }

    /// What a segment tells while the first bytes are on their way.
    fn follow_drain(
        &mut self,
        place: u32,
        direction: Direction,
        tcp: &SegmentHead,
        payload_len: u32,
        now: Time,
    ) {
        let splice = self.splice_of(place);
        let Some(waiting) = self.switch().get(place) else { return };
        let Step::Draining { drain, .. } = &mut waiting.step else { return };
        match direction {
            Direction::Original => {
                if let Some(stamps) = tcp.timestamps {
                    waiting.recent.update(stamps, tcp.seq, tcp.seq, now);
                }
                waiting.window = tcp.window;
                if tcp.flags.ack() && splice.out_to_host(tcp.ack).gt(drain.ack) {
                    drain.ack = splice.out_to_host(tcp.ack);
                }
            }
            Direction::Reply => {
                drain.tsval =
                    drain.tsval.map(|last| tcp.timestamps.map_or(last, |stamps| stamps.val));
                if tcp.flags.ack() && !tcp.flags.rst() {
                    // It may have acknowledged more: what the client has sent behind the first
                    // bytes.
                    let ack =
                        if tcp.ack.gt(drain.sender.end()) { drain.sender.end() } else { tcp.ack };
                    let info = AckInfo {
                        seq: tcp.seq,
                        ack,
                        window: tcp.window_bytes(splice.host_scale),
                        sack: tcp.sack,
                        ts_ecr: None,
                        carries_data: payload_len > 0 || tcp.flags.fin() || tcp.flags.syn(),
                        ece: false,
                    };
                    drain.sender.handle_ack(&info, now);
                    self.drain(place, now);
                }
            }
        }
    }

    fn splice_of(&mut self, place: u32) -> Splice {
        let id = match self.switch().get(place).map(|waiting| &waiting.step) {
            Some(Step::Draining { id, .. } | Step::Connecting { id, .. }) => *id,
            _ => return Splice::default(),
        };
        let note = self.conntrack.note_mut(id);
        note.and_then(|note| note.switched).map_or_else(Splice::default, |switched| switched.splice)
    }

    /// Sends what may be sent of the first bytes. When all are acknowledged, nothing is kept any
    /// longer.
    fn drain(&mut self, place: u32, now: Time) {
        let splice = self.splice_of(place);
        loop {
            let Some(waiting) = self.switch().get(place) else { return };
            let Step::Draining { id, drain } = &mut waiting.step else { return };
            let id = *id;
            if drain.sender.all_acked() {
                return self.finish_waiting(place, id);
            }
            // Nobody further on cuts what is longer than a segment.
            let Some(transmit) = drain.sender.poll_transmit(now, drain.segment_bytes.into()) else {
                let due = drain.sender.next_timeout().unwrap_or(now + SYN_TIMES[0]);
                waiting.due = due;
                self.switch().wheel.arm(place, due);
                return;
            };
            let at = transmit.seq.since(drain.start) as usize;
            let Some(payload) = waiting.bytes.get(at..at + transmit.len as usize) else { return };
            let payload = payload.to_vec();
            let is_last = transmit.seq + transmit.len == drain.sender.end();
            let window = u32::from(waiting.window) << splice.client_scale;
            let repr = HeadRepr {
                seq: transmit.seq,
                ack: drain.ack,
                flags: if is_last { Flags::ACK | Flags::PSH } else { Flags::ACK },
                window: window_field(window, splice.host_peer_scale),
                timestamps: drain.tsval.map(|ecr| Timestamps { val: waiting.recent.recent(), ecr }),
                ..HeadRepr::default()
            };
            let Some(tuple) =
                self.conntrack.get(id).map(|connection| connection.outgoing(Direction::Original))
            else {
                return;
            };
            // What finds no way is sent again when the timer says so.
            self.tell_back_end(&tuple, repr, &payload, now);
        }
    }

    fn finish_waiting(&mut self, place: u32, id: ConnectionId) {
        self.switch().remove(place);
        if let Some(switched) = self.conntrack.note_mut(id).and_then(|note| note.switched.as_mut())
        {
            switched.place = None;
        }
        self.conntrack.mark_changed(id);
        self.counters.switch_spliced += 1;
    }

    /// The back end of a connection that ends may have heard of it. A reset counts at the number
    /// that it expects (RFC 5961 section 3.2).
    pub(super) fn tell_of_end(&mut self, place: u32, now: Time) {
        let Some(waiting) = self.switch().get(place) else { return };
        let start = waiting.receiver.nxt() - waiting.bytes.len() as u32;
        let (id, repr) = match &waiting.step {
            Step::Connecting { id, .. } => {
                (*id, HeadRepr { seq: start, flags: Flags::RST, ..HeadRepr::default() })
            }
            Step::Draining { id, drain } => {
                let (seq, ack, flags) = (drain.sender.una(), drain.ack, Flags::RST | Flags::ACK);
                (*id, HeadRepr { seq, ack, flags, ..HeadRepr::default() })
            }
            Step::HalfOpen | Step::Looking => return,
        };
        if let Some(tuple) =
            self.conntrack.get(id).map(|connection| connection.outgoing(Direction::Original))
        {
            self.tell_back_end(&tuple, repr, &[], now);
        }
    }

    /// A connection that waits is gone; so is the one with its back end.
    pub(super) fn forget_waiting(&mut self, place: u32, now: Time) {
        let Some(waiting) = self.switch().remove(place) else { return };
        let (Step::Connecting { id, .. } | Step::Draining { id, .. }) = waiting.step else {
            return;
        };
        if let Some(note) = self.conntrack.note_mut(id) {
            note.switched = None;
        }
        self.end(id, now);
    }

    /// Of a connection that was reset, nothing is kept.
    pub(crate) fn end_drain_of_reset(&mut self, id: ConnectionId) {
        let is_reset =
            self.conntrack.get(id).is_some_and(|connection| connection.phase() == Phase::Reset);
        let Some(note) = self.conntrack.note_mut(id).filter(|_| is_reset) else { return };
        let switched = note.switched;
        if let Some(switched) = &mut note.switched {
            switched.place = None;
        }
        self.release_waiting(switched);
    }

    /// The connection with the back end was forgotten.
    pub(crate) fn release_waiting(&mut self, switched: Option<Switched>) {
        if let (Some(place), Some(switch)) =
            (switched.and_then(|switched| switched.place), &mut self.switch)
        {
            switch.remove(place);
        }
    }

    /// What time has come for.
    pub(crate) fn expire_waiting(&mut self, now: Time) -> bool {
        for _ in 0..EXPIRED_MAX {
            let Some(switch) = &mut self.switch else { return false };
            let Some(place) = switch.wheel.poll(now) else { return false };
            let Some(waiting) = switch.get(place) else { continue };
            if waiting.due > now {
                let due = waiting.due;
                switch.wheel.arm(place, due);
                continue;
            }
            match &mut waiting.step {
                Step::HalfOpen => self.forget_waiting(place, now),
                Step::Looking => self.end_waiting(place, Ending::Late, now),
                Step::Connecting { .. } => self.ask_back_end(place, now),
                Step::Draining { drain, .. } => match drain.sender.handle_timeout(now) {
                    TimeoutOutcome::GaveUp => self.end_waiting(place, Ending::Silent, now),
                    _ => self.drain(place, now),
                },
            }
        }
        true
    }

    /// A frame of ours that is to be sent, with its interface.
    pub fn poll_own(&mut self) -> Option<(usize, Vec<u8>)> {
        let reset = self.leaving.poll_own();
        reset.or_else(|| self.switch.as_deref_mut()?.poll_own())
    }

    /// Whether a question or a frame of ours is to be sent.
    pub(crate) fn has_own(&self) -> bool {
        !self.links.questions.is_empty()
            || self.leaving.has_own()
            || self.switch.as_deref().is_some_and(super::Switch::has_own)
    }

    /// Connections of services by name that wait: for the end of their handshake, for their name,
    /// for their back end.
    pub fn waiting_counts(&self) -> [u32; 3] {
        self.switch.as_deref().map_or([0; 3], super::Switch::counts)
    }

    /// Connections of services by name that wait.
    #[allow(
        clippy::redundant_closure_for_method_calls,
        reason = "the lifetime is that of the closure's argument"
    )]
    pub fn waiting(&self) -> impl Iterator<Item = (Tuple, super::WaitingView)> + '_ {
        self.switch.as_deref().into_iter().flat_map(|switch| switch.views())
    }
}

/// Payload of a segment to who has answered with these options, at most (RFC 9293 section 3.7.1,
/// RFC 6691).
fn segment_bytes(answer: &SynOptions, is_v6: bool, has_timestamps: bool) -> u16 {
    (mss_of(answer, is_v6) - if has_timestamps { TIMESTAMPS_BYTES } else { 0 }).min(OWN_BYTES_MAX)
}

/// The client's window as it stands in a SYN (RFC 7323 section 2.2).
fn unscaled(waiting: &Waiting) -> u16 {
    window_field(u32::from(waiting.window) << waiting.options.window_scale.unwrap_or(0), 0)
}
