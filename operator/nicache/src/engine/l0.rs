//! The program that answers small hits, for the card.

use std::os::fd::{AsFd, BorrowedFd};

use anyhow::Result;
use nicache_card::{FlowKey, L0, Loan, LoanTimestamps, Published};
use nicache_tcp::frame::Address;
use nicache_tcp::{Seq, Time};
use nicache_xdp::l0;

use super::clock::monotonic;
use super::ports::FirstPlace;

/// Shards of a card at most.
pub(crate) const L0_SHARDS_MAX: usize = l0::SHARDS_MAX;

/// See [`nicache_xdp::l0`].
pub(crate) struct KernelL0(l0::L0);

impl KernelL0 {
    /// At `place`, for each shard of the card; `control` is the control page of the kernel's
    /// witness.
    pub(crate) fn attach(
        place: &FirstPlace,
        control: BorrowedFd<'_>,
        seed: u64,
        shards: usize,
    ) -> Result<Vec<Self>> {
        let all = match place {
            FirstPlace::Tap(name) => l0::L0::attach_egress(name, control, seed, shards)?,
            FirstPlace::Driver { interface, first, rest } => {
                let files = nicache_xdp::FirstFiles { first: first.as_fd(), rest: rest.as_fd() };
                l0::L0::attach_first(files, interface, control, seed, shards)?
            }
        };
        Ok(all.into_iter().map(KernelL0).collect())
    }
}

impl L0 for KernelL0 {
    fn lend(&mut self, loan: &Loan) -> Option<u32> {
        let timestamps = loan.timestamps.map(|stamps| {
            let LoanTimestamps { recent, stamp, sent } = stamps;
            l0::LoanTimestamps { recent, stamp, sent }
        });
        self.0.lend(&l0::Loan {
            client: loan.key.client.octets(),
            server: loan.key.server.octets(),
            client_port: loan.key.client_port,
            server_port: loan.key.server_port,
            rcv_nxt: loan.rcv_nxt.0,
            snd_una: loan.snd_una.0,
            snd_nxt: loan.snd_nxt.0,
            edge: loan.edge.0,
            client_scale: loan.client_scale,
            window: loan.window,
            segment_bytes: loan.segment_bytes,
            burst_bytes: loan.burst_bytes,
            timestamps,
            used_ns: loan.used.0,
            tag: loan.tag,
            date: loan.date,
        })
    }

    fn take_back(&mut self, place: u32) -> Option<Loan> {
        let loan = self.0.take_back(place)?;
        let timestamps = loan.timestamps.map(|stamps| {
            let l0::LoanTimestamps { recent, stamp, sent } = stamps;
            LoanTimestamps { recent, stamp, sent }
        });
        let key = FlowKey {
            client: address(loan.client),
            server: address(loan.server),
            client_port: loan.client_port,
            server_port: loan.server_port,
            ..FlowKey::default()
        };
        Some(Loan {
            key,
            rcv_nxt: Seq(loan.rcv_nxt),
            snd_una: Seq(loan.snd_una),
            snd_nxt: Seq(loan.snd_nxt),
            edge: Seq(loan.edge),
            client_scale: loan.client_scale,
            window: loan.window,
            segment_bytes: loan.segment_bytes,
            burst_bytes: loan.burst_bytes,
            timestamps,
            used: Time(loan.used_ns),
            tag: loan.tag,
            date: loan.date,
        })
    }

    fn used(&self, place: u32) -> Time {
        Time(self.0.used_ns(place))
    }

    fn slot_of(&self, head: &[u8]) -> Option<usize> {
        self.0.slot_of(head)
    }

    fn slots(&self) -> usize {
        l0::REPLIES
    }

    fn reply_bytes_max(&self) -> usize {
        self.0.reply_bytes_max()
    }

    fn publish(&mut self, reply: &Published<'_>) -> bool {
        self.0.publish(&l0::Reply {
            head: reply.head,
            bytes: reply.bytes,
            sum: reply.sum,
            epoch: reply.epoch.0,
            until_ns: as_boottime(reply.until),
            tag: reply.tag,
            date: reply.date,
        })
    }

    fn revoke(&mut self) {
        self.0.revoke();
    }

    fn served(&self, slot: usize) -> u64 {
        self.0.served(slot)
    }
}

fn address(octets: [u8; 16]) -> Address {
    Address::from(std::net::Ipv6Addr::from(octets))
}

const _: () = assert!(l0::HEAD_BYTES_MAX == nicache_card::L0_HEAD_BYTES);
const _: () = assert!(l0::REPLY_BYTES_MAX == nicache_card::L0_REPLY_BYTES);

/// A time of the card by the clock that the program compares the lease with. If the machine is
/// suspended before, it is over the sooner.
fn as_boottime(time: Time) -> u64 {
    // In this order: too early is harmless.
    let boottime_ns = nicache_clock::boottime_ns();
    let suspended_ns = boottime_ns.saturating_sub(monotonic().0);
    time.0.saturating_add(suspended_ns)
}
