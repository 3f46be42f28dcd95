//! Pages of a database on another machine with a bus (NATS) between its relay and the card's host:
//! never stale, whatever happens to the bus.

use std::sync::Mutex;
use std::time::Duration;

use rustix::process::Signal;

use crate::check::Cases;
use crate::common::kill;
use crate::far::Kind;
use crate::load::under_load;
use crate::mariadb::{HASTY, PATIENT, prepare, update, with};
use crate::pair::Pair;
use crate::stage::Watch;

#[test]
fn over_a_bus() {
    let mut pair = prepare(Pair::start_with(Kind::MariaDb, true, Watch::Kernel));
    let mut cases = Cases::default();
    cases.run("an update shows in the next reply", || {
        for version in [5, 6, 7] {
            let text = format!("version {version}");
            pair.stage.change(PATIENT, &text, || assert!(update(&pair.far, version)));
        }
    });
    cases.run("readers and a writer", || {
        let seen = with(&pair, PATIENT, Duration::from_secs(5), Vec::new());
        assert!(seen.failed == 0 && seen.replies > 200 && seen.changes > 20, "{seen:?}");
    });
    cases.run("slow", || {
        let seen = with(
            &pair,
            PATIENT,
            Duration::from_secs(10),
            vec![
                (0.5, &mut || pair.slow.set(30)),
                (3.0, &mut || pair.slow.set(700)),
                (8.0, &mut || pair.slow.set(0)),
            ],
        );
        assert!(seen.replies > 100 && seen.changes > 10, "{seen:?}");
        pair.stage.warm(PATIENT);
    });
    cases.run("cut", || {
        let seen = with(
            &pair,
            HASTY,
            Duration::from_secs(12),
            vec![
                (1.0, &mut || pair.far.cut_events(true)),
                (7.0, &mut || pair.far.cut_events(false)),
            ],
        );
        assert!(seen.replies > 100 && seen.changes > 20, "{seen:?}");
        pair.stage.warm(HASTY);
    });
    cases.run("the bus stands still", || {
        let nats = pair.far.nats();
        let seen = with(
            &pair,
            HASTY,
            Duration::from_secs(12),
            vec![(1.0, &mut || kill(nats, Signal::STOP)), (6.0, &mut || kill(nats, Signal::CONT))],
        );
        assert!(seen.replies > 100 && seen.changes > 20, "{seen:?}");
        pair.stage.warm(HASTY);
    });
    cases.run("the bus is killed, and comes back", || {
        pair.far.sql("UPDATE versions SET version = 0");
        pair.stage.warm(HASTY);
        let mut state = 0;
        let far = Mutex::new(&mut pair.far);
        let write = |version: usize| update(&far.lock().unwrap(), version);
        let seen = under_load(pair.stage.address(), HASTY, Duration::from_secs(12), write, |at| {
            if state == 0 && at > Duration::from_secs(1) {
                far.lock().unwrap().kill_nats();
                state = 1;
            } else if state == 1 && at > Duration::from_secs(5) {
                far.lock().unwrap().start_nats();
                state = 2;
            }
        });
        println!("  {seen:?}");
        assert!(state == 2 && seen.replies > 100 && seen.changes > 20, "{seen:?}");
        pair.stage.warm(HASTY);
    });
    let mut stage = pair.stage;
    drop(pair.far);
    cases.end(&mut stage);
}
