//! `nicache forward` with a back end whose health changes all the time, under load.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use nicache_router::demo::file_byte;

use crate::common::{Stop, holds_within, uninterrupted};
use crate::forward::{Forwarding, LIMIT};
use crate::forward_links::Net;

const SERVICE: &str = "10.1.0.1:8080";
/// Connections that stay from the beginning to the end.
const STANDING: usize = 16;
/// Clients that begin another connection for each exchange.
const PASSING: usize = 3;
const CHANGES: usize = 8;
const BLOCK_BYTES: usize = 20_000;

/// A server that says who it is, and then sends back what it gets.
fn echo(net: &Net, host: usize) {
    let address = format!("10.{}.0.2:80", host + 1);
    let listener = net.hosts[host].run(move || TcpListener::bind(address).unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut bytes = vec![0; BLOCK_BYTES];
                let mut answer = stream.write_all(&[host as u8]);
                while answer.is_ok() {
                    answer = match stream.read(&mut bytes) {
                        Ok(0) | Err(_) => return,
                        Ok(count) => stream.write_all(&bytes[..count]),
                    };
                }
            });
        }
    });
}

/// A server for health checks alone.
fn answer_checks(net: &Net, host: usize, is_well: &Arc<AtomicBool>) {
    let (address, is_well) = (format!("10.{}.0.2:81", host + 1), Arc::clone(is_well));
    let listener = net.hosts[host].run(move || TcpListener::bind(address).unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.set_read_timeout(Some(LIMIT));
            let status = if is_well.load(Ordering::Relaxed) { "200 OK" } else { "500 Ill" };
            // A check that has gone away meanwhile is made again.
            let _ = uninterrupted(|| stream.read(&mut [0; 1000]));
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
            let _ = stream.write_all(head.as_bytes());
        }
    });
}

/// A connection of a client, and which back end it is with.
struct Connection {
    stream: TcpStream,
    host: usize,
    exchanges: usize,
}

impl Connection {
    fn open() -> Self {
        let address: SocketAddr = SERVICE.parse().unwrap();
        let mut stream = TcpStream::connect_timeout(&address, LIMIT).expect("a connection");
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut host = [0];
        stream.read_exact(&mut host).expect("a back end");
        Self { stream, host: host[0].into(), exchanges: 0 }
    }

    fn exchange(&mut self) {
        let at = self.exchanges * BLOCK_BYTES;
        let bytes: Vec<u8> = (at..at + BLOCK_BYTES).map(file_byte).collect();
        let mut back = vec![0; BLOCK_BYTES];
        let done = self.stream.write_all(&bytes).and_then(|()| self.stream.read_exact(&mut back));
        if let Err(error) = done {
            panic!("with back end {} after {} exchanges: {error}", self.host, self.exchanges);
        }
        assert!(back == bytes, "other bytes from back end {}", self.host);
        self.exchanges += 1;
    }
}

fn health(forwarding: &Forwarding, place: usize) -> String {
    let now = forwarding.status();
    now["report"]["services"][0]["back_ends"][place]["health"].as_str().unwrap().to_owned()
}

/// Its connections go on, because it answers them; those of the other one do in any case; and
/// whoever begins one meanwhile finds a back end.
#[test]
fn a_back_end_that_flaps_costs_no_connection() {
    for fast_path in ["auto", "off"] {
        let net = Net::build();
        let (is_well, always) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(true)));
        for (host, answers) in [(1, &always), (2, &is_well)] {
            echo(&net, host);
            answer_checks(&net, host, answers);
        }
        let service = format!(
            "[[service]]\nprotocol = \"tcp\"\naddress = \"{SERVICE}\"\n\
             check = {{ kind = \"http\", path = \"/\", port = 81, every = \"100ms\", \
             timeout = \"10s\", rise = 1, fall = 1 }}\n\
             [[service.back-end]]\naddress = \"10.2.0.2:80\"\n\
             [[service.back-end]]\naddress = \"10.3.0.2:80\"\n"
        );
        let forwarding = net.start(&service, &["--fast-path", fast_path]);
        let are_up = || [0, 1].iter().all(|place| health(&forwarding, *place) == "up");
        assert!(holds_within(LIMIT, are_up), "{}", forwarding.status());
        let clients = net.hosts[0].run(|| nicache_netns::of_this_thread().unwrap());
        let (is_over, open) = (AtomicBool::new(false), AtomicUsize::new(0));
        let passed = [0; 3].map(AtomicUsize::new);
        std::thread::scope(|scope| {
            // A failed assertion ends the load, too.
            let end = Stop(&is_over);
            let standing: Vec<_> = (0..STANDING)
                .map(|_| {
                    scope.spawn(|| {
                        nicache_netns::enter(&clients).unwrap();
                        let mut connection = Connection::open();
                        open.fetch_add(1, Ordering::Relaxed);
                        while !is_over.load(Ordering::Relaxed) {
                            connection.exchange();
                        }
                        connection
                    })
                })
                .collect();
            for _ in 0..PASSING {
                scope.spawn(|| {
                    nicache_netns::enter(&clients).unwrap();
                    while !is_over.load(Ordering::Relaxed) {
                        let mut connection = Connection::open();
                        connection.exchange();
                        passed[connection.host].fetch_add(1, Ordering::Relaxed);
                        // So there are ports for all of them.
                        std::thread::sleep(Duration::from_millis(2));
                    }
                });
            }
            assert!(holds_within(LIMIT, || open.load(Ordering::Relaxed) == STANDING));
            for change in 0..CHANGES {
                let (is_up, name) = if change % 2 == 0 { (false, "down") } else { (true, "up") };
                is_well.store(is_up, Ordering::Relaxed);
                let is_told = || health(&forwarding, 1) == name;
                assert!(holds_within(LIMIT, is_told), "{}", forwarding.status());
                // Whoever is up gets connections.
                for host in if is_up { 1..=2 } else { 1..=1 } {
                    let before = passed[host].load(Ordering::Relaxed);
                    let goes_on = || passed[host].load(Ordering::Relaxed) > before + PASSING;
                    assert!(holds_within(LIMIT, goes_on), "{host}: {}", forwarding.status());
                }
                assert_eq!(health(&forwarding, 0), "up");
            }
            drop(end);
            let stood: Vec<Connection> =
                standing.into_iter().map(|thread| thread.join().expect("it stands")).collect();
            for host in [1, 2] {
                let with = stood.iter().filter(|connection| connection.host == host).count();
                assert!(with > 0, "none of {STANDING} connections is with back end {host}");
            }
        });
        let now = forwarding.status();
        assert_eq!(now["restarts"], 0, "{now}");
        forwarding.stop();
    }
}
