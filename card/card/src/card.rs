//! The card: takes frames from both ports, decides, and sends.
//!
//! One thread owns a card and calls [`Card::poll`]. Time is an argument: `now` is CLOCK_MONOTONIC
//! (the watcher's events carry the same clock), `unix_s` is for `Date`. The lease has a clock of
//! its own ([`Card::set_lease_clock`]), because it must hold *after* a request has come.

use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use nicache_cache::{
    Bypassed, CoherenceLink, Entry, Fills, Memo, MostUsed, Questions, Rechecks, Store, Strangers,
    Waiters,
};
use nicache_coherence::RevisionTable;
use nicache_http::{HttpDate, Ranges};
use nicache_port::{Burst, FrameBuf, Port};
use nicache_tcp::{
    Seq, Time, Wheel, challenge::ChallengeBudget, cookie_keys::CookieKeys, earliest,
    half_open::HalfOpen, isn::IsnKey, syn_pressure::SynPressure, time_wait::TimeWaitTable,
};

use crate::access::{AccessLog, AccessRecord};
use crate::bus::FrameBytes;
use crate::config::CardConfig;
use crate::counters::Counters;
use crate::first_level::FirstLevel;
use crate::flow::hold::HoldPool;
use crate::flow::parts::PartSets;
use crate::flow::preface::Prefaces;
use crate::flow::table::FlowTable;
use crate::flow::turn::Turns;
use crate::flow::{Flow, Phase};
use crate::limits::{FLOWS_PER_HOLD, RENDERED_HEAD_BYTES_MAX, REPLIES_MAX};
use crate::orphans::{Adopted, Ledger};
use crate::packet::{Classified, FlowKey, Side, TcpFrame, classify};
use crate::ports::{OlderCard, Ports};
use crate::reassembly::{Reassembly, Taken};

/// Frames taken from a port at a time.
const BURST_FRAMES: usize = 64;

/// What becomes of a flow after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// The flow goes on.
    Yes,
    /// The connection is over, or no longer the card's.
    No,
}

/// Tells the time of the lease, in nanoseconds.
type LeaseClock = Box<dyn Fn() -> u64 + Send>;

/// A network-interface data cache between two ports.
pub struct Card<W, H> {
    pub(crate) ports: Ports<W, H>,
    pub(crate) config: CardConfig,
    pub(crate) flows: FlowTable,
    pub(crate) wheel: Wheel,
    pub(crate) holds: HoldPool,
    pub(crate) store: Store,
    pub(crate) fills: Fills,
    pub(crate) time_wait: TimeWaitTable,
    pub(crate) half_open: HalfOpen,
    left_to_host: usize,
    pub(crate) challenges: ChallengeBudget,
    pub(crate) cookie_keys: CookieKeys,
    pub(crate) syn_pressure: SynPressure,
    /// Until then, segments of unknown connections may answer SYN cookies.
    pub(crate) cookies_until: Option<Time>,
    pub(crate) counters: Counters,
    pub(crate) memo: Memo,
    /// The date of this poll, for replies.
    pub(crate) date: HttpDate,
    /// Seconds since 1970, as of this poll.
    pub(crate) unix_s: u64,
    pub(crate) heads: Box<[u8]>,
    pub(crate) linear: Box<[u8]>,
    pub(crate) access: AccessLog,
    pub(crate) bypass: bool,
    pub(crate) lease: bool,
    /// `None`: `now` of the poll.
    lease_clock: Option<LeaseClock>,
    /// The host has not yet answered a SYN with timestamps by one without them.
    pub(crate) host_has_timestamps: bool,
    questions: Questions,
    pub(crate) waiters: Waiters<FlowKey>,
    pub(crate) rechecks: Rechecks,
    reassembly: Reassembly,
    /// When the store was last looked at ahead of visitors.
    pub(crate) looked_ahead: Time,
    pub(crate) ledger: Option<Box<dyn Ledger>>,
    pub(crate) adopted: Adopted,
    pub(crate) older: Option<OlderCard>,
    /// The ranges that the request asked for which was looked at last, if they were several.
    pub(crate) ranges: Ranges,
    pub(crate) part_sets: PartSets,
    pub(crate) prefaces: Prefaces,
    pub(crate) strangers: Strangers,
    pub(crate) bypassed: Bypassed,
    pub(crate) first_level: Option<FirstLevel>,
    pub(crate) turns: Turns,
    burst: Option<Burst>,
    period_end: Option<Time>,
}

impl<W: Port, H: Port> Card<W, H> {
    /// A card between two ports. All memory is allocated here.
    pub fn new(
        wire: W,
        host: H,
        config: CardConfig,
        store: Store,
        link: Box<dyn CoherenceLink + Send>,
        now: Time,
    ) -> Self {
        let period_end = store.policy().period().map(|period| now + period);
        Self {
            ports: Ports::new(wire, host, config.secret as u16),
            flows: FlowTable::new(config.flows, config.secret),
            wheel: Wheel::new(config.flows, now),
            holds: HoldPool::new((config.flows / FLOWS_PER_HOLD).max(16)),
            store,
            fills: Fills::new(),
            time_wait: TimeWaitTable::new(config.flows),
            half_open: HalfOpen::new(
                config.flows,
                config.half_open.min(config.flows / 2),
                std::time::Duration::ZERO,
            ),
            left_to_host: 0,
            challenges: ChallengeBudget::default(),
            cookie_keys: CookieKeys::new(config.isn_key),
            syn_pressure: SynPressure::default(),
            cookies_until: None,
            counters: Counters::default(),
            memo: Memo::new(config.secret),
            date: HttpDate::from_unix_s(0),
            unix_s: 0,
            heads: vec![0; RENDERED_HEAD_BYTES_MAX * REPLIES_MAX].into_boxed_slice(),
            linear: vec![0; 65_536].into_boxed_slice(),
            access: AccessLog::new(config.access_log),
            bypass: false,
            lease: false,
            lease_clock: None,
            host_has_timestamps: true,
            questions: Questions::new(link),
            waiters: Waiters::new(),
            rechecks: Rechecks::new(),
            reassembly: Reassembly::new(),
            looked_ahead: now,
            ledger: None,
            adopted: Adopted::default(),
            older: None,
            ranges: Ranges::new(),
            part_sets: PartSets::new(),
            prefaces: Prefaces::new(config.flows),
            strangers: Strangers::new(),
            bypassed: Bypassed::new(),
            first_level: None,
            turns: Turns::new(config.flows),
            burst: Some(Burst::new(BURST_FRAMES)),
            period_end,
            config,
        }
    }

    /// Takes what both ports have, answers it, lets flows send in turn, and does what time demands.
    /// Returns how many frames and turns that were: if any, there may be more at once.
    ///
    /// # Errors
    /// A port is broken.
    pub fn poll(&mut self, now: Time, unix_s: u64) -> io::Result<usize> {
        if unix_s != self.unix_s {
            self.unix_s = unix_s;
            self.date = HttpDate::from_unix_s(unix_s);
        }
        self.look_at_lease(now);
        let Self { questions, fills, store, waiters, counters, .. } = self;
        if questions.talk(fills, store, waiters, &mut counters.cache, now) {
            self.ask_for_seconds();
            self.sync_l0();
        }
        self.wake_waiters(now);
        let Some(mut burst) = self.burst.take() else { return Ok(0) };
        let handled = self.poll_ports(&mut burst, now);
        self.burst = Some(burst);
        let served = self.poll_turns(now);
        self.poll_timers(now);
        self.give_up_fragments(now);
        self.look_ahead(now);
        self.poll_l0(now);
        if !self.adopted.is_empty() {
            self.poll_adopted(now);
        }
        if let Some(end) = self.period_end
            && now >= end
        {
            self.store.end_period();
            self.period_end = self.store.policy().period().map(|period| now + period);
        }
        self.sync_l0();
        self.ports.wire.flush()?;
        self.ports.host.flush()?;
        handled.map(|frames| frames + served)
    }

    fn poll_ports(&mut self, burst: &mut Burst, now: Time) -> io::Result<usize> {
        self.turns.begin();
        let mut handled = self.ports.wire.receive(burst)?;
        if handled > 0 {
            self.look_at_lease(now);
        }
        for frame in burst.iter_mut() {
            self.handle_wire_frame(frame, now);
        }
        if handled > 0 && self.ports.may_skip_host() {
            return Ok(handled);
        }
        let from_host = self.ports.host.receive(burst)?;
        if from_host > 0 {
            self.look_at_lease(now);
        }
        self.ports.host_quiet = from_host == 0;
        for frame in burst.iter_mut() {
            self.handle_host_frame(frame, now);
        }
        handled += from_host;
        Ok(handled)
    }

    /// Does the lease hold now? To be asked after frames have been received and before they are
    /// answered: the process may have stood still between a look at the clock and the requests.
    fn look_at_lease(&mut self, now: Time) {
        let time_ns = self.lease_clock.as_ref().map_or(now.0, |clock| clock());
        let held = std::mem::replace(&mut self.lease, self.store.revisions().lease_holds(time_ns));
        if held && !self.lease {
            self.waiters.handle_change();
        }
    }

    /// Throws away what has come to both ports: frames that have gone their way without the card.
    ///
    /// # Errors
    /// A port is broken.
    pub fn drain_ports(&mut self) -> io::Result<()> {
        let Some(burst) = &mut self.burst else { return Ok(()) };
        while self.ports.wire.receive(burst)? + self.ports.host.receive(burst)? > 0 {}
        Ok(())
    }

    /// When the card wants to be polled again even if no frame comes; `None`: only for frames.
    pub fn next_due(&self) -> Option<Time> {
        let adopted = if self.adopted.is_empty() { None } else { self.adopted.due(Time::ZERO) };
        let turn = (!self.turns.is_empty()).then_some(Time::ZERO);
        let reassembly = self.reassembly.due();
        let ahead = self.ahead_due();
        earliest([
            ahead,
            turn,
            self.wheel.next_due(),
            self.period_end,
            self.questions.due(&self.fills, &self.store),
            self.l0_due(),
            adopted,
            reassembly,
        ])
    }

    /// What was counted so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The entries that the card keeps.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Connections tracked now.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Connections tracked now whose handshake is not complete.
    pub fn half_open(&self) -> usize {
        self.half_open.len()
    }

    /// Connections tracked now that clients are done with and the server has yet to close. What the
    /// kernel has accepted for the server and the server has not is among them.
    pub fn left_to_host(&self) -> usize {
        self.left_to_host
    }

    /// Hold buffers in use.
    pub fn holds_in_use(&self) -> usize {
        self.holds.lent()
    }

    /// Fills under way.
    pub fn fills_in_use(&self) -> usize {
        self.fills.in_use()
    }

    /// Clients whose requests the card follows on the connection from that port.
    pub fn followed(&self) -> impl Iterator<Item = (IpAddr, u16)> {
        let is_followed =
            |flow: &&Flow| matches!(flow.phase, Phase::Requests | Phase::Opaque(Some(_)));
        self.flows
            .iter()
            .filter(is_followed)
            .map(|flow| (flow.key.client.to_ip(), flow.key.client_port))
    }

    /// What the watcher's lease is compared with, in nanoseconds: the clock that
    /// [`RevisionTable::lease_holds`] names. It is read once for each burst of frames. Without one,
    /// `now` of [`Card::poll`] counts.
    pub fn set_lease_clock(&mut self, clock: impl Fn() -> u64 + Send + 'static) {
        self.lease_clock = Some(Box::new(clock));
    }

    /// Does the watcher's lease hold, as of the last poll?
    pub fn lease_holds(&self) -> bool {
        self.lease
    }

    /// From now on this table says what is valid, and the watcher on this `link` what may be
    /// stored, in place of those before, which nobody goes on with. Nothing that was stored until
    /// now is served again, and no reply that is on its way is stored. Connections go on.
    pub fn begin_watched(
        &mut self,
        revisions: Arc<RevisionTable>,
        link: Box<dyn CoherenceLink + Send>,
    ) {
        self.fills.give_up_all(&mut self.store, &mut self.counters.cache);
        self.waiters.handle_change();
        self.questions = Questions::new(link);
        self.store.begin_watched(revisions);
        self.lease = false;
        self.revoke_l0();
        // It has the control page of the table before, whose epoch says nothing of this one's
        // sources.
        if let Some(first) = &mut self.first_level {
            first.is_over = true;
        }
    }

    /// Turns the cache off or on. Entries stay, checked as ever.
    pub fn set_bypass(&mut self, bypass: bool) {
        self.bypass = bypass;
        self.revoke_l0();
        // What requests wait for is not given to them now: they go to the server.
        self.waiters.handle_change();
    }

    /// Makes SYN cookies with another key from now on, which nobody else may know. Worth it every
    /// few minutes, at most every two: cookies of the key before the last no longer count.
    pub fn renew_cookie_key(&mut self, key: IsnKey, now: Time) {
        self.cookie_keys.renew(key, now);
    }

    /// Is the cache turned off?
    pub fn bypass(&self) -> bool {
        self.bypass
    }

    /// Drops the entries that `chosen` says, and what is on its way to become one; returns how many
    /// entries there were.
    pub fn purge(&mut self, chosen: impl Fn(&Entry) -> bool + Send + 'static) -> usize {
        let removed = self.store.purge_where(chosen);
        self.sync_l0();
        self.counters.purges_by_operator += removed as u64;
        removed
    }

    /// Looks at `places` of the store and takes those used most since the last look into `most`
    /// ([`Store::take_uses`]).
    pub fn take_uses(&mut self, places: Range<usize>, most: &mut MostUsed) {
        self.store.take_uses(places, most);
    }

    /// Hands the records of hits since the last call to `take`.
    pub fn drain_access_records(&mut self, take: impl FnMut(&AccessRecord)) {
        self.access.drain(take);
    }

    /// The wire port.
    pub fn wire(&self) -> &W {
        &self.ports.wire
    }

    /// The host port.
    pub fn host(&self) -> &H {
        &self.ports.host
    }

    fn handle_wire_frame(&mut self, frame: &mut FrameBuf, now: Time) {
        if !self.answer_expected(frame, now) {
            self.handle_any_wire_frame(frame, now);
        }
    }

    fn handle_any_wire_frame(&mut self, frame: &mut FrameBuf, now: Time) {
        let ports = &self.config.service_ports;
        let offload = frame.offload();
        match classify(frame.data(), &offload, Side::Wire, |port| ports.contains(&port)) {
            Classified::Other if self.is_unwrapped(frame, Side::Wire, now) => {}
            Classified::Other => self.pass_to_host(frame, FrameBytes::other(frame.len())),
            Classified::Corrupt => self.counters.corrupt += 1,
            Classified::TooBig(told) => match self.flows.find(&told.key) {
                Some(index) => self.with_flow(index, now, |card, flow| {
                    card.path_too_narrow(flow, frame, &told, now)
                }),
                None => self.pass_to_host(frame, FrameBytes::other(frame.len())),
            },
            Classified::Tcp(tcp) => match self.flows.find(&tcp.key) {
                Some(index) => {
                    let ack = Some(tcp.head.ack).filter(|_| tcp.head.flags.ack());
                    let mut is_new = false;
                    self.with_flow_at(index, ack, now, |card, flow| {
                        is_new = card.is_taken_up_again(flow, &tcp);
                        if is_new {
                            card.reset_host(flow);
                            return Keep::No;
                        }
                        card.client_segment(flow, frame, &tcp, now)
                    });
                    if is_new {
                        self.handle_unknown(frame, &tcp, now);
                    }
                }
                None if !self.adopted.is_empty() && self.reset_orphan(&tcp, true) => {}
                None if self.older.is_some() && self.pass_to_older(frame, &tcp, Side::Wire) => {}
                None => self.handle_unknown(frame, &tcp, now),
            },
        }
    }

    fn handle_host_frame(&mut self, frame: &mut FrameBuf, now: Time) {
        let ports = &self.config.service_ports;
        let offload = frame.offload();
        match classify(frame.data(), &offload, Side::Host, |port| ports.contains(&port)) {
            Classified::Other if self.is_unwrapped(frame, Side::Host, now) => {}
            Classified::Other | Classified::TooBig(_) => {
                self.pass_to_wire(frame, FrameBytes::other(frame.len()));
            }
            Classified::Corrupt => self.counters.corrupt += 1,
            Classified::Tcp(tcp) => match self.flows.find(&tcp.key) {
                Some(index) => self
                    .with_flow(index, now, |card, flow| card.host_segment(flow, frame, &tcp, now)),
                None if !self.adopted.is_empty() && self.reset_orphan(&tcp, false) => {}
                None if self.older.is_some() && self.pass_to_older(frame, &tcp, Side::Host) => {}
                None => self.pass_to_wire(frame, FrameBytes::other(frame.len())),
            },
        }
    }

    /// Takes a frame that may be a segment of a service's connection in a packet that is not plain.
    /// False: it goes on as it is.
    fn is_unwrapped(&mut self, frame: &mut FrameBuf, side: Side, now: Time) -> bool {
        let Self { reassembly, ports, counters, config, .. } = self;
        let is_service = |port| config.service_ports.contains(&port);
        let pass = |side, bytes: &[u8]| ports.pass(side, bytes, counters);
        let taken = reassembly.take(frame, side, now, is_service, pass);
        if taken == Taken::Plain {
            self.counters.unwrapped += 1;
            match side {
                Side::Wire => self.handle_wire_frame(frame, now),
                Side::Host => self.handle_host_frame(frame, now),
            }
        }
        taken != Taken::No
    }

    fn give_up_fragments(&mut self, now: Time) {
        let Self { reassembly, ports, counters, .. } = self;
        reassembly.give_up(now, |side, bytes| ports.pass(side, bytes, counters));
    }

    /// Runs `handle` on a flow taken out of the table, then puts it back with its timer armed, or
    /// forgets it.
    pub(crate) fn with_flow(
        &mut self,
        index: u32,
        now: Time,
        handle: impl FnOnce(&mut Self, &mut Flow) -> Keep,
    ) {
        self.with_flow_at(index, None, now, handle);
    }

    /// Runs `handle` on a flow taken out of the table, then puts it back with its timer armed, or
    /// forgets it. `ack` is what the client acknowledges with the segment that is at hand, if there
    /// is one.
    fn with_flow_at(
        &mut self,
        index: u32,
        ack: Option<Seq>,
        now: Time,
        handle: impl FnOnce(&mut Self, &mut Flow) -> Keep,
    ) {
        let Some(mut flow) = self.flows.take(index) else { return };
        let was_half_open = flow.is_half_open();
        self.left_to_host -= usize::from(flow.is_left_to_host());
        let keep = if flow.loan.is_none() || self.take_back(&mut flow, ack, now) {
            handle(self, &mut flow)
        } else {
            self.counters.l0_lost += 1;
            self.abort_client(&mut flow, now);
            self.reset_host(&mut flow);
            Keep::No
        };
        if flow.may_be_lent && keep == Keep::Yes {
            self.lend(&mut flow);
        }
        self.note_in_ledger(index, &mut flow, keep == Keep::Yes);
        match keep {
            Keep::Yes => {
                if was_half_open && !flow.is_half_open() {
                    self.half_open.end(index);
                }
                self.left_to_host += usize::from(flow.is_left_to_host());
                self.turns.join(index, &mut flow.turn);
                if let Some(due) = self.deadline(&flow, now) {
                    self.wheel.arm(index, due);
                }
                self.flows.put(index, flow);
            }
            Keep::No => {
                self.release_resources(&mut flow);
                self.half_open.end(index);
                self.wheel.disarm(index);
                self.flows.forget(index, flow);
            }
        }
    }

    /// Passes a frame of the wire to the host as it is.
    pub(crate) fn pass_to_host(&mut self, frame: &FrameBuf, bytes: FrameBytes) {
        self.ports.send_to_host(
            &[IoSlice::new(frame.data())],
            frame.offload(),
            bytes,
            &mut self.counters,
        );
    }

    /// Passes a frame of the host to the wire as it is, and counts it on the bus.
    pub(crate) fn pass_to_wire(&mut self, frame: &FrameBuf, bytes: FrameBytes) {
        self.counters.bus.count_from_host(frame.len(), bytes);
        self.ports.send_to_wire(&[IoSlice::new(frame.data())], frame.offload(), &mut self.counters);
    }
}

/// How the bytes of a client's frame divide that passes: its payload is an HTTP request.
pub(crate) fn request_frame_bytes(frame: &FrameBuf, tcp: &TcpFrame, head: bool) -> FrameBytes {
    let payload = u64::from(tcp.payload_len());
    FrameBytes {
        network_headers: frame.len() as u64 - payload,
        application_headers: if head { payload } else { 0 },
        content: if head { 0 } else { payload },
        other: 0,
    }
}
