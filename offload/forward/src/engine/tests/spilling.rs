//! F4: what only the card has, and what is still wanted, gives way to nothing.

use super::bench::{Bench, direct};
use super::*;

/// A payload that goes to many is worth having on the card, but not for the price of another one.
#[test]
fn a_payload_for_many_takes_no_place_of_one_that_would_be_lost() {
    // One entry more than is posted.
    let mut bench = Bench::new(EngineConfig { mode: Mode::Spill, entries: 13, ..direct() });
    bench.receive(SERVER);
    bench.engine.poll().unwrap();
    // The one that came last is fetched.
    bench.receive(GROUP);
    bench.engine.poll().unwrap();
    assert_eq!(bench.engine.counters().spilled, 1);
    bench.execute();
    bench.engine.poll().unwrap();
    // Its place is posted, and the card alone has the other two.
    bench.receive(SERVER);
    bench.engine.poll().unwrap();
    assert_eq!((bench.engine.queued(), bench.engine.precious), (3, 2));
    for (card_bytes, memory_bytes) in
        [(1000, 0), (1000, 1000 * u64::from(TARGETS)), (2000, 1000 * u64::from(TARGETS))]
    {
        bench.forward(1);
        let counters = *bench.engine.counters();
        assert_eq!((counters.card_bytes, counters.memory_bytes), (card_bytes, memory_bytes));
        assert_eq!(counters.lost, 0);
    }
}
