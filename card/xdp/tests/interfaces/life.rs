//! What happens when processes die or hang, and what cannot be attached.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use super::frames::cases;
use super::*;

const NUMBER: &str = "NICACHE_XDP_TEST_FD";

/// This test binary again, in the card's namespace, running the test `name` with `number` in the
/// environment; its first line has come.
fn child(card: &Namespace, name: &'static str, number: String) -> Reaped {
    let mut child = card.run(move || {
        Reaped(
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", name, "--nocapture"])
                .env(NUMBER, number)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap(),
        )
    });
    let mut lines = BufReader::new(child.0.stdout.take().unwrap());
    let mut text = String::new();
    while !text.contains("ready") {
        assert!(lines.read_line(&mut text).unwrap() > 0, "{text}");
    }
    child
}

fn ready_forever() -> ! {
    println!("ready");
    std::io::stdout().flush().unwrap();
    loop {
        std::thread::sleep(DEADLINE);
    }
}

/// Sends the first case over and over until it arrives at `port`; tells how long that took.
fn until(client: &mut PacketSocket, port: &mut PacketSocket) -> Duration {
    let case = &cases(false)[0];
    let began = Instant::now();
    arrived(port);
    while arrived(port).is_empty() {
        send(client, &case.frame);
        assert!(began.elapsed() < DEADLINE, "never");
        std::thread::sleep(Duration::from_millis(1));
    }
    began.elapsed()
}

#[test]
fn a_card_that_dies_or_hangs_is_passed_by() {
    if let Ok(number) = std::env::var(NUMBER) {
        return beat_forever(number.parse().unwrap());
    }
    let Some(scene) = scene() else { return };
    let steering = attach(&scene.card, INLINE, INLINE).unwrap();
    let mut wire = filtered(&scene.card, "wire", steering.files().wire);
    let (mut client, mut server) = (tapped(&scene.client, "eth0"), tapped(&scene.server, "eth0"));
    let number = rustix::io::fcntl_dupfd_cloexec(steering.files().heartbeat, 50).unwrap();
    rustix::io::fcntl_setfd(&number, rustix::io::FdFlags::empty()).unwrap();
    let name = "life::a_card_that_dies_or_hangs_is_passed_by";
    let mut card = child(&scene.card, name, number.as_raw_fd().to_string());
    drop(number);
    let pid = Pid::from_child(&card.0);
    until(&mut client, &mut wire);

    kill_process(pid, Signal::STOP).unwrap();
    let took = until(&mut client, &mut server);
    println!("passed by after {took:?}");
    assert!(heartbeat(&steering).until_ns() <= now_ns());
    kill_process(pid, Signal::CONT).unwrap();
    until(&mut client, &mut wire);
    card.0.kill().unwrap();
    card.0.wait().unwrap();
    let took = until(&mut client, &mut server);
    println!("passed by after {took:?}");
    // The next card takes over.
    let number = rustix::io::fcntl_dupfd_cloexec(steering.files().heartbeat, 50).unwrap();
    rustix::io::fcntl_setfd(&number, rustix::io::FdFlags::empty()).unwrap();
    let _card = child(&scene.card, name, number.as_raw_fd().to_string());
    until(&mut client, &mut wire);
}

fn beat_forever(number: i32) {
    // SAFETY: the parent has left this descriptor open for this process, which knows it by nothing
    // else.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    let heartbeat = Heartbeat::map(fd.as_fd()).unwrap();
    heartbeat.beat(now_ns(), LEASE);
    println!("ready");
    std::io::stdout().flush().unwrap();
    loop {
        std::thread::sleep(HEARTBEAT_INTERVAL);
        heartbeat.beat(now_ns(), LEASE);
    }
}

/// Promiscuity, XDP program or tc program of the card's interfaces.
fn traces(card: &Namespace) -> Vec<String> {
    let text = card.ip("-d link show");
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut traces: Vec<String> =
        words.iter().filter(|word| word.contains("xdp")).map(|word| (*word).into()).collect();
    traces.extend(
        words
            .windows(2)
            .filter(|pair| pair[0] == "promiscuity" && pair[1] != "0")
            .map(|pair| pair.join(" ")),
    );
    traces
}

fn expect_no_trace(card: &Namespace) {
    let began = Instant::now();
    loop {
        let traces = traces(card);
        if traces.is_empty() {
            return;
        }
        assert!(began.elapsed() < DEADLINE, "{traces:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

const DRIVER: (Rest, CardPort) = (Rest::Redirect, CardPort::Xdp { queues: 1 });

/// Linux 6.6 and newer: programs at tc ingress go with their descriptors.
fn has_tcx(card: &Namespace) -> bool {
    let steering = attach(card, INLINE, INLINE).unwrap();
    let count = steering.held().count();
    // Filters are removed in the namespace that they are in.
    card.run(move || drop(steering));
    count == 4
}

#[test]
fn nothing_is_left_of_a_supervisor_that_is_killed() {
    if std::env::var(NUMBER).is_ok() {
        let side = |interface| Side { interface, rest: DRIVER.0, port: DRIVER.1 };
        let config = SteeringConfig {
            services: &services(),
            wire: side("wire"),
            host: side("host"),
            has_first: false,
            connections: 100,
        };
        let _steering = Steering::attach(&config).unwrap();
        ready_forever();
    }
    let Some(scene) = scene() else { return };
    let has_tcx = has_tcx(&scene.card);
    let name = "life::nothing_is_left_of_a_supervisor_that_is_killed";
    let mut supervisor = child(&scene.card, name, "0".into());
    let found = traces(&scene.card);
    assert_eq!(found.iter().filter(|trace| trace.contains("promiscuity")).count(), 2, "{found:?}");
    assert!(found.iter().any(|trace| trace.contains("xdp")), "{found:?}");
    let (mut client, mut server) = (tapped(&scene.client, "eth0"), tapped(&scene.server, "eth0"));
    until(&mut client, &mut server);
    assert!(matches!(attach(&scene.card, DRIVER, DRIVER),
            Err(SteeringError::Busy(name)) if name == "wire"));
    supervisor.0.kill().unwrap();
    supervisor.0.wait().unwrap();
    expect_no_trace(&scene.card);
    if !has_tcx {
        // Its filters are still there, until the next one comes.
        until(&mut client, &mut server);
        let next = attach(&scene.card, INLINE, INLINE).unwrap();
        scene.card.run(move || drop(next));
    }
    // Nobody redirects any longer.
    arrived(&mut server);
    send(&mut client, &cases(false)[0].frame);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(arrived(&mut server), [] as [usize; 0]);
    let steering = attach(&scene.card, DRIVER, DRIVER).unwrap();
    assert_eq!(steering.has_driver(), [true; 2]);
    drop(steering);
    expect_no_trace(&scene.card);
}

#[test]
fn programs_stay_while_another_process_holds_them() {
    let Some(scene) = scene() else { return };
    if !has_tcx(&scene.card) {
        return println!(
            "skipped: without tcx (Linux 6.6) filters go with the process that has attached them"
        );
    }
    let steering = attach(&scene.card, DRIVER, INLINE).unwrap();
    let held: Vec<OwnedFd> =
        steering.held().map(|fd: BorrowedFd<'_>| fd.try_clone_to_owned().unwrap()).collect();
    assert_eq!(held.len(), 5);
    drop(steering);
    let (mut client, mut server) = (tapped(&scene.client, "eth0"), tapped(&scene.server, "eth0"));
    until(&mut client, &mut server);
    drop(held);
    expect_no_trace(&scene.card);
}

#[test]
fn what_cannot_be_attached_says_why() {
    let Some(scene) = scene() else { return };
    let attach = |wire: &'static str, host: &'static str| {
        scene.card.run(move || {
            let side = |interface| Side { interface, rest: Rest::Redirect, port: CardPort::Packet };
            Steering::attach(&SteeringConfig {
                services: &[],
                wire: side(wire),
                host: side(host),
                has_first: false,
                connections: 100,
            })
        })
    };
    assert!(
        matches!(attach("none", "host"), Err(SteeringError::NoInterface(name)) if name == "none")
    );
    assert!(matches!(attach("wire", "wire"), Err(SteeringError::SameInterface(_))));
    let denied = scene.card.run(|| {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        // Of this thread only.
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::NET_ADMIN);
        set_capabilities(None, sets).unwrap();
        let side = |interface| Side { interface, rest: Rest::Redirect, port: CardPort::Packet };
        Steering::attach(&SteeringConfig {
            services: &[],
            wire: side("wire"),
            host: side("host"),
            has_first: false,
            connections: 100,
        })
    });
    assert!(matches!(denied, Err(SteeringError::NotPermitted(_))), "{denied:?}");
}

#[test]
fn interfaces_may_vanish_while_programs_are_attached() {
    let Some(scene) = scene() else { return };
    let steering = attach(&scene.card, DRIVER, DRIVER).unwrap();
    scene.card.ip("link delete wire");
    scene.card.ip("link delete host");
    steering.counts().unwrap();
    drop(steering);
}

/// A bridge runs no XDP programs itself. The kernel would, in its place: that is not used.
#[test]
fn where_the_driver_cannot_nothing_is_attached() {
    let Some(card) = Namespace::new() else { return };
    card.ip("link add dev wire type bridge");
    card.ip("link add dev host type veth peer name end");
    let links = if has_tcx(&card) { 2 } else { 0 };
    let refused = attach(&card, DRIVER, DRIVER);
    assert!(
        matches!(&refused, Err(SteeringError::NoXdp { interface, .. }) if interface == "wire"),
        "{refused:?}"
    );
    expect_no_trace(&card);
    let mut steering = with_first(&card);
    assert!(matches!(steering.without_first(), Some(SteeringError::NoXdp { .. })), "{steering:?}");
    assert_eq!((steering.has_driver(), steering.held().count()), ([false; 2], 2 + links));
    drop(steering);
    card.ip("link delete wire");
    card.ip("link add dev wire type veth peer name other");
    steering = with_first(&card);
    assert!(steering.without_first().is_none() && steering.has_driver()[0]);
    steering.drop_first();
    assert_without_program(&card, "wire");
    assert_without_program(&card, "other");
}

fn with_first(card: &Namespace) -> Steering {
    card.run(|| {
        let side = |interface| Side { interface, rest: Rest::Redirect, port: CardPort::Packet };
        Steering::attach(&SteeringConfig {
            services: &services(),
            wire: side("wire"),
            host: side("host"),
            has_first: true,
            connections: 100,
        })
        .unwrap()
    })
}
