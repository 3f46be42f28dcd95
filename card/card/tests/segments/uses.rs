//! What an operator is told of the use of entries.

use nicache_cache::{MostUsed, Used};

use crate::script::Script;

fn look(script: &mut Script) -> Vec<Used> {
    let places = script.card.store().places();
    let mut most = MostUsed::new(8);
    // In parts, the last of which ends behind the last place.
    for from in (0..places).step_by(100) {
        script.card.take_uses(from..from + 100, &mut most);
    }
    most.list().to_vec()
}

fn hit(script: &mut Script) {
    script.ask(60_000);
    script.take_body();
    script.acknowledge(60_000);
}

#[test]
fn uses_are_told_once() {
    let mut script = Script::with_stored(b"a body");
    assert_eq!(look(&mut script), []);
    (0..3).for_each(|_| hit(&mut script));
    assert_eq!(script.card.counters().hits, 3);
    let used = look(&mut script);
    assert_eq!(used.len(), 1);
    assert_eq!((&*used[0].host, &*used[0].target), (&b"a"[..], &b"/object"[..]));
    assert_eq!((used[0].uses, used[0].body_len, used[0].is_dynamic), (3, 6, false));
    assert_eq!(look(&mut script), []);
    hit(&mut script);
    assert_eq!(look(&mut script)[0].uses, 1);
    // What is gone is not told of.
    hit(&mut script);
    script.card.purge(|_| true);
    assert_eq!(look(&mut script), []);
}
