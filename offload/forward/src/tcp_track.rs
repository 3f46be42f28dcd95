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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn segment(flags: Flags, seq: u32, ack: u32, payload_len: u32) -> TcpView {
        TcpView { seq: Seq(seq), ack: Seq(ack), flags, window: 1000, scale: None, payload_len }
    }

    const ACK: Flags = Flags::ACK;

    /// A connection with the numbers 100 and 500 before the handshake.
    fn established() -> TcpTrack {
        let mut track = TcpTrack::new(&segment(Flags::SYN, 100, 0, 0));
        assert_eq!(
            track.handle(Direction::Reply, &segment(Flags::SYN | ACK, 500, 101, 0)),
            Judged::Inside
        );
        assert_eq!(track.state(), TcpState::SynReceived);
        assert_eq!(track.handle(Direction::Original, &segment(ACK, 101, 501, 0)), Judged::Inside);
        assert_eq!(track.state(), TcpState::Established);
        track
    }

    /// A flow of a gigabyte a second, of which something is heard once in three seconds.
    #[test]
    fn numbers_that_somebody_else_has_moved_by_more_than_half_a_turn_are_followed() {
        let mut track = established();
        let mut numbers = track.numbers().unwrap();
        for step in [1, 1 << 30, 3 << 30, 1 << 31, 1000] {
            numbers[0].end += step;
            numbers[0].max_end += step;
            numbers[1].acked += step;
            track.catch_up(numbers, step >= 1 << 30);
            assert_eq!(track.numbers(), Some(numbers), "{step}");
        }
        let [original, reply] = numbers;
        let fin = segment(Flags::FIN | ACK, original.end.0, reply.end.0, 0);
        assert_eq!(track.handle(Direction::Original, &fin), Judged::Inside);
        assert_eq!(track.state(), TcpState::Closing);
    }

    /// After a restart, the first segment of each direction tells where it is, and a stranger's
    /// reset ends nothing.
    #[test]
    fn a_restored_connection_goes_on() {
        let mut track = TcpTrack::restored(TcpState::Established, [false; 2]);
        assert_eq!(
            track.handle(Direction::Original, &segment(Flags::RST, 7, 0, 0)),
            Judged::Outside
        );
        assert_eq!(
            track.handle(Direction::Reply, &segment(ACK, 3_000_000_000, 4_000_000_000, 1000)),
            Judged::Inside
        );
        assert_eq!(
            track.handle(Direction::Original, &segment(Flags::RST, 7, 0, 0)),
            Judged::Outside
        );
        assert_eq!(
            track.handle(Direction::Original, &segment(ACK, 4_000_000_000, 3_000_001_000, 0)),
            Judged::Inside
        );
        assert_eq!(
            track.handle(
                Direction::Reply,
                &segment(ACK | Flags::FIN, 3_000_001_000, 4_000_000_000, 0)
            ),
            Judged::Inside
        );
        assert_eq!(track.state(), TcpState::Closing);
        assert_eq!(
            track.handle(
                Direction::Original,
                &segment(ACK | Flags::FIN, 4_000_000_000, 3_000_001_001, 0)
            ),
            Judged::Inside
        );
        assert_eq!(
            track.handle(Direction::Reply, &segment(ACK, 3_000_001_001, 4_000_000_001, 0)),
            Judged::Inside
        );
        assert_eq!(track.state(), TcpState::TimeWait);
    }

    /// Of a connection whose handshake was not seen, a reset ends what is known only at a number
    /// that was seen.
    #[test]
    fn resets_of_a_restored_connection() {
        let mut track = TcpTrack::restored(TcpState::Established, [false; 2]);
        track.handle(Direction::Original, &segment(ACK, 5000, 9000, 100));
        track.handle(Direction::Reply, &segment(ACK, 9000, 5100, 200));
        for seq in (0..1000u32).map(|step| step * 4_294_967 + 3) {
            let reset = segment(Flags::RST, seq, 0, 0);
            assert_eq!(track.handle(Direction::Reply, &reset), Judged::Outside, "{seq}");
            assert_eq!(track.handle(Direction::Original, &reset), Judged::Outside, "{seq}");
        }
        assert_eq!(track.state(), TcpState::Established);
        track.handle(Direction::Reply, &segment(Flags::RST | ACK, 9200, 5100, 0));
        assert_eq!(track.state(), TcpState::Reset);
        // The other end has not spoken since.
        let mut track = TcpTrack::restored(TcpState::Established, [false; 2]);
        track.handle(Direction::Original, &segment(ACK, 5000, 9000, 100));
        let reset = |seq| segment(Flags::RST | ACK, seq, 9000, 0);
        assert_eq!(track.handle(Direction::Original, &reset(5200)), Judged::Outside);
        assert_eq!(track.handle(Direction::Original, &reset(5100)), Judged::Inside);
        assert_eq!(track.state(), TcpState::Reset);
        let mut track = TcpTrack::new(&segment(ACK, 5000, 9000, 100));
        assert_eq!(
            track.handle(Direction::Reply, &segment(Flags::RST, 20_000, 0, 0)),
            Judged::Outside
        );
        assert_eq!(
            track.handle(Direction::Reply, &segment(Flags::RST, 9000, 0, 0)),
            Judged::Inside
        );
    }

    /// What was forwarded elsewhere was missed: the ends go on with each other, and are followed
    /// when that is certain.
    #[test]
    fn ends_that_go_on_where_nobody_has_seen_them() {
        let far = 50_000_000;
        let mut track = established();
        let (mut seq, mut ack) = (101 + far, 501 + 2 * far);
        let mut judged = Vec::new();
        for _ in 0..ASTRAY_MAX {
            judged.push(track.handle(Direction::Original, &segment(ACK, seq, ack, 300)));
            seq += 300;
            judged.push(track.handle(Direction::Reply, &segment(ACK, ack, seq, 700)));
            ack += 700;
        }
        let first = judged.iter().position(|judged| *judged == Judged::Inside).unwrap();
        assert_eq!(first, usize::from(ASTRAY_MAX) - 1);
        assert!(judged[first..].iter().all(|judged| *judged == Judged::Inside), "{judged:?}");
        // Windows are what they were.
        let beyond = segment(ACK, ack + 1001, seq, 10);
        assert_eq!(track.handle(Direction::Reply, &beyond), Judged::Outside);
        assert_eq!(
            track.handle(Direction::Original, &segment(ACK | Flags::FIN, seq, ack, 0)),
            Judged::Inside
        );
        assert_eq!(track.state(), TcpState::Closing);
    }

    /// Strangers who send in the name of both ends: either does not fit the other, or one of the
    /// ends answers, or one alone is heard.
    #[test]
    fn strangers_who_agree_with_nobody() {
        let far = 50_000_000;
        let mut track = established();
        for step in 0..200 {
            let (seq, ack) = (101 + far + 10 * step, 501 + far);
            let one = segment(ACK, seq, ack, 10);
            assert_eq!(track.handle(Direction::Original, &one), Judged::Outside, "one alone");
        }
        let mut track = established();
        for step in 0..200 {
            let (seq, ack) = (101 + far + 10 * step, 501 + far);
            for (direction, one) in [
                (Direction::Original, segment(ACK, seq, ack, 10)),
                (Direction::Reply, segment(ACK, ack + far, seq + 10, 0)),
            ] {
                assert_eq!(track.handle(direction, &one), Judged::Outside, "not of each other");
            }
        }
        let mut track = established();
        for step in 0..200 {
            let (seq, ack) = (101 + far + 10 * step, 501 + far);
            for (direction, one, expected) in [
                (Direction::Original, segment(ACK, seq, ack, 10), Judged::Outside),
                (Direction::Reply, segment(ACK, ack, seq + 10, 0), Judged::Outside),
            ] {
                assert_eq!(track.handle(direction, &one), expected);
            }
            if step % 5 == 4 {
                // The end says where it stands.
                let own = segment(ACK, 501, 101, 0);
                assert_eq!(track.handle(Direction::Reply, &own), Judged::Inside);
            }
        }
        let own = segment(ACK, 101, 501, 100);
        assert_eq!(track.handle(Direction::Original, &own), Judged::Inside);
    }

    /// Between the answer and the last acknowledgment.
    #[test]
    fn a_handshake_of_a_restored_connection() {
        let mut track = TcpTrack::restored(TcpState::SynReceived, [false; 2]);
        let reply = segment(ACK, 501, 101, 10);
        assert_eq!(track.handle(Direction::Reply, &reply), Judged::Inside);
        assert_eq!(track.state(), TcpState::SynReceived);
        assert_eq!(track.handle(Direction::Original, &segment(ACK, 101, 501, 0)), Judged::Inside);
        assert_eq!(track.state(), TcpState::Established);
    }

    /// One end has sent its last byte, or both have: what is missing is still waited for, and the
    /// acknowledgment of the last byte of each.
    #[test]
    fn last_bytes_of_a_restored_connection() {
        // Numbers in either half of all, as seen from 0.
        for (client, server) in [(0u32, 0u32), (4_000_000_000, 0), (0, 4_000_000_000)] {
            last_bytes(client, server);
        }
    }

    fn last_bytes(client: u32, server: u32) {
        let sent = |flags, seq, ack, payload_len| {
            (Direction::Original, segment(flags, client + seq, server + ack, payload_len))
        };
        let got = |flags, seq, ack, payload_len| {
            (Direction::Reply, segment(flags, server + seq, client + ack, payload_len))
        };
        let fin = ACK | Flags::FIN;
        let follow = |track: &mut TcpTrack, steps: &[(Direction, TcpView)]| {
            for (number, (direction, segment)) in steps.iter().enumerate() {
                assert_eq!(track.handle(*direction, segment), Judged::Inside, "{segment:?}");
                let is_over = track.state() == TcpState::TimeWait;
                assert_eq!(is_over, number + 1 == steps.len(), "{segment:?}");
            }
        };
        let half = || {
            let track = TcpTrack::restored(TcpState::Closing, [true, false]);
            assert!(track.is_half_closed());
            assert_eq!(track.fins(), [true, false]);
            track
        };
        let rest = [
            got(ACK, 501, 102, 500),
            sent(ACK, 102, 1001, 0),
            got(fin, 1001, 102, 0),
            sent(ACK, 102, 1002, 0),
        ];
        follow(&mut half(), &rest);
        // The first one that comes is from before: its last byte is not acknowledged yet.
        let rest = [
            sent(ACK, 41, 501, 20),
            got(fin, 501, 61, 0),
            sent(ACK, 61, 502, 40),
            sent(fin, 101, 502, 0),
            got(ACK, 502, 102, 0),
        ];
        follow(&mut half(), &rest);
        // Of the other end no number is known at first.
        let mut track = TcpTrack::restored(TcpState::Closing, [true; 2]);
        assert!(!track.is_half_closed());
        follow(&mut track, &[sent(ACK, 102, 502, 0), got(ACK, 502, 102, 0)]);
    }

    #[test]
    fn from_a_syn_to_time_wait() {
        let mut track = established();
        for (direction, segment, state) in [
            (Direction::Original, segment(ACK, 101, 501, 300), TcpState::Established),
            (Direction::Reply, segment(ACK, 501, 401, 900), TcpState::Established),
            (Direction::Original, segment(ACK | Flags::FIN, 401, 1401, 0), TcpState::Closing),
            (Direction::Reply, segment(ACK, 1401, 402, 500), TcpState::Closing),
            (Direction::Reply, segment(ACK | Flags::FIN, 1901, 402, 0), TcpState::Closing),
            (Direction::Original, segment(ACK, 402, 1902, 0), TcpState::TimeWait),
            (Direction::Reply, segment(ACK | Flags::FIN, 1901, 402, 0), TcpState::TimeWait),
        ] {
            assert_eq!(track.handle(direction, &segment), Judged::Inside, "{segment:?}");
            assert_eq!(track.state(), state, "{segment:?}");
        }
        let again = segment(Flags::SYN, 300, 0, 0);
        assert_eq!(track.handle(Direction::Original, &again), Judged::Outside, "an old number");
        assert_eq!(
            track.handle(Direction::Original, &segment(Flags::SYN, 90_000, 0, 0)),
            Judged::Begins
        );
    }

    /// The last acknowledgment was lost, and the client uses its port again: the other end, which
    /// has forgotten the old connection, answers.
    #[test]
    fn the_same_ends_while_closing() {
        let closing = || {
            let mut track = established();
            track.handle(Direction::Original, &segment(ACK | Flags::FIN, 101, 501, 0));
            track.handle(Direction::Reply, &segment(ACK | Flags::FIN, 501, 102, 0));
            assert_eq!(track.state(), TcpState::Closing);
            let again = segment(Flags::SYN, 90_000, 0, 0);
            assert_eq!(track.handle(Direction::Original, &again), Judged::Outside);
            assert_eq!(track.state(), TcpState::Closing);
            track
        };
        let mut track = closing();
        let answer = segment(Flags::SYN | ACK, 70_000, 90_001, 0);
        assert_eq!(track.handle(Direction::Reply, &answer), Judged::Inside);
        assert_eq!(track.state(), TcpState::SynReceived);
        let last = segment(ACK, 90_001, 70_001, 10);
        assert_eq!(track.handle(Direction::Original, &last), Judged::Inside);
        assert_eq!(track.state(), TcpState::Established);
        // Nobody else's answer counts, and the old connection may still end.
        let mut track = closing();
        let answer = segment(Flags::SYN | ACK, 70_000, 90_002, 0);
        assert_eq!(track.handle(Direction::Reply, &answer), Judged::Outside);
        assert_eq!(track.handle(Direction::Original, &segment(ACK, 102, 502, 0)), Judged::Inside);
        assert_eq!(track.state(), TcpState::TimeWait);
    }

    /// The other end takes a number that is not later, or has forgotten the old connection.
    #[test]
    fn the_same_ends_after_the_end() {
        let over = || {
            let mut track = established();
            track.handle(Direction::Original, &segment(ACK | Flags::FIN, 101, 501, 0));
            track.handle(Direction::Reply, &segment(ACK | Flags::FIN, 501, 102, 0));
            track.handle(Direction::Original, &segment(ACK, 102, 502, 0));
            assert_eq!(track.state(), TcpState::TimeWait);
            let again = segment(Flags::SYN, 4_000_000_000, 0, 0);
            assert_eq!(track.handle(Direction::Original, &again), Judged::Outside);
            assert_eq!(track.state(), TcpState::TimeWait);
            track
        };
        let answer = |ack| segment(Flags::SYN | ACK, 70_000, ack, 0);
        let mut track = over();
        assert_eq!(track.handle(Direction::Reply, &answer(4_000_000_001)), Judged::Inside);
        assert_eq!(track.state(), TcpState::SynReceived);
        let last = segment(ACK, 4_000_000_001, 70_001, 10);
        assert_eq!(track.handle(Direction::Original, &last), Judged::Inside);
        assert_eq!(track.state(), TcpState::Established);
        // Nobody else's answer counts.
        let mut track = over();
        assert_eq!(track.handle(Direction::Reply, &answer(4_000_000_002)), Judged::Outside);
        assert_eq!(track.state(), TcpState::TimeWait);
    }

    /// A client gives up in the middle of its handshake, and tries again with another number.
    #[test]
    fn the_same_ends_during_a_handshake() {
        let mut track = TcpTrack::new(&segment(Flags::SYN, 100, 0, 0));
        track.handle(Direction::Reply, &segment(Flags::SYN | ACK, 500, 101, 0));
        for mut track in [track, TcpTrack::restored(TcpState::SynReceived, [false; 2])] {
            let again = segment(Flags::SYN, 90_000_000, 0, 0);
            assert_eq!(track.handle(Direction::Original, &again), Judged::Outside);
            let answer = segment(Flags::SYN | ACK, 70_000_000, 90_000_001, 0);
            assert_eq!(track.handle(Direction::Reply, &answer), Judged::Inside);
            let last = segment(ACK, 90_000_001, 70_000_001, 10);
            assert_eq!(track.handle(Direction::Original, &last), Judged::Inside);
            assert_eq!(track.state(), TcpState::Established);
            let ends = track.numbers().unwrap().map(|side| side.end);
            assert_eq!(ends, [Seq(90_000_011), Seq(70_000_001)]);
        }
    }

    /// Both ends have forgotten a connection whose end was not seen.
    #[test]
    fn the_same_ends_while_established() {
        let again = segment(Flags::SYN, 90_000, 0, 0);
        let answer = segment(Flags::SYN | ACK, 70_000, 90_001, 0);
        for mut track in [established(), TcpTrack::restored(TcpState::Established, [false; 2])] {
            assert_eq!(track.handle(Direction::Original, &again), Judged::Outside);
            assert_eq!(track.state(), TcpState::Established);
            assert_eq!(track.handle(Direction::Reply, &answer), Judged::Inside);
            assert_eq!(track.state(), TcpState::SynReceived);
            let last = segment(ACK, 90_001, 70_001, 10);
            assert_eq!(track.handle(Direction::Original, &last), Judged::Inside);
            assert_eq!(track.state(), TcpState::Established);
            assert_eq!(track.numbers().unwrap().map(|side| side.end), [Seq(90_011), Seq(70_001)]);
        }
        // A stranger's SYN: the other end acknowledges where it stands, and the connection goes on.
        let mut track = established();
        track.handle(Direction::Original, &again);
        assert_eq!(track.handle(Direction::Reply, &segment(ACK, 501, 101, 0)), Judged::Inside);
        assert_eq!(track.handle(Direction::Original, &segment(ACK, 101, 501, 10)), Judged::Inside);
        assert_eq!(track.handle(Direction::Reply, &answer), Judged::Outside);
        assert_eq!(track.state(), TcpState::Established);
        // This connection's own SYN, late.
        assert_eq!(
            track.handle(Direction::Original, &segment(Flags::SYN, 100, 0, 0)),
            Judged::Outside
        );
        let answer = segment(Flags::SYN | ACK, 500, 101, 0);
        assert_eq!(track.handle(Direction::Reply, &answer), Judged::Inside);
        assert_eq!(track.state(), TcpState::Established);
    }

    #[test]
    fn a_reset_must_be_one_that_the_end_believes() {
        for (seq, ack, expected) in [
            (501, 101, Judged::Inside),
            (400, 101, Judged::Outside),
            (501 + 2000, 101, Judged::Outside),
        ] {
            let mut track = established();
            let judged = track.handle(Direction::Reply, &segment(Flags::RST | ACK, seq, ack, 0));
            assert_eq!(judged, expected, "{seq}");
            assert_eq!(track.state() == TcpState::Reset, expected == Judged::Inside);
        }
        // RFC 7857 section 2.2: the end has not believed it.
        let mut track = established();
        track.handle(Direction::Reply, &segment(Flags::RST, 600, 0, 0));
        assert_eq!(track.state(), TcpState::Reset);
        assert_eq!(track.handle(Direction::Original, &segment(ACK, 101, 501, 10)), Judged::Inside);
        assert_eq!(track.state(), TcpState::Established);
    }

    #[test]
    fn a_refused_syn() {
        for (flags, ack, state) in [
            (Flags::RST | ACK, 101, TcpState::Reset),
            (Flags::RST | ACK, 102, TcpState::SynSent),
            (Flags::RST, 101, TcpState::SynSent),
            (ACK, 101, TcpState::SynSent),
            (Flags::SYN | ACK, 77, TcpState::SynSent),
        ] {
            let mut track = TcpTrack::new(&segment(Flags::SYN, 100, 0, 0));
            track.handle(Direction::Reply, &segment(flags, 0, ack, 0));
            assert_eq!(track.state(), state, "{flags:?} {ack}");
        }
    }

    /// RFC 7413: a server may leave the payload of a SYN, and a client may send the SYN again
    /// without it.
    #[test]
    fn a_syn_with_payload() {
        for (ack, is_inside) in [(100, false), (101, true), (151, true), (201, true), (202, false)]
        {
            for is_again in [false, true] {
                let mut track = TcpTrack::new(&segment(Flags::SYN, 100, 0, 100));
                if is_again {
                    let again = segment(Flags::SYN, 100, 0, 0);
                    assert_eq!(track.handle(Direction::Original, &again), Judged::Inside);
                }
                let answer = segment(Flags::SYN | ACK, 500, ack, 0);
                let judged = track.handle(Direction::Reply, &answer);
                assert_eq!(judged == Judged::Inside, is_inside, "{ack}");
                if !is_inside {
                    continue;
                }
                let rest = segment(ACK, ack, 501, 201 - ack);
                assert_eq!(track.handle(Direction::Original, &rest), Judged::Inside, "{ack}");
                assert_eq!(track.state(), TcpState::Established);
                let acked = segment(ACK, 501, 201, 0);
                assert_eq!(track.handle(Direction::Reply, &acked), Judged::Inside);
            }
        }
        let mut track = TcpTrack::new(&segment(Flags::SYN, 100, 0, 100));
        track.handle(Direction::Reply, &segment(Flags::RST | ACK, 0, 101, 0));
        assert_eq!(track.state(), TcpState::Reset);
    }

    #[test]
    fn both_begin_at_once() {
        let mut track = TcpTrack::new(&segment(Flags::SYN, 100, 0, 0));
        track.handle(Direction::Reply, &segment(Flags::SYN, 500, 0, 0));
        track.handle(Direction::Original, &segment(Flags::SYN | ACK, 100, 501, 0));
        track.handle(Direction::Reply, &segment(Flags::SYN | ACK, 500, 101, 0));
        assert_eq!(track.handle(Direction::Original, &segment(ACK, 101, 501, 0)), Judged::Inside);
        assert_eq!(track.state(), TcpState::Established);
    }

    #[test]
    fn a_connection_that_is_older_than_what_is_known() {
        let mut track = TcpTrack::new(&segment(ACK, 5000, 9000, 100));
        assert_eq!(track.state(), TcpState::PickedUp);
        assert_eq!(
            track.handle(Direction::Original, &segment(ACK | Flags::FIN, 5100, 9000, 0)),
            Judged::Inside
        );
        assert_eq!(track.state(), TcpState::PickedUp, "one end alone");
        assert_eq!(track.handle(Direction::Reply, &segment(ACK, 9000, 5101, 0)), Judged::Inside);
        assert_eq!(track.state(), TcpState::Closing);
        let mut track = TcpTrack::new(&segment(ACK, 5000, 9000, 100));
        assert_eq!(track.handle(Direction::Reply, &segment(ACK, 9000, 5100, 4000)), Judged::Inside);
        assert_eq!(track.state(), TcpState::Established);
        assert_eq!(
            track.handle(Direction::Original, &segment(ACK, 5100, 13_000, 100)),
            Judged::Inside
        );
        assert_eq!(
            track.handle(Direction::Reply, &segment(ACK, 13_000, 5300, 1)),
            Judged::Outside,
            "of the future"
        );
    }

    #[test]
    fn windows_are_scaled_if_both_ends_say_so() {
        let syn = |flags, seq, ack, scale| TcpView { scale, ..segment(flags, seq, ack, 0) };
        for (theirs, allowed) in [(Some(7), 1000 << 7), (None, 1000)] {
            let mut track = TcpTrack::new(&syn(Flags::SYN, 100, 0, Some(7)));
            track.handle(Direction::Reply, &syn(Flags::SYN | ACK, 500, 101, theirs));
            track.handle(Direction::Original, &segment(ACK, 101, 501, 0));
            let beyond = |by: u32| segment(ACK, 501 + allowed + by, 101, 10);
            assert_eq!(track.clone().handle(Direction::Reply, &beyond(0)), Judged::Inside);
            assert_eq!(track.handle(Direction::Reply, &beyond(1)), Judged::Outside);
        }
    }

    proptest! {
        /// F7: whatever is outside changes nothing.
        #[test]
        fn outside_changes_nothing(
            segments in proptest::collection::vec(
                (any::<bool>(), 0u8..64, any::<u32>(), any::<u32>(), 0u32..70_000, any::<bool>()),
                1..60,
            ),
        ) {
            let mut track = established();
            let (mut next, mut other) = (101u32, 501u32);
            for (is_reply, flags, seq, ack, payload_len, is_near) in segments {
                let direction = if is_reply { Direction::Reply } else { Direction::Original };
                let (mine, theirs) =
                    if is_reply { (&mut other, &mut next) } else { (&mut next, &mut other) };
                let (seq, ack, payload_len) = if is_near {
                    (mine.wrapping_add(seq % 3), *theirs, payload_len % 900)
                } else {
                    (seq, ack, payload_len)
                };
                (track.again, track.astray) = (None, Astray::default());
                let before = format!("{track:?}");
                let segment = segment(Flags(flags), seq, ack, payload_len);
                match track.handle(direction, &segment) {
                    Judged::Inside if is_near && segment.flags.ack() && !segment.flags.syn() => {
                        *mine = mine.wrapping_add(segment.numbers());
                    }
                    Judged::Inside => {}
                    Judged::Outside => {
                        // But for what may be judged better by the other end, or by others.
                        (track.again, track.astray) = (None, Astray::default());
                        prop_assert_eq!(before, format!("{track:?}"));
                    }
                    Judged::Begins => prop_assert!(matches!(
                        track.state(),
                        TcpState::TimeWait | TcpState::Reset | TcpState::SynSent
                    )),
                }
            }
        }

        /// An attacker who does not know the numbers hits a window of 1000 rarely; whatever he
        /// sends, the connection goes on.
        #[test]
        fn a_blind_attacker(
            segments in proptest::collection::vec((0u8..64, any::<u32>(), any::<u32>()), 1..60),
        ) {
            let mut track = established();
            for (flags, seq, ack) in segments {
                // In the other half of the numbers.
                let segment = segment(Flags(flags), seq % (1 << 30) + (1 << 30), ack, 0);
                prop_assert_eq!(track.handle(Direction::Reply, &segment), Judged::Outside);
            }
            prop_assert_eq!(
                track.handle(Direction::Original, &segment(ACK, 101, 501, 100)),
                Judged::Inside
            );
            prop_assert_eq!(track.state(), TcpState::Established);
        }
    }
}
