//! Either side is killed at any moment, or stands still for one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{
    EVENTUALLY, SOON, Stop, assert_all_gone, family, holds_within, kill, pauses, within,
};
use crate::serving::{Client, Serving, bytes, folder};

#[test]
fn connections_outlive_a_card() {
    let folder = folder();
    std::fs::write(folder.path().join("a"), bytes(1, 2_000_000)).unwrap();
    let serving = Serving::start(folder.path(), &[]);
    let mut client = Client::open(serving.address(0));
    for round in 0..5 {
        client.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        kill(serving.now()["card_pids"][0].as_u64().unwrap(), Signal::KILL);
        assert!(client.receive(false).unwrap().body == bytes(1, 2_000_000), "round {round}");
        // The reply may have been on its way to the end before the card was gone.
        let is_replaced = || (serving.now()["restarts"] == round + 1).then_some(());
        assert!(within(SOON, is_replaced).is_some(), "round {round}: {}", serving.now());
    }
}

/// Whatever waits is interrupted all the time.
#[test]
fn pauses_cost_nothing_but_time() {
    let (folder, body) = (folder(), bytes(1, 200_000));
    std::fs::write(folder.path().join("a"), &body).unwrap();
    let serving = Serving::start(folder.path(), &["--cards", "2"]);
    pauses::during(&[serving.pid()], || {
        for card in 0..2 {
            let mut client = Client::open(serving.address(card));
            for round in 0..5 {
                assert!(client.get("/a", "").body == body, "card {card}, round {round}");
            }
        }
        serving.now();
    });
    assert_eq!(serving.now()["restarts"], 0);
}

#[test]
fn no_wrong_byte_whoever_is_killed_when() {
    const CLIENTS: u64 = 6;
    let folder = folder();
    let sizes: Vec<usize> = (0..30).map(|file| (file * file * 1013) % 300_000).collect();
    for (file, len) in sizes.iter().enumerate() {
        std::fs::write(folder.path().join(file.to_string()), bytes(file as u64, *len)).unwrap();
    }
    let bodies: Vec<Vec<u8>> =
        sizes.iter().enumerate().map(|(file, len)| bytes(file as u64, *len)).collect();
    let serving = Serving::start(folder.path(), &["--memory", "1M", "--cards", "2"]);
    let (stop, right, cut) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let addresses = [serving.address(0), serving.address(1)];
    let netns = nicache_netns::of_this_thread().unwrap();
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (bodies, stop, right, cut, netns) = (&bodies, &stop, &right, &cut, &netns);
            scope.spawn(move || {
                nicache_netns::enter(netns).unwrap();
                let mut turn = number as usize;
                while !stop.load(Ordering::Relaxed) {
                    let Ok(mut client) = Client::try_open(addresses[turn % 2]) else {
                        cut.fetch_add(1, Ordering::Relaxed);
                        continue;
                    };
                    while !stop.load(Ordering::Relaxed) {
                        turn += 7;
                        let file = turn % bodies.len();
                        match client.try_get(&format!("/{file}"), "") {
                            Ok(reply) => {
                                assert_eq!(reply.status, 200, "{}", reply.head);
                                assert!(reply.body == bodies[file], "file {file}");
                                right.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(_) => {
                                cut.fetch_add(1, Ordering::Relaxed);
                                break;
                            }
                        }
                    }
                }
            });
        }
        // Clients end also if something fails, because they are waited for.
        let _stop = Stop(&stop);
        let mut chance = 12_345u64;
        for round in 0..12 {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            std::thread::sleep(Duration::from_millis(100 + (chance >> 40) % 400));
            let now = serving.now();
            let victim = match (chance >> 33) % 3 {
                0 => now["host_pid"].as_u64(),
                card => now["card_pids"][card as usize - 1].as_u64(),
            };
            let _ = kill_process(Pid::from_raw(victim.unwrap() as i32).unwrap(), Signal::KILL);
            let before = right.load(Ordering::Relaxed);
            let is_resumed =
                holds_within(EVENTUALLY, || right.load(Ordering::Relaxed) > before + 3 * CLIENTS);
            assert!(is_resumed, "no reply after round {round}: {}", serving.log_text());
        }
    });
    assert!(right.load(Ordering::Relaxed) > 100);
    assert!(holds_within(SOON, || serving.now()["restarts"] == 12), "{}", serving.now());
}

#[test]
fn the_end_of_the_supervisor_ends_everything() {
    let folder = folder();
    let serving = Serving::start(folder.path(), &["--cards", "2"]);
    let supervisor = serving.status["pid"].as_u64().unwrap();
    let processes = family(supervisor);
    assert!(processes.len() >= 4);
    kill(supervisor, Signal::KILL);
    drop(serving);
    assert_all_gone(&processes);
}

/// Nothing comes from these clients that could be answered with a reset.
#[test]
fn clients_learn_of_the_end() {
    let folder = folder();
    std::fs::write(folder.path().join("small"), "small").unwrap();
    std::fs::write(folder.path().join("large"), bytes(1, 20_000_000)).unwrap();
    let serving = Serving::start(folder.path(), &[]);
    let mut idle = Client::open(serving.address(0));
    assert_eq!(idle.get("/small", "").body, b"small");
    let mut reader = Client::open(serving.address(0));
    reader.send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert_eq!(reader.receive(true).unwrap().status, 200);
    reader.take(100_000);
    // Until as much has come as it has room for.
    std::thread::sleep(Duration::from_millis(500));
    let (processes, is_well) = serving.stop();
    assert!(is_well);
    assert_all_gone(&processes);
    assert_eq!(idle.rest().unwrap(), b"");
    assert_eq!(reader.rest().unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
}
