//! A card's place between two interfaces that are there, by the best of the ways that work.
//!
//! ```text
//! AF_XDP, L0 ──▶ packet sockets, L0 ──▶ packet sockets
//! ```
//!
//! What cannot be attached, or is found dead by probe frames ([`nicache_xdp::probe()`]), is
//! detached as a whole before the next way is tried. Packet sockets alone work on every Ethernet.

use anyhow::{Context, Result};
use nicache_xdp::{CardPort, Rest, Service, Side, Steering, SteeringConfig, SteeringError};

use crate::setup::{PortsSetup, ProbeSetup};

/// What is wanted.
#[derive(Debug, Clone)]
pub(super) struct StandingPlan {
    /// Service ports.
    pub http_ports: Vec<u16>,
    /// Toward the clients.
    pub wire: String,
    /// Where frames from there go that are not the card's.
    pub wire_rest: Rest,
    /// Toward the server.
    pub host: String,
    /// By what the card is on the wire.
    pub port: CardPort,
    /// Whether small hits are answered before the card.
    pub l0: bool,
    /// Most connections that can be lost with a card.
    pub connections: u32,
}

/// A card's place between two interfaces that are there, by the best of the ways that work: AF_XDP
/// or packet sockets, with L0 or without.
#[derive(Debug)]
pub(super) struct Standing {
    /// What is wanted, as far as it works.
    plan: StandingPlan,
    /// `None` only while one is replaced by another.
    steering: Option<Steering>,
}

impl Standing {
    /// Attaches the programs; says so where it is not as wanted.
    pub(super) fn make(mut plan: StandingPlan) -> Result<Self> {
        let steering = attach(&mut plan)?;
        Ok(Self { plan, steering: Some(steering) })
    }

    /// The programs at work.
    ///
    /// # Errors
    /// If they could not be attached again.
    pub(super) fn steering(&self) -> Result<&Steering> {
        self.steering.as_ref().context("no programs are at the interfaces")
    }

    /// What a card is told; with `probe` it is to send probe frames first, and gets the files for
    /// that.
    pub(super) fn setup(&self, probe: bool) -> PortsSetup {
        let StandingPlan { wire, host, wire_rest, port, .. } = &self.plan;
        let has_driver = self.steering.as_ref().is_some_and(|steering| steering.has_driver()[0]);
        let station = if let Rest::Station(address) = *wire_rest { Some(address) } else { None };
        let probe = probe.then_some(ProbeSetup { station });
        PortsSetup::Interfaces {
            wire: wire.clone(),
            host: host.clone(),
            port: *port,
            has_driver,
            probe,
        }
    }

    /// Whether L0 is to be had.
    pub(super) fn wants_l0(&self) -> bool {
        self.plan.l0
    }

    /// There is no L0 after all: what was attached for it alone is detached.
    pub(super) fn without_l0(&mut self) {
        self.plan.l0 = false;
        if let Some(steering) = &mut self.steering {
            steering.drop_first();
        }
    }

    /// The card cannot work as it is, for this reason. Another way is tried; false: there is none
    /// left, and nothing has changed.
    pub(super) fn step_down(&mut self, reason: &str) -> Result<bool> {
        let StandingPlan { wire, port, l0, .. } = &mut self.plan;
        match port {
            CardPort::Xdp { .. } => {
                tracing::warn!(
                    "{reason}: the card uses packet sockets on {wire} instead of AF_XDP (as with --port packet)"
                );
                *port = CardPort::Packet;
            }
            CardPort::Packet if *l0 => {
                tracing::warn!(
                    "{reason}: the card uses packet sockets on {wire}, and answers all hits itself (no --l0)"
                );
                *l0 = false;
            }
            CardPort::Packet => return Ok(false),
        }
        // An interface has one XDP program.
        self.steering = None;
        self.steering = Some(attach(&mut self.plan)?);
        Ok(true)
    }
}

fn attach(plan: &mut StandingPlan) -> Result<Steering> {
    let services: Vec<Service> = plan.http_ports.iter().map(|&port| Service::port(port)).collect();
    loop {
        let config = SteeringConfig {
            services: &services,
            wire: Side { interface: &plan.wire, rest: plan.wire_rest, port: plan.port },
            host: Side { interface: &plan.host, rest: Rest::Redirect, port: CardPort::Packet },
            has_first: plan.l0,
            connections: plan.connections,
        };
        match Steering::attach(&config) {
            Ok(steering) => {
                if let Some(reason) = steering.without_first() {
                    tracing::warn!(
                        "{reason}: the card uses packet sockets on {}, and answers all hits itself (no --l0)",
                        plan.wire
                    );
                    plan.l0 = false;
                }
                return Ok(steering);
            }
            Err(error @ (SteeringError::NoXdp { .. } | SteeringError::Busy(_))) => {
                let l0 = if plan.l0 { ", and answers all hits itself (no --l0)" } else { "" };
                tracing::warn!(
                    "{error}: the card uses packet sockets on {} (as with --port packet){l0}",
                    plan.wire
                );
                (plan.port, plan.l0) = (CardPort::Packet, false);
            }
            Err(error) => {
                return Err(error).with_context(|| {
                    format!("cannot stand between {} and {}", plan.wire, plan.host)
                });
            }
        }
    }
}
