//! `nicache forward` when what card and forwarder share is broken.

use std::fs::OpenOptions;
use std::net::UdpSocket;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use crate::common::{Stop, holds_within, kill, uninterrupted};
use crate::forward::LIMIT;
use crate::forward_links::Net;

/// Where an attachment has the ring of commands, whose first word is the forwarder's, and where the
/// card's is in that (`docs/bus.md`).
const COMMANDS_AT: u64 = 4096;
const CONSUMER_AT: u64 = 64;
/// An index that cannot be.
const ODD: u64 = 1 << 40;

/// The attachment that a process has.
fn attachment(pid: u64) -> Option<PathBuf> {
    let mut files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    files.find_map(|file| {
        let target = std::fs::read_link(file.path()).ok()?;
        target.to_string_lossy().starts_with("/memfd:nicache-bus").then(|| file.path())
    })
}

/// Both sides find it broken and say so, and another one takes its place once.
#[test]
fn a_broken_attachment_is_replaced_once() {
    let net = Net::build();
    let sink = net.hosts[1].run(|| UdpSocket::bind("10.2.0.2:9").unwrap());
    sink.set_read_timeout(Some(LIMIT)).unwrap();
    let source = net.hosts[0].run(|| UdpSocket::bind("10.1.0.2:0").unwrap());
    let forwarding = net.start("", &["--fast-path", "off"]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // A failed assertion ends the load, too.
        let _end = Stop(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for _ in 0..20 {
                    let _ = source.send_to(&[7; 1000], "10.2.0.2:9");
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        for round in 1..=5u64 {
            uninterrupted(|| sink.recv(&mut [0; 2000])).expect("it forwards");
            let now = forwarding.status();
            let [card, forwarder] =
                ["card_pid", "forwarder_pid"].map(|name| now[name].as_u64().unwrap());
            let path = attachment(card).expect("a card has an attachment");
            let file = OpenOptions::new().write(true).open(path).unwrap();
            // Until both have told it, nothing is done about it.
            kill(forwarding.pid(), Signal::STOP);
            let is_detached = || {
                // The card may write over it before the forwarder sees it.
                for _ in 0..1000 {
                    file.write_all_at(&ODD.to_ne_bytes(), COMMANDS_AT + CONSUMER_AT).unwrap();
                }
                attachment(forwarder).is_none()
            };
            assert!(holds_within(LIMIT, is_detached), "round {round}");
            file.write_all_at(&ODD.to_ne_bytes(), COMMANDS_AT).unwrap();
            std::thread::sleep(Duration::from_millis(100));
            kill(forwarding.pid(), Signal::CONT);
            let has_restarted = || forwarding.status()["restarts"].as_u64().unwrap() >= round;
            assert!(holds_within(LIMIT, has_restarted), "{}", forwarding.status());
            // What comes now was sent afterwards.
            sink.set_nonblocking(true).unwrap();
            while sink.recv(&mut [0; 2000]).is_ok() {}
            sink.set_nonblocking(false).unwrap();
            uninterrupted(|| sink.recv(&mut [0; 2000])).expect("it forwards again");
            std::thread::sleep(Duration::from_millis(200));
            let now = forwarding.status();
            assert_eq!(now["restarts"], round, "{now}");
        }
    });
    forwarding.stop();
}
