//! Kernel, stations and the whole model against what queueing theory knows exactly.

mod common;

use common::assert_agrees;
use fastrand::Rng;
use nicache_queueing::{
    Component, Config, Kernel, Outcome, Servers, Station, StationCounts, Time, run,
};

const SEEDS: u64 = 20;
const MEAN_SERVICE_PS: f64 = 1e6;

enum Event {
    Arrival,
    Completion,
}

/// One station with Poisson arrivals; the first tenth of the jobs is left out.
fn single(
    servers: Servers,
    load: f64,
    jobs: u64,
    seed: u64,
    service: &dyn Fn(&mut Rng) -> f64,
) -> (StationCounts, Time) {
    let mut random = Rng::with_seed(seed);
    let (mut kernel, mut station) = (Kernel::new(), Station::new(servers));
    kernel.schedule(Time::ZERO, Event::Arrival);
    let mut arrived = 0;
    while let Some(event) = kernel.poll() {
        let now = kernel.now();
        let begun = match event {
            Event::Arrival => {
                arrived += 1;
                if arrived == jobs / 10 {
                    station.reset(now);
                }
                if arrived < jobs {
                    let gap = MEAN_SERVICE_PS / load * exponential(&mut random);
                    kernel.schedule(now + Time(gap.round() as u64), Event::Arrival);
                }
                let time = MEAN_SERVICE_PS * service(&mut random);
                station.handle_arrival(now, (), Time(time.round() as u64))
            }
            Event::Completion => station.handle_completion(now),
        };
        if let Some(begun) = begun {
            kernel.schedule(begun.until, Event::Completion);
        }
    }
    let now = kernel.now();
    (station.counts(now), now)
}

fn exponential(random: &mut Rng) -> f64 {
    -(1.0 - random.f64()).ln()
}

/// Waiting time of M/G/1 in mean service times (Pollaczek and Khinchine): load (1 + variance) / (2
/// (1 - load)).
fn assert_pollaczek_khinchine(name: &str, variance: f64, service: &dyn Fn(&mut Rng) -> f64) {
    for (load, jobs) in [(0.3, 100_000), (0.7, 300_000)] {
        let runs: Vec<_> =
            (0..SEEDS).map(|seed| single(Servers::One, load, jobs, seed, service)).collect();
        let wait = load * (1.0 + variance) / (2.0 * (1.0 - load));
        let figures = |figure: &dyn Fn(&StationCounts, f64) -> f64| -> Vec<f64> {
            runs.iter()
                .map(|(counts, now)| figure(counts, (*now - counts.since).0 as f64))
                .collect()
        };
        let waits =
            figures(&|counts, _| counts.wait_ps as f64 / counts.begun as f64 / MEAN_SERVICE_PS);
        assert_agrees(&format!("{name}, load {load}, wait"), &waits, wait);
        let busy = figures(&|counts, span| counts.busy_ps as f64 / span);
        assert_agrees(&format!("{name}, load {load}, utilisation"), &busy, load);
        let queue = figures(&|counts, span| counts.waiting_ps as f64 / span);
        assert_agrees(&format!("{name}, load {load}, queue"), &queue, load * wait);
    }
}

#[test]
fn m_m_1() {
    assert_pollaczek_khinchine("M/M/1", 1.0, &exponential);
}

#[test]
fn m_d_1() {
    assert_pollaczek_khinchine("M/D/1", 0.0, &|_| 1.0);
}

#[test]
fn m_g_1_with_uniform_service() {
    assert_pollaczek_khinchine("M/U/1", 1.0 / 3.0, &|random| 2.0 * random.f64());
}

/// Of mean 0.5 or 3, four times to once: the mean is 1, the second moment 2 (0.8 * 0.25 + 0.2 * 9)
/// = 4.
#[test]
fn m_g_1_with_hyperexponential_service() {
    assert_pollaczek_khinchine("M/H/1", 3.0, &|random| {
        let mean = if random.f64() < 0.8 { 0.5 } else { 3.0 };
        mean * exponential(random)
    });
}

/// Jobs present in M/G/infinity: the load in the mean, and a share of exp(-load) of the time
/// nobody.
#[test]
fn m_g_infinity() {
    let load = 2.0;
    let service = |random: &mut Rng| 2.0 * random.f64();
    let runs: Vec<_> =
        (0..SEEDS).map(|seed| single(Servers::Unlimited, load, 100_000, seed, &service)).collect();
    let span = |counts: &StationCounts, now: &Time| (*now - counts.since).0 as f64;
    let jobs: Vec<f64> =
        runs.iter().map(|(counts, now)| counts.jobs_ps as f64 / span(counts, now)).collect();
    assert_agrees("M/G/inf, jobs", &jobs, load);
    let busy: Vec<f64> =
        runs.iter().map(|(counts, now)| counts.busy_ps as f64 / span(counts, now)).collect();
    assert_agrees("M/G/inf, busy", &busy, 1.0 - (-load).exp());
    assert!(runs.iter().all(|(counts, _)| counts.wait_ps == 0));
}

/// The whole model in which only one station takes time (but for the bus, which delays everybody by
/// the same).
fn only(component: Component, text: &str) -> Vec<Outcome> {
    let config = Config::from_toml(&format!(
        "[requests]\ncount = 200_000\narrivals = 'poisson'\nfrequency_per_s = 600_000\n[simulation]\nscale = 1024\n\
         warm_up_requests = 20_000\n{text}"
    ))
    .unwrap();
    let outcomes: Vec<_> = (0..SEEDS).map(|seed| run(&config, seed).unwrap()).collect();
    assert!(outcomes.iter().all(|outcome| outcome.bottleneck == component));
    outcomes
}

fn assert_station(outcomes: &[Outcome], component: Component, load: f64, wait_ns: f64) {
    let station = |outcome: &Outcome| outcome.stations[component as usize].clone();
    let utilisation: Vec<f64> =
        outcomes.iter().map(|outcome| station(outcome).utilisation).collect();
    assert_agrees("utilisation", &utilisation, load);
    let wait: Vec<f64> = outcomes.iter().map(|outcome| station(outcome).wait_mean_ns).collect();
    assert_agrees("wait", &wait, wait_ns);
    let waiting: Vec<f64> = outcomes.iter().map(|outcome| outcome.path.waiting_ns).collect();
    assert_agrees("waiting in all", &waiting, wait_ns);
}

#[test]
fn the_host_processor_alone_is_m_d_1_or_m_m_1() {
    for (processing, factor) in [("constant", 0.5), ("exponential", 1.0)] {
        let text = format!(
            "[host]\nprocessing_cycles = 1000\nprocessing = '{processing}'\nmemory_latency_cycles = 0"
        );
        let outcomes = only(Component::HostProcessor, &text);
        assert_station(&outcomes, Component::HostProcessor, 0.6, factor * 0.6 / 0.4 * 1000.0);
    }
}

#[test]
fn the_network_processor_alone_is_m_m_1() {
    let text = "[network_processor]\nclock_mhz = 200\nprocessing_cycles = 200\nprocessing = 'exponential'\n\
                [host]\nprocessing_cycles = 0\nmemory_latency_cycles = 0";
    let outcomes = only(Component::NetworkProcessor, text);
    assert_station(&outcomes, Component::NetworkProcessor, 0.6, 1500.0);
}

/// Sizes of 1 to 64 lines, each as likely, drawn for each response: mean 32.5 lines, second moment
/// (65)(129) / 6.
#[test]
fn the_host_memory_alone_is_m_g_1() {
    let text = "[responses]\nmin_bytes = 1\nmax_bytes = 524_288\ndrawn = 'per_response'\n\
                [host]\nprocessing_cycles = 0\nmemory_latency_cycles = 30\nmemory_line_bytes = 8";
    let outcomes = only(Component::HostMemory, text);
    let (mean_ns, second_moment, rate) = (32.5 * 30.0, 65.0 * 129.0 / 6.0 * 900.0, 600_000.0 / 1e9);
    let load = rate * mean_ns;
    assert_station(
        &outcomes,
        Component::HostMemory,
        load,
        rate * second_moment / (2.0 * (1.0 - load)),
    );
}
