//! L0: replies of one segment, or of a few to a client on this machine, that are given before the card hears of the request, by a program where frames
//! enter or leave the machine's stack.
//!
//! The card publishes replies that were hits, with the epoch at which it compared their sources; the program gives one only while that is the epoch,
//! the watcher's lease holds, and nothing was [revoked](L0::revoke). Connections are lent ([`loan`](crate::loan)). What is published keeps its entry's bytes in
//! card memory, and for some time afterwards, since the reply may have to be sent again.

use std::collections::VecDeque;
use std::time::Duration;

use arrayvec::ArrayVec;
use nicache_coherence::Epoch;
use nicache_http::ByteRange;
use nicache_port::Port;
use nicache_tcp::{Time, checksum};

use crate::card::Card;
use crate::counters::Counters;
use crate::flow::Flow;
use crate::flow::reply::ReplyKind;
use crate::loan::{Loan, burst_bytes};
use crate::payload;
use crate::store::EntryId;

/// Longest request whose reply is published, in bytes.
pub const L0_HEAD_BYTES: usize = 384;
/// Longest reply that is published, in bytes.
pub const L0_REPLY_BYTES: usize = 12_288;

/// A reply is published for so long. Then the card answers a request itself: its date is new then, and the policy hears of the hits.
const FRESH: Duration = Duration::from_millis(250);
/// How long an entry's bytes are kept after its reply was published last: a client that has lost the reply asks again within this time.
const KEPT: Duration = Duration::from_secs(10);
/// L0's replies that must be repeated, of so many at least, before it pauses; of that one in [`REPEATED_SHARE`] is too much.
const REPEATED_MIN: u64 = 32;
const REPEATED_SHARE: u64 = 4;
/// How long it pauses.
const PAUSE: Duration = Duration::from_secs(60);
/// Entries that are kept for that reason alone.
const LEAVING_MAX: usize = 1024;

/// The program, as the card sees it.
pub trait L0: Send {
    /// Lends a connection; its place, or `None` if there is no room for it.
    fn lend(&mut self, loan: &Loan) -> Option<u32>;
    /// Takes it back as it stands; `None` if the program does not let go of it.
    fn take_back(&mut self, place: u32) -> Option<Loan>;
    /// When the program last did something for it.
    fn used(&self, place: u32) -> Time;
    /// Number of the slot of a request's reply, below [`slots`](L0::slots); `None` if it can have none.
    fn slot_of(&self, head: &[u8]) -> Option<usize>;
    /// How many slots there are.
    fn slots(&self) -> usize;
    /// Longest reply that it can give, in bytes, at most [`L0_REPLY_BYTES`].
    fn reply_bytes_max(&self) -> usize;
    /// Publishes a reply in place of whatever is in its slot.
    fn publish(&mut self, reply: &Published<'_>) -> bool;
    /// Withdraws all replies: requests that come from now on get none of them.
    fn revoke(&mut self);
    /// Requests that replies in a slot have answered since the start.
    fn served(&self, slot: usize) -> u64;
}

/// A reply that is published.
#[derive(Clone, Copy, Debug)]
pub struct Published<'a> {
    /// Its request, byte for byte.
    pub head: &'a [u8],
    /// Head and body.
    pub bytes: &'a [u8],
    /// Ones'-complement sum of `bytes`.
    pub sum: u16,
    /// The epoch at which its sources were compared.
    pub epoch: Epoch,
    /// Until when it may be given.
    pub until: Time,
    /// The entry's name, for the card.
    pub tag: u64,
    /// `Date` of the head, in seconds since 1970.
    pub date: u64,
}

/// What the card knows of L0.
pub(crate) struct FirstLevel {
    pub(crate) l0: Box<dyn L0>,
    slots: Box<[Slot]>,
    /// [`Store::revocations`](crate::store::Store::revocations) that L0 knows of.
    revocations: u64,
    /// Entries that are published no more, with the time until which they are kept.
    leaving: VecDeque<(Time, EntryId)>,
    bytes: Box<[u8]>,
    look: Time,
    /// Replies given and repeated when that was last judged, and until when nothing is lent since too many were.
    judged: (u64, u64),
    paused_until: Time,
}

/// What is published in one slot.
#[derive(Clone, Default)]
struct Slot {
    entry: Option<EntryId>,
    head: ArrayVec<u8, L0_HEAD_BYTES>,
    reply_len: u32,
    epoch: Epoch,
    revocations: u64,
    until: Time,
    /// [`L0::served`] when it was last looked at, and when the reply was published.
    counted: u64,
    served_before: u64,
    /// Requests with other heads since.
    challenges: u64,
}

impl Slot {
    /// Is the reply to `head` from that entry there, as it is now?
    fn is_current(&self, id: EntryId, head: &[u8], epoch: Epoch, revocations: u64, now: Time) -> bool {
        self.entry == Some(id)
            && self.epoch == epoch
            && self.revocations == revocations
            && now < self.until
            && *self.head == *head
    }
}

/// A hit that may be given by L0 from now on.
pub(crate) struct Offer<'a> {
    pub(crate) head: &'a [u8],
    pub(crate) entry: EntryId,
}

impl<W: Port, H: Port> Card<W, H> {
    /// Has small hits answered by `l0` from now on.
    pub fn set_l0(&mut self, l0: Box<dyn L0>) {
        let slots = vec![Slot::default(); l0.slots()].into_boxed_slice();
        self.first_level = Some(FirstLevel {
            l0,
            slots,
            revocations: self.store.revocations(),
            leaving: VecDeque::with_capacity(LEAVING_MAX),
            bytes: vec![0; L0_REPLY_BYTES].into_boxed_slice(),
            look: Time::ZERO,
            judged: (0, 0),
            paused_until: Time::ZERO,
        });
    }

    /// The connection's last reply answers `offer.head`, which was all that its segment held. True: L0 can give it, too.
    pub(crate) fn offer(&mut self, flow: &Flow, offer: &Offer<'_>, now: Time) -> bool {
        let Some(mut first) = self.first_level.take() else { return false };
        let is_published = !self.bypass && now >= first.paused_until && self.publish(&mut first, flow, offer, now);
        self.first_level = Some(first);
        is_published
    }

    fn publish(&mut self, first: &mut FirstLevel, flow: &Flow, offer: &Offer<'_>, now: Time) -> bool {
        let Some(reply) = flow.replies.iter().last().copied() else { return false };
        let Some(entry) = self.store.get(offer.entry) else { return false };
        let is_plain = reply.kind == ReplyKind::Full && reply.entry == offer.entry && !entry.closes;
        let len = reply.len() as usize;
        let most = first.l0.reply_bytes_max().min(first.bytes.len());
        let fits = len <= usize::from(flow.mss).max(burst_bytes(flow).into()).min(most);
        if !is_plain || !fits || offer.head.len() > L0_HEAD_BYTES {
            return false;
        }
        let until = self.store.fresh_until(offer.entry).map_or(now + FRESH, |until| until.min(now + FRESH));
        if until <= now {
            return false;
        }
        let Some(number) = first.l0.slot_of(offer.head) else { return false };
        let epoch = entry.checked();
        let revocations = self.store.revocations();
        let slot = &mut first.slots[number];
        if slot.is_current(offer.entry, offer.head, epoch, revocations, now) {
            return true;
        }
        // Whoever has the slot and is asked for more often keeps it.
        if slot.entry.is_some() && *slot.head != *offer.head && now < slot.until + FRESH {
            slot.challenges += 1;
            if slot.challenges <= first.l0.served(number) - slot.served_before {
                return false;
            }
        }
        first.revoke_if_due(revocations);
        let bytes = &mut first.bytes[..len];
        if !payload::copy(&reply, &self.store, &self.date, bytes) {
            return false;
        }
        first.credit(number, self);
        let published = Published {
            head: offer.head,
            bytes: &first.bytes[..len],
            sum: checksum::sum(&first.bytes[..len]),
            epoch,
            until,
            tag: offer.entry.to_wire(),
            date: reply.date,
        };
        if !first.l0.publish(&published) {
            return false;
        }
        self.counters.l0_published += 1;
        let slot = &mut first.slots[number];
        if slot.entry != Some(offer.entry) {
            let left = slot.entry.replace(offer.entry);
            self.store.pin_published(offer.entry);
            left.into_iter().for_each(|left| first.leave(left, self, now));
        }
        let slot = &mut first.slots[number];
        slot.head.clear();
        // Fits: checked above.
        let _ = slot.head.try_extend_from_slice(offer.head);
        (slot.reply_len, slot.epoch, slot.revocations, slot.until) = (reply.len(), epoch, revocations, until);
        (slot.served_before, slot.challenges) = (first.l0.served(number), 0);
        first.look = first.look.min(now + FRESH);
        true
    }

    /// Tells L0 if anything that is published must not be given any more.
    #[inline]
    pub(crate) fn sync_l0(&mut self) {
        if let Some(first) = &mut self.first_level {
            first.revoke_if_due(self.store.revocations());
        }
    }

    /// Withdraws everything.
    pub(crate) fn revoke_l0(&mut self) {
        self.store.revoke_published();
        self.sync_l0();
    }

    /// Counts what L0 has answered, and lets entries go that it needs no more.
    pub fn settle_l0(&mut self, now: Time) {
        let Some(mut first) = self.first_level.take() else { return };
        for number in 0..first.slots.len() {
            first.credit(number, self);
            let slot = &mut first.slots[number];
            if now > slot.until + FRESH
                && let Some(left) = slot.entry.take()
            {
                slot.head.clear();
                first.leave(left, self, now);
            }
        }
        while first.leaving.front().is_some_and(|&(until, _)| now >= until) {
            first.let_go(self);
        }
        first.judge(&mut self.counters, now);
        first.look = now + FRESH;
        self.first_level = Some(first);
    }

    /// Does so from time to time.
    #[inline]
    pub(crate) fn poll_l0(&mut self, now: Time) {
        if self.first_level.as_ref().is_some_and(|first| now >= first.look) {
            self.settle_l0(now);
        }
    }

    /// When [`Card::poll_l0`] has something to do.
    pub(crate) fn l0_due(&self) -> Option<Time> {
        let first = self.first_level.as_ref()?;
        let is_used = !first.leaving.is_empty() || first.slots.iter().any(|slot| slot.entry.is_some());
        is_used.then_some(first.look)
    }
}

impl FirstLevel {
    /// Pauses if too many replies do not arrive: what sends them may have no room, or nobody takes them at the other end.
    fn judge(&mut self, counters: &mut Counters, now: Time) {
        let seen = (counters.hits_l0, counters.l0_repeated + counters.l0_lost);
        let (given, repeated) = (seen.0 - self.judged.0, seen.1 - self.judged.1);
        if repeated >= REPEATED_MIN && repeated * REPEATED_SHARE > given {
            self.paused_until = now + PAUSE;
            counters.l0_pauses += 1;
            self.judged = seen;
        } else if given >= 16 * REPEATED_MIN * REPEATED_SHARE {
            self.judged = seen;
        }
    }

    fn revoke_if_due(&mut self, revocations: u64) {
        if self.revocations != revocations {
            self.revocations = revocations;
            self.l0.revoke();
        }
    }

    /// Counts the hits of a slot.
    fn credit<W: Port, H: Port>(&mut self, number: usize, card: &mut Card<W, H>) {
        let served = self.l0.served(number);
        let slot = &mut self.slots[number];
        let hits = served.wrapping_sub(slot.counted);
        if hits == 0 {
            return;
        }
        slot.counted = served;
        let Some(entry) = slot.entry else { return };
        let bytes = hits * u64::from(slot.reply_len);
        let is_dynamic = card.store.note_hits(entry, hits);
        let counters = &mut card.counters;
        counters.hits += hits;
        counters.hits_l0 += hits;
        counters.hits_dynamic += if is_dynamic { hits } else { 0 };
        counters.hit_bytes += bytes;
        // A request and a reply, with their headers.
        counters.bus_bytes_saved += bytes + hits * (slot.head.len() as u64 + 2 * 66);
    }

    fn leave<W: Port, H: Port>(&mut self, entry: EntryId, card: &mut Card<W, H>, now: Time) {
        if self.leaving.len() == LEAVING_MAX {
            self.let_go(card);
        }
        self.leaving.push_back((now + KEPT, entry));
    }

    fn let_go<W: Port, H: Port>(&mut self, card: &mut Card<W, H>) {
        if let Some((_, entry)) = self.leaving.pop_front() {
            card.store.unpin(entry);
        }
    }
}

/// The whole body.
pub(crate) fn whole(len: u64) -> ByteRange {
    ByteRange { from: 0, to: len }
}
