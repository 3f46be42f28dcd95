//! How the cards of a host stop in time, even if everything on the host that could tell them stands
//! still.
//!
//! A card serves as long as the lease in its revision table lasts, and looks at nothing else before
//! each hit but the table. So what rests on a database elsewhere is safe if
//!
//! 1. the table's lease never lasts longer than the relay waits for this host,
//!    [`Subscriber::until_ns`](crate::Subscriber::until_ns), as long as anything may be kept that
//!    rests on the database. The host is *in step* then. It gets into step with the next renewal of
//!    the table's lease, which is the first to be bounded ([`Validity::bound_lease`]), and nothing
//!    that rests on the database is stored before;
//! 2. whenever it falls out of step, the table is told first that the databases have changed, which
//!    voids all that rests on them, and only then may the table's lease last longer
//!    ([`Validity::must_void`]).
//!
//! A watcher that is stopped renews nothing: its cards stop when the table's lease ends, which is
//! before the relay goes on without them. A watcher that runs falls out of step a moment before
//! that, and its cards go on serving what rests on other things.

/// So long before the end a running watcher gives up, in nanoseconds: longer than it lets the table
/// wait.
pub const GUARD_NS: u64 = 200_000_000;

/// Sees to it that the cards of a host stop in time if they no longer follow a database elsewhere:
/// bounds the table's lease, and says when all that rests on the database is void.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Validity {
    until_ns: Option<u64>,
    in_step: bool,
}

impl Validity {
    /// Is anything kept that rests on the database?
    pub fn is_in_step(&self) -> bool {
        self.in_step
    }

    /// The relay waits up to `until_ns`. To be called after [`Validity::must_void`] with the same
    /// time.
    pub fn extend(&mut self, until_ns: Option<u64>) {
        self.until_ns = if self.in_step { self.until_ns.max(until_ns) } else { until_ns };
    }

    /// Must everything be voided now, because the time is nearly over? Then the caller voids it,
    /// and calls [`Validity::fall_out`].
    pub fn must_void(&self, now_ns: u64) -> bool {
        self.in_step && self.until_ns.is_none_or(|until| now_ns.saturating_add(GUARD_NS) >= until)
    }

    /// Out of step: everything is void.
    pub fn fall_out(&mut self) {
        *self = Self::default();
    }

    /// The table's lease is about to be set to `lease_until_ns`, by the only one who sets it.
    /// Returns what it may be, and gets into step if that is possible.
    pub fn bound_lease(&mut self, lease_until_ns: u64, now_ns: u64) -> u64 {
        match self.until_ns {
            Some(until_ns) if self.in_step || now_ns.saturating_add(2 * GUARD_NS) < until_ns => {
                self.in_step = true;
                lease_until_ns.min(until_ns)
            }
            _ => lease_until_ns,
        }
    }
}
