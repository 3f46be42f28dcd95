//! Small runs that can be followed by hand: traces, disk, overlapping misses, warm-up, overload.

use nicache_queueing::{
    Answer, Component, Config, Deaf, Observer, RunError, Time, TraceError, TraceRequest, run,
    run_observed, run_trace,
};

#[derive(Default)]
struct Answers(Vec<Answer>);

impl Observer for Answers {
    fn handle_answer(&mut self, answer: &Answer) {
        self.0.push(*answer);
    }
}

/// All clocks at 1 GHz, 100 bytes per cycle and line; a request is 100 bytes, header and location
/// are 100 and 200.
const PLAIN: &str = "
[requests]
size_bytes = 100
[responses]
in_np_memory_bytes = 100
location_bytes = 200
[network_processor]
clock_mhz = 1000
processing_cycles = 10
memory_bytes = 1000
memory_line_bytes = 100
memory_latency_cycles = 4
[bus]
width_bytes = 100
clock_mhz = 1000
[host]
clock_mhz = 1000
processing_cycles = 50
hit_processing_cycles = 5
memory_line_bytes = 100
memory_latency_cycles = 7
memory_bytes = 1000
[disk]
line_bytes = 500
latency_cycles = 1000
[simulation]
scale = 1
";

fn trace(requests: &[(u64, u64, u32)]) -> Vec<TraceRequest> {
    requests
        .iter()
        .map(|&(ns, id, bytes)| TraceRequest { time: Time(ns * 1000), id, bytes })
        .collect()
}

/// Response times in ns and whether they were hits, in order of arrival.
fn replay(requests: &[(u64, u64, u32)]) -> Vec<(u64, bool)> {
    let mut answers = Answers::default();
    let config = Config::from_toml(PLAIN).unwrap();
    run_trace(&config, &trace(requests), 0, &mut answers).unwrap();
    answers.0.sort_by_key(|answer| answer.sequence);
    answers
        .0
        .iter()
        .map(|answer| ((answer.answered - answer.arrived).0 / 1000, answer.hit))
        .collect()
}

#[test]
fn a_miss_then_a_hit() {
    // 10 + 1 + 50 + 3 * 7 + 3 and 10 + 1 + 55 + 2 + 3 * 4.
    assert_eq!(replay(&[(0, 77, 300), (1000, 77, 300)]), [(85, false), (80, true)]);
}

#[test]
fn with_contention_header_and_location_follow_each_other() {
    let config = Config::from_toml(&PLAIN.replace("[bus]", "[bus]\ncontention = true")).unwrap();
    let mut answers = Answers::default();
    run_trace(&config, &trace(&[(0, 77, 300), (1000, 77, 300)]), 0, &mut answers).unwrap();
    let times: Vec<u64> =
        answers.0.iter().map(|answer| (answer.answered - answer.arrived).0 / 1000).collect();
    assert_eq!(times, [85, 81]);
}

#[test]
fn data_that_is_not_there_yet_is_missed_again() {
    let times = replay(&[(0, 1, 300), (5, 1, 300), (1000, 1, 300)]);
    // It comes to the host's processor at 5 + 5 (waits for the network processor until 10) + 10 + 1
    // = 21, is served from 61 to 111.
    assert_eq!(times, [(85, false), (111 + 21 + 3 - 5, false), (80, true)]);
}

#[test]
fn the_least_recently_used_goes() {
    let times = replay(&[
        (0, 1, 400),
        (1000, 2, 400),
        (2000, 1, 400),
        (3000, 3, 400),
        (4000, 1, 400),
        (5000, 2, 400),
    ]);
    assert_eq!(
        times.iter().map(|time| time.1).collect::<Vec<_>>(),
        [false, false, true, false, true, false]
    );
    let times = replay(&[
        (0, 1, 1001),
        (2000, 1, 1001),
        (4000, 2, 0),
        (5000, 2, 0),
        (6000, 3, 1000),
        (7000, 3, 1000),
    ]);
    assert_eq!(
        times.iter().map(|time| time.1).collect::<Vec<_>>(),
        [false, false, false, true, false, true]
    );
}

#[test]
fn what_a_hit_has_found_stays_until_its_response_has_gone() {
    // 2 evicts 1 while the hit of 1 is under way.
    let times = replay(&[(0, 1, 600), (1000, 2, 600), (1080, 2, 600), (1200, 2, 600)]);
    assert!(times[3].1);
    let times = replay(&[(0, 1, 600), (1000, 2, 600), (1045, 1, 600)]);
    assert!(times[2].1, "found before 2 came");
}

#[test]
fn the_disk_is_read_where_host_memory_misses() {
    let disk = PLAIN
        .replace("[disk]", "[disk]\npresent = true")
        .replace("memory_bytes = 1000\nmemory_line", "memory_bytes = 0\nmemory_line");
    let mut answers = Answers::default();
    let config = Config::from_toml(&disk).unwrap();
    let requests = trace(&[(0, 1, 600), (10_000, 1, 600), (20_000, 2, 600), (30_000, 1, 600)]);
    let outcome = run_trace(&config, &requests, 0, &mut answers).unwrap();
    let times: Vec<u64> =
        answers.0.iter().map(|answer| (answer.answered - answer.arrived).0 / 1000).collect();
    let from_memory = 10 + 1 + 50 + 6 * 7 + 6;
    assert_eq!(times, [2000 + from_memory, from_memory, 2000 + from_memory, 2000 + from_memory]);
    assert_eq!(
        (outcome.host_memory.hits, outcome.host_memory.misses, outcome.host_memory.evictions),
        (1, 3, 2)
    );
    assert_eq!(outcome.longest_stage, Component::Disk);
    assert_eq!(outcome.stations[Component::Disk as usize].completions, 3);
}

#[test]
fn a_trace_of_a_run_is_that_run() {
    let config =
        Config::from_toml("extends = 'Short1MB'\n[requests]\ncount = 20_000\narrivals = 'poisson'")
            .unwrap();
    let mut answers = Answers::default();
    let drawn = run_observed(&config, 5, &mut answers).unwrap();
    answers.0.sort_by_key(|answer| answer.sequence);
    let requests: Vec<TraceRequest> = answers
        .0
        .iter()
        .map(|answer| TraceRequest {
            time: answer.arrived,
            id: u64::from(answer.id) << 40,
            bytes: answer.bytes,
        })
        .collect();
    assert_eq!(run_trace(&config, &requests, 5, &mut Deaf).unwrap(), drawn);
}

#[test]
fn traces_that_make_no_sense_are_refused() {
    let config = Config::default();
    let refused =
        |requests: &[TraceRequest]| run_trace(&config, requests, 0, &mut Deaf).unwrap_err();
    assert_eq!(refused(&[]), RunError::Trace(TraceError::Empty));
    assert_eq!(
        refused(&trace(&[(5, 1, 1), (6, 1, 1), (4, 1, 1)])),
        RunError::Trace(TraceError::Unsorted { at: 2 })
    );
}

#[test]
fn the_warm_up_is_left_out() {
    let whole = Config::from_toml("extends = 'Short16MB'").unwrap();
    let warm = Config::from_toml("extends = 'Short16MB'\n[simulation]\nwarm_up_requests = 20_000")
        .unwrap();
    let later = Config::from_toml("extends = 'Short16MB'\n[simulation]\nwarm_up_s = 0.08").unwrap();
    assert_eq!(run(&whole, 1).unwrap().hits, 49_000);
    let outcome = run(&warm, 1).unwrap();
    assert_eq!(
        (outcome.requests, outcome.hits, outcome.bus_bytes.requests),
        (30_000, 30_000, 30_000 * 1024)
    );
    assert_eq!(outcome.stations[Component::HostMemory as usize].completions, 0);
    // 250,000 requests per second: the 20,000th comes at 0.08 s.
    assert_eq!(run(&later, 1).unwrap(), outcome);
    let never = Config::from_toml("[simulation]\nwarm_up_s = 10").unwrap();
    assert_eq!(run(&never, 1), Err(RunError::NothingMeasured));
}

#[test]
fn an_overload_ends_the_run() {
    let text = "[requests]\nfrequency_per_s = 2_000_000\n[simulation]\noutstanding_max = 1000";
    let reason = run(&Config::from_toml(text).unwrap(), 1).unwrap_err();
    assert!(matches!(
        reason,
        RunError::Overload { component: Component::HostProcessor, outstanding: 1000, .. }
    ));
    assert!(reason.to_string().contains("make the host processor faster"), "{reason}");
}

#[test]
fn parameters_at_their_bounds_do_not_panic() {
    let extremes = [
        "[host]\nprocessing_cycles = 9e6\nclock_mhz = 1e-6\n[requests]\ncount = 1",
        "[requests]\nfrequency_per_s = 1e-6\ncount = 10",
        "[requests]\nfrequency_per_s = 1e12\ncount = 100\n[host]\nclock_mhz = 1e6\nprocessing_cycles = 0",
        "[responses]\nmin_bytes = 4_294_967_295\nmax_bytes = 4_294_967_295\n[requests]\ncount = 10",
        "[responses]\nmin_bytes = 0\nmax_bytes = 0\n[network_processor]\nmemory_bytes = 1\n[requests]\ncount = 10",
        "[network_processor]\nmemory_bytes = 9_000_000_000_000_000_000\n[requests]\ncount = 10",
        "[bus]\nwidth_bytes = 4_294_967_295\nclock_mhz = 1e6\n[simulation]\nscale = 1_048_576\n[requests]\ncount = 10",
    ];
    for text in extremes {
        let outcome = run(&Config::from_toml(text).unwrap(), 1).unwrap();
        assert!(outcome.response.mean_ns.is_finite(), "{text}");
    }
}

#[test]
fn a_run_that_does_not_fit_in_time_is_an_error() {
    let endless = [
        "[host]\nprocessing_cycles = 1e12\nclock_mhz = 1e-6\n[requests]\ncount = 1",
        "[host]\nprocessing_cycles = 1e12\n[requests]\ncount = 100_000",
        "[requests]\nfrequency_per_s = 1e-6\ncount = 11",
    ];
    for text in endless {
        assert_eq!(run(&Config::from_toml(text).unwrap(), 1), Err(RunError::TooLong), "{text}");
    }
}
