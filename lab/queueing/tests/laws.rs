//! What holds in every run, whatever its configuration.

use nicache_queueing::{
    Answer, Arrivals, BusBytes, Component, Config, Drawn, Identifiers, MemoryPolicy, Observer,
    Processing, run, run_observed,
};
use proptest::prelude::*;

#[derive(Default)]
struct Answers(Vec<Answer>);

impl Observer for Answers {
    fn handle_answer(&mut self, answer: &Answer) {
        self.0.push(*answer);
    }
}

fn any_config() -> impl Strategy<Value = Config> {
    let policies =
        [MemoryPolicy::Lru, MemoryPolicy::Fifo, MemoryPolicy::Lfu, MemoryPolicy::Popularity];
    let workload = (
        1u64..400,
        1u32..40,
        prop::sample::select(vec![1e3, 1e5, 5e5, 1e6]),
        any::<bool>(),
        any::<bool>(),
        0u32..3000,
        (0u32..5000, 0u32..30_000),
        any::<bool>(),
    );
    let server = (
        0u64..150_000,
        prop::sample::select(policies.to_vec()),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        0f64..40.0,
        0u64..150_000,
        (0u32..2000, 0u32..2000),
    );
    (workload, server).prop_map(|(workload, server)| {
        let mut config = Config::default();
        let (
            count,
            different,
            frequency,
            poisson,
            zipf,
            size_bytes,
            (min_bytes, more),
            per_response,
        ) = workload;
        config.requests.count = count;
        config.requests.different = different;
        config.requests.frequency_per_s = frequency;
        config.requests.arrivals = if poisson { Arrivals::Poisson } else { Arrivals::Fixed };
        config.requests.identifiers = if zipf { Identifiers::Zipf } else { Identifiers::Uniform };
        config.requests.size_bytes = size_bytes;
        (config.responses.min_bytes, config.responses.max_bytes) = (min_bytes, min_bytes + more);
        config.responses.drawn =
            if per_response { Drawn::PerResponse } else { Drawn::PerIdentifier };
        let (
            memory,
            policy,
            contention,
            disk,
            exponential,
            cycles,
            host_memory,
            (header, location),
        ) = server;
        config.network_processor.memory_bytes = memory;
        config.network_processor.memory_policy = policy;
        config.network_processor.processing_cycles = cycles;
        config.bus.contention = contention;
        config.disk.present = disk;
        config.disk.latency_cycles = 5000.0;
        config.host.memory_bytes = host_memory;
        let processing = if exponential { Processing::Exponential } else { Processing::Constant };
        (config.network_processor.processing, config.host.processing) = (processing, processing);
        (config.responses.in_np_memory_bytes, config.responses.location_bytes) = (header, location);
        config
    })
}

fn close(left: f64, right: f64) -> bool {
    (left - right).abs() <= 1e-9 * (1.0 + left.abs().max(right.abs()))
}

proptest! {
    /// L = lambda W at each station: the left from the integral over time, the right from the jobs'
    /// own times.
    #[test]
    fn littles_law_holds_at_every_station(config in any_config(), seed in any::<u64>()) {
        let outcome = run(&config, seed).unwrap();
        for station in &outcome.stations {
            let rate_per_ns = station.completions as f64 / (outcome.duration_s * 1e9);
            let wait = station.wait_mean_ns;
            prop_assert!(close(station.queue_mean, rate_per_ns * wait), "{station:?}");
            prop_assert!(
                close(station.jobs_mean, rate_per_ns * (wait + station.service_mean_ns)),
                "{station:?}"
            );
            if station.queues {
                prop_assert!(
                    close(station.utilisation, rate_per_ns * station.service_mean_ns),
                    "{station:?}"
                );
            } else {
                prop_assert_eq!(wait, 0.0);
            }
            prop_assert!(station.utilisation <= 1.0 + 1e-12);
        }
    }

    /// Every request is answered once, and every byte that an answer needs has crossed the bus, and
    /// no other.
    #[test]
    fn requests_and_bytes_are_conserved(config in any_config(), seed in any::<u64>()) {
        let mut answers = Answers::default();
        let outcome = run_observed(&config, seed, &mut answers).unwrap();
        let mut sequences: Vec<u64> = answers.0.iter().map(|answer| answer.sequence).collect();
        sequences.sort_unstable();
        prop_assert_eq!(sequences, (0..config.requests.count).collect::<Vec<_>>());
        prop_assert_eq!(outcome.requests, config.requests.count);
        let hits = answers.0.iter().filter(|answer| answer.hit).count() as u64;
        let missed = answers
            .0
            .iter()
            .filter(|answer| !answer.hit)
            .map(|answer| u64::from(answer.bytes))
            .sum();
        let bytes = BusBytes {
            requests: config.requests.count * u64::from(config.requests.size_bytes),
            responses: missed,
            headers: hits * u64::from(config.responses.in_np_memory_bytes),
            locations: hits * u64::from(config.responses.location_bytes),
        };
        prop_assert_eq!((outcome.hits, outcome.bus_bytes), (hits, bytes));
        prop_assert_eq!(outcome.bus_to_host_bytes + outcome.bus_to_card_bytes, bytes.total());
        let completions = |component: Component| outcome.stations[component as usize].completions;
        prop_assert_eq!(completions(Component::HostProcessor), config.requests.count);
        prop_assert_eq!(completions(Component::HostMemory), config.requests.count - hits);
        prop_assert_eq!(completions(Component::Bus), 2 * config.requests.count + hits);
        let memory = outcome.network_processor_memory;
        prop_assert_eq!(completions(Component::NetworkProcessorMemory), hits + memory.insertions);
        prop_assert!(memory.bytes <= config.network_processor.memory_bytes);
    }

    /// The parts of the mean response time add up to it, and nobody is served longer than they are
    /// there.
    #[test]
    fn times_add_up(config in any_config(), seed in any::<u64>()) {
        let mut answers = Answers::default();
        let outcome = run_observed(&config, seed, &mut answers).unwrap();
        for answer in &answers.0 {
            prop_assert!(answer.service <= answer.answered - answer.arrived, "{answer:?}");
        }
        let sum: u64 = answers.0.iter().map(|answer| (answer.answered - answer.arrived).0).sum();
        prop_assert!(close(
            outcome.response.mean_ns,
            sum as f64 / 1e3 / config.requests.count as f64
        ));
        prop_assert!(outcome.path.waiting_ns >= -1e-6);
        let least = answers.0.iter().map(|answer| answer.answered - answer.arrived).min().unwrap();
        prop_assert_eq!(outcome.response.min_ns, least.nanoseconds());
    }

    /// Without contention, where requests do not meet, a response time is the sum of its stages, to
    /// the picosecond.
    #[test]
    fn alone_a_response_takes_the_sum_of_its_stages(
        mut config in any_config(),
        seed in any::<u64>(),
    ) {
        config.bus.contention = false;
        config.disk.present = false;
        (config.requests.arrivals, config.requests.frequency_per_s) = (Arrivals::Fixed, 100.0);
        (config.network_processor.processing, config.host.processing) =
            (Processing::Constant, Processing::Constant);
        let mut answers = Answers::default();
        run_observed(&config, seed, &mut answers).unwrap();
        let scale = u64::from(config.simulation.scale);
        let ps = |cycles: f64, mhz: f64| (cycles * (1e6 / mhz)).round() as u64;
        let units =
            |bytes: u32, unit: u32| u64::from(bytes).div_ceil(u64::from(unit) * scale) as f64;
        let (card, host, bus) = (&config.network_processor, &config.host, &config.bus);
        let transfer = |bytes: u32| ps(units(bytes, bus.width_bytes), bus.clock_mhz);
        for answer in answers.0 {
            let before =
                ps(card.processing_cycles, card.clock_mhz) + transfer(config.requests.size_bytes);
            let after = if answer.hit {
                let read = units(answer.bytes, card.memory_line_bytes) * card.memory_latency_cycles;
                let responses = &config.responses;
                ps(host.processing_cycles + host.hit_processing_cycles, host.clock_mhz)
                    + transfer(responses.in_np_memory_bytes.max(responses.location_bytes))
                    + ps(read, card.clock_mhz)
            } else {
                let read = units(answer.bytes, host.memory_line_bytes) * host.memory_latency_cycles;
                ps(host.processing_cycles, host.clock_mhz)
                    + ps(read, host.clock_mhz)
                    + transfer(answer.bytes)
            };
            prop_assert_eq!((answer.answered - answer.arrived).0, before + after);
            prop_assert_eq!(answer.service, answer.answered - answer.arrived);
        }
    }

    #[test]
    fn a_seed_is_a_run(config in any_config(), seed in any::<u64>()) {
        let (mut first, mut second) = (Answers::default(), Answers::default());
        let outcome = run_observed(&config, seed, &mut first).unwrap();
        prop_assert_eq!(&outcome, &run_observed(&config, seed, &mut second).unwrap());
        prop_assert_eq!(first.0, second.0);
    }
}

#[test]
fn another_seed_is_another_run() {
    let config = Config::from_toml("extends = 'Short8MB'\n[requests]\ncount = 1000").unwrap();
    assert_ne!(run(&config, 1).unwrap().response, run(&config, 2).unwrap().response);
}

/// Contention only ever adds waiting, and makes the bus a station at which jobs wait.
#[test]
fn contention_makes_requests_wait_for_the_bus() {
    let text = "extends = 'Short8MB'\n[requests]\ncount = 20_000\narrivals = 'poisson'\nfrequency_per_s = 500_000\n";
    let free = run(&Config::from_toml(text).unwrap(), 1).unwrap();
    let contended =
        run(&Config::from_toml(&format!("{text}[bus]\ncontention = true")).unwrap(), 1).unwrap();
    let bus =
        |outcome: &nicache_queueing::Outcome| outcome.stations[Component::Bus as usize].clone();
    assert_eq!(bus(&free).wait_mean_ns, 0.0);
    assert!(bus(&contended).wait_mean_ns > 1.0);
    assert!(contended.response.mean_ns > free.response.mean_ns);
    assert_eq!(contended.bus_bytes.requests, free.bus_bytes.requests);
}
