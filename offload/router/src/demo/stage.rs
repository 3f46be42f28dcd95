//! What stands around the forwarder: clients, links, and an nginx behind each of three.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nicache_netns::{Namespace, ip};
use nicache_port::ETHERNET_HEADER_BYTES;
use tempfile::TempDir;

const CLIENTS: u8 = 3;
const SERVERS: u8 = 3;
/// Names of the servers, which they tell.
const NAMES: [&str; SERVERS as usize] = ["a", "b", "c"];
/// Bytes of the file that clients download.
pub const FILE_BYTES: usize = 4 << 20;
const _: () = assert!(ETHERNET_HEADER_BYTES == 14);

/// The byte of the file at a place: every place of a megabyte has another neighbourhood, so a
/// part in a wrong place is found.
pub fn file_byte(at: usize) -> u8 {
    let word = (at as u64 / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (word >> (at % 8 * 8)) as u8 ^ (word >> 56) as u8
}

/// What stands around the forwarder of the demo: clients, links, and an nginx behind each of three.
/// Dropping it takes everything down.
#[derive(Debug)]
pub struct Stage {
    servers: Vec<Child>,
    /// Where the forwarder is.
    pub middle: Namespace,
    /// Where clients are.
    pub clients: Vec<Namespace>,
    _servers: Vec<Namespace>,
    _folder: TempDir,
    /// The second byte of all addresses: 10.NET.x.y.
    net: u8,
}

impl Stage {
    /// Builds it. `interface` becomes this machine's way in, with the address 10.`net`.0.1.
    ///
    /// # Errors
    /// What is missing, and what to do.
    pub fn build(interface: &str, net: u8) -> io::Result<Self> {
        let middle = Namespace::with_loopback()?;
        let folder = tempfile::Builder::new().prefix("nicache-forward-").tempdir()?;
        std::fs::write(
            folder.path().join("file"),
            (0..FILE_BYTES).map(file_byte).collect::<Vec<u8>>(),
        )?;
        // nginx reads it as another user.
        std::fs::set_permissions(
            folder.path(),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )?;
        ip(&format!(
            "link add {interface} type veth peer name machine netns {}",
            middle.thread_id()
        ))?;
        ip(&format!("link set {interface} addrgenmode none up"))?;
        ip(&format!("address add 10.{net}.0.1/30 dev {interface}"))?;
        middle.ip("link set machine addrgenmode none up")?;
        middle.ip(&format!("address add 10.{net}.0.2/30 dev machine"))?;
        let mut stage = Self {
            servers: Vec::new(),
            middle,
            clients: Vec::new(),
            _servers: Vec::new(),
            _folder: folder,
            net,
        };
        for number in 1..=CLIENTS {
            let client = stage.link(&format!("client{number}"), number)?;
            // A client that reads slowly is not sent a whole file at once.
            client.run(|| std::fs::write("/proc/sys/net/ipv4/tcp_rmem", "4096 65536 131072"))?;
            stage.clients.push(client);
        }
        for (number, name) in (1..=SERVERS).zip(NAMES) {
            let server = stage.link(&format!("server{number}"), 10 + number)?;
            let listen = format!("10.{net}.{}.2:80", 10 + number);
            let process = start_nginx(&server, stage._folder.path(), name, &listen)?;
            stage.servers.push(process);
            stage._servers.push(server);
        }
        Ok(stage)
    }

    /// A namespace with a link to the middle, 10.net.`third`.0/24: the forwarder has .1, the
    /// namespace .2.
    fn link(&self, end: &str, third: u8) -> io::Result<Namespace> {
        let (net, other) = (self.net, Namespace::with_loopback()?);
        other.veth("eth0", &self.middle, end)?;
        self.middle.ip(&format!("address add 10.{net}.{third}.1/24 dev {end}"))?;
        other.ip(&format!("address add 10.{net}.{third}.2/24 dev eth0"))?;
        other.ip(&format!("route add default via 10.{net}.{third}.1"))?;
        Ok(other)
    }

    /// The address of the service.
    pub fn service(&self) -> String {
        format!("10.{}.0.2", self.net)
    }

    /// The forwarder's configuration.
    pub fn config(&self) -> String {
        let mut text = String::new();
        let names = ["machine".to_owned()].into_iter();
        let names = names.chain((1..=CLIENTS).map(|number| format!("client{number}")));
        for name in names.chain((1..=SERVERS).map(|number| format!("server{number}"))) {
            text.push_str(&format!("[[interface]]\nname = \"{name}\"\n\n"));
        }
        text.push_str(&format!(
            "[[service]]\nname = \"web\"\nprotocol = \"tcp\"\naddress = \"{}:80\"\ncheck = {{ kind = \"http\", path = \"/who\", every = \"1s\" }}\n",
            self.service()
        ));
        for number in 1..=SERVERS {
            text.push_str(&format!(
                "  [[service.back-end]]\n  address = \"10.{}.{}.2:80\"\n",
                self.net,
                10 + number
            ));
        }
        text
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// One process, which ends with the thread that has started it, whatever becomes of this process.
fn start_nginx(
    namespace: &Namespace,
    folder: &Path,
    name: &str,
    listen: &str,
) -> io::Result<Child> {
    let own = folder.join(name);
    std::fs::create_dir(&own)?;
    let (at, root) = (own.display(), folder.display());
    let configuration = format!(
        "daemon off; master_process off; pid {at}/pid; error_log {at}/error.log;
         events {{ worker_connections 512; }}
         http {{ access_log off; sendfile on; default_type text/plain;
           client_body_temp_path {at}/t1; proxy_temp_path {at}/t2; fastcgi_temp_path {at}/t3; uwsgi_temp_path {at}/t4; scgi_temp_path {at}/t5;
           server {{ listen {listen};
             location = / {{ return 200 'server {name} says hello to $remote_addr\\n'; }}
             location = /who {{ return 200 '{name} $remote_addr\\n'; }}
             location / {{ root {root}; }} }} }}"
    );
    let path = own.join("nginx.conf");
    std::fs::write(&path, configuration)?;
    let log = own.join("error.log");
    namespace.run(move || {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "nginx", "-c"]).arg(path).arg("-e").arg(log);
        command.stdin(Stdio::null()).spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                io::Error::other("the program setpriv is not installed (package util-linux)")
            }
            _ => error,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_repeats_nowhere() {
        let file: Vec<u8> = (0..1 << 16).map(file_byte).collect();
        let mut parts: Vec<&[u8]> = file.chunks(64).collect();
        parts.sort_unstable();
        parts.dedup();
        assert_eq!(parts.len(), 1 << 10);
    }
}
