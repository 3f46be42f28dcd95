//! Whoever does not know the key gets nowhere, and disturbs nobody.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nicache_relay::{
    Door, DoorCounters, Hub, Key, MESSAGE_BYTES_MAX, Publisher, Receiver, Sender, Step, Structures,
    ToCard, ToRelay, initiate,
};
use nicache_sql::Dialect;

const LEASE_NS: u64 = 1_000_000_000;

fn key(digits: &str) -> Key {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    std::fs::write(&path, digits.repeat(32)).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    Key::read(&path).unwrap()
}

struct Relay {
    address: SocketAddr,
    hub: Arc<Hub>,
    counters: Arc<DoorCounters>,
}

impl Relay {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // As if it had been running for long.
        let hub = Arc::new(Hub::new(Publisher::new(
            1,
            LEASE_NS,
            nicache_clock::boottime_ns() - 2 * LEASE_NS,
        )));
        let counters = Arc::new(DoorCounters::default());
        let structures = Arc::new(Structures::new(Dialect::MySql, vec!["false".into()]));
        let door = Door {
            hub: Arc::clone(&hub),
            structures,
            key: key("5a"),
            counters: Arc::clone(&counters),
        };
        door.open(listener).unwrap();
        Self { address, hub, counters }
    }

    fn refused(&self) -> u64 {
        self.counters.refused.load(Ordering::Relaxed)
    }

    fn refuses(&self, more: u64) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.refused() < more {
            assert!(Instant::now() < deadline, "{} refused, not {more}", self.refused());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).unwrap()
    }
}

fn receive(receiver: &mut Receiver, wanted: impl Fn(&ToCard) -> bool) -> ToCard {
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut found = None;
    while found.is_none() {
        assert!(Instant::now() < deadline, "the message does not come");
        receiver
            .receive(|bytes| {
                let message = ToCard::decode(bytes).unwrap();
                if wanted(&message) {
                    found = Some(message);
                }
                Ok(())
            })
            .unwrap();
    }
    found.unwrap()
}

fn send(sender: &mut Sender, message: &ToRelay) {
    sender.push(&message.encode()).unwrap();
    sender.flush().unwrap();
}

/// A card host that is welcome, and has a lease.
fn follow(relay: &Relay, card: u64) -> (Sender, Receiver) {
    let (mut sender, mut receiver) = initiate(relay.connect(), &key("5a")).unwrap();
    receiver.set_timeout(Duration::from_millis(50)).unwrap();
    send(&mut sender, &ToRelay::Hello { card, attempt: 1, resume: None });
    receive(&mut receiver, |message| matches!(message, ToCard::Welcome { .. }));
    send(&mut sender, &ToRelay::Renew { run: 1, renewal: 1, plain: true });
    receive(&mut receiver, |message| matches!(message, ToCard::Renewed { .. }));
    (sender, receiver)
}

#[test]
fn a_change_waits_for_who_knows_the_key() {
    let relay = Relay::start();
    let (mut sender, mut receiver) = follow(&relay, 1);
    let number = relay.hub.publish(1, Step::Opened);
    let hub = Arc::clone(&relay.hub);
    let done = Arc::new(Mutex::new(false));
    let seen = Arc::clone(&done);
    let waits = std::thread::spawn(move || {
        hub.wait(number);
        *seen.lock().unwrap() = true;
    });
    receive(&mut receiver, |message| matches!(message, ToCard::Event { .. }));
    assert!(!*done.lock().unwrap(), "nobody has acknowledged it");
    send(&mut sender, &ToRelay::Ack { run: 1, number });
    waits.join().unwrap();
    // One that says nothing any more is waited for, but not for ever.
    let number = relay.hub.publish(1, Step::Idle);
    let begun = Instant::now();
    relay.hub.wait(number);
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(relay.hub.counters().1, 0, "its lease is over");
}

#[test]
fn strangers_get_nowhere() {
    let relay = Relay::start();
    let mut refused = 0;
    // Another key.
    assert!(initiate(relay.connect(), &key("5b")).is_err());
    refused += 1;
    relay.refuses(refused);
    // Nonsense, of all lengths.
    let mut rng = fastrand::Rng::with_seed(1);
    for len in [0, 1, 2, 3, 50, 65, 130, 70_000] {
        let bytes: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
        let mut stream = relay.connect();
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty());
        refused += 1;
    }
    relay.refuses(refused);
    // Byte by byte: no more than the time of a handshake.
    let mut stream = relay.connect();
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let begun = Instant::now();
    let is_closed = |stream: &mut TcpStream| {
        stream.write_all(&[0]).is_err() || matches!(stream.read(&mut [0]), Ok(0))
    };
    while !is_closed(&mut stream) {
        assert!(begun.elapsed() < Duration::from_secs(20), "it is still listened to");
        std::thread::sleep(Duration::from_millis(100));
    }
    refused += 1;
    relay.refuses(refused);
    // Whoever knows the key is served all the same.
    drop(follow(&relay, 2));
}

/// Hands everything on, and keeps what the card host said.
fn record(relay: &Relay, flip: Option<usize>) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, target) = (listener.local_addr().unwrap(), relay.address);
    let said = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&said);
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut server = TcpStream::connect(target).unwrap();
        let (mut back_from, mut back_to) =
            (server.try_clone().unwrap(), client.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut back_from, &mut back_to));
        let mut buffer = [0; 4096];
        while let Ok(len @ 1..) = client.read(&mut buffer) {
            let mut heard = heard.lock().unwrap();
            if let Some(at) = flip.and_then(|at| at.checked_sub(heard.len())).filter(|at| *at < len)
            {
                buffer[at] ^= 1;
            }
            heard.extend_from_slice(&buffer[..len]);
            let _ = server.write_all(&buffer[..len]);
        }
    });
    (address, said)
}

#[test]
fn what_was_recorded_or_altered_is_refused() {
    let relay = Relay::start();
    let (address, said) = record(&relay, None);
    let (mut sender, mut receiver) =
        initiate(TcpStream::connect(address).unwrap(), &key("5a")).unwrap();
    receiver.set_timeout(Duration::from_millis(50)).unwrap();
    send(&mut sender, &ToRelay::Hello { card: 3, attempt: 1, resume: None });
    receive(&mut receiver, |message| matches!(message, ToCard::Welcome { .. }));
    let greetings = relay.hub.counters().0.greetings;
    // Said once more, it is not a greeting.
    let recorded = said.lock().unwrap().clone();
    let mut stream = relay.connect();
    stream.write_all(&recorded).unwrap();
    let mut answer = Vec::new();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let _ = stream.read_to_end(&mut answer);
    relay.refuses(1);
    assert_eq!(relay.hub.counters().0.greetings, greetings);
    // One bit of the greeting is another; the handshake's first message has 2 + 48 bytes.
    let (address, _) = record(&relay, Some(2 + 48 + 2 + 5));
    let (mut sender, _receiver) =
        initiate(TcpStream::connect(address).unwrap(), &key("5a")).unwrap();
    send(&mut sender, &ToRelay::Hello { card: 4, attempt: 1, resume: None });
    relay.refuses(2);
    assert_eq!(relay.hub.counters().0.greetings, greetings);
}

#[test]
fn one_who_knows_the_key_and_talks_nonsense_is_cut_off() {
    let relay = Relay::start();
    let mut rng = fastrand::Rng::with_seed(2);
    for len in [0, 1, 7, 300, MESSAGE_BYTES_MAX] {
        let refused = relay.refused();
        let (mut sender, _receiver) = initiate(relay.connect(), &key("5a")).unwrap();
        let bytes: Vec<u8> = (0..len).map(|_| rng.u8(200..)).collect();
        sender.push(&bytes).unwrap();
        let _ = sender.flush();
        relay.refuses(refused + 1);
    }
    // What it has no reason to say is counted, and changes nothing.
    let (mut sender, mut receiver) = follow(&relay, 5);
    let refused = relay.hub.counters().0.refused;
    send(&mut sender, &ToRelay::Ack { run: 2, number: 1 });
    send(&mut sender, &ToRelay::Ack { run: 1, number: u64::MAX });
    send(&mut sender, &ToRelay::Hello { card: 5, attempt: 1, resume: None });
    send(&mut sender, &ToRelay::Renew { run: 1, renewal: 1, plain: true });
    send(&mut sender, &ToRelay::Renew { run: 1, renewal: 2, plain: true });
    receive(&mut receiver, |message| matches!(message, ToCard::Renewed { renewal: 2, .. }));
    assert_eq!(relay.hub.counters().0.refused, refused + 4);
}

#[test]
fn a_flood_of_strangers_is_turned_away() {
    let relay = Relay::start();
    let streams: Vec<TcpStream> = (0..400).map(|_| relay.connect()).collect();
    let deadline = Instant::now() + Duration::from_secs(20);
    while relay.counters.crowded.load(Ordering::Relaxed) == 0 {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(streams);
    while initiate(relay.connect(), &key("5a")).is_err() {
        assert!(Instant::now() < deadline, "nobody is let in any more");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(follow(&relay, 6));
}
