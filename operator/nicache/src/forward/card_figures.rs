//! What the cards of a `nicache forward` have counted, of which there is another one after each
//! restart.

use std::collections::BTreeMap;

use nicache_router::report::Report;

use crate::serve::messages::{CardCounted, PortCounted};

/// What the cards have counted since the start.
#[derive(Debug, Default)]
pub(super) struct CardFigures {
    /// Those that have ended.
    before: CardCounted,
    /// The one at work.
    now: CardCounted,
}

/// Drops that only the card knows of, by the reason that they are told with.
const DROPS: [&str; 3] = ["receive_overflow", "send_failed", "no_buffers"];

impl CardFigures {
    /// What the card at work has told.
    pub(super) fn take(&mut self, counted: CardCounted) {
        self.now = counted;
    }

    /// There is another card.
    pub(super) fn handle_restart(&mut self) {
        self.before = self.total();
        self.now = CardCounted::default();
    }

    fn total(&self) -> CardCounted {
        let mut total = self.before.clone();
        for (name, value) in &self.now.counters {
            *total.counters.entry(name.clone()).or_default() += value;
        }
        let ports = self.now.ports.len().max(total.ports.len());
        total.ports.resize(ports, PortCounted::default());
        for (port, now) in total.ports.iter_mut().zip(&self.now.ports) {
            port.receive_dropped += now.receive_dropped;
            port.send_dropped += now.send_dropped;
        }
        total
    }

    /// Frames that a link's ports have not received, and not sent, although they had been there.
    pub(super) fn dropped(&self, port: usize) -> [u64; 2] {
        let of = |counted: &CardCounted| {
            let port = counted.ports.get(port).cloned().unwrap_or_default();
            [port.receive_dropped, port.send_dropped]
        };
        let (before, now) = (of(&self.before), of(&self.now));
        [before[0] + now[0], before[1] + now[1]]
    }

    /// Adds them to what the forwarder says, which sees none of it.
    pub(super) fn add_to(&self, report: &mut Report) {
        let CardCounted { counters, ports } = self.total();
        let of = |name: &str| counters.get(name).copied().unwrap_or(0);
        let received: u64 = ports.iter().map(|port| port.receive_dropped).sum();
        let sent: u64 = ports.iter().map(|port| port.send_dropped).sum();
        let drops = [received, sent + of("send_failed"), of("receive_refused")];
        report.dropped.extend(DROPS.map(str::to_owned).into_iter().zip(drops));
        let named = counters.iter().map(|(name, value)| (format!("card_{name}"), *value));
        let named: BTreeMap<String, u64> = named.collect();
        report.counters.extend(named);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(sent: u64, dropped: u64) -> CardCounted {
        let port = PortCounted { receive_dropped: dropped, ..PortCounted::default() };
        CardCounted {
            counters: [("sent", sent), ("send_failed", 1)]
                .map(|(name, value)| (name.to_owned(), value))
                .into(),
            ports: vec![PortCounted::default(), port],
        }
    }

    #[test]
    fn figures_go_on_with_the_next_card() {
        let mut figures = CardFigures::default();
        figures.take(counted(10, 3));
        figures.take(counted(20, 5));
        figures.handle_restart();
        figures.take(counted(7, 2));
        let mut report = Report::default();
        figures.add_to(&mut report);
        assert_eq!((report.counter("card_sent"), report.counter("card_send_failed")), (27, 2));
        assert_eq!((report.dropped["receive_overflow"], report.dropped["send_failed"]), (7, 2));
        assert_eq!((figures.dropped(1), figures.dropped(9)), ([7, 0], [0, 0]));
    }
}
