//! L0: replies of one segment, or of a few to a client on this machine, that are given before the
//! card hears of the request, by a program where frames enter or leave the machine's stack.
//!
//! The card publishes replies that were hits, with the epoch at which it compared their sources;
//! the program gives one only while that is the epoch, the watcher's lease holds, and nothing was
//! [revoked](L0::revoke). Connections are lent ([`loan`](crate::loan)). What is published keeps its
//! entry's bytes in card memory, and for some time afterwards, because the reply may have to be
//! sent again.

use std::time::Duration;

use nicache_cache::EntryId;
use nicache_port::Port;
use nicache_tcp::{Time, checksum};

use crate::card::Card;
use crate::first_level::FirstLevel;
use crate::flow::Flow;
use crate::flow::reply::ReplyKind;
use crate::l0_program::{L0, L0_HEAD_BYTES, Published};
use crate::loan::burst_bytes;
use crate::payload;

/// A reply is published for so long. Then the card answers a request itself: its date is new then,
/// and the policy hears of the hits.
const FRESH: Duration = Duration::from_millis(250);

/// A hit that may be given by L0 from now on.
pub(crate) struct Offer<'a> {
    pub(crate) head: &'a [u8],
    pub(crate) entry: EntryId,
}

impl<W: Port, H: Port> Card<W, H> {
    /// Has small hits answered by `l0` from now on.
    pub fn set_l0(&mut self, l0: Box<dyn L0>) {
        self.first_level = Some(FirstLevel::new(l0, self.store.revocations()));
    }

    /// The connection's last reply answers `offer.head`, which was all that its segment held. True:
    /// L0 can give it, too.
    pub(crate) fn offer(&mut self, flow: &Flow, offer: &Offer<'_>, now: Time) -> bool {
        let Some(mut first) = self.first_level.take() else { return false };
        let is_published = !self.bypass
            && !first.is_over
            && now >= first.paused_until
            && self.publish(&mut first, flow, offer, now);
        self.first_level = Some(first);
        is_published
    }

    fn publish(
        &mut self,
        first: &mut FirstLevel,
        flow: &Flow,
        offer: &Offer<'_>,
        now: Time,
    ) -> bool {
        let Some(reply) = flow.replies.iter().last().copied() else { return false };
        let Some(entry) = self.store.get(offer.entry) else { return false };
        let is_plain = reply.kind == ReplyKind::Full && reply.entry == offer.entry && !entry.closes;
        let len = reply.len() as usize;
        let most = first.l0.reply_bytes_max().min(first.bytes.len());
        let fits = len <= usize::from(flow.mss).max(burst_bytes(flow).into()).min(most);
        if !is_plain || !fits || offer.head.len() > L0_HEAD_BYTES {
            return false;
        }
        let until =
            self.store.fresh_until(offer.entry).map_or(now + FRESH, |until| until.min(now + FRESH));
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
        first.credit(number, &mut self.store, &mut self.counters);
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
            left.into_iter().for_each(|left| first.leave(left, &mut self.store, now));
        }
        let slot = &mut first.slots[number];
        slot.head.clear();
        // Fits: checked above.
        let _ = slot.head.try_extend_from_slice(offer.head);
        (slot.reply_len, slot.epoch, slot.revocations, slot.until) =
            (reply.len(), epoch, revocations, until);
        (slot.served_before, slot.challenges) = (first.l0.served(number), 0);
        first.look = first.look.min(now + FRESH);
        true
    }

    /// Tells L0 if anything that is published must not be given any longer.
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

    /// Counts what L0 has answered, and lets entries go that it no longer needs.
    pub fn settle_l0(&mut self, now: Time) {
        let Some(mut first) = self.first_level.take() else { return };
        for number in 0..first.slots.len() {
            first.credit(number, &mut self.store, &mut self.counters);
            let slot = &mut first.slots[number];
            if now > slot.until + FRESH
                && let Some(left) = slot.entry.take()
            {
                slot.head.clear();
                first.leave(left, &mut self.store, now);
            }
        }
        while first.leaving.front().is_some_and(|&(until, _)| now >= until) {
            first.let_go(&mut self.store);
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
        let is_used =
            !first.leaving.is_empty() || first.slots.iter().any(|slot| slot.entry.is_some());
        is_used.then_some(first.look)
    }
}
