//! Whatever the wire does, each body is the file.

mod world;

use std::time::Duration;

use nicache_port::{Capabilities, FaultRates};

use self::world::{Settings, World};

const NAMES: [(&str, usize); 9] = [
    ("empty", 0),
    ("one", 1),
    ("small", 100),
    ("below", 4095),
    ("block", 4096),
    ("above", 4097),
    ("some", 10_000),
    ("large", 1_000_000),
    ("streamed", (9 << 20) + 7),
];

#[test]
fn a_perfect_wire() {
    for capabilities in [Capabilities::FULL, Capabilities::PLAIN] {
        let mut world = World::new(Settings { capabilities, ..Settings::default() });
        let id = world.client.connect(0);
        for (name, len) in NAMES {
            world.folder.create(name, len);
            world.client.ask(id, &format!("/{name}"));
        }
        for (name, _) in NAMES {
            let mut reply = None;
            world.run_until(Duration::from_secs(60), |world| {
                reply = world.client.next_reply(id);
                reply.is_some()
            });
            let reply = reply.unwrap();
            assert_eq!(reply.status, 200, "{name}");
            assert!(reply.body == world.folder.bytes(name), "{name}");
            world.check_inclusion();
        }
        world.check_nothing_is_left();
        eprintln!("{:?} {:?}", world.age(), world.service.counters());
        let _ = FaultRates::default();
    }
}
