//! What a card is told of the options.

use super::tap;
use crate::options::RunPlan;
use crate::setup::{CardSetup, PortsSetup};

/// Most connections that end with a card: those of all its queues, and those that an older one
/// still has.
pub(super) fn connections_lost_max(plan: &RunPlan) -> u32 {
    plan.clients.connections.saturating_mul(2 * u32::from(plan.queues))
}

/// `resource_secret`: one for all cards of a server.
pub(super) fn card_setup(
    plan: &RunPlan,
    witness_files: usize,
    resource_secret: [u8; 16],
) -> CardSetup {
    CardSetup {
        log_format: plan.log_format,
        ports: PortsSetup::Taps,
        mtu: tap::MTU,
        queues: plan.queues,
        memory_bytes: plan.memory_bytes,
        policy: plan.policy,
        handshake: plan.handshake,
        clients: plan.clients.clone(),
        http_ports: plan.http_ports.clone(),
        rechecker: None,
        rechecks: plan.rechecks,
        pcap: plan.pcap.clone(),
        resource_secret: Some(resource_secret),
        bypass: false,
        access_log: plan.access_log.is_some(),
        l0: plan.l0,
        cache_status: plan.cache_status,
        ignore_cookies: plan.ignore_cookies.clone(),
        ignore_headers: plan.ignore_headers.clone(),
        vary: plan.vary.clone(),
        paths: plan.paths.clone(),
        witness_files,
    }
}
