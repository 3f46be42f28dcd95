//! What a card tells its supervisor of its counters, and of ports that are lost.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use nicache_firmware::{Firmware, FirmwareCounters};
use nicache_port::Port;

use super::messages::{CardCounted, FromFirmware, PortCounted};
use super::ports::CardPort;
use crate::setup::send_message;

/// Between two times that it is told.
const INTERVAL_NS: u64 = 1_000_000_000;

/// Tells a supervisor what a card has counted.
#[derive(Debug, Default)]
pub(super) struct Teller {
    /// At attachments before.
    before: FirmwareCounters,
    told: Figures,
    told_ns: u64,
}

/// What is compared often.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Figures {
    counters: FirmwareCounters,
    drops: u64,
    lost: usize,
}

impl Teller {
    /// An attachment is over.
    pub(super) fn handle_end(&mut self, firmware: &Firmware<CardPort>) {
        self.before.add_each(firmware.counters());
    }

    /// Tells what has changed, if it is time. After what time there is more to tell.
    pub(super) fn tell(
        &mut self,
        firmware: &Firmware<CardPort>,
        supervisor: BorrowedFd<'_>,
        now_ns: u64,
    ) -> Option<Duration> {
        let mut counters = self.before;
        counters.add_each(firmware.counters());
        let ports = firmware.ports();
        let figures = Figures {
            counters,
            drops: ports.iter().map(|port| port.receive_dropped() + port.send_dropped()).sum(),
            lost: ports.iter().filter(|port| port.lost().is_some()).count(),
        };
        if figures == self.told {
            return None;
        }
        let passed_ns = now_ns.saturating_sub(self.told_ns);
        if passed_ns < INTERVAL_NS && figures.lost == self.told.lost {
            return Some(Duration::from_nanos(INTERVAL_NS - passed_ns));
        }
        let counted = CardCounted {
            counters: counters
                .each()
                .map(|(counter, value)| (counter.name.to_owned(), value))
                .collect(),
            ports: ports
                .iter()
                .map(|port| PortCounted {
                    receive_dropped: port.receive_dropped(),
                    send_dropped: port.send_dropped(),
                    lost: port.lost().map(str::to_owned),
                })
                .collect(),
        };
        self.told_ns = now_ns;
        match send_message(supervisor, &FromFirmware::Counted(counted), &[]) {
            Ok(()) => {
                self.told = figures;
                None
            }
            // One that does not read is told later.
            Err(_) => Some(Duration::from_nanos(INTERVAL_NS)),
        }
    }
}
