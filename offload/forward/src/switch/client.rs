//! A client's segments from its SYN to its name.

use nicache_port::Checksum;
use nicache_tcp::cookie_keys::COOKIE_LIFE;
use nicache_tcp::handshake::{Limits, answer};
use nicache_tcp::receiver::{Accept, Receiver};
use nicache_tcp::splice::window_field;
use nicache_tcp::timestamps::{Paws, TsClock};
use nicache_tcp::{Flags, HeadRepr, SegmentHead, Seq, SynOptions, Time, frame, isn, rst};

use super::{
    BYTES_MAX, HALF_OPEN, HALF_OPEN_MAX, HALF_OPEN_TIME, LOOK_BYTES_MAX, LOOK_TIME, LOOKING, Step,
    Waiting, tuple_bytes,
};
use crate::counters::Drop;
use crate::decision::{Decision, Head, Moment};
use crate::first_bytes::name::Look;
use crate::forwarder::Forwarder;
use crate::packet::Packet;
use crate::tuple::Tuple;
use crate::view::Transport;

/// Why a connection ends before it is spliced. The client is told by a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Malformed,
    TooLong,
    Late,
    Unknown,
    NoBackEnd,
    Refused,
    Silent,
    PushedOut,
}

impl Forwarder {
    /// A segment for a service by name, of a connection that has no back end yet.
    pub(crate) fn handle_waiting(
        &mut self,
        packet: &Packet<'_>,
        tuple: &Tuple,
        service: u16,
        head: &mut Head,
        moment: Moment,
    ) -> Result<Decision, Drop> {
        let Transport::Tcp(segment) = packet.view.transport else { return Err(Drop::Switch) };
        if packet.view.fragment.is_some() {
            return Err(Drop::Switch);
        }
        if segment.payload_len > 0 && !self.is_whole {
            return Ok(Decision::Look);
        }
        let tcp = right_segment(packet)?;
        let payload = &packet.frame[packet.view.headers_end..packet.view.end];
        let place = self.switch().by_tuple.get(tuple).copied();
        match place {
            Some(place) => self.handle_client(place, packet, &tcp, payload, head, moment),
            None if tcp.flags.rst() => Err(Drop::Switch),
            None if tcp.flags.syn() && !tcp.flags.ack() => {
                self.handle_syn(packet, tuple, service, &tcp, head, moment.now)
            }
            None => match self.open_cookie(packet, tuple, service, &tcp, moment.now) {
                Some(place) => self.handle_client(place, packet, &tcp, payload, head, moment),
                None => self.answer_stray(packet, &tcp, head, moment.now),
            },
        }
    }

    fn handle_syn(
        &mut self,
        packet: &Packet<'_>,
        tuple: &Tuple,
        service: u16,
        tcp: &SegmentHead,
        head: &mut Head,
        now: Time,
    ) -> Result<Decision, Drop> {
        let options = tcp.syn_options.ok_or(Drop::Malformed)?;
        let limits = self.offer(service, tuple.source.address.is_ipv6());
        let switch = self.switch();
        let half_open = switch.lists.len(HALF_OPEN);
        if switch.pressure.is_on(half_open as usize, HALF_OPEN_MAX as usize, now)
            || half_open >= HALF_OPEN_MAX
        {
            return Ok(self.answer_with_cookie(packet, tuple, tcp, &limits, head, now));
        }
        if switch.free.is_empty() && !self.make_room(now) {
            return Err(Drop::TableFull);
        }
        let bytes = tuple_bytes(tuple);
        let switch = self.switch();
        let ours = isn::initial(&switch.isn_key, &bytes, now);
        let clock = TsClock::new(isn::timestamp_offset(&switch.isn_key, &bytes));
        let waiting =
            waiting(packet, tuple, service, (tcp.seq, ours), &options, &limits, clock, now);
        let repr = syn_ack(&waiting, &limits, clock.at(now), now);
        self.switch().insert(waiting);
        Ok(self.answer(packet, head, repr))
    }

    /// A SYN that leaves nothing here.
    fn answer_with_cookie(
        &mut self,
        packet: &Packet<'_>,
        tuple: &Tuple,
        tcp: &SegmentHead,
        limits: &Limits,
        head: &mut Head,
        now: Time,
    ) -> Decision {
        self.counters.switch_cookies_sent += 1;
        let bytes = tuple_bytes(tuple);
        let switch = self.switch();
        switch.pressure.handle_sent(now);
        switch.cookies_until = Some(now + COOKIE_LIFE);
        let tsval = TsClock::new(isn::timestamp_offset(&switch.isn_key, &bytes)).at(now);
        let mut asked = tcp.syn_options.unwrap_or_default();
        asked.timestamps = asked.timestamps.filter(|_| limits.timestamps);
        let cookie = switch.keys.make(&bytes, tcp.seq, &asked, tsval, now);
        if cookie.tsval.is_none() {
            // Nobody would remember the other options.
            (asked.window_scale, asked.sack_permitted, asked.ecn) = (None, false, false);
        }
        let limits = Limits { timestamps: cookie.tsval.is_some(), ..*limits };
        let repr = HeadRepr {
            seq: cookie.seq,
            ack: tcp.seq + 1,
            flags: Flags::SYN | Flags::ACK,
            window: window_field(LOOK_BYTES_MAX, 0),
            syn_options: Some(answer(&asked, &limits, cookie.tsval.unwrap_or(0)).options),
            ..HeadRepr::default()
        };
        self.answer(packet, head, repr)
    }

    /// The place of a connection whose handshake was answered from nothing, if this segment proves
    /// it.
    fn open_cookie(
        &mut self,
        packet: &Packet<'_>,
        tuple: &Tuple,
        service: u16,
        tcp: &SegmentHead,
        now: Time,
    ) -> Option<u32> {
        let bytes = tuple_bytes(tuple);
        let switch = self.switch();
        if !tcp.flags.ack()
            || tcp.flags.syn()
            || switch.cookies_until.is_none_or(|until| until <= now)
        {
            return None;
        }
        let (theirs, ours) = (tcp.seq - 1, tcp.ack - 1);
        let options = switch.keys.open(&bytes, theirs, ours, tcp.timestamps, now)?;
        switch.pressure.handle_answered(now);
        if switch.free.is_empty() && !self.make_room(now) {
            return None;
        }
        self.counters.switch_cookies_answered += 1;
        let limits = self.offer(service, tuple.source.address.is_ipv6());
        // What the cookie says was agreed on, whatever is offered by now.
        let limits = Limits { timestamps: options.timestamps.is_some(), ..limits };
        let switch = self.switch();
        let clock = TsClock::new(isn::timestamp_offset(&switch.isn_key, &bytes));
        let waiting =
            waiting(packet, tuple, service, (theirs, ours), &options, &limits, clock, now);
        switch.insert(waiting)
    }

    /// Who has waited for its name longest gives way.
    fn make_room(&mut self, now: Time) -> bool {
        let switch = self.switch();
        let oldest = switch.lists.first(LOOKING).or_else(|| switch.lists.first(HALF_OPEN));
        if let Some(place) = oldest {
            self.end_waiting(place, Ending::PushedOut, now);
        }
        oldest.is_some()
    }

    /// A segment of a client that waits.
    fn handle_client(
        &mut self,
        place: u32,
        packet: &Packet<'_>,
        tcp: &SegmentHead,
        payload: &[u8],
        head: &mut Head,
        moment: Moment,
    ) -> Result<Decision, Drop> {
        let now = moment.now;
        let Some(waiting) = self.switch().get(place) else { return Err(Drop::Switch) };
        if tcp.flags.rst() {
            return match rst::judge(tcp.seq, waiting.receiver.nxt(), waiting.receiver.window()) {
                rst::Verdict::Accept => {
                    self.tell_of_end(place, now);
                    self.forget_waiting(place, now);
                    Ok(Decision::Taken)
                }
                rst::Verdict::ChallengeAck => {
                    let repr = waiting.segment(Flags::default(), now);
                    Ok(self.answer(packet, head, repr))
                }
                rst::Verdict::Drop => Err(Drop::Switch),
            };
        }
        if tcp.flags.syn() {
            let is_again = matches!(waiting.step, Step::HalfOpen)
                && tcp.seq == waiting.theirs
                && !tcp.flags.ack();
            if !is_again {
                let repr = waiting.segment(Flags::default(), now);
                return Ok(self.answer(packet, head, repr));
            }
            let (service, timestamps) = (waiting.service, waiting.options.timestamps.is_some());
            // What was said is said again, whatever is offered by now.
            let limits = Limits { timestamps, ..self.offer(service, packet.view.source.is_ipv6()) };
            let Some(waiting) = self.switch().get(place) else { return Err(Drop::Switch) };
            let repr = syn_ack(waiting, &limits, waiting.clock.at(now), now);
            return Ok(self.answer(packet, head, repr));
        }
        if !tcp.flags.ack() || tcp.ack != waiting.ours + 1 {
            return Err(Drop::Switch);
        }
        let acked = waiting.receiver.nxt();
        let taken = waiting.receiver.handle_data(tcp.seq, payload.len() as u32, false);
        if let (Accept::InOrder { .. } | Accept::Duplicate, Some(stamps)) = (taken, tcp.timestamps)
        {
            waiting.recent.update(stamps, tcp.seq, acked, now);
        }
        let mut is_new = false;
        if let Accept::InOrder { skip, take, .. } = taken {
            waiting.window = tcp.window;
            let before = waiting.bytes.capacity();
            waiting.bytes.extend_from_slice(&payload[skip as usize..(skip + take) as usize]);
            let more = waiting.bytes.capacity() - before;
            is_new = take > 0;
            let is_half_open = matches!(waiting.step, Step::HalfOpen);
            let switch = self.switch();
            switch.bytes += more;
            if is_half_open {
                switch.step(place, Step::Looking, now + LOOK_TIME);
                self.counters.switch_accepted += 1;
            }
            if is_new && self.switch().bytes > BYTES_MAX && !self.make_room(now) {
                return Err(Drop::TableFull);
            }
        }
        if is_new && let Some(ending) = self.look_for_name(place, packet, moment) {
            return Ok(self.refuse(place, ending, packet, head, now));
        }
        let Some(waiting) = self.switch().get(place) else { return Ok(Decision::Taken) };
        let is_over = tcp.flags.fin() && tcp.seq + payload.len() as u32 == waiting.receiver.nxt();
        if is_over && matches!(waiting.step, Step::Looking) {
            return Ok(self.refuse(place, Ending::Malformed, packet, head, now));
        }
        let is_plain =
            payload.is_empty() && !tcp.flags.fin() && matches!(taken, Accept::InOrder { .. });
        if is_plain {
            return Ok(Decision::Taken);
        }
        let repr = waiting.segment(Flags::default(), now);
        Ok(self.answer(packet, head, repr))
    }

    /// Looks at what has come. `Some`: that was it.
    fn look_for_name(&mut self, place: u32, packet: &Packet<'_>, moment: Moment) -> Option<Ending> {
        let waiting = self.switch.as_deref()?.places[place as usize].as_deref()?;
        if !matches!(waiting.step, Step::Looking) {
            return None;
        }
        let by_name = self.services.config(waiting.service.into()).by_name.as_ref()?;
        let name = match by_name.by.look(&waiting.bytes) {
            Look::More if waiting.receiver.window() == 0 => return Some(Ending::TooLong),
            Look::More => return None,
            Look::Malformed => return Some(Ending::Malformed),
            Look::Nameless => None,
            Look::Name(name) => Some(name),
        };
        match by_name.names.find(name.as_ref()) {
            None => Some(Ending::Unknown),
            Some(set) => self.connect(place, set, packet, moment).err(),
        }
    }

    /// The connection ends, and the answer to this packet says so. If there were too many of those,
    /// its next segment is one of an unknown connection.
    pub(super) fn refuse(
        &mut self,
        place: u32,
        ending: Ending,
        packet: &Packet<'_>,
        head: &mut Head,
        now: Time,
    ) -> Decision {
        self.count(ending);
        let repr = self.switch().get(place).map(|waiting| waiting.segment(Flags::RST, now));
        self.forget_waiting(place, now);
        match repr {
            Some(_) if !self.may_reset(now) => Decision::Drop(Drop::ResetLimit),
            Some(repr) => self.answer(packet, head, HeadRepr { timestamps: None, ..repr }),
            None => Decision::Taken,
        }
    }

    /// The connection ends, and both sides are told.
    pub(super) fn end_waiting(&mut self, place: u32, ending: Ending, now: Time) {
        self.count(ending);
        let switch = self.switch();
        if let Some(waiting) = switch.places[place as usize].take() {
            if !matches!(waiting.step, Step::HalfOpen) {
                self.reset_client(&waiting, now);
            }
            self.switch().places[place as usize] = Some(waiting);
        }
        // Who has refused it knows.
        if ending != Ending::Refused {
            self.tell_of_end(place, now);
        }
        self.forget_waiting(place, now);
    }

    /// The connection ends because it must leave its back end, and both sides are told.
    pub(crate) fn end_without_back_end(&mut self, place: u32, now: Time) {
        self.end_waiting(place, Ending::NoBackEnd, now);
    }

    fn count(&mut self, ending: Ending) {
        let counters = &mut self.counters;
        *match ending {
            Ending::Malformed => &mut counters.switch_malformed,
            Ending::TooLong => &mut counters.switch_too_long,
            Ending::Late => &mut counters.switch_late,
            Ending::Unknown => &mut counters.switch_unknown_name,
            Ending::NoBackEnd => &mut counters.switch_no_back_end,
            Ending::Refused => &mut counters.switch_refused,
            Ending::Silent => &mut counters.switch_silent,
            Ending::PushedOut => &mut counters.switch_pushed_out,
        } += 1;
    }
}

/// The header of a segment whose checksum is right, or was looked at by others.
pub(super) fn right_segment(packet: &Packet<'_>) -> Result<SegmentHead, Drop> {
    let around = frame::Packet::parse(packet.frame).ok_or(Drop::Switch)?;
    if packet.frame.len() < around.end || around.transport_at != packet.view.transport_at {
        return Err(Drop::Switch);
    }
    if packet.offload.checksum == Checksum::Unverified && !around.is_segment_right(packet.frame) {
        return Err(Drop::Malformed);
    }
    nicache_tcp::parse(&packet.frame[packet.view.transport_at..packet.view.end])
        .map_err(|_| Drop::Malformed)
}

#[allow(clippy::too_many_arguments, reason = "what a connection begins with")]
fn waiting(
    packet: &Packet<'_>,
    tuple: &Tuple,
    service: u16,
    (theirs, ours): (Seq, Seq),
    options: &SynOptions,
    limits: &Limits,
    clock: TsClock,
    now: Time,
) -> Box<Waiting> {
    let agreed = answer(options, limits, 0);
    let mut mac = [0; 6];
    mac.copy_from_slice(&packet.frame[6..12]);
    Box::new(Waiting {
        tuple: *tuple,
        service,
        interface: packet.interface,
        mac,
        step: Step::HalfOpen,
        due: now + HALF_OPEN_TIME,
        theirs,
        ours,
        options: SynOptions {
            mss: options.mss,
            window_scale: options.window_scale,
            sack_permitted: agreed.options.sack_permitted,
            timestamps: options.timestamps.filter(|_| limits.timestamps),
            ecn: false,
        },
        scale: agreed.our_scale,
        clock,
        receiver: Receiver::new(theirs + 1, LOOK_BYTES_MAX),
        recent: Paws::new(options.timestamps.map_or(0, |stamps| stamps.val), now),
        window: 0,
        bytes: Vec::new(),
    })
}

fn syn_ack(waiting: &Waiting, limits: &Limits, tsval: u32, now: Time) -> HeadRepr {
    let agreed = answer(&waiting.options, limits, tsval);
    HeadRepr {
        window: window_field(waiting.receiver.window(), 0),
        timestamps: None,
        syn_options: Some(agreed.options),
        ..waiting.segment(Flags::SYN, now)
    }
}
