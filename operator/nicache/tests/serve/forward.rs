//! `nicache forward` between namespaces: real clients, real servers, and the real kernel around it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nicache_namespaces::Namespace;
use nicache_router::demo::{FILE_BYTES, file_byte};
use rustix::process::Signal;
use serde_json::Value;

use crate::common::{
    NICACHE, SOON, START_TIMEOUT, assert_all_gone, command, family, holds_within, ip, kill, pauses,
    private_network, status, uninterrupted, within,
};

/// What a test waits for at most.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A running `nicache forward`. Dropping it kills it.
pub(crate) struct Forwarding {
    process: Child,
    ready: Value,
    lines: mpsc::Receiver<String>,
}

impl Forwarding {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(NICACHE);
        command.args(["forward", "--json"]).args(arguments);
        let mut process =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("nicache");
        let (told, lines) = mpsc::channel();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).for_each(|line| drop(told.send(line)));
        });
        let mut forwarding = Self { process, ready: Value::Null, lines };
        forwarding.ready = forwarding.line().expect("it is ready");
        assert_eq!(forwarding.ready["event"], "ready");
        forwarding
    }

    fn line(&self) -> Option<Value> {
        self.lines.recv_timeout(START_TIMEOUT).ok().map(|line| serde_json::from_str(&line).unwrap())
    }

    pub(crate) fn name(&self) -> String {
        self.ready["status"]["name"].as_str().unwrap().to_owned()
    }

    pub(crate) fn pid(&self) -> u64 {
        self.process.id().into()
    }

    pub(crate) fn status(&self) -> Value {
        // One that is just started again does not answer yet.
        let ask = || {
            let output = command(&["status", "--json", "--name", &self.name()]);
            output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
        };
        within(LIMIT, ask).expect("a status")
    }

    pub(crate) fn stop(mut self) {
        let processes = family(self.process.id().into());
        kill(self.process.id().into(), Signal::INT);
        let ended = within(SOON, || self.process.try_wait().unwrap());
        assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
        assert_all_gone(&processes);
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn get(address: SocketAddr, path: &str) -> std::io::Result<(TcpStream, Vec<u8>)> {
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(
        format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    // Byte by byte, so the body is left.
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok((stream, head))
}

fn body(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut text = String::new();
    get(address, path)?.0.read_to_string(&mut text)?;
    Ok(text)
}

/// Every mode forwards, no byte is wrong, and nothing is left.
#[test]
fn the_demo_shows_each_mode() {
    private_network();
    let mut demo = Forwarding::start(&["--demo", "--once", "--seconds", "2", "--rate", "1M"]);
    let processes = family(demo.process.id().into());
    let mut rows = Vec::new();
    while let Some(line) = demo.line() {
        match line["event"].as_str().unwrap() {
            "mode" => rows.push(line),
            _ => break,
        }
    }
    let modes: Vec<&str> = rows.iter().map(|row| row["mode"].as_str().unwrap()).collect();
    assert_eq!(modes, ["copy", "pcache", "direct", "spill", "adaptive"]);
    for row in &rows {
        assert_eq!(row["wrong_bytes"], 0, "{row}");
        assert!(row["megabits_per_s"].as_f64().unwrap() > 0.0, "{row}");
        let per_byte = row["bus_bytes_per_byte"].as_f64().unwrap();
        match row["mode"].as_str().unwrap() {
            "copy" => assert!(per_byte >= 2.0 && row["from_card"] == 0.0, "{row}"),
            "pcache" => assert!((1.0..2.0).contains(&per_byte), "{row}"),
            _ => assert!(per_byte < 1.0 && row["from_card"].as_f64().unwrap() > 0.5, "{row}"),
        }
    }
    assert!(within(SOON, || demo.process.try_wait().unwrap()).unwrap().success());
    assert_all_gone(&processes);
}

/// A slow download of the demo's file, meanwhile so many of card and forwarder are killed, in turn.
/// Returns the client's end.
fn download(demo: &Forwarding, service: SocketAddr, kills: usize) -> SocketAddr {
    let (mut stream, head) = get(service, "/file").unwrap();
    assert!(head.starts_with(b"HTTP/1.1 200 "));
    let from = stream.local_addr().unwrap();
    let (mut at, mut part) = (0, vec![0; 64 * 1024]);
    let mut killed = 0;
    while at < FILE_BYTES {
        // In the middle of a window, and at different places of it.
        if at >= (killed + 1) * FILE_BYTES / 7 && killed < kills {
            let now = demo.status();
            let who = ["card_pid", "forwarder_pid"][killed % 2];
            kill(now[who].as_u64().unwrap(), Signal::KILL);
            killed += 1;
            let is_over = || (demo.status()["restarts"].as_u64()? >= killed as u64).then_some(());
            within(LIMIT, is_over).expect("it is started again");
        }
        let count = uninterrupted(|| stream.read(&mut part))
            .unwrap_or_else(|error| panic!("after {at} bytes, {killed} killed: {error}"));
        assert!(count > 0, "it ended after {at} bytes, {killed} killed");
        let wrong =
            part[..count].iter().enumerate().find(|(place, byte)| **byte != file_byte(at + place));
        assert!(wrong.is_none(), "another byte at {}", at + wrong.unwrap().0);
        at += count;
    }
    assert_eq!(uninterrupted(|| stream.read(&mut part)).unwrap(), 0);
    from
}

/// Whatever waits is interrupted all the time, also in the demo's servers and clients.
#[test]
fn pauses_cost_nothing_but_time() {
    private_network();
    let demo =
        Forwarding::start(&["--demo", "--seconds", "600", "--rate", "64K", "--mode", "adaptive"]);
    let service: SocketAddr =
        format!("{}:80", demo.ready["service"].as_str().unwrap()).parse().unwrap();
    pauses::during(&[demo.pid()], || {
        download(&demo, service, 0);
        demo.status();
    });
    assert_eq!(demo.status()["restarts"], 0);
}

/// With the fast path, a download goes on whoever is killed, and is forwarded in the kernel again
/// afterwards.
#[test]
fn the_fast_path_goes_and_comes_with_its_forwarder() {
    private_network();
    let demo = Forwarding::start(&[
        "--demo",
        "--seconds",
        "600",
        "--rate",
        "64K",
        "--mode",
        "adaptive",
        "--fast-path",
        "auto",
    ]);
    assert_eq!(demo.ready["status"]["fast_path"], "on");
    let service: SocketAddr =
        format!("{}:80", demo.ready["service"].as_str().unwrap()).parse().unwrap();
    std::fs::write("/proc/sys/net/ipv4/tcp_rmem", "4096 16384 65536").unwrap();
    download(&demo, service, 4);
    let upgraded = command(&["upgrade", "--name", &demo.name()]);
    assert!(upgraded.status.success(), "{}", String::from_utf8_lossy(&upgraded.stderr));
    let nobody = command(&["upgrade", "/bin/false", "--name", &demo.name()]);
    let said = String::from_utf8_lossy(&nobody.stderr).into_owned();
    assert!(!nobody.status.success() && said.contains("the program before goes on"), "{said}");
    let counter = |name: &str| demo.status()["report"]["counters"][name].as_u64().unwrap_or(0);
    // The last forwarder has taken over connections of the demo's clients, and more than half of
    // what it forwarded it has not seen.
    let is_fast = || (counter("fast_packets") > 100).then_some(());
    within(LIMIT, is_fast).expect("the kernel forwards");
    let now = demo.status();
    assert!(
        now["report"]["has_fast_path"] == true && now["report"]["counters"]["fast_unsent"] == 0,
        "{now}"
    );
    assert_eq!(now["report"]["counters"]["fast_failed"], 0, "{now}");
    let flows = now["report"]["flows"].as_array().unwrap();
    assert!(flows.iter().any(|flow| flow["is_fast"] == true), "{now}");
    demo.stop();
}

/// A long download goes on whoever of card and forwarder is killed, and what is asked meanwhile is
/// answered.
#[test]
fn a_download_outlives_card_and_forwarder() {
    private_network();
    let demo = Forwarding::start(&[
        "--demo",
        "--seconds",
        "600",
        "--rate",
        "64K",
        "--mode",
        "adaptive",
        "--admin",
        "0",
    ]);
    let service: SocketAddr =
        format!("{}:80", demo.ready["service"].as_str().unwrap()).parse().unwrap();
    // Or else all of it would wait in the socket before the first one is killed.
    std::fs::write("/proc/sys/net/ipv4/tcp_rmem", "4096 16384 65536").unwrap();
    let from = download(&demo, service, 6);
    let now = demo.status();
    assert_eq!(now["restarts"], 6);
    assert!(now["report"]["counters"]["restored"].as_u64().unwrap() >= 1, "{now}");
    // What is known of the client, and of nobody.
    let why = |asked: &str| {
        let output = command(&["forward", "why", asked, "--json", "--name", &demo.name()]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let known = why(&from.to_string());
    assert_eq!(known["count"], 1, "{known}");
    assert!(
        known["flows"][0]["original"].as_str().unwrap().contains(&service.to_string()),
        "{known}"
    );
    let unknown = why("203.0.113.9:1");
    assert!(unknown["says"].to_string().contains("No route leads there"), "{unknown}");
    let metrics =
        crate::common::curl(&format!("http://{}/metrics", now["admin"].as_str().unwrap()));
    for series in [
        "nicache_forward_begun_total ",
        "nicache_forward_dropped_total{reason=\"rule\"} 0",
        "nicache_forward_connections{state=\"open\"}",
        "nicache_forward_back_end_up{back_end=",
        "nicache_forward_cache_entries 1024",
    ] {
        assert!(metrics.contains(series), "{series} in {metrics}");
    }
    // One that a busy machine has answer late is down for a moment.
    let are_up = || {
        let now = demo.status();
        let back_ends = now["report"]["services"][0]["back_ends"].as_array().unwrap();
        back_ends.iter().all(|back_end| back_end["health"] == "up")
    };
    assert!(holds_within(LIMIT, are_up), "{}", demo.status());
    // A back end that is drained gets no new connections.
    let address = &now["report"]["services"][0]["back_ends"][0]["address"];
    let address = address.as_str().unwrap().to_owned();
    let ask = || match body(service, "/who") {
        // All of them are down for a moment.
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => None,
        answer => Some(answer.unwrap().split(' ').next().unwrap().to_owned()),
    };
    let have_answered = |count: usize| {
        let mut names = std::collections::BTreeSet::new();
        holds_within(LIMIT, || {
            names.extend((0..60).map(|_| within(LIMIT, ask).expect("an answer")));
            assert!(names.len() <= count, "{names:?}");
            names.len() == count
        })
    };
    assert!(have_answered(3));
    assert!(command(&["forward", "drain", &address, "--name", &demo.name()]).status.success());
    assert!(have_answered(2));
    assert!(command(&["forward", "undrain", &address, "--name", &demo.name()]).status.success());
    assert!(have_answered(3));
    let odd = command(&["forward", "drain", "192.0.2.1:1", "--name", &demo.name()]);
    assert!(String::from_utf8_lossy(&odd.stderr).contains("is not a back end"));
    demo.stop();
}

/// Inside, outside, and what the file says between them.
#[test]
fn a_file_between_interfaces() {
    private_network();
    let (inside, outside) =
        (Namespace::with_loopback().unwrap(), Namespace::with_loopback().unwrap());
    for (namespace, end) in [(&inside, "left"), (&outside, "right")] {
        ip(&format!("link add {end} type veth peer name eth0 netns {}", namespace.thread_id()));
        ip(&format!("link set {end} addrgenmode none up"));
        namespace.ip("link set eth0 addrgenmode none up");
    }
    ip("address add 10.1.0.1/24 dev left");
    ip("address add 10.1.0.9/24 dev left");
    inside.ip("address add 10.1.0.2/24 dev eth0");
    inside.ip("address add 10.1.0.66/24 dev eth0");
    inside.ip("route add default via 10.1.0.1");
    outside.ip("link set eth0 mtu 1400");
    outside.ip("address add 192.0.2.2/24 dev eth0");
    outside.ip("address add 198.51.100.1/32 dev eth0");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("forward.toml");
    let text = r#"
        mode = "spill"
        memory = "1M"
        [[interface]]
        name = "left"
        keep = ["tcp/7000"]
        [[interface]]
        name = "right"
        addresses = ["192.0.2.1/24"]
        mtu = 1400
        masquerade = true
        [[route]]
        to = "198.51.100.0/24"
        via = "192.0.2.2"
        [[port-forward]]
        protocol = "tcp"
        from = "192.0.2.1:2222"
        to = "10.1.0.2:22"
        [[rule]]
        action = "drop"
        source = "10.1.0.66"
    "#;
    std::fs::write(&path, text).unwrap();
    let file = path.to_str().unwrap();
    let check = command(&["forward", "check", file]);
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
    assert!(
        String::from_utf8_lossy(&check.stdout)
            .contains("interface right: 192.0.2.1/24, mtu 1400, masquerades as 192.0.2.1")
    );
    std::fs::write(&path, text.replace("mtu = 1400", "vlan = 7000")).unwrap();
    let wrong = command(&["forward", "check", file]);
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(
        !wrong.status.success()
            && said.contains("line 10, `vlan = 7000`")
            && said.contains("from 1 to 4094"),
        "{said}"
    );
    std::fs::write(&path, text).unwrap();
    let forwarding = Forwarding::start(&["--config", file]);

    // From inside to outside, by an address of ours: what is sent is bigger than the link beyond
    // takes.
    let listener = outside.run(|| TcpListener::bind("0.0.0.0:80").unwrap());
    let server = std::thread::spawn(move || {
        let mut seen = Vec::new();
        for _ in 0..2 {
            let (mut stream, from) = listener.accept().unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            assert!(
                all.len() == 300_000
                    && all.iter().enumerate().all(|(at, byte)| *byte == file_byte(at))
            );
            stream.write_all(&all).unwrap();
            seen.push(from.ip().to_string());
        }
        seen
    });
    for target in ["192.0.2.2:80", "198.51.100.1:80"] {
        let target: SocketAddr = target.parse().unwrap();
        let echoed = inside.run(move || {
            let begin = Instant::now();
            let mut stream = loop {
                match TcpStream::connect_timeout(&target, Duration::from_secs(5)) {
                    Ok(stream) => break stream,
                    Err(error) => assert!(begin.elapsed() < LIMIT, "{target}: {error}"),
                }
            };
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            let bytes: Vec<u8> = (0..300_000).map(file_byte).collect();
            stream.write_all(&bytes).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut back = Vec::new();
            stream.read_to_end(&mut back).unwrap();
            back == bytes
        });
        assert!(echoed, "{target}");
    }
    assert_eq!(server.join().unwrap(), ["192.0.2.1", "192.0.2.1"]);

    // A datagram that may be cut is cut: 1472 bytes for a link that takes 1400.
    let echo = outside.run(|| UdpSocket::bind("192.0.2.2:9").unwrap());
    let asking = inside.run(|| {
        let socket = UdpSocket::bind("10.1.0.2:0").unwrap();
        // IP_PMTUDISC_DONT: without the flag that forbids cutting.
        allow_cutting(&socket);
        socket
    });
    for socket in [&echo, &asking] {
        socket.set_read_timeout(Some(LIMIT)).unwrap();
    }
    let datagram: Vec<u8> = (0..1472).map(file_byte).collect();
    asking.send_to(&datagram, "192.0.2.2:9").unwrap();
    let mut buffer = [0; 3000];
    let (len, from) = uninterrupted(|| echo.recv_from(&mut buffer)).unwrap();
    assert_eq!((&buffer[..len], from.ip().to_string()), (&datagram[..], "192.0.2.1".to_owned()));
    echo.send_to(&datagram, from).unwrap();
    let answer = uninterrupted(|| asking.recv_from(&mut buffer)).unwrap();
    assert_eq!(answer, (1472, "192.0.2.2:9".parse().unwrap()));

    // A port that leads inside, and a sender that may not.
    let inner = inside.run(|| TcpListener::bind("10.1.0.2:22").unwrap());
    let knock = outside
        .run(|| TcpStream::connect_timeout(&"192.0.2.1:2222".parse().unwrap(), LIMIT).unwrap());
    assert_eq!(inner.accept().unwrap().1.to_string(), knock.local_addr().unwrap().to_string());
    let dropped = |forwarding: &Forwarding| {
        forwarding.status()["report"]["dropped"]["rule"].as_u64().unwrap()
    };
    assert_eq!(dropped(&forwarding), 0);
    inside.run(|| {
        let socket = UdpSocket::bind("10.1.0.66:0").unwrap();
        socket.send_to(b"x", "192.0.2.2:9").unwrap();
    });
    within(LIMIT, || (dropped(&forwarding) == 1).then_some(())).expect("the rule counts");

    // This machine's own port is its own, and others are not.
    let kept = TcpListener::bind("10.1.0.1:7000").unwrap();
    inside.run(|| {
        drop(TcpStream::connect_timeout(&"10.1.0.1:7000".parse().unwrap(), LIMIT).unwrap());
    });
    drop(kept.accept().unwrap());
    // Routes of the kernel count at once.
    let why = |asked: &str| {
        let output = command(&["forward", "why", asked, "--name", &forwarding.name()]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(why("203.0.113.5").contains("No route leads there"));
    ip("route add 203.0.113.0/24 via 10.1.0.2");
    let routed = || why("203.0.113.5").contains("by left, by the router 10.1.0.2").then_some(());
    within(LIMIT, routed).expect("the route is taken over");
    let report = forwarding.status()["report"].clone();
    assert_eq!(
        (report["dropped"]["untranslated"].as_u64(), report["counters"]["refused"].as_u64()),
        (Some(0), Some(0))
    );
    assert_eq!(status(&forwarding.name())["report"]["mode"], "spill");
    assert!(report["has_fast_path"] == true && report["counters"]["fast_failed"] == 0, "{report}");
    forwarding.stop();
}

/// Datagrams may be cut on their way.
fn allow_cutting(socket: &UdpSocket) {
    rustix::net::sockopt::set_ip_mtu_discover(
        socket,
        rustix::net::sockopt::Ipv4PathMtuDiscovery::DONT,
    )
    .unwrap();
}
