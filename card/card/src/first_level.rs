//! What the card knows of L0: which replies it was given, what they have answered, and which
//! entries it may still need.

use std::collections::VecDeque;
use std::time::Duration;

use arrayvec::ArrayVec;
use nicache_cache::{EntryId, Store};
use nicache_coherence::Epoch;
use nicache_tcp::Time;

use crate::counters::Counters;
use crate::l0_program::{L0, L0_HEAD_BYTES, L0_REPLY_BYTES};

/// How long an entry's bytes are kept after its reply was published last: a client that has lost
/// the reply asks again within this time.
const KEPT: Duration = Duration::from_secs(10);
/// L0's replies that must be repeated, of so many at least, before it pauses; of that one in
/// [`REPEATED_SHARE`] is too much.
const REPEATED_MIN: u64 = 32;
const REPEATED_SHARE: u64 = 4;
/// How long it pauses.
const PAUSE: Duration = Duration::from_secs(60);
/// Entries that are kept for that reason alone.
const LEAVING_MAX: usize = 1024;

/// What the card knows of L0.
pub(crate) struct FirstLevel {
    pub(crate) l0: Box<dyn L0>,
    pub(crate) slots: Box<[Slot]>,
    /// [`Store::revocations`](nicache_cache::Store::revocations) that L0 knows of.
    revocations: u64,
    /// Entries that are no longer published, with the time until which they are kept.
    pub(crate) leaving: VecDeque<(Time, EntryId)>,
    pub(crate) bytes: Box<[u8]>,
    pub(crate) look: Time,
    /// Replies given and repeated when that was last judged, and until when nothing is lent since
    /// too many were.
    judged: (u64, u64),
    pub(crate) paused_until: Time,
    /// The program compares with a revision table that no longer counts: nothing is published any
    /// longer, so connections on loan come back with their next request.
    pub(crate) is_over: bool,
}

/// What is published in one slot.
#[derive(Clone, Default)]
pub(crate) struct Slot {
    pub(crate) entry: Option<EntryId>,
    pub(crate) head: ArrayVec<u8, L0_HEAD_BYTES>,
    pub(crate) reply_len: u32,
    pub(crate) epoch: Epoch,
    pub(crate) revocations: u64,
    pub(crate) until: Time,
    /// [`L0::served`] when it was last looked at, and when the reply was published.
    pub(crate) counted: u64,
    pub(crate) served_before: u64,
    /// Requests with other heads since.
    pub(crate) challenges: u64,
}

impl Slot {
    /// Is the reply to `head` from that entry there, as it is now?
    pub(crate) fn is_current(
        &self,
        id: EntryId,
        head: &[u8],
        epoch: Epoch,
        revocations: u64,
        now: Time,
    ) -> bool {
        self.entry == Some(id)
            && self.epoch == epoch
            && self.revocations == revocations
            && now < self.until
            && *self.head == *head
    }
}

impl FirstLevel {
    /// With nothing published; `revocations`: those of the store so far.
    pub(crate) fn new(l0: Box<dyn L0>, revocations: u64) -> Self {
        let slots = vec![Slot::default(); l0.slots()].into_boxed_slice();
        Self {
            l0,
            slots,
            revocations,
            leaving: VecDeque::with_capacity(LEAVING_MAX),
            bytes: vec![0; L0_REPLY_BYTES].into_boxed_slice(),
            look: Time::ZERO,
            judged: (0, 0),
            paused_until: Time::ZERO,
            is_over: false,
        }
    }

    /// Pauses if too many replies do not arrive: what sends them may have no room, or nobody takes
    /// them at the other end.
    pub(crate) fn judge(&mut self, counters: &mut Counters, now: Time) {
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

    pub(crate) fn revoke_if_due(&mut self, revocations: u64) {
        if self.revocations != revocations {
            self.revocations = revocations;
            self.l0.revoke();
        }
    }

    /// Counts the hits of a slot.
    pub(crate) fn credit(&mut self, number: usize, store: &mut Store, counters: &mut Counters) {
        let served = self.l0.served(number);
        let slot = &mut self.slots[number];
        let hits = served.wrapping_sub(slot.counted);
        if hits == 0 {
            return;
        }
        slot.counted = served;
        let Some(entry) = slot.entry else { return };
        let bytes = hits * u64::from(slot.reply_len);
        let is_dynamic = store.note_hits(entry, hits);
        counters.hits += hits;
        counters.hits_l0 += hits;
        counters.hits_dynamic += if is_dynamic { hits } else { 0 };
        counters.hit_bytes += bytes;
        // A request and a reply, with their headers.
        counters.bus_bytes_saved += bytes + hits * (slot.head.len() as u64 + 2 * 66);
    }

    pub(crate) fn leave(&mut self, entry: EntryId, store: &mut Store, now: Time) {
        if self.leaving.len() == LEAVING_MAX {
            self.let_go(store);
        }
        self.leaving.push_back((now + KEPT, entry));
    }

    pub(crate) fn let_go(&mut self, store: &mut Store) {
        if let Some((_, entry)) = self.leaving.pop_front() {
            store.unpin(entry);
        }
    }
}
