//! What may pass: allow, drop, or so many bytes per second. The first rule that fits counts; what
//! no rule fits passes.
//!
//! Rules hold for connections that are there, too: each remembers which rule it came under and of
//! which version of the list.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use nicache_tcp::Time;

use crate::prefix::Prefix;
use crate::tuple::{Protocol, Tuple};
use crate::view::{ICMP, ICMPV6, Transport, View};

/// What becomes of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Packets pass.
    Allow,
    /// Packets are dropped.
    Drop,
    /// Packets pass at a rate; more of them are dropped.
    Limit {
        /// Bytes of IP per second.
        bytes_per_s: u64,
        /// Bytes that may come at once.
        burst_bytes: u64,
    },
}

/// Which packets, and what becomes of them. Fields that are not set fit all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The interface that they come in by.
    pub interface: Option<usize>,
    /// Protocol of the packets. Those of a protocol that has no name here (GRE, ESP, SCTP) come
    /// under rules without one alone.
    pub protocol: Option<Protocol>,
    /// Who sends the first packet of the connection.
    pub source: Option<Prefix>,
    /// Who is to receive it, before any translation.
    pub destination: Option<Prefix>,
    /// The destination port.
    pub ports: Option<RangeInclusive<u16>>,
    /// See [`Action`].
    pub action: Action,
}

/// What a rule is looked up by: who sends what to whom, and by which interface it comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// `None`: a protocol that has no name here.
    protocol: Option<Protocol>,
    source: IpAddr,
    destination: IpAddr,
    /// The destination's, if there is one.
    port: Option<u16>,
    interface: usize,
}

impl Asked {
    /// For a connection.
    pub fn of_tuple(tuple: &Tuple, interface: usize) -> Self {
        Self {
            protocol: Some(tuple.protocol),
            source: tuple.source.address,
            destination: tuple.destination.address,
            port: Some(tuple.destination.port),
            interface,
        }
    }

    /// For a packet by itself, whatever it may belong to.
    pub fn of_packet(view: &View, interface: usize) -> Self {
        if let Some(tuple) = view.tuple() {
            return Self::of_tuple(&tuple, interface);
        }
        // Errors of ICMP, and its messages that are not queries.
        let is_icmp =
            matches!(view.transport, Transport::Error(_)) || matches!(view.protocol, ICMP | ICMPV6);
        Self {
            protocol: is_icmp.then_some(Protocol::Query),
            source: view.source,
            destination: view.destination,
            port: None,
            interface,
        }
    }
}

impl Rule {
    fn fits(&self, asked: &Asked) -> bool {
        let has_port =
            |ports: &RangeInclusive<u16>| asked.port.is_some_and(|port| ports.contains(&port));
        self.interface.is_none_or(|wanted| wanted == asked.interface)
            && self.protocol.is_none_or(|protocol| Some(protocol) == asked.protocol)
            && self.source.is_none_or(|prefix| prefix.contains(asked.source))
            && self.destination.is_none_or(|prefix| prefix.contains(asked.destination))
            && self.ports.as_ref().is_none_or(has_port)
    }
}

/// What may come now, in billionths of a byte: a nanosecond brings as many as the rate has bytes,
/// so nothing is lost by rounding.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    billionths: u128,
    filled: Time,
}

const BILLION: u128 = 1_000_000_000;

/// The rule that something came under.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ruled {
    version: u32,
    rule: Option<u16>,
}

impl Ruled {
    /// The rule's place in its list; none: no rule fits.
    pub fn number(&self) -> Option<u16> {
        self.rule
    }
}

/// What may pass: allow, drop, or so many bytes per second. The first rule that fits counts; what
/// no rule fits passes.
#[derive(Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
    buckets: Vec<Bucket>,
    version: u32,
    /// What was charged last, and to which rule.
    charged: Option<(usize, u64)>,
}

impl Rules {
    /// Makes rules from a list, of which the first 65 535 count.
    pub fn new(rules: Vec<Rule>, now: Time) -> Self {
        let mut made = Self::default();
        made.replace(rules, now);
        made
    }

    /// Another list, from now on.
    pub fn replace(&mut self, mut rules: Vec<Rule>, now: Time) {
        rules.truncate(usize::from(u16::MAX));
        let bucket = |rule: &Rule| match rule.action {
            Action::Limit { burst_bytes, .. } => {
                Bucket { billionths: u128::from(burst_bytes) * BILLION, filled: now }
            }
            Action::Allow | Action::Drop => Bucket { billionths: 0, filled: now },
        };
        self.buckets = rules.iter().map(bucket).collect();
        self.rules = rules;
        self.charged = None;
        self.version = self.version.wrapping_add(1);
    }

    /// The rule for a connection.
    pub fn find(&self, tuple: &Tuple, interface: usize) -> Ruled {
        self.find_for(&Asked::of_tuple(tuple, interface))
    }

    /// The rule for a connection, or for a packet that belongs to none.
    pub fn find_for(&self, asked: &Asked) -> Ruled {
        let rule = self.rules.iter().position(|rule| rule.fits(asked)).map(|rule| rule as u16);
        Ruled { version: self.version, rule }
    }

    /// Whether a rule was found in this list.
    pub fn is_current(&self, ruled: Ruled) -> bool {
        ruled.version == self.version
    }

    /// Whether packets pass under a rule, however many they are.
    pub fn is_free(&self, ruled: Ruled) -> bool {
        let action = ruled.rule.map(|number| self.rules[usize::from(number)].action);
        self.is_current(ruled) && matches!(action, None | Some(Action::Allow))
    }

    /// Whether a packet of so many bytes may pass under a rule that is current.
    pub fn passes(&mut self, ruled: Ruled, bytes: u64, now: Time) -> bool {
        let Some(number) = ruled.rule.map(usize::from) else { return true };
        match self.rules[number].action {
            Action::Allow => true,
            Action::Drop => false,
            Action::Limit { bytes_per_s, burst_bytes } => {
                let bucket = &mut self.buckets[number];
                let gained =
                    now.since(bucket.filled).as_nanos().saturating_mul(u128::from(bytes_per_s));
                let most = u128::from(burst_bytes) * BILLION;
                *bucket = Bucket {
                    billionths: bucket.billionths.saturating_add(gained).min(most),
                    filled: now,
                };
                let left = bucket.billionths.checked_sub(u128::from(bytes) * BILLION);
                bucket.billionths = left.unwrap_or(bucket.billionths);
                self.charged = left.map(|_| (number, bytes));
                left.is_some()
            }
        }
    }

    /// What was charged is for good.
    pub fn keep_charged(&mut self) {
        self.charged = None;
    }

    /// The packet that was charged last does not pass now, and comes again.
    pub fn give_back(&mut self) {
        let Some((number, bytes)) = self.charged.take() else { return };
        if let (Some(bucket), Some(Rule { action: Action::Limit { burst_bytes, .. }, .. })) =
            (self.buckets.get_mut(number), self.rules.get(number))
        {
            let most = u128::from(*burst_bytes) * BILLION;
            bucket.billionths = (bucket.billionths + u128::from(bytes) * BILLION).min(most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuple::Endpoint;

    fn tuple(port: u16) -> Tuple {
        let end = |last, port| Endpoint::new([10, 0, 0, last], port);
        Tuple { protocol: Protocol::Tcp, source: end(1, 5), destination: end(2, port) }
    }

    #[test]
    fn the_first_that_fits() {
        let rule = |ports, action| Rule { ports: Some(ports), ..every(action) };
        let mut rules = Rules::new(
            vec![rule(80..=80, Action::Allow), rule(1..=1000, Action::Drop)],
            Time::ZERO,
        );
        let mut passes = |port| {
            let ruled = rules.find(&tuple(port), 0);
            rules.passes(ruled, 100, Time::ZERO)
        };
        assert_eq!([80, 81, 1000, 1001].map(&mut passes), [true, false, false, true]);
    }

    fn every(action: Action) -> Rule {
        Rule {
            interface: None,
            protocol: None,
            source: None,
            destination: None,
            ports: None,
            action,
        }
    }

    #[test]
    fn so_many_bytes_per_second() {
        let mut rules = Rules::new(
            vec![every(Action::Limit { bytes_per_s: 10_000, burst_bytes: 3000 })],
            Time::ZERO,
        );
        let ruled = rules.find(&tuple(1), 0);
        // Ten seconds of a packet of 1000 bytes each 10 milliseconds.
        let passed = (0..1000)
            .filter(|step| rules.passes(ruled, 1000, Time::from_millis(step * 10)))
            .count();
        assert!((102..=103).contains(&passed), "{passed}");
        rules.replace(vec![every(Action::Drop)], Time::ZERO);
        assert!(!rules.is_current(ruled));
    }

    /// However often packets come: what a rate brings between two of them may be less than a byte.
    #[test]
    fn no_part_of_a_byte_is_lost() {
        for (bytes_per_s, every_ns, bytes, seconds) in [
            (10_000, 150_000, 100, 10),
            (1500, 1_000_003, 60, 100),
            (3, 400_000_000, 60, 1000),
            (1_250_000_000, 700, 1500, 1),
        ] {
            let burst_bytes = 2 * bytes;
            let mut rules =
                Rules::new(vec![every(Action::Limit { bytes_per_s, burst_bytes })], Time::ZERO);
            let ruled = rules.find(&tuple(1), 0);
            let times = seconds * 1_000_000_000 / every_ns;
            let passed = (1..=times)
                .filter(|n| rules.passes(ruled, bytes, Time(n * every_ns)))
                .count() as u64;
            let expected = (bytes_per_s * seconds / bytes).min(times);
            assert!(
                passed + 1 >= expected && passed <= expected + 2,
                "{bytes_per_s}: {passed}, {expected}"
            );
        }
    }
}
