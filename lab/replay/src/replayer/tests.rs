//! Replayers against small servers in threads.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use super::*;
use crate::content::{VERSION, render};
use crate::sessions::SessionConfig;
use crate::synthetic::{SyntheticConfig, synthetic};
use crate::trace::Trace;

/// What the server does wrong.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    FlipsByte,
    Resets,
    Missing,
    ClosesAfter(usize),
    Sleeps(Duration),
}

/// Serves a trace's files on a port of its own until the process ends.
fn server(trace: &Trace, fault: Fault) -> ServerAddress {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let files: Vec<(u64, u64)> =
        trace.objects.iter().map(|object| (object.id, object.bytes)).collect();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let files = files.clone();
            std::thread::spawn(move || {
                // A client that goes away is not a failure of the test.
                let _ = serve(&mut connection?, &files, fault);
                std::io::Result::Ok(())
            });
        }
    });
    ServerAddress { host: address.to_string(), address }
}

fn serve(connection: &mut TcpStream, files: &[(u64, u64)], fault: Fault) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let (mut input, mut chunk, mut served) = (Vec::new(), [0; 4096], 0);
    loop {
        while let Some(end) = input.windows(4).position(|four| four == b"\r\n\r\n") {
            let request = String::from_utf8(input.drain(..end + 4).collect()).unwrap();
            served += 1;
            let closes =
                request.contains("Connection: close") || fault == Fault::ClosesAfter(served);
            let id = u64::from_str_radix(
                request.split(' ').nth(1).unwrap().rsplit('/').next().unwrap(),
                16,
            )
            .unwrap();
            let bytes = files.iter().find(|file| file.0 == id).unwrap().1;
            let mut body = vec![0; bytes as usize];
            render(id, VERSION, 0, &mut body);
            match fault {
                Fault::FlipsByte => body[bytes as usize / 2] ^= 1,
                Fault::Resets => {
                    connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Le")?;
                    return rustix::net::sockopt::set_socket_linger(
                        &*connection,
                        Some(Duration::ZERO),
                    )
                    .map_err(Into::into);
                }
                Fault::Sleeps(time) => std::thread::sleep(time),
                _ => {}
            }
            let status = if fault == Fault::Missing { "404 Not Found" } else { "200 OK" };
            let connection_field = if closes { "Connection: close\r\n" } else { "" };
            write!(
                connection,
                "HTTP/1.1 {status}\r\nContent-Length: {bytes}\r\n{connection_field}\r\n"
            )?;
            if !request.starts_with("HEAD") {
                connection.write_all(&body)?;
            }
            if closes {
                // What the client has sent must be read, or it gets a reset instead of the reply.
                connection.shutdown(std::net::Shutdown::Write)?;
                while connection.read(&mut chunk)? > 0 {}
                return Ok(());
            }
        }
        let read = connection.read(&mut chunk)?;
        if read == 0 {
            return Ok(());
        }
        input.extend_from_slice(&chunk[..read]);
    }
}

/// Sessions of up to a few requests.
fn trace() -> Trace {
    let config = SyntheticConfig {
        objects: 30,
        requests: 400,
        bytes_max: 60_000,
        ..SyntheticConfig::default()
    };
    let mut trace = synthetic(&config);
    for (number, request) in trace.requests.iter_mut().enumerate() {
        request.client = number as u32 % 40;
        request.second = number as u64 / 8;
    }
    trace
}

fn config(targets: &[ServerAddress]) -> ReplayerConfig {
    ReplayerConfig {
        targets: targets.to_vec(),
        sources: Vec::new(),
        clients: 8,
        replayers: 1,
        demand: Demand::Infinite,
        duration: None,
        seed: 1,
    }
}

fn replayed(trace: &Trace, config: &ReplayerConfig) -> (Plan, ReplayerReport) {
    let plan = Plan::new(trace, &SessionConfig::default());
    let report = run(&plan, config, &mut |_| {}).unwrap();
    (plan, report)
}

#[test]
fn every_session_is_replayed_once_by_any_number_of_replayers_and_targets() {
    let trace = trace();
    let servers = [server(&trace, Fault::None), server(&trace, Fault::None)];
    for (replayers, targets, clients) in [(1, 1, 8), (1, 2, 1), (3, 2, 50)] {
        let config = ReplayerConfig { replayers, clients, ..config(&servers[..targets]) };
        let (plan, report) = replayed(&trace, &config);
        assert!(report.is_clean(), "{report}");
        assert_eq!(report.replies as usize, trace.requests.len());
        assert_eq!(report.sessions as usize, plan.sessions().len());
        assert_eq!((report.connections, report.reconnections), (report.sessions, 0));
        let bodies = trace.requests.iter().filter(|request| !request.head);
        let bytes: u64 = bodies.map(|request| trace.objects[request.object as usize].bytes).sum();
        assert_eq!(report.body_bytes, bytes);
        assert!(report.cpu_seconds > 0.0 && report.latency.p50_us > 0.0);
    }
}

#[test]
fn open_loops_replay_every_session_too() {
    let trace = trace();
    let server = server(&trace, Fault::None);
    for demand in [Demand::Log { speed: 100.0 }, Demand::Rate { sessions_per_second: 1000.0 }] {
        let (_, report) = replayed(
            &trace,
            &ReplayerConfig { demand, clients: 100, ..config(std::slice::from_ref(&server)) },
        );
        assert!(report.is_clean(), "{report}");
        assert_eq!(report.replies as usize, trace.requests.len());
    }
}

#[test]
fn in_open_loop_a_slow_server_cannot_hide_who_waits_for_it() {
    let trace = trace();
    let server = server(&trace, Fault::Sleeps(Duration::from_millis(2)));
    // All are due within some 20 ms, and one connection takes 2 ms for each request at least.
    let demand = Demand::Rate { sessions_per_second: 10_000.0 };
    let (plan, report) =
        replayed(&trace, &ReplayerConfig { demand, clients: 1, ..config(&[server]) });
    assert!(report.is_clean(), "{report}");
    assert!(report.late_sessions as usize > plan.sessions().len() / 2, "{report}");
    assert!(
        report.session_latency.max_us > 600_000.0 && report.session_latency.p50_us > 100_000.0,
        "{report}"
    );
    assert!(report.latency.max_us > 600_000.0, "{report}");
}

#[test]
fn parts_run_on_threads_of_the_caller_and_their_reports_add_up() {
    let trace = trace();
    let config = ReplayerConfig { replayers: 2, ..config(&[server(&trace, Fault::None)]) };
    let (plan, watch) = (&Plan::new(&trace, &SessionConfig::default()), &Watch::default());
    let mut sum = ReplayerReport::default();
    std::thread::scope(|scope| {
        let part = |number| run_part(plan, &config, number, watch, &mut |_| {}).unwrap();
        let parts: Vec<_> = (0..2).map(|number| scope.spawn(move || part(number))).collect();
        parts.into_iter().for_each(|part| sum.merge(part.join().unwrap()));
    });
    assert!(sum.is_clean(), "{sum}");
    assert_eq!(
        (sum.replies as usize, sum.sessions as usize),
        (trace.requests.len(), plan.sessions().len())
    );
    assert_eq!(
        (watch.replies(), watch.body_bytes(), watch.errors()),
        (sum.replies, sum.body_bytes, 0)
    );
    assert_eq!(sum.latency.count, sum.replies);
}

#[test]
fn a_trace_is_repeated_until_time_is_up_or_it_is_stopped() {
    let trace = trace();
    let server = server(&trace, Fault::None);
    let duration = Some(Duration::from_millis(700));
    let (plan, report) = replayed(
        &trace,
        &ReplayerConfig { duration, replayers: 2, ..config(std::slice::from_ref(&server)) },
    );
    assert!(report.is_clean() && report.replies > 0, "{report}");
    assert!((0.69..5.0).contains(&report.seconds), "{}", report.seconds);
    let config = ReplayerConfig { duration: Some(Duration::from_secs(1000)), ..config(&[server]) };
    let report = run(&plan, &config, &mut |watch| watch.stop()).unwrap();
    assert!(report.seconds < 100.0);
}

#[test]
fn local_addresses_take_turns() {
    let trace = trace();
    let server = server(&trace, Fault::None);
    let sources = vec!["127.0.0.1".parse().unwrap(), "127.0.0.2".parse().unwrap()];
    let (_, report) = replayed(&trace, &ReplayerConfig { sources, ..config(&[server]) });
    assert!(report.is_clean(), "{report}");
}

#[test]
fn a_server_may_close_early() {
    let trace = trace();
    let (plan, report) = replayed(&trace, &config(&[server(&trace, Fault::ClosesAfter(2))]));
    assert!(report.is_clean(), "{report}");
    assert_eq!(
        (report.replies as usize, report.sessions as usize),
        (trace.requests.len(), plan.sessions().len())
    );
    assert!(report.reconnections > 0);
}

#[test]
fn wrong_replies_are_counted_by_kind() {
    let trace = trace();
    let bodies = trace.requests.iter().filter(|request| !request.head).count() as u64;
    let (_, report) = replayed(&trace, &config(&[server(&trace, Fault::FlipsByte)]));
    assert_eq!((report.errors.body, report.errors.total()), (bodies, bodies));
    assert!(report.problems[0].ends_with("is wrong"), "{report}");
    let (_, report) = replayed(&trace, &config(&[server(&trace, Fault::Missing)]));
    assert_eq!((report.errors.status, report.errors.total()), (400, 400));
    let (plan, report) = replayed(&trace, &config(&[server(&trace, Fault::Resets)]));
    assert_eq!(
        (report.errors.reset, report.errors.total()),
        (plan.sessions().len() as u64, plan.sessions().len() as u64)
    );
    assert_eq!(report.errors.total() + report.unanswered, 400);
}

#[test]
fn a_server_that_goes_away_is_counted_and_one_that_never_was_is_an_error() {
    let trace = trace();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let target = ServerAddress { host: address.to_string(), address };
    std::thread::spawn(move || listener.accept());
    let duration = Some(Duration::from_millis(300));
    let (_, report) =
        replayed(&trace, &ReplayerConfig { duration, ..config(std::slice::from_ref(&target)) });
    assert!(report.errors.connect + report.errors.reset > 0 && report.replies == 0, "{report}");
    let plan = Plan::new(&trace, &SessionConfig::default());
    let error = run(&plan, &config(&[target]), &mut |_| {}).unwrap_err();
    assert!(matches!(error, ReplayerError::Connect(..)), "{error}");
    assert!(matches!(run(&plan, &config(&[]), &mut |_| {}), Err(ReplayerError::Nothing)));
}
