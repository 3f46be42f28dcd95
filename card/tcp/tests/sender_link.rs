//! The sender over a simulated link: every byte arrives, no rule is broken, no live-lock.

mod link;

use link::{Random, Setup, run};
use std::time::Duration;

/// Seeds per sweep; `NICACHE_TCP_SEEDS` overrides it, for a longer search.
fn seeds() -> u64 {
    std::env::var("NICACHE_TCP_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1_500)
}

fn any_setup(seed: u64) -> Setup {
    let mut r = Random::new(seed ^ 0x5eed);
    let mut setup = Setup::clean(1 + r.below(400_000) as u32);
    setup.seed = seed;
    setup.fin = r.below(4) > 0;
    setup.mss = [536, 1_000, 1_448, 1_460, 8_948][r.below(5) as usize];
    setup.sack = r.below(4) > 0;
    setup.timestamps = r.below(4) > 0;
    setup.rtt = Duration::from_micros([60, 1_000, 20_000, 150_000][r.below(4) as usize]);
    if r.below(4) > 0 {
        setup.loss = r.below(80) as u32;
        setup.ack_loss = r.below(80) as u32;
    }
    if r.below(2) == 0 {
        setup.duplicate = r.below(60) as u32;
    }
    if r.below(2) == 0 {
        setup.reorder = r.below(150) as u32;
    }
    if r.below(2) == 0 {
        setup.rate = 100_000 + r.below(20_000_000);
        setup.queue = 20_000 + r.below(200_000);
    }
    setup.buffer = [4_000, 20_000, 65_535, 1 << 20][r.below(4) as usize];
    if r.below(2) == 0 {
        setup.read_rate = 50_000 + r.below(10_000_000);
        if r.below(2) == 0 {
            setup.pause = Duration::from_secs(3);
        }
    }
    setup.shrink = r.below(8) == 0;
    setup.renege = setup.sack && r.below(8) == 0;
    setup.burst_bytes = [u32::from(setup.mss), 9_000, 65_535][r.below(3) as usize];
    setup
}

#[test]
fn every_byte_arrives_whatever_the_path_does() {
    let only = std::env::var("NICACHE_TCP_SEED").ok().and_then(|n| n.parse::<u64>().ok());
    for seed in 0..seeds() {
        if only.is_some_and(|only| only != seed) {
            continue;
        }
        let setup = any_setup(seed);
        let result = std::panic::catch_unwind(|| run(&setup));
        assert!(result.is_ok(), "seed {seed}: {setup:?}");
    }
}

#[test]
fn heavy_loss_ends_some_day() {
    for seed in 0..seeds() / 15 {
        let mut setup = Setup { seed, loss: 300, ack_loss: 300, ..Setup::clean(60_000) };
        setup.config.give_up = Duration::from_secs(100_000);
        setup.config.expiries_max = 200;
        setup.sack = seed % 2 == 0;
        setup.timestamps = seed % 3 == 0;
        run(&setup);
    }
}

#[test]
fn a_clean_path_sees_no_retransmission() {
    for seed in 0..200 {
        for (rtt, rate) in [(60, 0), (1_000, 0), (20_000, 0), (150_000, 0), (20_000, 12_500_000)] {
            for bytes in [1, 100, 1_448, 2_000, 14_600, 100_000, 1_000_000] {
                if bytes == 1_000_000 && seed > 3 {
                    continue;
                }
                let setup =
                    Setup { seed, rtt: Duration::from_micros(rtt), rate, ..Setup::clean(bytes) };
                let report = run(&setup);
                assert_eq!(report.retransmitted + report.window_probes, 0, "{setup:?} {report:?}");
                assert_eq!(report.duplicate_bytes, 0);
            }
        }
    }
}

#[test]
fn one_and_two_percent_loss_are_repaired_without_timeouts_for_the_most_part() {
    for (loss, sack) in [(10, true), (20, true), (10, false)] {
        let (mut elapsed, mut timeouts, mut retransmitted, mut segments, mut lost) =
            (Duration::ZERO, 0, 0, 0, 0);
        for seed in 0..20 {
            let setup = Setup { seed, loss, sack, ..Setup::clean(2_000_000) };
            let report = run(&setup);
            elapsed += report.elapsed;
            timeouts += report.timeouts;
            retransmitted += report.retransmitted;
            segments += report.segments;
            lost += report.segments * u64::from(loss) / 1_000;
        }
        let goodput = 20.0 * 2_000_000.0 / elapsed.as_secs_f64() / 1e6;
        println!(
            "loss {loss} sack {sack}: {goodput:.2} MB/s, {timeouts} timeouts, {retransmitted} again of {segments}, about {lost} lost"
        );
        if sack {
            assert!(timeouts * 10 < retransmitted, "{timeouts} {retransmitted}");
            assert!(retransmitted < lost * 3 / 2 + 100, "{retransmitted} for {lost} lost");
            assert!(goodput > 0.5, "{goodput}");
        }
    }
}
