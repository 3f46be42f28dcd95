//! What a relay and a card host say to each other.
//!
//! One message is one [`postcard`] value of at most [`MESSAGE_BYTES_MAX`] bytes. Whoever reads one
//! takes it for hostile: a message that is too long, cut short or has bytes left over is refused.

use serde::{Deserialize, Serialize};

/// Longest message in bytes: what one message of the Noise protocol holds.
pub const MESSAGE_BYTES_MAX: usize = 65_535 - 16;
/// Most bytes of a database connection in one [`Event`].
pub const EVENT_BYTES_MAX: usize = 32 * 1024;
/// First bytes of a database's reply that are told, at most.
pub const REPLY_BYTES: usize = 64;
/// Most bytes of a database's structure in one [`ToCard::Structure`].
pub const STRUCTURE_PART_BYTES: usize = 32 * 1024;
/// Connections of one relay at a time.
pub const CONNECTIONS_MAX: usize = 1024;

/// Something that happened on a connection of the database. Bytes are in the order of the
/// connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Number of the connection, never used again by the same run of a relay.
    pub connection: u64,
    /// What happened.
    pub step: Step,
}

/// What happened on a connection of the database, in an [`Event`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// A client has connected.
    Opened,
    /// The client has sent this, and the database has not got it yet.
    Received {
        /// What one read gave, at most [`EVENT_BYTES_MAX`].
        bytes: Vec<u8>,
        /// The bytes change nothing, unless by a function that they call: the database gets them at
        /// once, and the client its reply after the acknowledgment.
        certain: bool,
        /// What the client sent before may not be done.
        ahead: bool,
    },
    /// The database has begun to reply.
    Sent {
        /// The first bytes, at most [`REPLY_BYTES`].
        bytes: Vec<u8>,
        /// All that the client has sent is done.
        over: bool,
    },
    /// All that the client has sent is done.
    Idle,
    /// The database has ended the connection.
    Closed,
}

/// Relay to card host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToCard {
    /// To [`ToRelay::Hello`]: events follow.
    Welcome {
        /// The greeting that is answered.
        attempt: u64,
        /// Names the run of the relay; random.
        run: u64,
        /// Number of the next event.
        next: u64,
        /// Nothing is missing since the event that the greeting named.
        resumed: bool,
        /// If not resumed: connections on which something is not done yet. At most
        /// [`CONNECTIONS_MAX`].
        busy: Vec<u64>,
    },
    /// The events of a run have numbers without gaps.
    Event {
        /// The run.
        run: u64,
        /// Number of the event.
        number: u64,
        /// The event.
        event: Event,
    },
    /// To [`ToRelay::Renew`]: the lease runs.
    Renewed {
        /// The run.
        run: u64,
        /// The renewal that is answered.
        renewal: u64,
        /// Nobody has waited for this card host's acknowledgment of events up to this number.
        published: u64,
        /// How long the relay waits for the card host, from when it got the renewal, in nanoseconds
        /// of its clock.
        lease_ns: u64,
    },
    /// To [`ToRelay::AskStructure`]: a part of the answer.
    Structure {
        /// The question.
        ask: u64,
        /// What follows on the parts before.
        part: Vec<u8>,
        /// This is the last part of the answer.
        last: bool,
        /// It could not be read, and `part` says why.
        failed: bool,
    },
}

/// Card host to relay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToRelay {
    /// The card host follows from now on. Whatever it kept that rests on the database is void, and
    /// it has acknowledged nothing.
    Hello {
        /// The card host, as [`CardId`](crate::CardId).
        card: u64,
        /// Grows with each greeting of a card host: an older one is a repetition.
        attempt: u64,
        /// Run and number of the event that it would like to go on with.
        resume: Option<(u64, u64)>,
    },
    /// All events up to this number have taken effect.
    Ack {
        /// The run.
        run: u64,
        /// The number.
        number: u64,
    },
    /// The relay shall wait for this card host's acknowledgments for another while.
    Renew {
        /// The run.
        run: u64,
        /// Grows.
        renewal: u64,
        /// The structure of the database is known, and no SELECT can change anything.
        plain: bool,
    },
    /// What is the structure of the database?
    AskStructure {
        /// Number of the question.
        ask: u64,
        /// Which one (PostgreSQL).
        database: Option<String>,
    },
}

/// A message that nobody sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a malformed message")]
pub struct Malformed;

macro_rules! codec {
    ($($kind:ty),*) => {$(
        impl $kind {
            /// The message as bytes.
            pub fn encode(&self) -> Vec<u8> {
                // Fails for types only that cannot be written at all.
                postcard::to_stdvec(self).unwrap_or_default()
            }

            /// Reads a message.
            ///
            /// # Errors
            /// [`Malformed`].
            pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
                if bytes.len() > MESSAGE_BYTES_MAX {
                    return Err(Malformed);
                }
                match postcard::take_from_bytes(bytes) {
                    Ok((message, [])) => Ok(message),
                    _ => Err(Malformed),
                }
            }
        }
    )*};
}
codec!(ToCard, ToRelay);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_longest_messages_fit() {
        let step =
            Step::Received { bytes: vec![0xff; EVENT_BYTES_MAX], certain: true, ahead: true };
        let event = Event { connection: u64::MAX, step };
        let message = ToCard::Event { run: u64::MAX, number: u64::MAX, event };
        assert_eq!(ToCard::decode(&message.encode()), Ok(message));
        let busy = vec![u64::MAX; CONNECTIONS_MAX];
        let message = ToCard::Welcome {
            attempt: u64::MAX,
            run: u64::MAX,
            next: u64::MAX,
            resumed: false,
            busy,
        };
        assert_eq!(ToCard::decode(&message.encode()), Ok(message));
        let part = vec![0xff; STRUCTURE_PART_BYTES];
        let message = ToCard::Structure { ask: u64::MAX, part, last: true, failed: true };
        assert!(message.encode().len() <= MESSAGE_BYTES_MAX);
    }

    proptest! {
        #[test]
        fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(message) = ToCard::decode(&bytes) {
                prop_assert_eq!(ToCard::decode(&message.encode()), Ok(message));
            }
            if let Ok(message) = ToRelay::decode(&bytes) {
                prop_assert_eq!(ToRelay::decode(&message.encode()), Ok(message));
            }
        }

        #[test]
        fn a_cut_or_longer_message_is_refused(
            cut in 1_usize..20,
            run in any::<u64>(),
            number in any::<u64>(),
        ) {
            let bytes = ToRelay::Ack { run, number }.encode();
            prop_assert!(ToRelay::decode(&bytes[..bytes.len().saturating_sub(cut)]).is_err());
            let longer = [bytes, vec![0; cut]].concat();
            prop_assert!(ToRelay::decode(&longer).is_err());
        }
    }
}
