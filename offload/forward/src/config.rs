//! How a forwarder is set up.

use std::ops::RangeInclusive;

use crate::conntrack::{Limits, Timeouts};
use crate::fan_out::Group;
use crate::interface::Interface;
use crate::nat::{External, Forwarded};
use crate::routes::Route;
use crate::rules::Rule;
use crate::services::ServiceConfig;
use crate::tuple::Protocol;

/// How a forwarder is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its interfaces; elsewhere they are named by their place here.
    pub interfaces: Vec<Interface>,
    /// Ways that do not follow from the interfaces' addresses.
    pub routes: Vec<Route>,
    /// Addresses to the outside.
    pub externals: Vec<External>,
    /// Ports forwarded for good.
    pub forwarded: Vec<Forwarded>,
    /// Addresses that stand for back ends.
    pub services: Vec<ServiceConfig>,
    /// Addresses from which datagrams go to many.
    pub groups: Vec<Group>,
    /// What may pass.
    pub rules: Vec<Rule>,
    /// Ports of our addresses that somebody else on this machine serves: they are none of the
    /// forwarder's.
    pub left_alone: Vec<(Protocol, RangeInclusive<u16>)>,
    /// Connections at most: 1 KiB of memory each, with mapping.
    pub limits: Limits,
    /// When connections are forgotten.
    pub timeouts: Timeouts,
    /// Neighbours at most.
    pub neighbours: usize,
    /// Packets in pieces that are followed at once.
    pub fragments: u32,
    /// A number that nobody else knows.
    pub secret: u64,
    /// A number that all balancers of a service share.
    pub balance_seed: u64,
}

impl Config {
    /// A configuration with interfaces and nothing else.
    pub fn new(interfaces: Vec<Interface>, secret: u64) -> Self {
        Self {
            interfaces,
            routes: Vec::new(),
            externals: Vec::new(),
            forwarded: Vec::new(),
            services: Vec::new(),
            groups: Vec::new(),
            rules: Vec::new(),
            left_alone: Vec::new(),
            limits: Limits { connections: 65_536, opening: 16_384 },
            timeouts: Timeouts::default(),
            neighbours: 4096,
            fragments: 1024,
            secret,
            balance_seed: 0,
        }
    }
}
