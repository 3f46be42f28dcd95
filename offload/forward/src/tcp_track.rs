//! Where a TCP connection of others stands, by what is seen of it from the middle.
//!
//! Read first: van Rooij 2000, "Real Stateful TCP Packet Filtering in IP Filter", for the windows;
//! RFC 5382 and RFC 7857 section 2 for the states.
//!
//! A segment outside of the windows changes nothing (invariant F7), and is passed on: the ends
//! judge it better (RFC 5961). Only where both ends go on with each other outside of them, and
//! nothing is inside for long, what is known is wrong, and is learned anew.
//!
//! ```text
//!  SynSent ─SYN,ACK─▶ SynReceived ─ACK─▶ Established ─FIN─▶ Closing ─FIN of the other, both acknowledged─▶ TimeWait
//!     └──────────────────────┴──────── RST in the window ──────┴──────▶ Reset ─any other segment─▶ as before
//!  TimeWait, Reset ─SYN with a later number─▶ SynSent
//!  any state after SynSent but Reset ─SYN, and the other end's SYN,ACK for it─▶ SynReceived
//! ```

use nicache_tcp::Seq;
use nicache_tcp::wire::Flags;

use crate::view::TcpView;

/// How far an acknowledgment may be behind at least: more than any window without scaling (van
/// Rooij 2000, section 3).
const ACK_BEHIND_MAX: u32 = 66_000;

/// So many segments, which fit each other and nothing that is known, are those of the connection:
/// its numbers were missed.
const ASTRAY_MAX: u8 = 16;

/// A direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From who has begun it.
    Original = 0,
    /// Back.
    Reply = 1,
}

impl Direction {
    /// The other direction.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Original => Self::Reply,
            Self::Reply => Self::Original,
        }
    }
}

/// Where a TCP connection of others stands, by what is seen of it from the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpState {
    /// A SYN was seen.
    SynSent,
    /// It was answered.
    SynReceived,
    /// The connection is older than what is known of it, and the other end has not yet said that it
    /// knows it.
    PickedUp,
    /// The handshake is over.
    Established,
    /// One end at least has sent its last byte.
    Closing,
    /// Both ends have acknowledged that.
    TimeWait,
    /// Reset, as far as is known: the end may not have believed it (RFC 7857 section 2.2).
    Reset,
}

#[derive(Clone, Copy, Debug, Default)]
struct Side {
    /// Behind its SYN, if that was seen. Payload may follow there (RFC 7413).
    first: Seq,
    /// Behind the last number that it has sent.
    end: Seq,
    /// Behind the last number that the other end has let it send.
    max_end: Seq,
    /// The largest window that it has offered; 0: it has sent nothing yet.
    max_window: u32,
    /// The last number that it has acknowledged.
    acked: Seq,
    scale: u8,
    offers_scale: bool,
    /// Behind its FIN.
    fin: Option<Seq>,
}

impl Side {
    /// An end whose SYN was seen.
    fn begun(segment: &TcpView) -> Self {
        let end = segment.seq + segment.numbers();
        Self {
            first: segment.seq + 1,
            end,
            max_end: end,
            max_window: u32::from(segment.window).max(1),
            scale: segment.scale.unwrap_or(0),
            offers_scale: segment.scale.is_some(),
            ..Self::default()
        }
    }

    /// Whether a segment of the other end answers its SYN: that, or some of the payload with it.
    fn is_answer(&self, segment: &TcpView) -> bool {
        segment.ack.ge(self.first) && segment.ack.le(self.end)
    }
}

/// What is known of an end of a TCP connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Behind the last number that it has sent.
    pub end: Seq,
    /// Behind the last number that the other end has let it send.
    pub max_end: Seq,
    /// The largest window that it has offered, in bytes.
    pub max_window: u32,
    /// The last number that it has acknowledged.
    pub acked: Seq,
    /// The shift of its windows.
    pub scale: u8,
}

/// What a segment means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// It belongs to the connection, whose state has followed.
    Inside,
    /// It does not fit; nothing has changed.
    Outside,
    /// It begins a new connection between the same ends.
    Begins,
}

/// Segments that were outside of the windows, since the last one that was not.
///
/// An end answers a stranger's segment with one of its own (RFC 9293 section 3.10.7.4), which is
/// within the windows. So where none is for long, and both ends agree with each other, not they are
/// wrong, but what is known of them.
#[derive(Clone, Copy, Debug, Default)]
struct Astray {
    /// By direction: behind the last number of the segment, and the number that it acknowledges.
    last: [Option<(Seq, Seq)>; 2],
    /// So many fit each other.
    count: u8,
}

/// Follows the state and the windows of a TCP connection of others. A segment outside of the
/// windows changes nothing (invariant F7).
#[derive(Clone, Copy, Debug)]
pub struct TcpTrack {
    state: TcpState,
    /// Where it stood before a reset.
    before_reset: TcpState,
    sides: [Side; 2],
    /// Of a direction, no number is known until its next segment.
    is_unknown: [bool; 2],
    /// The handshake was not seen: windows are what they may be at most, a quarter of all numbers.
    is_guessed: bool,
    /// A SYN that came after this connection's own was answered. The other end judges whether it
    /// begins another one between the same ends: the end of this one may have been missed, and a
    /// number that is not later may do, too (RFC 6191).
    again: Option<Side>,
    astray: Astray,
}

impl TcpTrack {
    /// From a first segment, in the original direction. One that is not a SYN belongs to a
    /// connection that is older than what is known of it.
    pub fn new(segment: &TcpView) -> Self {
        let end = segment.seq + segment.numbers();
        let mut track = Self {
            state: TcpState::SynSent,
            before_reset: TcpState::SynSent,
            sides: [Side::default(); 2],
            is_unknown: [false; 2],
            is_guessed: !segment.flags.syn(),
            again: None,
            astray: Astray::default(),
        };
        let [sender, _] = &mut track.sides;
        if segment.flags.syn() {
            *sender = Side::begun(segment);
            return track;
        }
        track.sides[1] = Side { end: segment.ack, ..Side::default() };
        track.pick_up(Direction::Original, segment);
        if segment.flags.fin() {
            track.sides[0].fin = Some(end);
        }
        track.state = TcpState::PickedUp;
        track
    }

    /// A connection of which only the state is known, and by direction whether that end has sent
    /// its last byte.
    pub fn restored(state: TcpState, fins: [bool; 2]) -> Self {
        // Their numbers come with the next segments.
        let sides = fins.map(|fin| Side { fin: fin.then_some(Seq(0)), ..Side::default() });
        Self {
            state,
            before_reset: TcpState::Established,
            sides,
            is_unknown: [true; 2],
            is_guessed: true,
            again: None,
            astray: Astray::default(),
        }
    }

    /// Takes the numbers of a direction from a segment in the middle. Nothing is known of its
    /// windows: they may be scaled as far as it goes.
    fn pick_up(&mut self, direction: Direction, segment: &TcpView) {
        let end = segment.seq + segment.numbers();
        let window = u32::from(segment.window).max(1) << 14;
        let (sender, receiver) = (direction as usize, direction.other() as usize);
        let old = self.sides[sender];
        self.sides[sender] = Side {
            end,
            max_end: end + window,
            max_window: window,
            acked: segment.ack,
            scale: 14,
            // Whoever has sent its last byte sends nothing behind it.
            fin: old.fin.map(|_| end),
            ..old
        };
        if self.is_unknown[receiver] || self.sides[receiver].max_window == 0 {
            let old = self.sides[receiver];
            self.sides[receiver] =
                Side { end: segment.ack, max_end: segment.ack + window, scale: 14, ..old };
        }
        self.is_unknown[sender] = false;
    }

    /// Where it stands.
    pub fn state(&self) -> TcpState {
        self.state
    }

    /// Whether one end alone has sent its last byte.
    pub fn is_half_closed(&self) -> bool {
        self.sides.iter().filter(|side| side.fin.is_some()).count() == 1
    }

    /// By direction, whether that end has sent its last byte.
    pub fn fins(&self) -> [bool; 2] {
        self.sides.map(|side| side.fin.is_some())
    }

    /// What is known of both ends. `None`: not all of it.
    pub fn numbers(&self) -> Option<[Numbers; 2]> {
        let is_known = |side: &Side| side.max_window > 0;
        (self.is_unknown == [false; 2] && self.sides.iter().all(is_known)).then(|| {
            self.sides.map(|Side { end, max_end, max_window, acked, scale, .. }| Numbers {
                end,
                max_end,
                max_window,
                acked,
                scale,
            })
        })
    }

    /// Somebody else has seen segments that were inside, and knows more. `is_far`: so many that
    /// numbers may have moved by more than half of a turn, after which they cannot be compared.
    pub fn catch_up(&mut self, numbers: [Numbers; 2], is_far: bool) {
        for (side, known) in self.sides.iter_mut().zip(numbers) {
            if is_far {
                (side.end, side.max_end, side.acked) = (known.end, known.max_end, known.acked);
            }
            side.end = side.end.max(known.end);
            side.max_end = side.max_end.max(known.max_end);
            side.max_window = side.max_window.max(known.max_window);
            side.acked = side.acked.max(known.acked);
        }
    }

    /// A segment in a direction.
    pub fn handle(&mut self, direction: Direction, segment: &TcpView) -> Judged {
        let flags = segment.flags;
        if flags.syn() && !flags.ack() {
            return self.handle_syn(direction, segment);
        }
        if flags.syn() {
            return self.handle_syn_ack(direction, segment);
        }
        if self.is_unknown[direction as usize] {
            // A reset whose number cannot be judged is for its receiver to judge.
            if flags.rst() || !flags.ack() {
                return Judged::Outside;
            }
            self.pick_up(direction, segment);
        }
        if self.state == TcpState::SynSent {
            // Nothing but a reset answers a SYN otherwise.
            let [original, _] = &self.sides;
            let refuses = match direction {
                Direction::Reply => flags.rst() && flags.ack() && original.is_answer(segment),
                Direction::Original => flags.rst() && segment.seq == original.end,
            };
            return if refuses { self.reset() } else { Judged::Outside };
        }
        if !self.is_inside(direction, segment) && !self.finds_again(direction, segment) {
            return Judged::Outside;
        }
        self.astray = Astray::default();
        if flags.rst() {
            // What the receiver would not believe changes nothing: before what it has acknowledged
            // (RFC 5961 section 3.2).
            let (sender, receiver) =
                (&self.sides[direction as usize], &self.sides[direction.other() as usize]);
            let is_known = receiver.max_window > 0;
            let is_expected = !is_known || segment.seq.ge(receiver.acked);
            // Within windows that are guessed a stranger's reset is too easily. Its receiver
            // believes one only at the very number that it expects.
            let first = if is_known { receiver.acked } else { sender.end };
            let is_seen = segment.seq.ge(first) && segment.seq.le(sender.end);
            let is_believed = is_expected && (is_seen || !self.is_guessed);
            return if is_believed { self.reset() } else { Judged::Outside };
        }
        self.advance(direction, segment);
        if self.state == TcpState::Established && direction == Direction::Original {
            // Whoever goes on with the connection has not begun another one.
            self.again = None;
        }
        if self.state == TcpState::Reset {
            self.state = self.before_reset;
        }
        if self.state == TcpState::SynReceived && direction == Direction::Original && flags.ack() {
            self.state = TcpState::Established;
        }
        if flags.fin() {
            self.sides[direction as usize].fin = Some(segment.seq + segment.numbers());
        }
        if self.state == TcpState::PickedUp {
            // What one end says alone may be a stranger's.
            if direction == Direction::Original {
                return Judged::Inside;
            }
            self.state = TcpState::Established;
        }
        let is_closing = self.sides.iter().any(|side| side.fin.is_some());
        if is_closing && self.state != TcpState::TimeWait {
            self.state = TcpState::Closing;
        }
        let [original, reply] = &self.sides;
        if let (Some(ours), Some(theirs)) = (original.fin, reply.fin)
            && self.is_unknown == [false; 2]
            && reply.acked.ge(ours)
            && original.acked.ge(theirs)
        {
            self.state = TcpState::TimeWait;
        }
        Judged::Inside
    }

    fn handle_syn(&mut self, direction: Direction, segment: &TcpView) -> Judged {
        let side = &self.sides[direction as usize];
        // Again, with its payload or without.
        let is_again = segment.seq + 1 == side.first;
        match (self.state, direction) {
            // RFC 9293 section 3.6.1: behind the numbers of the old connection.
            (TcpState::TimeWait, Direction::Original)
                if segment.seq.gt(side.end) || self.is_unknown[0] =>
            {
                Judged::Begins
            }
            (TcpState::Reset, Direction::Original) => Judged::Begins,
            (TcpState::SynSent, Direction::Original) if is_again => Judged::Inside,
            (TcpState::SynSent | TcpState::PickedUp, Direction::Original) => Judged::Begins,
            (TcpState::SynReceived, _) if is_again => Judged::Inside,
            // Both begin at once (RFC 9293 section 3.5).
            (TcpState::SynSent, Direction::Reply) => {
                self.open(direction, segment);
                self.state = TcpState::SynReceived;
                Judged::Inside
            }
            (
                TcpState::SynReceived
                | TcpState::Established
                | TcpState::Closing
                | TcpState::TimeWait,
                Direction::Original,
            ) if !is_again => {
                self.again = Some(Side::begun(segment));
                Judged::Outside
            }
            _ => Judged::Outside,
        }
    }

    fn handle_syn_ack(&mut self, direction: Direction, segment: &TcpView) -> Judged {
        if direction == Direction::Reply
            && let Some(again) = self.again.filter(|_| self.answers_again(segment))
        {
            *self = Self {
                state: TcpState::SynSent,
                before_reset: TcpState::SynSent,
                sides: [again, Side::default()],
                is_unknown: [false; 2],
                is_guessed: false,
                again: None,
                astray: Astray::default(),
            };
        }
        let (side, other) =
            (&self.sides[direction as usize], &self.sides[direction.other() as usize]);
        let is_new = self.state == TcpState::SynSent
            && direction == Direction::Reply
            && other.is_answer(segment);
        if is_new {
            self.open(direction, segment);
            self.sides[direction as usize].acked = segment.ack;
            let window = u32::from(segment.window).max(1);
            let other = &mut self.sides[direction.other() as usize];
            // Payload that it did not take with the SYN comes again.
            other.end = segment.ack;
            other.max_end = segment.ack + window;
            self.state = TcpState::SynReceived;
            return Judged::Inside;
        }
        let is_again = matches!(self.state, TcpState::SynReceived | TcpState::Established)
            && segment.seq + 1 == side.first
            && segment.ack.le(other.end);
        if is_again || self.state == TcpState::SynReceived && segment.seq + 1 == side.first {
            return Judged::Inside;
        }
        Judged::Outside
    }

    /// Whether a segment of the end that was spoken to answers a SYN that came after this
    /// connection's own: another one begins.
    pub fn answers_again(&self, segment: &TcpView) -> bool {
        let may_begin = matches!(
            self.state,
            TcpState::SynReceived | TcpState::Established | TcpState::Closing | TcpState::TimeWait
        );
        may_begin
            && segment.flags.syn()
            && segment.flags.ack()
            && self.again.is_some_and(|again| again.is_answer(segment))
    }

    /// The first segment of an end, which is a SYN.
    fn open(&mut self, direction: Direction, segment: &TcpView) {
        self.sides[direction as usize] = Side::begun(segment);
        // RFC 7323 section 2.2: only if both offer it.
        if !self.sides.iter().all(|side| side.offers_scale) {
            self.sides.iter_mut().for_each(|side| side.scale = 0);
        }
    }

    fn is_inside(&self, direction: Direction, segment: &TcpView) -> bool {
        let (sender, receiver) =
            (&self.sides[direction as usize], &self.sides[direction.other() as usize]);
        if sender.max_window == 0 {
            // The first of a direction of which nothing is known, near what the other end has
            // acknowledged.
            return !segment.flags.ack() || segment.ack.le(receiver.end);
        }
        let end = segment.seq + segment.numbers();
        let is_near = segment.seq.le(sender.max_end)
            && (receiver.max_window == 0
                || end.ge(sender.end + 0u32.wrapping_sub(receiver.max_window)));
        if !segment.flags.ack() || receiver.max_window == 0 {
            return is_near;
        }
        let behind = ACK_BEHIND_MAX.max(sender.max_window);
        is_near
            && segment.ack.le(receiver.end)
            && segment.ack.ge(receiver.end + 0u32.wrapping_sub(behind))
    }

    /// A segment is outside. True: so are those of both ends for long, they fit each other, and the
    /// connection is known anew by them.
    fn finds_again(&mut self, direction: Direction, segment: &TcpView) -> bool {
        let flags = segment.flags;
        if self.state != TcpState::Established || flags.rst() || !flags.ack() {
            return false;
        }
        let (sender, receiver) = (direction as usize, direction.other() as usize);
        let (end, ack) = (segment.seq + segment.numbers(), segment.ack);
        // How far a number may be from one that was seen before.
        let window = |side: usize| ACK_BEHIND_MAX.max(self.sides[side].max_window);
        let is_behind = |value: Seq, other: Seq, most: u32| {
            value.le(other) && value.ge(other + 0u32.wrapping_sub(most))
        };
        let Astray { mut last, mut count } = self.astray;
        let goes_on = last[sender].is_none_or(|(before, _)| {
            let most = window(receiver);
            is_behind(before, end, most) || is_behind(end, before, most)
        });
        let is_agreed = last[receiver].is_none_or(|(other_end, other_ack)| {
            is_behind(ack, other_end, window(sender)) && is_behind(other_ack, end, window(receiver))
        });
        if !goes_on || !is_agreed {
            (last, count) = ([None; 2], 0);
        }
        last[sender] = Some((end, ack));
        self.astray = Astray { last, count: count.saturating_add(1) };
        let ([Some(original), Some(reply)], true) = (last, self.astray.count >= ASTRAY_MAX) else {
            return false;
        };
        let windows = self.sides.map(|side| side.max_window);
        for (side, ((end, acked), (_, other_acked), window)) in self
            .sides
            .iter_mut()
            .zip([(original, reply, windows[1]), (reply, original, windows[0])])
        {
            let allowed = other_acked + window;
            (side.end, side.acked, side.max_end) = (end, acked, end.max(allowed));
        }
        self.is_inside(direction, segment)
    }

    fn advance(&mut self, direction: Direction, segment: &TcpView) {
        let end = segment.seq + segment.numbers();
        let (mut sender, mut receiver) =
            (self.sides[direction as usize], self.sides[direction.other() as usize]);
        let window = u32::from(segment.window) << sender.scale;
        if sender.max_window == 0 {
            (sender.end, sender.max_end) = (end, sender.max_end.max(end));
            sender.acked = segment.ack;
        }
        sender.max_window = sender.max_window.max(window).max(1);
        if end.gt(sender.end) {
            sender.end = end;
        }
        // One of which only was known that it was sent may have been taken for a byte before.
        if self.is_guessed && sender.fin.is_some_and(|fin| end.gt(fin)) {
            sender.fin = Some(end);
        }
        // What was passed on beyond the window that is known shows a larger one.
        if end.gt(sender.max_end) {
            sender.max_end = end;
        }
        if segment.flags.ack() {
            if receiver.max_window == 0 && segment.ack.gt(receiver.end) {
                receiver.end = segment.ack;
            }
            if segment.ack.gt(sender.acked) {
                sender.acked = segment.ack;
            }
            // A window of 0 is asked about with one byte.
            let allowed = segment.ack + window.max(1);
            if allowed.gt(receiver.max_end) {
                receiver.max_end = allowed;
            }
        }
        (self.sides[direction as usize], self.sides[direction.other() as usize]) =
            (sender, receiver);
    }

    fn reset(&mut self) -> Judged {
        if self.state != TcpState::Reset {
            (self.before_reset, self.state) = (self.state, TcpState::Reset);
        }
        Judged::Inside
    }
}

/// Whether a segment may begin a connection.
pub fn begins(flags: Flags) -> bool {
    flags.syn() && !flags.ack() && !flags.rst() && !flags.fin()
}

#[cfg(test)]
mod tests;
