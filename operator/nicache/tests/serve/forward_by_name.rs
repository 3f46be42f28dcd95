//! `nicache forward` with services by name: curl and OpenSSL at one end, nginx with TLS at the
//! other, and loss between them.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use nicache_namespaces::Namespace;
use nicache_router::demo::file_byte;
use rustix::process::Signal;

use crate::common::{command, ip, kill, private_network, uninterrupted, within};
use crate::forward::{Forwarding, LIMIT};

const FILE_BYTES: usize = 3 << 20;
const NAMES: [&str; 2] = ["shop.example", "other.example"];

/// A process that ends with the test.
pub(crate) struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn run(namespace: &Namespace, program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    namespace.run(move || command.output().expect("it runs"))
}

/// nginx for TLS and plain HTTP behind the PROXY protocol, with a certificate of its own, which
/// says who it is and who asks.
fn nginx(namespace: &Namespace, folder: &Path, number: usize, address: &str) -> Running {
    let name = NAMES[number];
    let at = folder.join(name);
    std::fs::create_dir(&at).unwrap();
    let (key, certificate) = (at.join("key.pem"), at.join("cert.pem"));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ])
        .args([
            "-subj",
            &format!("/CN={name}"),
            "-addext",
            &format!("subjectAltName=DNS:{name},DNS:*.{name}"),
        ])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let at = at.to_str().unwrap();
    let server = format!(
        "server {{ listen {address}:443 ssl proxy_protocol; listen {address}:80 proxy_protocol; listen {address}:81;\n\
         ssl_certificate {at}/cert.pem; ssl_certificate_key {at}/key.pem; root {folder};\n\
         location = /who {{ return 200 '{name} $proxy_protocol_addr'; }} }}",
        folder = folder.display()
    );
    run_nginx(namespace, Path::new(at), &server)
}

/// nginx with these server blocks, and all that it writes in a folder.
pub(crate) fn run_nginx(namespace: &Namespace, folder: &Path, servers: &str) -> Running {
    let at = folder.display();
    let text = format!(
        "daemon off; master_process off; error_log {at}/error.log; pid {at}/pid; events {{}}\n\
         http {{ access_log off; client_body_temp_path {at}/body; client_max_body_size 100m; proxy_temp_path {at}/p; \
         fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;\n{servers} }}"
    );
    let path = format!("{at}/nginx.conf");
    std::fs::write(&path, text).unwrap();
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "nginx", "-c", &path, "-e", &format!("{at}/early.log")])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    Running(namespace.run(move || command.spawn().expect("nginx")))
}

/// A server that answers once its client sends no more. nginx closes a connection whose client does
/// that before all is sent.
fn answer_when_all_has_come(listener: &TcpListener, answer: &[u8]) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut all = Vec::new();
        if stream.read_to_end(&mut all).is_ok() {
            let _ = stream.write_all(answer);
        }
    }
}

/// Clients, two servers, and a folder with a file.
struct Stage {
    client: Namespace,
    servers: Namespace,
    _nginx: [Running; 2],
    folder: tempfile::TempDir,
    forwarding: Forwarding,
}

impl Stage {
    fn build() -> Self {
        private_network();
        let (client, servers) =
            (Namespace::with_loopback().unwrap(), Namespace::with_loopback().unwrap());
        for (namespace, end) in [(&client, "left"), (&servers, "right")] {
            ip(&format!("link add {end} type veth peer name eth0 netns {}", namespace.thread_id()));
            ip(&format!("link set {end} addrgenmode none up"));
            namespace.ip("link set eth0 addrgenmode none up");
        }
        ip("address add 198.51.100.1/24 dev left");
        ip("address add 10.1.0.1/24 dev right");
        client.ip("address add 198.51.100.2/24 dev eth0");
        servers.ip("address add 10.1.0.11/24 dev eth0");
        servers.ip("address add 10.1.0.12/24 dev eth0");
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(
            folder.path(),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .unwrap();
        std::fs::write(
            folder.path().join("file"),
            (0..FILE_BYTES).map(file_byte).collect::<Vec<u8>>(),
        )
        .unwrap();
        let nginx = [0, 1].map(|number| {
            nginx(&servers, folder.path(), number, ["10.1.0.11", "10.1.0.12"][number])
        });
        let sent = std::fs::read(folder.path().join("file")).unwrap();
        let listener = servers.run(|| TcpListener::bind("10.1.0.12:82").unwrap());
        std::thread::spawn(move || answer_when_all_has_come(&listener, &sent));
        for address in ["10.1.0.11:81", "10.1.0.12:81"] {
            let address: SocketAddr = address.parse().unwrap();
            let is_up = || servers.run(move || TcpStream::connect(address).ok().map(drop));
            within(LIMIT, is_up).expect("nginx listens");
        }
        let service = |name: &str, port: u16, by: &str| {
            format!(
                "[[service]]\nname = \"{name}\"\nprotocol = \"tcp\"\naddress = \"198.51.100.1:{port}\"\nby = \"{by}\"\n\
                 masquerade = \"10.1.0.1\"\nproxy-protocol = \"v2\"\n\
                 [[service.back-end]]\naddress = \"10.1.0.11:{port}\"\nnames = [\"shop.example\", \"*.shop.example\"]\n\
                 [[service.back-end]]\naddress = \"10.1.0.12:{port}\"\nnames = [\"other.example\"]\n"
            )
        };
        let patient =
            "[[service.back-end]]\naddress = \"10.1.0.12:82\"\nnames = [\"patient.example\"]\n";
        let text = format!(
            "mode = \"direct\"\nmemory = \"4M\"\n[[interface]]\nname = \"left\"\n[[interface]]\nname = \"right\"\n{}{}{patient}",
            service("tls", 443, "sni"),
            service("plain", 80, "host")
        );
        let path = folder.path().join("forward.toml");
        std::fs::write(&path, text).unwrap();
        let check = command(&["forward", "check", path.to_str().unwrap()]);
        assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
        let said = String::from_utf8_lossy(&check.stdout).into_owned();
        assert!(
            said.contains(
                "service tls: tcp 198.51.100.1:443 for 2 back ends, chosen by sni among 3 names, told by PROXY"
            ),
            "{said}"
        );
        let forwarding = Forwarding::start(&["--config", path.to_str().unwrap()]);
        Self { client, servers, _nginx: nginx, folder, forwarding }
    }

    /// What curl gets. `url` has the name that is resolved to the service.
    fn curl(&self, url: &str, arguments: &[&str]) -> Output {
        let host = url.split("//").nth(1).unwrap().split('/').next().unwrap();
        let resolve = [443, 80].map(|port| format!("{host}:{port}:198.51.100.1"));
        let mut all = vec!["-sSk", "-m", "60", "--resolve", &resolve[0], "--resolve", &resolve[1]];
        all.extend(arguments);
        all.push(url);
        run(&self.client, "curl", &all)
    }

    fn counter(&self, name: &str) -> u64 {
        self.forwarding.status()["report"]["counters"][name].as_u64().unwrap()
    }
}

/// The name decides, whether it is in a ClientHello or a request; files go both ways unharmed, also
/// where segments are lost; ends are ends on both sides; and neither card nor forwarder takes a
/// connection along.
#[test]
fn names_lead_to_their_servers() {
    let stage = Stage::build();
    let who = |url: &str| String::from_utf8_lossy(&stage.curl(url, &[]).stdout).into_owned();
    let first = || (who("https://shop.example/who") == "shop.example 198.51.100.2").then_some(());
    within(LIMIT, first).expect("the first one");
    for (url, server) in [
        ("https://a.shop.example/who", NAMES[0]),
        ("https://other.example/who", NAMES[1]),
        ("http://shop.example/who", NAMES[0]),
        ("http://other.example/who", NAMES[1]),
    ] {
        assert_eq!(who(url), format!("{server} 198.51.100.2"), "{url}");
    }
    // A name that nobody has, and something that is not TLS.
    let unknown = stage.curl("https://nobody.example/who", &[]);
    assert!(
        !unknown.status.success() && String::from_utf8_lossy(&unknown.stderr).contains("reset"),
        "{unknown:?}"
    );
    let is_reset = stage.client.run(|| {
        let mut stream =
            TcpStream::connect_timeout(&"198.51.100.1:443".parse().unwrap(), LIMIT).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        uninterrupted(|| stream.read(&mut [0])).is_err()
    });
    assert!(is_reset);
    assert_eq!((stage.counter("switch_unknown_name"), stage.counter("switch_malformed")), (1, 1));

    // Several requests by one connection, a download, and an upload whose first bytes come with the
    // request.
    let file = std::fs::read(stage.folder.path().join("file")).unwrap();
    let path = stage.folder.path().join("file");
    let two = stage.curl(
        "https://shop.example/file",
        &["https://shop.example/file", "-w", "%{num_connects} "],
    );
    assert!(
        two.stdout.starts_with(&file) && two.stdout.ends_with(b"0 "),
        "one connection, and the same bytes"
    );
    let upload = |url: &str| {
        let sent = format!("@{}", path.display());
        stage.curl(
            url,
            &[
                "-H",
                "Expect:",
                "--data-binary",
                &sent,
                "-o",
                "/dev/null",
                "-w",
                "%{http_code} %{size_upload}",
            ],
        )
    };
    for url in ["https://other.example/who", "http://shop.example/who"] {
        let sent = upload(url);
        assert_eq!(
            String::from_utf8_lossy(&sent.stdout),
            format!("200 {FILE_BYTES}"),
            "{url}: {sent:?}"
        );
    }
    // One segment in 50 is lost on each side, in both directions.
    for (namespace, name) in [(&stage.client, "loss"), (&stage.servers, "loss")] {
        let rules = format!(
            "table netdev {name} {{ chain in {{ type filter hook ingress device eth0 priority 0; meta l4proto tcp numgen random mod 50 0 drop; }}; }}"
        );
        let made = run(namespace, "nft", &[&rules]);
        assert!(made.status.success(), "{made:?}");
    }
    for url in ["https://shop.example/file", "http://other.example/file"] {
        let got = stage.curl(url, &[]);
        assert!(
            got.status.success() && got.stdout == file,
            "{url}: {:?}",
            String::from_utf8_lossy(&got.stderr)
        );
    }
    let sent = upload("https://shop.example/who");
    assert_eq!(String::from_utf8_lossy(&sent.stdout), format!("200 {FILE_BYTES}"), "{sent:?}");
    for namespace in [&stage.client, &stage.servers] {
        assert!(run(namespace, "nft", &["delete table netdev loss"]).status.success());
    }

    // Half-closed: who sends no more still gets everything.
    let all = stage.client.run(|| {
        let mut stream =
            TcpStream::connect_timeout(&"198.51.100.1:80".parse().unwrap(), LIMIT).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: patient.example\r\n\r\n").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        all
    });
    assert!(all == file, "{} bytes", all.len());

    // A download goes on whoever is killed; one whose name has not come ends.
    let mut stream = stage
        .client
        .run(|| TcpStream::connect_timeout(&"198.51.100.1:80".parse().unwrap(), LIMIT).unwrap());
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
        .write_all(b"GET /file HTTP/1.1\r\nHost: other.example\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut idle = stage
        .client
        .run(|| TcpStream::connect_timeout(&"198.51.100.1:443".parse().unwrap(), LIMIT).unwrap());
    idle.set_read_timeout(Some(LIMIT)).unwrap();
    let mut all = vec![0; 100_000];
    stream.read_exact(&mut all).unwrap();
    let from = stream.local_addr().unwrap().to_string();
    let why = command(&["forward", "why", &from, "--name", &stage.forwarding.name()]);
    let said = String::from_utf8_lossy(&why.stdout).into_owned();
    assert!(said.contains("back end 10.1.0.12:80 by name"), "{said}");
    let from = idle.local_addr().unwrap().to_string();
    let said = || {
        let why = command(&["forward", "why", &from, "--name", &stage.forwarding.name()]);
        String::from_utf8_lossy(&why.stdout).contains("waits for its name").then_some(())
    };
    within(LIMIT, said).expect("it waits for its name");
    for who in ["card_pid", "forwarder_pid"] {
        let now = stage.forwarding.status();
        kill(now[who].as_u64().unwrap(), Signal::KILL);
        let before = now["restarts"].as_u64().unwrap();
        let is_over = || (stage.forwarding.status()["restarts"].as_u64()? > before).then_some(());
        within(LIMIT, is_over).expect("it is started again");
        let mut more = vec![0; 500_000];
        stream.read_exact(&mut more).unwrap();
        all.extend(more);
    }
    stream.read_to_end(&mut all).unwrap();
    assert!(all.ends_with(&file));
    idle.write_all(&[22, 3, 1]).unwrap();
    assert!(uninterrupted(|| idle.read(&mut [0])).is_err(), "nobody knows it");
    let status = command(&["status", "--name", &stage.forwarding.name()]);
    let shown = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(
        shown.contains("by name      ") && shown.contains("shop.example *.shop.example"),
        "{shown}"
    );
    let Stage { forwarding, .. } = stage;
    forwarding.stop();
}
