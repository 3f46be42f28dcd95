//! What is known of every byte that was sent and is not acknowledged: when it was sent last,
//! whether it has arrived out of order (RFC 2018), whether it is deemed lost (RFC 8985).
//!
//! The space from SND.UNA to SND.NXT is tiled by ranges, each of one history, in an array of fixed
//! size:
//!
//! ```text
//! una                                                          nxt
//!  | in flight, 10:02 | sacked | lost | sacked | in flight, 10:03 |
//! ```
//!
//! A record per segment would cost 80 KB for a window of 10 MB. Here, bytes sent within a small
//! part of a round trip share one range, and so do neighbours with the same fate. When more ranges
//! would be needed than there are ([`RANGES_MAX`]), those that lie closest in time are merged under
//! the later time, which makes a loss be seen later and never too early; if nothing is left to
//! merge, the highest range that has arrived counts as missing (SACK is advisory, RFC 2018 section
//! 8) and is at worst sent again.

use crate::seq::Seq;
use crate::time::Stamp;

/// Ranges of one sender: about half as many holes can be told apart. Each costs 12 bytes.
pub const RANGES_MAX: usize = 96;

/// Where the bytes of a range are thought to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// On the path.
    InFlight,
    /// Gone; to be sent again.
    Lost,
    /// At the receiver, above a hole.
    Sacked,
}

/// A run of bytes with one history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub start: Seq,
    /// Behind the last byte.
    pub end: Seq,
    /// When it was sent last; the latest such time of its bytes.
    pub sent: Stamp,
    /// Where it is thought to be.
    pub state: State,
    /// The run was sent more than once, or its history was forgotten: its round trip says nothing
    /// (RFC 6298 section 3).
    pub again: bool,
}

impl Range {
    /// Bytes in it.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.end.since(self.start)
    }

    /// A range without bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

/// A range without its end, which is where the next one starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    start: Seq,
    sent: Stamp,
    state: State,
    again: bool,
}

impl Tile {
    /// Two neighbours can no longer be told apart, or need not.
    fn joins(&self, next: &Self) -> bool {
        self.state == next.state
            && match self.state {
                State::Sacked => true,
                State::Lost => self.again == next.again,
                State::InFlight => self.again == next.again && self.sent == next.sent,
            }
    }
}

/// The scoreboard of a sender; see the module head.
#[derive(Clone, Copy)]
pub struct Scoreboard {
    tiles: [Tile; RANGES_MAX],
    len: u8,
    una: Seq,
    nxt: Seq,
    sacked: u32,
    lost: u32,
}

impl core::fmt::Debug for Scoreboard {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}..{} ", self.una, self.nxt)?;
        f.debug_list().entries(self.ranges()).finish()
    }
}

impl Scoreboard {
    /// Nothing is outstanding, the next byte is `at`.
    #[must_use]
    pub fn new(at: Seq) -> Self {
        let tile = Tile { start: at, sent: Stamp(0), state: State::InFlight, again: false };
        Self { tiles: [tile; RANGES_MAX], len: 0, una: at, nxt: at, sacked: 0, lost: 0 }
    }

    /// Forgets everything: nothing is outstanding, the next byte is `at`. Costs little, because
    /// what tiles say that are not in use is left as it is.
    pub fn move_to(&mut self, at: Seq) {
        (self.len, self.una, self.nxt, self.sacked, self.lost) = (0, at, at, 0, 0);
    }

    /// Oldest byte that is not acknowledged (SND.UNA).
    #[must_use]
    pub fn una(&self) -> Seq {
        self.una
    }

    /// Behind the highest byte sent (SND.NXT).
    #[must_use]
    pub fn nxt(&self) -> Seq {
        self.nxt
    }

    /// Bytes that are not acknowledged.
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        self.nxt.since(self.una)
    }

    /// Bytes that have arrived out of order.
    #[must_use]
    pub fn sacked(&self) -> u32 {
        self.sacked
    }

    /// Bytes deemed lost and not sent again.
    #[must_use]
    pub fn lost(&self) -> u32 {
        self.lost
    }

    /// Bytes thought to be on the path (RFC 6675 section 4, pipe).
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.outstanding() - self.sacked - self.lost
    }

    /// The ranges, lowest first.
    pub fn ranges(&self) -> impl DoubleEndedIterator<Item = Range> + '_ {
        (0..usize::from(self.len)).map(|index| self.range(index))
    }

    /// What is outstanding, if it is one range on its way.
    #[inline]
    #[must_use]
    pub fn lone(&self) -> Option<Range> {
        (self.len == 1 && self.tiles[0].state == State::InFlight).then(|| self.range(0))
    }

    /// The first range that is deemed lost.
    #[must_use]
    pub fn first_lost(&self) -> Option<Range> {
        if self.lost == 0 {
            return None;
        }
        self.ranges().find(|range| range.state == State::Lost)
    }

    /// Behind the highest byte that has arrived out of order.
    #[must_use]
    pub fn highest_sacked(&self) -> Option<Seq> {
        if self.sacked == 0 {
            return None;
        }
        self.ranges().rev().find(|range| range.state == State::Sacked).map(|range| range.end)
    }

    /// `bytes` more were sent for the first time. They share the last range if that was sent less
    /// than `grain` microseconds ago.
    pub fn push(&mut self, bytes: u32, sent: Stamp, grain: u32) {
        let start = self.nxt;
        let len = usize::from(self.len);
        if let Some(last) = self.tiles[..len].last_mut()
            && last.state == State::InFlight
            && !last.again
            && (last.sent == sent || last.sent.0 / grain.max(1) == sent.0 / grain.max(1))
        {
            last.sent = last.sent.max(sent);
            self.nxt += bytes;
            return;
        }
        self.make_room(1);
        self.nxt += bytes;
        let len = usize::from(self.len);
        self.tiles[len] = Tile { start, sent, state: State::InFlight, again: false };
        self.len += 1;
    }

    /// Everything below `una` is acknowledged; `visit` sees what was not known to have arrived.
    /// Returns true if the receiver has dropped what it had reported (RFC 2018 section 8): a true
    /// acknowledgment would have covered it. All such reports are then forgotten.
    pub fn acknowledge(&mut self, una: Seq, mut visit: impl FnMut(&Range)) -> bool {
        let mut gone = 0;
        for index in 0..usize::from(self.len) {
            let range = self.range(index);
            if range.start.ge(una) {
                break;
            }
            let part = Range { end: range.end.min(una), ..range };
            self.count_out(&part);
            if part.state != State::Sacked {
                visit(&part);
            }
            if range.end.le(una) {
                gone = index + 1;
            } else {
                self.tiles[index].start = una;
            }
        }
        let len = usize::from(self.len);
        self.tiles.copy_within(gone..len, 0);
        self.len = (len - gone) as u8;
        self.una = una;
        self.nxt = self.nxt.max(una);
        let reneged = self.len > 0 && self.tiles[0].state == State::Sacked;
        if reneged {
            self.forget_sacked();
        }
        reneged
    }

    /// `[left, right)`, which lies between una and nxt, has arrived; `visit` sees what was not
    /// known of it. Returns the bytes of that.
    pub fn sack(&mut self, left: Seq, right: Seq, mut visit: impl FnMut(&Range)) -> u32 {
        let mut fresh = 0;
        self.change(left, right, |range| {
            if range.state != State::Sacked {
                fresh += range.len();
                visit(range);
            }
            Range { state: State::Sacked, again: false, ..*range }
        });
        fresh
    }

    /// `[left, right)` was sent again.
    pub fn resend(&mut self, left: Seq, right: Seq, sent: Stamp) {
        self.change(left, right, |range| match range.state {
            State::Sacked => *range,
            State::InFlight | State::Lost => {
                Range { state: State::InFlight, sent, again: true, ..*range }
            }
        });
    }

    /// Deems `[left, right)` lost but for what has arrived.
    pub fn lose(&mut self, left: Seq, right: Seq) {
        self.change(left, right, |range| match range.state {
            State::Sacked => *range,
            State::InFlight | State::Lost => Range { state: State::Lost, ..*range },
        });
    }

    /// Deems what is in flight lost where `is_lost` says so. Returns the bytes of it.
    pub fn lose_where(&mut self, mut is_lost: impl FnMut(&Range) -> bool) -> u32 {
        let before = self.lost;
        for index in 0..usize::from(self.len) {
            let range = self.range(index);
            if range.state == State::InFlight && is_lost(&range) {
                self.tiles[index].state = State::Lost;
                self.lost += range.len();
            }
        }
        if self.lost != before {
            self.coalesce();
        }
        self.lost - before
    }

    /// What was deemed lost is on its way after all.
    pub fn find_lost(&mut self) {
        for tile in &mut self.tiles[..usize::from(self.len)] {
            if tile.state == State::Lost {
                tile.state = State::InFlight;
            }
        }
        self.lost = 0;
        self.coalesce();
    }

    /// What was reported to have arrived may be dropped by the receiver (RFC 2018 section 8): it
    /// counts as in flight.
    pub fn forget_sacked(&mut self) {
        for tile in &mut self.tiles[..usize::from(self.len)] {
            if tile.state == State::Sacked {
                (tile.state, tile.again) = (State::InFlight, true);
            }
        }
        self.sacked = 0;
        self.coalesce();
    }

    fn range(&self, index: usize) -> Range {
        let tile = &self.tiles[index];
        let end =
            if index + 1 < usize::from(self.len) { self.tiles[index + 1].start } else { self.nxt };
        Range { start: tile.start, end, sent: tile.sent, state: tile.state, again: tile.again }
    }

    fn count_out(&mut self, range: &Range) {
        match range.state {
            State::InFlight => {}
            State::Lost => self.lost -= range.len(),
            State::Sacked => self.sacked -= range.len(),
        }
    }

    fn count_in(&mut self, range: &Range) {
        match range.state {
            State::InFlight => {}
            State::Lost => self.lost += range.len(),
            State::Sacked => self.sacked += range.len(),
        }
    }

    /// Replaces the history of `[left, right)`.
    fn change(&mut self, left: Seq, right: Seq, mut to: impl FnMut(&Range) -> Range) {
        let (left, right) = (left.max(self.una), right.min(self.nxt));
        if left.ge(right) {
            return;
        }
        self.make_room(2);
        self.split(left);
        self.split(right);
        for index in 0..usize::from(self.len) {
            let range = self.range(index);
            if range.start.ge(right) {
                break;
            }
            if range.start.ge(left) {
                let new = to(&range);
                self.count_out(&range);
                self.count_in(&new);
                let tile = &mut self.tiles[index];
                (tile.sent, tile.state, tile.again) = (new.sent, new.state, new.again);
            }
        }
        self.coalesce();
    }

    /// Makes a range start at `at`. There is room.
    fn split(&mut self, at: Seq) {
        let len = usize::from(self.len);
        let index = self.tiles[..len].partition_point(|tile| tile.start.lt(at));
        let is_start = at == self.nxt || (index < len && self.tiles[index].start == at);
        if is_start || index == 0 || len == RANGES_MAX {
            return;
        }
        self.tiles.copy_within(index..len, index + 1);
        self.tiles[index] = Tile { start: at, ..self.tiles[index - 1] };
        self.len += 1;
    }

    /// Joins neighbours of one history.
    fn coalesce(&mut self) {
        let mut kept = 0;
        for index in 1..usize::from(self.len) {
            let tile = self.tiles[index];
            if self.tiles[kept].joins(&tile) {
                self.tiles[kept].sent = self.tiles[kept].sent.max(tile.sent);
            } else {
                kept += 1;
                self.tiles[kept] = tile;
            }
        }
        self.len = self.len.min(kept as u8 + 1);
    }

    /// Gives up detail until `places` ranges can be added.
    fn make_room(&mut self, places: usize) {
        while usize::from(self.len) + places > RANGES_MAX {
            self.merge_closest();
        }
    }

    fn merge_closest(&mut self) {
        let len = usize::from(self.len);
        let tiles = &self.tiles[..len];
        let closest = tiles
            .windows(2)
            .enumerate()
            .filter(|(_, pair)| pair[0].state == pair[1].state)
            .min_by_key(|(_, pair)| {
                pair[0].sent.since(pair[1].sent).max(pair[1].sent.since(pair[0].sent))
            })
            .map(|(index, _)| index);
        if let Some(index) = closest {
            let next = self.tiles[index + 1];
            let tile = &mut self.tiles[index];
            tile.sent = tile.sent.max(next.sent);
            tile.again |= next.again;
            self.tiles.copy_within(index + 2..len, index + 1);
            self.len -= 1;
            return;
        }
        // States alternate. The highest arrival joins the range below it (una is never sacked), and
        // that the one above.
        if let Some(index) = (1..len).rev().find(|&index| self.tiles[index].state == State::Sacked)
        {
            let range = self.range(index);
            let below = self.tiles[index - 1];
            let new = Range { state: below.state, again: true, ..range };
            self.count_out(&range);
            self.count_in(&new);
            let tile = &mut self.tiles[index];
            (tile.state, tile.again) = (new.state, true);
            self.merge_closest();
            return;
        }
        // In flight and lost alternate: all of it is deemed lost.
        for index in 0..len {
            let range = self.range(index);
            if range.state == State::InFlight {
                self.tiles[index].state = State::Lost;
                self.lost += range.len();
            }
            self.tiles[index].again = true;
        }
        self.coalesce();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn board(bytes: u32) -> Scoreboard {
        let mut board = Scoreboard::new(Seq(0));
        board.push(bytes, Stamp(5), 1);
        board
    }

    fn states(board: &Scoreboard) -> Vec<(u32, u32, State)> {
        board.ranges().map(|range| (range.start.0, range.end.0, range.state)).collect()
    }

    use State::*;

    #[test]
    fn holes_between_arrivals() {
        let mut board = board(100);
        assert_eq!(board.sack(Seq(20), Seq(30), |_| {}), 10);
        assert_eq!(
            board.sack(Seq(25), Seq(40), |range| assert_eq!(
                (range.start, range.end),
                (Seq(30), Seq(40))
            )),
            10
        );
        assert_eq!(states(&board), [(0, 20, InFlight), (20, 40, Sacked), (40, 100, InFlight)]);
        assert_eq!(board.lose_where(|range| range.end.le(Seq(20))), 20);
        assert_eq!((board.in_flight(), board.sacked(), board.lost()), (60, 20, 20));
        board.resend(Seq(0), Seq(10), Stamp(9));
        assert_eq!(
            board.first_lost().map(|range| (range.start, range.end)),
            Some((Seq(10), Seq(20)))
        );
        assert!(board.ranges().next().unwrap().again);
        let mut seen = Vec::new();
        assert!(!board.acknowledge(Seq(50), |range| seen.push((
            range.start.0,
            range.end.0,
            range.state
        ))));
        assert_eq!(seen, [(0, 10, InFlight), (10, 20, Lost), (40, 50, InFlight)]);
        assert_eq!((board.outstanding(), board.in_flight()), (50, 50));
    }

    #[test]
    fn reneging_is_seen() {
        // RFC 2018 section 8.
        let mut board = board(100);
        board.sack(Seq(20), Seq(30), |_| {});
        assert!(!board.acknowledge(Seq(15), |_| {}));
        assert!(board.acknowledge(Seq(20), |_| {}));
        assert_eq!((board.sacked(), board.in_flight()), (0, 80));
    }

    #[test]
    fn what_is_sent_close_together_shares_a_range() {
        let mut board = Scoreboard::new(Seq(0));
        for i in 0..40 {
            board.push(10, Stamp(100 + i), 10);
        }
        assert_eq!(board.ranges().count(), 4);
        assert_eq!(board.ranges().next().unwrap().sent, Stamp(109));
    }

    #[test]
    fn a_full_board_merges_times_before_it_forgets_arrivals() {
        let mut board = Scoreboard::new(Seq(0));
        for i in 0..1_000 {
            board.push(10, Stamp(i * 100), 1);
        }
        assert!(board.ranges().count() <= RANGES_MAX);
        assert_eq!(board.ranges().map(|range| range.len()).sum::<u32>(), 10_000);
        for i in (1..1_000).step_by(2) {
            board.sack(Seq(i * 10), Seq(i * 10 + 10), |_| {});
        }
        let sacked: Vec<_> = board.ranges().filter(|range| range.state == Sacked).collect();
        assert!(sacked.len() >= RANGES_MAX / 2 - 2, "{}", sacked.len());
        assert!(
            sacked.iter().rev().skip(1).all(|range| range.len() == 10 && range.start.0 % 20 == 10)
        );
        assert_eq!(board.outstanding(), board.in_flight() + board.sacked() + board.lost());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(u32, u32),
        Ack(u32),
        Sack(u32, u32),
        Resend(u32, u32),
        Lose(u32, u32),
        LoseOlder(u32),
        FindLost,
        Forget,
        MoveTo(u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (1u32..60, 0u32..50).prop_map(|(n, t)| Step::Push(n, t)),
            2 => (0u32..40).prop_map(Step::Ack),
            6 => (1u32..400, 1u32..30).prop_map(|(at, n)| Step::Sack(at, n)),
            2 => (0u32..400, 1u32..30).prop_map(|(at, n)| Step::Resend(at, n)),
            1 => (0u32..400, 1u32..30).prop_map(|(at, n)| Step::Lose(at, n)),
            1 => (0u32..60).prop_map(Step::LoseOlder),
            1 => Just(Step::FindLost),
            1 => Just(Step::Forget),
            1 => (0u32..60).prop_map(Step::MoveTo),
        ]
    }

    proptest! {
        /// Against a history of every byte, round the wrap of the sequence space, while the board
        /// is not full.
        #[test]
        fn equals_a_history_of_every_byte(
            base: u32,
            steps in proptest::collection::vec(step(), 0..60),
        ) {
            let base = Seq(base);
            let mut board = Scoreboard::new(base);
            // (sent, state, again) of the bytes from una.
            let mut bytes: Vec<(u32, State, bool)> = Vec::new();
            let (mut una, mut clock) = (0u32, 1_000u32);
            for step in steps {
                let len = bytes.len() as u32;
                let clip = |at: u32, n: u32| (at.min(len), (at + n).min(len));
                clock += 1;
                match step {
                    Step::Push(n, later) => {
                        clock += later;
                        board.push(n, Stamp(clock), 1);
                        bytes.extend((0..n).map(|_| (clock, InFlight, false)));
                    }
                    Step::Ack(n) => {
                        let n = n.min(len);
                        let mut seen = Vec::new();
                        let reneged = board.acknowledge(base + (una + n), |range| {
                            seen.extend(
                                (range.start.since(base)..range.end.since(base))
                                    .map(|at| (at - una, range.state)),
                            );
                        });
                        let expected: Vec<_> = (0..n)
                            .map(|at| (at, bytes[at as usize].1))
                            .filter(|b| b.1 != Sacked)
                            .collect();
                        prop_assert_eq!(seen, expected);
                        bytes.drain(..n as usize);
                        una += n;
                        prop_assert_eq!(reneged, bytes.first().is_some_and(|b| b.1 == Sacked));
                        if reneged {
                            bytes
                                .iter_mut()
                                .filter(|b| b.1 == Sacked)
                                .for_each(|b| (b.1, b.2) = (InFlight, true));
                        }
                    }
                    Step::Sack(at, n) => {
                        let (l, r) = clip(at, n);
                        let fresh =
                            bytes[l as usize..r as usize].iter().filter(|b| b.1 != Sacked).count();
                        if l < r {
                            prop_assert_eq!(
                                board.sack(base + (una + l), base + (una + r), |_| {}) as usize,
                                fresh
                            );
                        }
                        bytes[l as usize..r as usize]
                            .iter_mut()
                            .for_each(|b| (b.1, b.2) = (Sacked, false));
                    }
                    Step::Resend(at, n) => {
                        let (l, r) = clip(at, n);
                        board.resend(base + (una + l), base + (una + r), Stamp(clock));
                        let part = bytes[l as usize..r as usize].iter_mut();
                        part.filter(|b| b.1 != Sacked).for_each(|b| *b = (clock, InFlight, true));
                    }
                    Step::Lose(at, n) => {
                        let (l, r) = clip(at, n);
                        board.lose(base + (una + l), base + (una + r));
                        bytes[l as usize..r as usize]
                            .iter_mut()
                            .filter(|b| b.1 != Sacked)
                            .for_each(|b| b.1 = Lost);
                    }
                    Step::LoseOlder(age) => {
                        board.lose_where(|range| range.sent.0 + age < clock);
                        let old = bytes.iter_mut().filter(|b| b.1 == InFlight && b.0 + age < clock);
                        old.for_each(|b| b.1 = Lost);
                    }
                    Step::FindLost => {
                        board.find_lost();
                        bytes.iter_mut().filter(|b| b.1 == Lost).for_each(|b| b.1 = InFlight);
                    }
                    Step::Forget => {
                        board.forget_sacked();
                        bytes
                            .iter_mut()
                            .filter(|b| b.1 == Sacked)
                            .for_each(|b| (b.1, b.2) = (InFlight, true));
                    }
                    Step::MoveTo(n) => {
                        una += n;
                        board.move_to(base + una);
                        bytes.clear();
                    }
                }
                let count = |state| bytes.iter().filter(|b| b.1 == state).count() as u32;
                prop_assert_eq!(
                    (board.sacked(), board.lost(), board.in_flight()),
                    (count(Sacked), count(Lost), count(InFlight))
                );
                let mut at = 0;
                for range in board.ranges() {
                    prop_assert_eq!(range.start, base + (una + at));
                    for byte in &mut bytes[at as usize..(at + range.len()) as usize] {
                        prop_assert_eq!(byte.1, range.state);
                        if range.state == InFlight {
                            prop_assert_eq!(byte.2, range.again);
                        }
                        // What was joined has the later time.
                        prop_assert!(byte.1 == Sacked || byte.0 <= range.sent.0);
                        byte.0 = range.sent.0;
                    }
                    at += range.len();
                }
                prop_assert_eq!(at as usize, bytes.len());
            }
        }

        /// A board that is full stays consistent, and never takes for arrived what has not.
        #[test]
        fn a_full_board_never_invents_arrivals(
            seeds in proptest::collection::vec((0u32..3_090, 1u32..4, 0u8..8), 200..600),
        ) {
            let mut board = Scoreboard::new(Seq(0));
            let mut arrived = vec![false; 3_100];
            for i in 0..310 {
                board.push(10, Stamp(i * 50), 1);
            }
            for (at, n, what) in seeds {
                match what {
                    0 => board.resend(Seq(at), Seq(at + n), Stamp(100_000 + at)),
                    2 => {
                        board.push(n, Stamp(200_000 + at), 1);
                        arrived.resize(arrived.len() + n as usize, false);
                    }
                    1 => {
                        board.lose_where(|range| range.start.0 % 7 == at % 7);
                    }
                    _ => {
                        board.sack(Seq(at.max(1)), Seq(at.max(1) + n), |_| {});
                        arrived[at.max(1) as usize..(at.max(1) + n) as usize].fill(true);
                    }
                }
                prop_assert!(board.ranges().count() <= RANGES_MAX);
                let sum = |state| {
                    board
                        .ranges()
                        .filter(|range| range.state == state)
                        .map(|range| range.len())
                        .sum::<u32>()
                };
                prop_assert_eq!(
                    (sum(Sacked), sum(Lost), sum(InFlight)),
                    (board.sacked(), board.lost(), board.in_flight())
                );
                for range in board.ranges().filter(|range| range.state == Sacked) {
                    prop_assert!(
                        arrived[range.start.0 as usize..range.end.0 as usize].iter().all(|a| *a)
                    );
                }
            }
        }
    }
}
