//! How many clients there may be at a time, and how long they may take their time.

use std::time::Duration;

use anyhow::{Result, bail};
use nicache_card::Patience;
use nicache_card::limits::FLOWS_DEFAULT;
use nicache_tcp::patience::{KeepAliveRules, ReadRules};
use serde::{Deserialize, Serialize};

use super::run::RunOptions;
use super::span::Span;

/// Connections of a queue at least and at most.
const CONNECTIONS_MIN: u32 = 64;
const CONNECTIONS_MAX: u32 = 1 << 22;
/// SYN-ACKs are repeated at most so often: the last time after 64 s.
const SYN_ACK_RETRIES_MAX: u8 = 7;

/// The limits of one queue, with nothing left open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClientLimits {
    /// Connections at most.
    pub connections: u32,
    /// Of these, half open ones.
    pub half_open: u32,
    syn_ack_retries: u8,
    idle: Duration,
    head: Duration,
    read_rate: u32,
    read_period: Duration,
    closed_window: Duration,
    keep_alive: Duration,
    keep_alive_interval: Duration,
    keep_alive_probes: u8,
}

impl Default for ClientLimits {
    fn default() -> Self {
        let patience = Patience::default();
        Self {
            connections: FLOWS_DEFAULT as u32,
            half_open: FLOWS_DEFAULT as u32 / 4,
            syn_ack_retries: patience.syn_ack_retries,
            idle: patience.idle,
            head: patience.head,
            read_rate: patience.read.bytes_per_second,
            read_period: patience.read.period,
            closed_window: patience.read.closed_window,
            keep_alive: patience.keep_alive.idle,
            keep_alive_interval: patience.keep_alive.interval,
            keep_alive_probes: patience.keep_alive.probes,
        }
    }
}

impl ClientLimits {
    /// Applies the defaults, which are the card's, and checks.
    ///
    /// # Errors
    /// A number that makes no sense.
    pub(crate) fn of(options: &RunOptions) -> Result<Self> {
        let default = Self::default();
        let connections = options.connections.unwrap_or(default.connections);
        if !(CONNECTIONS_MIN..=CONNECTIONS_MAX).contains(&connections) {
            bail!("connections: between {CONNECTIONS_MIN} and {CONNECTIONS_MAX}");
        }
        let half_open = options.half_open.unwrap_or(connections / 4);
        if half_open == 0 || half_open > connections / 2 {
            bail!("half-open: between 1 and half of connections ({})", connections / 2);
        }
        let syn_ack_retries = options.syn_ack_retries.unwrap_or(default.syn_ack_retries);
        if syn_ack_retries > SYN_ACK_RETRIES_MAX {
            bail!("syn-ack-retries: at most {SYN_ACK_RETRIES_MAX}");
        }
        let span = |given: Option<Span>, default: Duration| given.map_or(default, |span| span.0);
        Ok(Self {
            connections,
            half_open,
            syn_ack_retries,
            idle: span(options.idle_time, default.idle),
            head: span(options.head_time, default.head),
            read_rate: options.read_rate.unwrap_or(default.read_rate),
            read_period: span(options.read_period, default.read_period),
            closed_window: span(options.closed_window, default.closed_window),
            keep_alive: span(options.keep_alive, default.keep_alive),
            keep_alive_interval: span(options.keep_alive_interval, default.keep_alive_interval),
            keep_alive_probes: options.keep_alive_probes.unwrap_or(default.keep_alive_probes),
        })
    }

    /// The limits in the form in which the card takes them.
    pub(crate) fn patience(&self) -> Patience {
        Patience {
            read: ReadRules {
                bytes_per_second: self.read_rate,
                period: self.read_period,
                closed_window: self.closed_window,
            },
            idle: self.idle,
            syn_ack_retries: self.syn_ack_retries,
            head: self.head,
            keep_alive: KeepAliveRules {
                idle: self.keep_alive,
                interval: self.keep_alive_interval,
                probes: self.keep_alive_probes,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_the_card_s() {
        let limits = ClientLimits::of(&RunOptions::default()).unwrap();
        assert_eq!(limits.patience(), Patience::default());
        assert_eq!((limits.connections as usize, limits.half_open), (FLOWS_DEFAULT, 4096));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let of = |connections, half_open, syn_ack_retries| {
            ClientLimits::of(&RunOptions {
                connections,
                half_open,
                syn_ack_retries,
                ..RunOptions::default()
            })
        };
        assert!(of(Some(1 << 20), Some(1 << 19), Some(7)).is_ok());
        for odd in [
            of(Some(63), None, None),
            of(Some(100), Some(51), None),
            of(None, Some(0), None),
            of(None, None, Some(8)),
        ] {
            assert!(odd.is_err());
        }
    }

    #[test]
    fn each_option_arrives() {
        let options: RunOptions = toml::from_str(
            "connections = 1000\nhalf-open = 7\nsyn-ack-retries = 1\nidle-time = '1s'\nhead-time = '2s'\nread-rate = 3\nread-period = '4s'\n\
             closed-window = '5s'\nkeep-alive = '6s'\nkeep-alive-interval = '7s'\nkeep-alive-probes = 8",
        )
        .unwrap();
        let limits = ClientLimits::of(&options).unwrap();
        let patience = limits.patience();
        assert_eq!((limits.connections, limits.half_open, patience.syn_ack_retries), (1000, 7, 1));
        let (read, keep) = (patience.read, patience.keep_alive);
        let times = [
            patience.idle,
            patience.head,
            read.period,
            read.closed_window,
            keep.idle,
            keep.interval,
        ];
        assert_eq!(times.map(|time| time.as_secs()), [1, 2, 4, 5, 6, 7]);
        assert_eq!((read.bytes_per_second, keep.probes), (3, 8));
    }
}
