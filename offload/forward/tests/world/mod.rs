//! A forwarder in memory: clients inside, servers outside, the outside on a VLAN.

#![allow(dead_code)]

use std::net::IpAddr;

use nicache_forward::interface::Interface;
use nicache_forward::nat::{External, Filtering};
use nicache_forward::{Config, Decision, Drop, Forwarder, Head, Incoming, Moment};
use nicache_port::Offload;
use nicache_tcp::Time;
use nicache_tcp::frame::Tags;

use crate::packets::{Recipe, Seen, verify};

pub(crate) const INSIDE: u8 = 0;
pub(crate) const OUTSIDE: u8 = 1;
pub(crate) const TAG: [u8; 4] = [0x81, 0, 0, 9];

pub(crate) fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A forwarder in memory: clients inside, servers outside, the outside on a VLAN.
pub(crate) struct World {
    pub forwarder: Forwarder,
    pub now: Time,
    pub random: fastrand::Rng,
}

pub(crate) const CLIENTS: [&str; 4] = ["10.1.0.2", "10.1.0.3", "fd01::2", "fd01::3"];
pub(crate) const SERVERS: [&str; 4] = ["192.0.2.2", "192.0.2.3", "fd02::2", "fd02::3"];
pub(crate) const EXTERNALS: [&str; 2] = ["192.0.2.1", "fd02::1"];

impl World {
    pub(crate) fn new(adjust: impl FnOnce(&mut Config)) -> Self {
        let interface = |port: u8, addresses: [&str; 2], masquerade| Interface {
            port,
            tags: if port == OUTSIDE { Tags::from_bytes(&TAG).unwrap() } else { Tags::default() },
            mac: [2, 0, 0, 0, 1, port],
            addresses: addresses
                .into_iter()
                .zip([24, 64])
                .map(|(text, len)| (address(text), len))
                .collect(),
            mtu: 1500,
            masquerade,
        };
        let mut config = Config::new(
            vec![
                interface(INSIDE, ["10.1.0.1", "fd01::1"], vec![]),
                interface(OUTSIDE, EXTERNALS, vec![0, 1]),
            ],
            5,
        );
        config.externals = EXTERNALS
            .map(|text| External {
                address: address(text),
                ports: 1024..=65_535,
                filtering: Filtering::default(),
            })
            .into();
        adjust(&mut config);
        let mut forwarder = Forwarder::new(config, Time::ZERO).unwrap();
        for (port, hosts) in [(INSIDE, CLIENTS), (OUTSIDE, SERVERS)] {
            for (number, host) in hosts.into_iter().enumerate() {
                forwarder.set_neighbour(
                    usize::from(port),
                    address(host),
                    [4, 0, 0, 0, port, number as u8],
                );
            }
        }
        Self { forwarder, now: Time::ZERO, random: fastrand::Rng::with_seed(1) }
    }

    pub(crate) fn handle(
        &mut self,
        frame: &[u8],
        port: u8,
        offload: Offload,
    ) -> Result<(usize, Vec<u8>, Offload), Drop> {
        let mut head = Head::new();
        let moment = Moment { now: self.now, random: self.random.u32(..) };
        let incoming = Incoming { look: frame, len: frame.len(), port, offload };
        match self.forwarder.handle(&incoming, &mut head, moment) {
            Decision::Forward(out) => {
                Ok((out.interface, [&head[..], &frame[out.rest]].concat(), out.offload))
            }
            Decision::Cut { whole, .. } | Decision::Segment { whole, .. } => {
                Ok((whole.interface, [&head[..], &frame[whole.rest]].concat(), whole.offload))
            }
            Decision::Answer { interface } => Ok((interface, head.to_vec(), Offload::default())),
            Decision::Drop(why) => Err(why),
            Decision::Wait => Err(Drop::Neighbour),
            other => panic!("{other:?}"),
        }
    }

    /// A packet from inside that leaves outside.
    pub(crate) fn leaves(&mut self, recipe: &Recipe) -> Vec<u8> {
        let (interface, frame, offload) =
            self.handle(&recipe.frame(), INSIDE, recipe.offload()).unwrap();
        let seen = verify(&frame, offload).unwrap();
        assert_eq!((interface, &seen.tags[..]), (usize::from(OUTSIDE), &TAG[..]));
        assert!(EXTERNALS.map(address).contains(&seen.source), "{seen:?}");
        frame
    }

    /// What a packet leaves as, or why it does not.
    pub(crate) fn try_leave(&mut self, recipe: &Recipe) -> Result<Seen, Drop> {
        let (_, frame, offload) = self.handle(&recipe.frame(), INSIDE, recipe.offload())?;
        Ok(verify(&frame, offload).unwrap())
    }

    /// What a packet from outside becomes inside, or why nothing.
    pub(crate) fn try_enter(&mut self, recipe: &Recipe) -> Result<Seen, Drop> {
        let recipe = Recipe { tags: vec![TAG], to_mac: [2, 0, 0, 0, 1, OUTSIDE], ..recipe.clone() };
        let (_, frame, offload) = self.handle(&recipe.frame(), OUTSIDE, recipe.offload())?;
        Ok(verify(&frame, offload).unwrap())
    }
}
