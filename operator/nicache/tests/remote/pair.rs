//! A web machine, and the one that its database is on.

use crate::common::private_network;
use crate::far::{FAR, Far, Kind, NEAR};
use crate::slow::Slow;
use crate::stage::{Setup, Stage, Watch};

/// A web machine whose pages come from a database on another one.
pub(crate) struct Pair {
    pub stage: Stage,
    pub far: Far,
    /// Between the two, for what the relay says.
    pub slow: Slow,
}

impl Pair {
    pub(crate) fn start(kind: Kind) -> Self {
        Self::start_with(kind, false, Watch::Kernel)
    }

    /// `on_bus`: what the relay says goes over NATS.
    pub(crate) fn start_with(kind: Kind, on_bus: bool, watch: Watch) -> Self {
        private_network();
        let far = Far::start(kind, on_bus);
        let slow = Slow::start(&format!("{NEAR}:7401"), format!("{FAR}:{}", far.events_port()));
        let way = if on_bus {
            format!("nats=nats://{NEAR}:7401/shop")
        } else {
            format!("relay={NEAR}:7401")
        };
        let option: &'static str = Box::leak(far.option(&way).into_boxed_str());
        let options: &'static [&'static str] = Box::leak(Box::new(["--remote-database", option]));
        let stage = Stage::start_here(&Setup { options, watch, ..Setup::default() }, None, |_| {});
        Self { stage, far, slow }
    }
}
