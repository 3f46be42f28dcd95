//! Who may use a unit: SCSI-3 persistent reservations, by which the target itself refuses every
//! other gateway. No I/O here.
//!
//! The reservation is for *exclusive access*: the target answers everybody else's reads and writes
//! with RESERVATION CONFLICT, also those of a gateway that had it before and does not know yet. A
//! key has two halves: the gateway's *identity*, which outlasts its process, and an *incarnation*,
//! which is new for each session. So a gateway that was killed finds its own reservation and takes
//! it over; another machine finds a stranger's.
//!
//! A target may bind registrations to a session (tgt) or to the initiator's name and port (LIO),
//! keep them when it loses its power or not. [`Claim`] needs neither: it looks, and takes what is
//! its own.
//!
//! Read first: SPC-4, sections 5.13 (persistent reservations), 6.15 and 6.16.

/// A registered key: identity in the upper half, incarnation in the lower.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReservationKey(pub u64);

impl ReservationKey {
    fn identity(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn incarnation(self) -> u32 {
        self.0 as u32
    }
}

/// How a unit is reserved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReservationOptions {
    /// Who this gateway is: the same after a restart, and another one on another machine.
    pub identity: u32,
    /// Take the unit from whoever has reserved it: once, at the start.
    pub take_over: bool,
}

/// PERSISTENT RESERVE IN, READ RESERVATION: its command and the length of its answer.
pub(crate) const READ_RESERVATION: [u8; 10] = [0x5E, 0x01, 0, 0, 0, 0, 0, 0, READ_BYTES as u8, 0];
pub(crate) const READ_BYTES: usize = 24;
/// The length of PERSISTENT RESERVE OUT's parameters.
const PARAMETER_BYTES: u8 = 24;
/// Exclusive access; scope 0 is the whole unit.
const EXCLUSIVE_ACCESS: u8 = 3;

/// What a unit says about its reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reserved {
    /// Counts changes of registrations since the target forgot everything.
    pub generation: u32,
    /// Who has reserved it. All registrants together have the key 0.
    pub holder: Option<ReservationKey>,
}

/// READ RESERVATION's answer; None if it is too short.
pub fn parse_reserved(data: &[u8]) -> Option<Reserved> {
    let word = |at: usize| data.get(at..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
    let (generation, length) = (word(0)?, word(4)?);
    let holder = match length {
        0 => None,
        1..16 => return None,
        _ => Some(ReservationKey(u64::from(word(8)?) << 32 | u64::from(word(12)?))),
    };
    Some(Reserved { generation, holder })
}

/// A PERSISTENT RESERVE OUT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Out {
    /// This key is the session's from now on, whatever was before. `persists`: also when the target
    /// loses its power.
    Register {
        key: ReservationKey,
        persists: bool,
    },
    /// The session's key is none.
    Unregister {
        key: ReservationKey,
    },
    Reserve {
        key: ReservationKey,
    },
    Release {
        key: ReservationKey,
    },
    /// Takes the reservation from `victim` and removes its registration. `aborts`: also ends its
    /// commands, which not every target can.
    Preempt {
        key: ReservationKey,
        victim: ReservationKey,
        aborts: bool,
    },
}

impl Out {
    /// Command and parameters.
    pub(crate) fn encode(self) -> ([u8; 10], [u8; PARAMETER_BYTES as usize]) {
        let (action, own, service, flags) = match self {
            // REGISTER AND IGNORE EXISTING KEY.
            Self::Register { key, persists } => (0x06, 0, key.0, u8::from(persists)),
            Self::Unregister { key } => (0x00, key.0, 0, 0),
            Self::Reserve { key } => (0x01, key.0, 0, 0),
            Self::Release { key } => (0x02, key.0, 0, 0),
            // PREEMPT, or PREEMPT AND ABORT.
            Self::Preempt { key, victim, aborts } => (0x04 + u8::from(aborts), key.0, victim.0, 0),
        };
        let mut parameters = [0; PARAMETER_BYTES as usize];
        parameters[..8].copy_from_slice(&own.to_be_bytes());
        parameters[8..16].copy_from_slice(&service.to_be_bytes());
        parameters[20] = flags;
        ([0x5F, action, EXCLUSIVE_ACCESS, 0, 0, 0, 0, 0, PARAMETER_BYTES, 0], parameters)
    }
}

/// What to do about a reservation that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Judgement {
    /// Nobody has it: reserve.
    Free,
    /// An earlier session of this gateway has it: preempt that.
    Preempt(ReservationKey),
    /// This session has it.
    Held,
    /// The reservation is another initiator's.
    Refused(String),
}

/// A gateway's claim to a unit, through all of its sessions.
#[derive(Debug)]
pub(crate) struct Claim {
    options: ReservationOptions,
    incarnation: u32,
    /// What the last session had.
    held: Option<ReservationKey>,
}

impl Claim {
    /// `seed` is random.
    pub(crate) fn new(options: ReservationOptions, seed: u32) -> Self {
        Self { options, incarnation: seed, held: None }
    }

    /// The key for a new session.
    pub(crate) fn next_key(&mut self) -> ReservationKey {
        // Zero is not a key.
        self.incarnation = self.incarnation.wrapping_add(1).max(1);
        ReservationKey(u64::from(self.options.identity) << 32 | u64::from(self.incarnation))
    }

    /// `key` is this session's; `registered` is the generation after it was registered, if it is.
    pub(crate) fn judge(
        &self,
        key: ReservationKey,
        found: Reserved,
        registered: Option<u32>,
    ) -> Judgement {
        let Some(holder) = found.holder else {
            // Nobody, perhaps after it was ours. A target that forgot everything counts from zero.
            // If it has counted anything but this session's registration, somebody may have taken
            // the unit, used it, and given it up. What it counted before it forgot says nothing.
            let is_untouched = found.generation == 0 || Some(found.generation) == registered;
            return if self.held.is_none() || is_untouched {
                Judgement::Free
            } else {
                Judgement::Refused("another gateway may have had the unit meanwhile".to_owned())
            };
        };
        if holder == key {
            return Judgement::Held;
        }
        match self.held {
            Some(held) if self.is_since(held, holder) => Judgement::Preempt(holder),
            Some(_) => Judgement::Refused(format!(
                "another gateway has taken the unit (its key is {:#018x})",
                holder.0
            )),
            None if holder.identity() == self.options.identity || self.options.take_over => {
                Judgement::Preempt(holder)
            }
            None => Judgement::Refused(format!(
                "another gateway has reserved the unit (its key is {:#018x}): end that one. If its machine is off or cut off, --take-over takes the unit from it",
                holder.0
            )),
        }
    }

    /// Whether a key is that of the last session that had the unit, or of one that was begun later:
    /// it may have taken the unit and ended before it heard so.
    fn is_since(&self, held: ReservationKey, key: ReservationKey) -> bool {
        let age = |incarnation: u32| incarnation.wrapping_sub(held.incarnation());
        self.is_own(key) && age(key.incarnation()) <= age(self.incarnation)
    }

    /// The session has the unit.
    pub(crate) fn handle_held(&mut self, key: ReservationKey) {
        self.held = Some(key);
    }

    /// Why the unit is no longer this gateway's; None if it is.
    pub(crate) fn lost(&self, found: Reserved) -> Option<String> {
        let held = self.held?;
        match found.holder {
            Some(holder) if holder == held => None,
            Some(holder) => {
                Some(format!("another gateway has taken the unit (its key is {:#018x})", holder.0))
            }
            None => {
                Some("the unit's reservation is gone: another initiator has ended it".to_owned())
            }
        }
    }

    /// Whether a key is of this gateway.
    pub(crate) fn is_own(&self, key: ReservationKey) -> bool {
        key.identity() == self.options.identity
    }

    /// The key of the last session that had the unit.
    pub(crate) fn held(&self) -> Option<ReservationKey> {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(identity: u32, take_over: bool) -> Claim {
        Claim::new(ReservationOptions { identity, take_over }, 41)
    }

    fn reserved(generation: u32, holder: Option<ReservationKey>) -> Reserved {
        Reserved { generation, holder }
    }

    #[test]
    fn a_free_unit_is_reserved_and_a_strangers_is_not() {
        let mut own = claim(7, false);
        let key = own.next_key();
        assert_eq!(key, ReservationKey(7 << 32 | 42));
        assert_eq!(own.judge(key, reserved(3, None), None), Judgement::Free);
        assert_eq!(own.judge(key, reserved(3, Some(key)), Some(3)), Judgement::Held);
        let stranger = ReservationKey(8 << 32 | 42);
        assert!(matches!(own.judge(key, reserved(3, Some(stranger)), None),
                Judgement::Refused(why) if why.contains("--take-over")));
        assert_eq!(
            claim(7, true).judge(key, reserved(3, Some(stranger)), None),
            Judgement::Preempt(stranger)
        );
        // The process before this one was killed.
        let earlier = ReservationKey(7 << 32 | 9);
        assert_eq!(own.judge(key, reserved(3, Some(earlier)), None), Judgement::Preempt(earlier));
    }

    #[test]
    fn what_was_taken_meanwhile_is_not_taken_back() {
        let mut own = claim(7, true);
        let first = own.next_key();
        own.handle_held(first);
        let second = own.next_key();
        assert_eq!(own.judge(second, reserved(6, Some(first)), None), Judgement::Preempt(first));
        // A stranger, another process of the same identity, and one that came and went.
        for holder in [ReservationKey(8 << 32 | 1), ReservationKey(7 << 32 | 1)] {
            assert!(matches!(
                own.judge(second, reserved(6, Some(holder)), None),
                Judgement::Refused(_)
            ));
            assert!(own.lost(reserved(6, Some(holder))).is_some());
        }
        assert!(
            own.lost(reserved(8, None)).is_some() && own.lost(reserved(8, Some(first))).is_none()
        );
    }

    /// A session takes the unit and ends before it is answered.
    #[test]
    fn what_a_session_took_that_never_heard_of_it_is_this_gateways() {
        // Also when incarnations begin anew.
        for seed in [41, u32::MAX - 2] {
            let mut own = Claim::new(ReservationOptions { identity: 7, take_over: false }, seed);
            let before = own.next_key();
            let held = own.next_key();
            own.handle_held(held);
            let (unheard, current) = (own.next_key(), own.next_key());
            for holder in [held, unheard] {
                let found = reserved(6, Some(holder));
                assert_eq!(own.judge(current, found, None), Judgement::Preempt(holder));
            }
            // Other processes of the same identity, and other gateways with the same incarnation.
            let strangers =
                [before, ReservationKey(current.0 + 1000), ReservationKey(unheard.0 ^ 1 << 32)];
            for holder in strangers {
                let judged = own.judge(current, reserved(6, Some(holder)), None);
                assert!(matches!(judged, Judgement::Refused(_)), "{holder:x?}");
            }
        }
    }

    /// Somebody registers and unregisters at a target that has forgotten: it counts two, and gives
    /// up the reservation without being counted.
    #[test]
    fn a_unit_that_nobody_has_is_taken_back_only_if_nobody_can_have_used_it() {
        for generation in [1, 2, 3, 5, 6, u32::MAX] {
            let mut own = claim(7, false);
            let first = own.next_key();
            own.handle_held(first);
            let second = own.next_key();
            let found = reserved(generation, None);
            assert!(matches!(own.judge(second, found, None), Judgement::Refused(_)));
            assert!(matches!(
                own.judge(second, found, Some(generation.wrapping_sub(1))),
                Judgement::Refused(_)
            ));
            // Nothing but this session's registration has happened since.
            assert_eq!(own.judge(second, found, Some(generation)), Judgement::Free);
            // Before the first session it does not matter who has used it.
            assert_eq!(claim(7, false).judge(second, found, None), Judgement::Free);
            assert_eq!(own.judge(second, reserved(0, None), None), Judgement::Free);
        }
    }

    #[test]
    fn commands_and_answers_have_their_form() {
        let (command, parameters) =
            Out::Preempt { key: ReservationKey(1), victim: ReservationKey(2), aborts: true }
                .encode();
        assert_eq!((command[0], command[1], command[2], command[8]), (0x5F, 5, 3, 24));
        assert_eq!((parameters[7], parameters[15], parameters[20]), (1, 2, 0));
        assert_eq!(
            Out::Register { key: ReservationKey(3), persists: true }.encode().1[15..21],
            [3, 0, 0, 0, 0, 1]
        );
        let mut answer = [0; READ_BYTES];
        assert_eq!(parse_reserved(&answer), Some(reserved(0, None)));
        (answer[3], answer[7], answer[15]) = (9, 16, 5);
        assert_eq!(parse_reserved(&answer), Some(reserved(9, Some(ReservationKey(5)))));
        assert_eq!(
            (
                parse_reserved(&answer[..12]),
                parse_reserved(&[0, 0, 0, 0, 0, 0, 0, 3]),
                parse_reserved(&[])
            ),
            (None, None, None)
        );
    }
}
