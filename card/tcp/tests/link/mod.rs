//! A simulated link with a clock that jumps, and a straightforward receiver at its far end: it
//! shares no code with the sender but the types of its interface.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nicache_random::SplitMix64;
use nicache_tcp::{
    AckInfo, PeerLimits, SackBlocks, Sender, SenderConfig, Seq, Time, TimeoutOutcome, TransmitKind,
};

/// What chance decides.
pub(crate) struct Random(SplitMix64);

impl Random {
    /// The numbers of this seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// The next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// True in `permille` of 1000 cases.
    pub(crate) fn chance(&mut self, permille: u32) -> bool {
        self.below(1_000) < u64::from(permille)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub seed: u64,
    pub bytes: u32,
    pub fin: bool,
    pub mss: u16,
    pub sack: bool,
    pub timestamps: bool,
    pub loss: u32,
    pub ack_loss: u32,
    pub duplicate: u32,
    pub reorder: u32,
    pub rtt: Duration,
    /// Link speed in bytes per second; 0 for unlimited.
    pub rate: u64,
    /// Bytes the link queues before it drops.
    pub queue: u64,
    /// Receive buffer.
    pub buffer: u32,
    /// Bytes per second that the application reads; 0 for at once.
    pub read_rate: u64,
    /// The application stops reading for this long now and then.
    pub pause: Duration,
    /// The receiver takes back window that it granted (allowed though discouraged, RFC 9293 section
    /// 3.8.6).
    pub shrink: bool,
    /// The receiver forgets what it reported by SACK now and then (RFC 2018 section 8).
    pub renege: bool,
    pub burst_bytes: u32,
    pub ecn: bool,
    pub config: SenderConfig,
}

impl Setup {
    pub(crate) fn clean(bytes: u32) -> Self {
        Self {
            seed: 1,
            bytes,
            fin: true,
            mss: 1_448,
            sack: true,
            timestamps: true,
            loss: 0,
            ack_loss: 0,
            duplicate: 0,
            reorder: 0,
            rtt: Duration::from_millis(20),
            rate: 0,
            queue: u64::MAX,
            buffer: 4 << 20,
            read_rate: 0,
            pause: Duration::ZERO,
            shrink: false,
            renege: false,
            burst_bytes: 65_160,
            ecn: false,
            config: SenderConfig::default(),
        }
    }
}

#[derive(Debug, Default, Clone)]
pub(crate) struct Report {
    pub elapsed: Duration,
    pub segments: u64,
    pub retransmitted: u64,
    pub timeouts: u64,
    pub window_probes: u64,
    pub tail_probes: u64,
    /// Bytes that arrived more than once.
    pub duplicate_bytes: u64,
}

enum Packet {
    Data { seq: Seq, len: u32, fin: bool, tsval: u32 },
    Ack(AckInfo),
}

/// RFC 9293 receiver with SACK (RFC 2018, RFC 2883), delayed acknowledgments and a finite buffer.
struct Peer {
    start: Seq,
    nxt: Seq,
    /// Out-of-order ranges as offsets from `start`, most recent first.
    held: Vec<(u32, u32)>,
    fin_at: Option<Seq>,
    buffered: u32,
    buffer: u32,
    edge: Seq,
    ts_recent: u32,
    last_ack_sent: Seq,
    unacked_segments: u32,
    delayed_ack: Option<Time>,
    duplicate_bytes: u64,
    sack: bool,
    shrink: bool,
    mss: u32,
}

impl Peer {
    fn merge(&mut self, left: u32, right: u32) {
        let (mut l, mut r) = (left, right);
        self.held.retain(|&(a, b)| {
            if b < l || a > r {
                true
            } else {
                l = l.min(a);
                r = r.max(b);
                false
            }
        });
        self.held.insert(0, (l, r));
    }

    /// Returns true if an acknowledgment has to go at once, with a D-SACK block if there is one.
    fn take(
        &mut self,
        seq: Seq,
        len: u32,
        fin: bool,
        tsval: u32,
        now: Time,
    ) -> (bool, Option<(Seq, Seq)>) {
        let end = seq + len + u32::from(fin);
        if seq.le(self.last_ack_sent) && (tsval.wrapping_sub(self.ts_recent) as i32) >= 0 {
            self.ts_recent = tsval;
        }
        if end.le(self.nxt) {
            self.duplicate_bytes += u64::from(len);
            return (true, Some((seq, end)));
        }
        // Trim to the window, FIN last.
        let end = end.min(self.edge);
        let left = seq.max(self.nxt);
        if left.ge(end) {
            return (true, None);
        }
        if fin && end == seq + len + 1 {
            self.fin_at = Some(seq + len);
        }
        let in_order = left == self.nxt;
        let (l, r) = (left.since(self.start), end.since(self.start));
        let covered = self.held.iter().any(|&(a, b)| a <= l && r <= b);
        if covered || seq.lt(self.nxt) {
            self.duplicate_bytes +=
                u64::from(if covered { end.since(left) } else { self.nxt.since(seq) });
        }
        let had_holes = !self.held.is_empty();
        self.merge(l, r);
        let nxt = self.nxt.since(self.start);
        if let Some(i) = self.held.iter().position(|&(a, b)| a <= nxt && nxt < b) {
            let (_, b) = self.held.remove(i);
            self.buffered += b - nxt;
            self.nxt = self.start + b;
        }
        self.unacked_segments += len.div_ceil(self.mss);
        if !in_order || had_holes || fin {
            return (true, covered.then_some((left, end)));
        }
        if self.unacked_segments >= 2 {
            return (true, None);
        }
        self.delayed_ack.get_or_insert(now + Duration::from_millis(40));
        (false, None)
    }

    fn ack(&mut self, d_sack: Option<(Seq, Seq)>, timestamps: bool) -> AckInfo {
        self.delayed_ack = None;
        self.unacked_segments = 0;
        let free = self.buffer - self.buffered.min(self.buffer);
        let mut edge = self.nxt + free;
        // Silly window avoidance of the receiver (RFC 9293 section 3.8.6.2.2).
        if edge.saturating_since(self.edge) < self.mss.min(self.buffer / 2) && edge.gt(self.edge) {
            edge = self.edge;
        }
        if !self.shrink {
            edge = edge.max(self.edge);
        }
        self.edge = edge.max(self.nxt);
        self.last_ack_sent = self.nxt;
        let mut sack = SackBlocks::EMPTY;
        if self.sack {
            if let Some((l, r)) = d_sack {
                sack.push(l, r);
            }
            for &(l, r) in &self.held {
                if sack.len() < 3 {
                    sack.push(self.start + l, self.start + r);
                }
            }
        }
        AckInfo {
            seq: Seq(99),
            ack: self.nxt,
            window: self.edge.since(self.nxt),
            sack,
            ts_ecr: timestamps.then_some(self.ts_recent),
            carries_data: false,
            ece: false,
        }
    }
}

/// Runs one transfer to its end; panics if a promise of the sender is broken.
pub(crate) fn run(setup: &Setup) -> Report {
    let mut random = Random::new(setup.seed);
    let start = Seq(random.next() as u32);
    // A third of the runs cross the wrap of the sequence space.
    let start = if random.below(3) == 0 { Seq(0u32.wrapping_sub(setup.bytes / 2)) } else { start };
    let mut now = Time::from_millis(1_000 + random.below(10_000));
    let begun = now;
    let peer_limits = PeerLimits {
        mss: setup.mss,
        window_scale: 7,
        sack: setup.sack,
        timestamps: setup.timestamps,
        ecn: setup.ecn,
    };
    let mut sender = Sender::new(&setup.config, start, peer_limits, setup.buffer, now);
    let mut peer = Peer {
        start,
        nxt: start,
        held: Vec::new(),
        fin_at: None,
        buffered: 0,
        buffer: setup.buffer,
        edge: start + setup.buffer,
        ts_recent: 0,
        last_ack_sent: start,
        unacked_segments: 0,
        delayed_ack: None,
        duplicate_bytes: 0,
        sack: setup.sack,
        shrink: setup.shrink,
        mss: u32::from(setup.mss),
    };
    let mut flight: BTreeMap<(Time, u64), Packet> = BTreeMap::new();
    let mut serial = 0u64;
    let mut link_free = now;
    let mut enqueued = 0u32;
    let mut next_enqueue = now;
    let mut read_at = now;
    let mut paused_until = now;
    let mut report = Report::default();
    let mut sent_to = start;
    let mut known_edge = start + setup.buffer;
    let mut acked = 0u64;
    let mut fin_acked = false;
    let bound = Time::from_millis(begun.as_millis() + 3_600_000 * 4);
    let segments_bound = 2_000 + u64::from(setup.bytes / u32::from(setup.mss)) * 40;
    let mut retransmitted: BTreeSet<u32> = BTreeSet::new();

    loop {
        // The application writes in pieces.
        if enqueued < setup.bytes && now >= next_enqueue {
            let piece = if random.below(4) == 0 {
                setup.bytes - enqueued
            } else {
                1 + random.below(60_000) as u32
            };
            let piece = piece.min(setup.bytes - enqueued);
            sender.enqueue(piece);
            enqueued += piece;
            next_enqueue = now + Duration::from_micros(random.below(20_000));
            if enqueued == setup.bytes && setup.fin {
                sender.enqueue_fin();
            }
        }
        let limit = start + enqueued;
        let fin_enqueued = setup.fin && enqueued == setup.bytes;
        while let Some(t) = {
            let before = sender.pipe();
            let t = sender.poll_transmit(now, setup.burst_bytes);
            if let Some(t) = t {
                let end = t.seq + t.len + u32::from(t.fin);
                assert!(t.len > 0 || t.fin, "empty {t:?}");
                assert!(
                    t.seq.ge(peer.start) && (t.seq + t.len).le(limit),
                    "beyond enqueued: {t:?}"
                );
                assert!(!t.fin || (fin_enqueued && t.seq + t.len == limit), "FIN not last: {t:?}");
                assert!(t.len <= setup.burst_bytes);
                if t.kind == TransmitKind::WindowProbe {
                    assert!(t.len + u32::from(t.fin) == 1);
                } else {
                    assert!(end.le(known_edge), "beyond the window {known_edge:?}: {t:?}");
                    let probe = t.kind == TransmitKind::TailProbe
                        || t.len + u32::from(t.fin) <= u32::from(setup.mss) + 1;
                    assert!(
                        probe || before + t.len <= sender.cwnd(),
                        "beyond cwnd {}: {before} {t:?}",
                        sender.cwnd()
                    );
                }
                if t.kind == TransmitKind::New {
                    assert!(t.seq == sent_to, "new data out of order: {t:?}");
                    sent_to = end;
                } else if t.kind != TransmitKind::WindowProbe {
                    assert!(end.le(sent_to), "retransmission of what was never sent: {t:?}");
                }
            }
            t
        } {
            match t.kind {
                TransmitKind::New => {}
                TransmitKind::WindowProbe => report.window_probes += 1,
                TransmitKind::TailProbe => report.tail_probes += 1,
                TransmitKind::Retransmit | TransmitKind::RtoProbe => {
                    retransmitted.insert(t.seq.0);
                }
            }
            let mut at = t.seq;
            let mut left = t.len;
            loop {
                let len = left.min(u32::from(setup.mss));
                left -= len;
                let fin = t.fin && left == 0;
                report.segments += 1;
                if !matches!(t.kind, TransmitKind::New | TransmitKind::WindowProbe) {
                    report.retransmitted += 1;
                }
                let wire = u64::from(len) + 66;
                let copies = if random.chance(setup.duplicate) { 2 } else { 1 };
                for _ in 0..copies {
                    let departs = if setup.rate == 0 {
                        now
                    } else {
                        let backlog = link_free.max(now);
                        if (backlog - now).as_nanos() as u64 * setup.rate / 1_000_000_000
                            > setup.queue
                        {
                            continue;
                        }
                        link_free =
                            backlog + Duration::from_nanos(wire * 1_000_000_000 / setup.rate);
                        link_free
                    };
                    if random.chance(setup.loss) {
                        continue;
                    }
                    let late = if random.chance(setup.reorder) {
                        random.below(setup.rtt.as_nanos() as u64 * 2)
                    } else {
                        0
                    };
                    let arrives = departs + setup.rtt / 2 + Duration::from_nanos(late);
                    serial += 1;
                    flight.insert(
                        (arrives, serial),
                        Packet::Data { seq: at, len, fin, tsval: now.as_millis() as u32 },
                    );
                }
                at += len;
                if left == 0 {
                    break;
                }
            }
        }
        assert!(report.segments < segments_bound, "live-lock: {report:?} {setup:?}");
        let done =
            if setup.fin { fin_acked } else { sender.all_acked() && enqueued == setup.bytes };
        if done {
            break;
        }

        // The next event.
        let timeout = sender.next_timeout();
        assert!(sender.all_acked() || timeout.is_some(), "timer lost: {sender:?}");
        let mut next = timeout.unwrap_or(Time::MAX);
        if let Some(((at, _), _)) = flight.first_key_value() {
            next = next.min(*at);
        }
        if let Some(at) = peer.delayed_ack {
            next = next.min(at);
        }
        if enqueued < setup.bytes {
            next = next.min(next_enqueue);
        }
        let reads = setup.read_rate > 0 && peer.buffered > 0;
        if reads {
            next = next.min(read_at.max(paused_until));
        }
        assert!(next < Time::MAX, "nothing will ever happen: {sender:?}");
        assert!(next > now || timeout != Some(next), "timer in the past: {sender:?} at {now:?}");
        now = now.max(next);
        assert!(now < bound, "too slow: {report:?} {setup:?}");

        let mut acks: Vec<AckInfo> = Vec::new();
        while let Some(entry) = flight.first_entry() {
            if entry.key().0 > now {
                break;
            }
            match entry.remove() {
                Packet::Data { seq, len, fin, tsval } => {
                    let (at_once, d_sack) = peer.take(seq, len, fin, tsval, now);
                    if setup.read_rate == 0 {
                        peer.buffered = 0;
                    }
                    if setup.renege && random.chance(5) {
                        peer.held.clear();
                        peer.fin_at = peer.fin_at.filter(|at| at.lt(peer.nxt));
                    }
                    if at_once {
                        acks.push(peer.ack(d_sack, setup.timestamps));
                    }
                }
                Packet::Ack(info) => {
                    let outcome = sender.handle_ack(&info, now);
                    assert_eq!(outcome.invalid, None, "{info:?} {sender:?}");
                    acked += u64::from(outcome.newly_acked);
                    fin_acked |= outcome.fin_acked;
                    assert!(sender.una().ge(info.ack));
                    known_edge = sender.window_edge();
                    if info.ack == sent_to + 1 {
                        assert!(report.window_probes > 0);
                        sent_to = info.ack;
                    }
                }
            }
        }
        if peer.delayed_ack.is_some_and(|at| at <= now) {
            acks.push(peer.ack(None, setup.timestamps));
        }
        if setup.read_rate > 0 && peer.buffered > 0 && now >= read_at.max(paused_until) {
            let piece = (1 + random.below(20_000) as u32).min(peer.buffered);
            peer.buffered -= piece;
            read_at =
                now + Duration::from_nanos(u64::from(piece) * 1_000_000_000 / setup.read_rate);
            if setup.pause > Duration::ZERO && random.chance(100) {
                paused_until =
                    now + Duration::from_nanos(random.below(setup.pause.as_nanos() as u64));
            }
            let before = peer.edge;
            let info = peer.ack(None, setup.timestamps);
            if peer.edge != before {
                acks.push(info);
            }
        }
        for info in acks {
            if random.chance(setup.ack_loss) {
                continue;
            }
            let late = if random.chance(setup.reorder) {
                random.below(setup.rtt.as_nanos() as u64)
            } else {
                0
            };
            serial += 1;
            flight.insert(
                (now + setup.rtt / 2 + Duration::from_nanos(late), serial),
                Packet::Ack(info),
            );
        }
        if sender.next_timeout().is_some_and(|at| at <= now) {
            let phase_before = report.timeouts;
            match sender.handle_timeout(now) {
                TimeoutOutcome::GaveUp => panic!("gave up: {report:?} {setup:?} {sender:?}"),
                TimeoutOutcome::Armed if sender.phase() == nicache_tcp::recovery::Phase::Loss => {
                    report.timeouts = phase_before + 1;
                }
                _ => {}
            }
        }
    }
    assert_eq!(acked, u64::from(setup.bytes));
    assert_eq!(peer.nxt, start + setup.bytes + u32::from(setup.fin));
    assert_eq!(peer.fin_at, setup.fin.then_some(start + setup.bytes));
    assert!(
        sender.next_timeout().is_none() && sender.all_sent() && sender.fin_acked() == setup.fin
    );
    report.elapsed = now - begun;
    report.duplicate_bytes = peer.duplicate_bytes;
    report
}
