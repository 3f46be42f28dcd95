//! Closing a connection in both directions (RFC 9293 section 3.6 and figure 5).

/// States from ESTABLISHED on. *We* are the side that this state belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum State {
    /// Data may flow both ways.
    #[default]
    Established,
    /// Our FIN is sent, not acknowledged.
    FinWait1,
    /// Our FIN is acknowledged; the peer may still send.
    FinWait2,
    /// The peer's FIN came first; we may still send.
    CloseWait,
    /// Both FINs were sent, ours is not acknowledged.
    Closing,
    /// Our FIN, after the peer's, is not acknowledged.
    LastAck,
    /// Both FINs are acknowledged, we closed first: wait for stray segments.
    TimeWait,
    /// There is no connection.
    Closed,
}

/// What can happen to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// We sent our FIN.
    FinSent,
    /// The peer acknowledged our FIN.
    FinAcked,
    /// The peer's FIN arrived in order.
    FinReceived,
    /// A reset was sent or accepted, or the peer is gone.
    Aborted,
    /// The wait of TIME-WAIT is over.
    Expired,
}

impl State {
    /// The state after `event`; one that has no meaning in a state (a repeated FIN, say) changes
    /// nothing.
    #[must_use]
    pub fn after(self, event: Event) -> Self {
        match (self, event) {
            (_, Event::Aborted) => Self::Closed,
            (Self::Established, Event::FinSent) => Self::FinWait1,
            (Self::Established, Event::FinReceived) => Self::CloseWait,
            (Self::FinWait1, Event::FinAcked) => Self::FinWait2,
            (Self::FinWait1, Event::FinReceived) => Self::Closing,
            (Self::FinWait2, Event::FinReceived) => Self::TimeWait,
            (Self::CloseWait, Event::FinSent) => Self::LastAck,
            (Self::Closing, Event::FinAcked) => Self::TimeWait,
            (Self::LastAck, Event::FinAcked) => Self::Closed,
            (Self::TimeWait, Event::Expired) => Self::Closed,
            (state, _) => state,
        }
    }

    /// We may still enqueue data (a half-closed connection sends on).
    #[must_use]
    pub fn can_send(self) -> bool {
        matches!(self, Self::Established | Self::CloseWait)
    }

    /// The peer may still send data.
    #[must_use]
    pub fn can_receive(self) -> bool {
        matches!(self, Self::Established | Self::FinWait1 | Self::FinWait2)
    }

    /// The connection needs no more than a place in the TIME-WAIT table, or nothing at all.
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, Self::TimeWait | Self::Closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Event::*;

    fn run(events: &[Event]) -> State {
        events.iter().fold(State::Established, |state, event| state.after(*event))
    }

    #[test]
    fn the_ways_to_close() {
        // RFC 9293 section 3.6, figures 12 and 13.
        assert_eq!(run(&[FinSent, FinAcked, FinReceived]), State::TimeWait);
        assert_eq!(run(&[FinSent, FinReceived, FinAcked]), State::TimeWait);
        assert_eq!(run(&[FinReceived, FinSent, FinAcked]), State::Closed);
        assert_eq!(run(&[FinSent, FinAcked, FinReceived, Expired]), State::Closed);
    }

    #[test]
    fn half_closed() {
        assert!(run(&[FinReceived]).can_send() && !run(&[FinReceived]).can_receive());
        assert!(!run(&[FinSent]).can_send() && run(&[FinSent]).can_receive());
        assert!(run(&[FinSent, FinAcked]).can_receive());
    }

    #[test]
    fn a_reset_ends_everything_and_repeats_change_nothing() {
        assert_eq!(run(&[FinSent, Aborted]), State::Closed);
        assert_eq!(run(&[FinReceived, FinReceived]), State::CloseWait);
        assert_eq!(run(&[FinAcked, Expired]), State::Established);
    }
}
