//! A card between two wires in memory: a client's SYN comes out on the host's side. This is how
//! tests drive a card. `cargo run -p nicache-card --example memory_wire`.

use std::{io::IoSlice, sync::Arc};

use nicache_cache::{CoherenceLink, Store};
use nicache_card::{Card, CardConfig};
use nicache_coherence::{Answer, Question, RevisionTable};
use nicache_http::KeyConfig;
use nicache_memory::{CardMemory, HugePages};
use nicache_policy::Lru;
use nicache_port::{Burst, Capabilities, Offload, Port, memory_wire};
use nicache_tcp::Time;

/// A watcher that vouches for nothing, so the card keeps nothing.
struct Nobody;

impl CoherenceLink for Nobody {
    fn ask(&mut self, _: &Question<'_>) -> bool {
        false
    }
    fn poll_answer(&mut self) -> Option<Answer> {
        None
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const MEMORY: usize = 4 << 20;
    let (wire, mut client) = memory_wire(64, Capabilities::PLAIN, Capabilities::PLAIN);
    let (host_side, mut host) = memory_wire(64, Capabilities::PLAIN, Capabilities::PLAIN);
    let config = CardConfig::new(vec![80], MEMORY, KeyConfig::new([1; 16]), [2; 16]);
    let policy = Box::new(Lru::new(MEMORY as u64, config.entries as u32));
    let (memory, table) = (CardMemory::new(MEMORY, HugePages::No)?, RevisionTable::on_heap());
    let store = Store::new(memory, policy, Arc::clone(&table), config.entries);
    let mut card = Card::new(wire, host_side, config, store, Box::new(Nobody), Time(0));

    // Ethernet, IPv4 from 10.0.0.1 to 10.0.0.2, and a SYN from port 40000 to port 80.
    let syn = include_bytes!("syn.bin");
    client.send(&[IoSlice::new(syn)], Offload::default()).map_err(|error| format!("{error:?}"))?;
    card.poll(Time(1), 1_700_000_000)?;
    let mut burst = Burst::new(8);
    println!("{} frame on the host's side", host.receive(&mut burst)?);
    Ok(())
}
