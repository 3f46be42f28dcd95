//! `nicache run` end to end with a real nginx: everything that is not a hit must be as without the
//! card.
#![allow(unsafe_code)]

mod common;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use common::{
    EVENTUALLY, Nicache, SOON, Site, command, curl, exchange, holds_within, inside, options,
    pauses, private_network, seen_client, status, uninterrupted,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrV4, SocketFlags, SocketType};
use rustix::process::Signal;

#[test]
fn a_page_comes_through_the_card() {
    private_network();
    let site = Site::new();
    let nicache = Nicache::start(&[], &site.command());
    let server = nicache.server();
    assert_eq!(curl(&format!("http://{server}/page.html")), "hello from nginx\n");
    assert_eq!(curl(&format!("http://{server}/large")).len(), 3 << 20);
    assert_eq!(
        seen_client(&format!("http://{server}/page.html")),
        nicache.status["gateway"].as_str().unwrap()
    );
}

#[test]
fn other_ports_udp_and_icmp_pass() {
    private_network();
    let site = Site::new();
    let nicache = Nicache::start(&[], &site.command());
    let server = nicache.server();
    assert_eq!(curl(&format!("http://{server}:8081/page.html")), "hello from nginx\n");

    let inside_pid = nicache.pid("server_pid");
    let (udp, tcp) = inside(inside_pid, || {
        (UdpSocket::bind("0.0.0.0:5353").unwrap(), TcpListener::bind("0.0.0.0:2525").unwrap())
    });
    std::thread::spawn(move || {
        let mut buffer = [0; 2000];
        let (length, from) = udp.recv_from(&mut buffer).unwrap();
        udp.send_to(&buffer[..length], from).unwrap();
    });
    std::thread::spawn(move || {
        let (mut stream, _) = tcp.accept().unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        stream.write_all(text.to_uppercase().as_bytes()).unwrap();
    });
    let client = UdpSocket::bind("0.0.0.0:0").unwrap();
    client.set_read_timeout(Some(SOON)).unwrap();
    let datagram = [7u8; 1400];
    client.send_to(&datagram, (server, 5353)).unwrap();
    let mut buffer = [0; 2000];
    assert_eq!(uninterrupted(|| client.recv(&mut buffer)).unwrap(), datagram.len());
    assert_eq!(exchange(SocketAddr::from((server, 2525)), "a mail"), "A MAIL");
    assert!(echo(server), "no answer to ICMP echo");
}

/// Sends an ICMP echo request and waits for its reply.
fn echo(to: Ipv4Addr) -> bool {
    let protocol = Some(rustix::net::ipproto::ICMP);
    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        protocol,
    )
    .unwrap();
    rustix::net::connect(&socket, &SocketAddrV4::new(to, 0)).unwrap();
    rustix::net::sockopt::set_socket_timeout(
        &socket,
        rustix::net::sockopt::Timeout::Recv,
        Some(SOON),
    )
    .unwrap();
    // Type 8, code 0, checksum, identifier 1, sequence number 1.
    let checksum = !(0x0800u16 + 1 + 1);
    let [high, low] = checksum.to_be_bytes();
    rustix::net::send(&socket, &[8, 0, high, low, 0, 1, 0, 1], SendFlags::empty()).unwrap();
    let mut packet = [0; 100];
    let receive = || rustix::net::recv(&socket, &mut packet[..], RecvFlags::empty());
    let (length, _) = rustix::io::retry_on_intr(receive).unwrap();
    // After an IP header of 20 bytes: type 0 is the reply.
    length >= 28 && packet[20] == 0
}

const PAGE: &[u8] = b"GET /page.html HTTP/1.1\r\nHost: a\r\n\r\n";

/// Whatever waits is interrupted all the time, also in the server and in what stands before it for
/// this machine.
#[test]
fn pauses_cost_nothing_but_time() {
    private_network();
    // The same for either client.
    let site = Site::with("", "root @ROOT@/site;");
    let published = "127.0.0.1:7070";
    let nicache = Nicache::start(&["--publish", published], &site.command());
    let page = site.folder.path().join("site/page.html");
    let addresses = [SocketAddr::from((nicache.server(), 80)), published.parse().unwrap()];
    let mut text = String::new();
    let mut edits = 0;
    pauses::during(&[nicache.process.id().into()], || {
        edits += 1;
        text = format!("edited {edits} times\n");
        std::fs::write(&page, &text).unwrap();
        for address in &addresses {
            let mut stream = TcpStream::connect_timeout(address, SOON).unwrap();
            stream.set_read_timeout(Some(SOON)).unwrap();
            for _ in 0..20 {
                let body = options::exchange(&mut stream, PAGE);
                assert_eq!(String::from_utf8_lossy(&body), text, "{address}");
            }
        }
        status(nicache.name());
    });
    let hits = || status(nicache.name())["counters"]["hits"].as_u64().unwrap();
    let before = hits();
    let goes_on = holds_within(EVENTUALLY, || {
        assert_eq!(curl(&format!("http://{}/page.html", nicache.server())), text);
        hits() > before + 10
    });
    assert!(goes_on, "no hits after the pauses: {}", status(nicache.name()));
}

#[test]
fn two_at_once() {
    private_network();
    let site = Site::new();
    let first = Nicache::start(&[], &site.command());
    let second_site = Site::new();
    std::fs::write(second_site.folder.path().join("site/page.html"), "second\n").unwrap();
    let mut second = Nicache::start(&["--queues", "2"], &second_site.command());
    assert_ne!(first.server(), second.server());
    assert_ne!(first.name(), second.name());
    assert_eq!(curl(&format!("http://{}/page.html", first.server())), "hello from nginx\n");
    assert_eq!(curl(&format!("http://{}/page.html", second.server())), "second\n");
    second.signal(Signal::TERM);
    assert!(second.wait(SOON).unwrap().success());
    assert_eq!(curl(&format!("http://{}/page.html", first.server())), "hello from nginx\n");
}

#[test]
fn status_purge_and_bypass() {
    private_network();
    let site = Site::new();
    let nicache = Nicache::start(&[], &site.command());
    curl(&format!("http://{}/page.html", nicache.server()));
    let json = |arguments: &[&str]| -> serde_json::Value {
        let output = command(&[arguments, &["--json", "--name", nicache.name()]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let status = json(&["status"]);
    assert_eq!(status["pid"], nicache.process.id());
    assert!(status["counters"]["bus_from_host_bytes"].as_u64().unwrap() > 0, "{status}");
    assert_eq!(json(&["bypass", "on"])["bypass"], true);
    assert_eq!(json(&["status"])["counters"]["bypass_on"], true);
    // It is for each card that comes.
    assert!(command(&["upgrade", "--name", nicache.name()]).status.success());
    assert_eq!(json(&["status"])["counters"]["bypass_on"], true);
    let card = json(&["status"])["card_pid"].as_u64().unwrap();
    common::kill(card, Signal::KILL);
    let is_another = || (json(&["status"])["card_pid"].as_u64()? != card).then_some(());
    assert!(common::within(SOON, is_another).is_some());
    assert_eq!(json(&["status"])["counters"]["bypass_on"], true);
    assert_eq!(json(&["bypass", "off"])["bypass"], false);
    assert!(json(&["purge", "--all"])["purged"].is_u64());
    assert!(json(&["purge", "/page.html"])["purged"].is_u64());
    let text = command(&["status", "--name", nicache.name()]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("nginx"));
    let unknown = command(&["status", "--name", "no-such"]);
    assert!(!unknown.status.success());
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("no nicache named `no-such`"));
    assert!(!command(&["purge"]).status.success());
    let socket = format!("/run/nicache/{}.sock", nicache.name());
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&socket).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn the_demonstration_site() {
    private_network();
    let mut nicache = Nicache::start(&["--http-port", "8088"], &[]);
    let url = nicache.status["url"].as_str().unwrap().to_owned();
    assert!(url.ends_with(":8088/"), "{url}");
    assert!(curl(&url).contains("nicache demonstration"));
    for name in ["style.css", "card.svg", "about.html", "large.txt"] {
        assert!(!curl(&format!("{url}{name}")).is_empty());
    }
    // Killed, it would leave its files to the next one.
    nicache.signal(Signal::INT);
    assert!(nicache.wait(SOON).unwrap().success());
}

#[test]
fn a_server_in_the_background_is_followed() {
    private_network();
    let site = Site::new();
    let mut server = site.command();
    server.truncate(5);
    let mut nicache = Nicache::start(&[], &server);
    assert_eq!(curl(&format!("http://{}/page.html", nicache.server())), "hello from nginx\n");
    let processes = nicache.processes();
    nicache.signal(Signal::TERM);
    assert!(nicache.wait(SOON).unwrap().success());
    common::assert_all_gone(&processes);
}

#[test]
fn hangup_reloads_the_server() {
    private_network();
    let site = Site::new();
    let nicache = Nicache::start(&[], &site.command());
    let url = format!("http://{}/page.html", nicache.server());
    curl(&url);
    let configuration = site.folder.path().join("nginx.conf");
    let text = std::fs::read_to_string(&configuration)
        .unwrap()
        .replace("X-Client $remote_addr", "X-Client reloaded");
    std::fs::write(&configuration, text).unwrap();
    nicache.signal(Signal::HUP);
    assert!(common::holds_within(SOON, || seen_client(&url) == "reloaded"));
}

#[test]
fn settings_from_a_file() {
    private_network();
    let site = Site::new();
    let file = site.folder.path().join("nicache.toml");
    let server = serde_json::to_string(&site.command()).unwrap();
    std::fs::write(
        &file,
        format!(
            "server = {server}\nsubnet = '10.99.1.4/30'\nname = 'from-file-{0}'\n",
            std::process::id()
        ),
    )
    .unwrap();
    let nicache =
        Nicache::start(&["--config", file.to_str().unwrap(), "--subnet", "10.99.2.0/30"], &[]);
    assert_eq!(nicache.server(), Ipv4Addr::new(10, 99, 2, 2));
    assert!(nicache.name().starts_with("from-file-"));
    assert_eq!(curl("http://10.99.2.2/page.html"), "hello from nginx\n");
}

/// What a server sends before somebody leaves.
const BEGUN: [(&str, &str); 6] = [
    ("nothing yet", ""),
    ("half a head", "HTTP/1.1 200 OK\r\nContent-"),
    ("half a body", "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n0123456789"),
    ("one chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n"),
    ("until it closes", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhi"),
    ("a whole reply", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"),
];
const ASKED: [(&str, &str); 4] = [
    ("GET", "GET /x HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("a whole POST", "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab"),
    ("half a POST", "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab"),
    (
        "another protocol",
        "GET /x HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    ),
];

/// Sends nothing for as long as the other side has not ended the connection; how it did.
fn other_end(stream: &mut TcpStream) -> &'static str {
    stream.set_read_timeout(Some(SOON)).unwrap();
    match uninterrupted(|| stream.read(&mut [0; 1000])) {
        Ok(0) => "closed",
        Ok(_) => "something more",
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => "reset",
        Err(_) => "open",
    }
}

/// A client that leaves does so for the server, too, and a server for its client, whatever is under
/// way: no work is done for somebody who has gone, and nobody waits for somebody who has.
fn ends_pass_at_once(handshake: &str) {
    private_network();
    // The test's own server stands beside nginx.
    let site = Site::new();
    let ports = ["--http-port=80", "--http-port=2525"];
    let nicache =
        Nicache::start(&[&["--handshake", handshake], &ports[..]].concat(), &site.command());
    let address = (nicache.server(), 2525);
    let listener = inside(nicache.pid("server_pid"), move || TcpListener::bind(address).unwrap());
    let mut wrong = Vec::new();
    for ((asked, request), (begun, reply)) in
        ASKED.iter().flat_map(|asked| BEGUN.map(|begun| (asked, begun)))
    {
        for (client_leaves, resets) in [(true, false), (true, true), (false, false), (false, true)]
        {
            let mut client = TcpStream::connect(address).unwrap();
            client.write_all(request.as_bytes()).unwrap();
            // The card may ask for itself meanwhile.
            let this = client.local_addr().unwrap();
            let is_client = |stream: &TcpStream| stream.peer_addr().is_ok_and(|from| from == this);
            let mut server = listener.incoming().map(Result::unwrap).find(is_client).unwrap();
            server.set_read_timeout(Some(SOON)).unwrap();
            let case = format!("{asked}, {begun}");
            server.read_exact(&mut vec![0; request.len()]).expect(&case);
            server.write_all(reply.as_bytes()).unwrap();
            client.set_read_timeout(Some(SOON)).unwrap();
            client.read_exact(&mut vec![0; reply.len()]).expect(&case);
            let (leaves, mut stays) =
                if client_leaves { (client, server) } else { (server, client) };
            if resets {
                rustix::net::sockopt::set_socket_linger(&leaves, Some(Duration::ZERO)).unwrap();
            }
            drop(leaves);
            let seen = other_end(&mut stays);
            if seen != if resets { "reset" } else { "closed" } {
                let who = if client_leaves { "client" } else { "server" };
                let how = if resets { "resets" } else { "closes" };
                wrong.push(format!("{case}: the {who} {how}; the other sees: {seen}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // All of an upload comes before its end, also if nobody waits for anybody.
    for size in [1, 3000, 200_000] {
        let head = format!("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n");
        let upload = [head.as_bytes(), &vec![b'x'; size]].concat();
        let mut client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(SOON)).unwrap();
        client.write_all(&upload).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.set_read_timeout(Some(SOON)).unwrap();
        let mut got = Vec::new();
        server.read_to_end(&mut got).unwrap();
        assert!(got == upload, "{} of {} bytes", got.len(), upload.len());
        server.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
        drop(server);
        let mut reply = String::new();
        client.read_to_string(&mut reply).unwrap();
        assert_eq!(reply, "HTTP/1.1 204 No Content\r\n\r\n");
    }
}

#[test]
fn ends_pass_at_once_with_the_server_s_handshake() {
    ends_pass_at_once("pass-through");
}

#[test]
fn ends_pass_at_once_with_the_card_s_handshake() {
    ends_pass_at_once("card");
}
