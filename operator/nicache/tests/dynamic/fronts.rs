//! Proxies in front of nicache, as docs/tls.md has them: TLS ends there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::{ip, within};
use crate::stage::{Stage, make_certificate};

/// The port where a server waits for headers of the PROXY protocol.
pub(crate) const PROXY_PORT: u16 = 8082;
/// In the server's `server` block.
pub(crate) const NGINX: &str =
    "listen 8082 proxy_protocol; set_real_ip_from 0.0.0.0/0; real_ip_header proxy_protocol;";
/// The address from which HAProxy connects: that of another machine, as far as the server can tell.
/// The others connect from the machine's own.
pub(crate) const ELSEWHERE: &str = "198.18.255.1";

/// A proxy and where it listens, with TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Front {
    Caddy = 8441,
    Haproxy = 8442,
    Nginx = 8443,
    HitchV2 = 8444,
    HaproxyV1 = 8445,
    HaproxyV2 = 8446,
    NginxV1 = 8447,
    /// With HTTP/1.0 and a connection for each request, as nginx has it unless told otherwise.
    NginxPlain = 8448,
}

impl Front {
    pub(crate) const ALL: [Self; 8] = [
        Self::Caddy,
        Self::Haproxy,
        Self::Nginx,
        Self::HitchV2,
        Self::HaproxyV1,
        Self::HaproxyV2,
        Self::NginxV1,
        Self::NginxPlain,
    ];
}

const CADDY: &str = "{
    admin off
    auto_https off
}
:8441 {
    tls @FOLDER@/tls.pem @FOLDER@/tls.key
    reverse_proxy @SERVER@:80
}
";

const HAPROXY: &str = "global
    log stderr format raw local0 err
defaults
    mode http
    log global
    timeout connect 5s
    timeout client 30s
    timeout server 30s
frontend plain
    bind :8442 ssl crt @FOLDER@/both.pem alpn h2,http/1.1
    http-request del-header X-Forwarded-For
    option forwardfor
    http-request set-header X-Forwarded-Proto https
    unique-id-format %[uuid()]
    unique-id-header X-Request-ID
    default_backend nicache
frontend v1
    bind :8445 ssl crt @FOLDER@/both.pem
    default_backend nicache_v1
frontend v2
    bind :8446 ssl crt @FOLDER@/both.pem
    default_backend nicache_v2
backend nicache
    source @ELSEWHERE@
    server nicache @SERVER@:80
backend nicache_v1
    server nicache @SERVER@:8082 send-proxy
backend nicache_v2
    server nicache @SERVER@:8082 send-proxy-v2
";

const NGINX_FRONT: &str = "daemon off;
load_module /usr/lib/nginx/modules/ngx_stream_module.so;
pid @FOLDER@/nginx.pid;
error_log stderr warn;
events { worker_connections 512; }
http {
    access_log off;
    client_body_temp_path @FOLDER@/body;
    proxy_temp_path @FOLDER@/proxy;
    fastcgi_temp_path @FOLDER@/fastcgi;
    uwsgi_temp_path @FOLDER@/uwsgi;
    scgi_temp_path @FOLDER@/scgi;
    upstream nicache {
        server @SERVER@:80;
        keepalive 4;
    }
    server {
        listen 8443 ssl http2;
        ssl_certificate @FOLDER@/tls.pem;
        ssl_certificate_key @FOLDER@/tls.key;
        location / {
            proxy_pass http://nicache;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_set_header X-Forwarded-Host $http_host;
            proxy_set_header X-Real-IP $remote_addr;
            proxy_set_header X-Request-ID $request_id;
        }
    }
    server {
        listen 8448 ssl;
        ssl_certificate @FOLDER@/tls.pem;
        ssl_certificate_key @FOLDER@/tls.key;
        location / {
            proxy_pass http://@SERVER@:80;
            proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-For $remote_addr;
            proxy_set_header X-Forwarded-Proto $scheme;
        }
    }
}
stream {
    server {
        listen 8447 ssl;
        ssl_certificate @FOLDER@/tls.pem;
        ssl_certificate_key @FOLDER@/tls.key;
        proxy_pass @SERVER@:8082;
        proxy_protocol on;
    }
}
";

const HITCH: &str = "frontend = \"[*]:8444\"
backend = \"[@SERVER@]:8082\"
pem-file = \"@FOLDER@/both.pem\"
write-proxy-v2 = on
workers = 1
daemon = off
user = \"nobody\"
group = \"nogroup\"
quiet = on
";

/// All of them, running. They end with this.
pub(crate) struct Fronts {
    programs: Vec<Child>,
    folder: PathBuf,
}

impl Fronts {
    pub(crate) fn start(stage: &Stage) -> Self {
        ip("route add local 198.18.0.0/16 dev lo");
        let folder = stage.path("fronts");
        fs::create_dir(&folder).unwrap();
        make_certificates(&folder);
        let server = stage.nicache.server().to_string();
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            let text = text
                .replace("@FOLDER@", &folder.display().to_string())
                .replace("@SERVER@", &server)
                .replace("@ELSEWHERE@", ELSEWHERE);
            fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let root = folder.display().to_string();
        let commands: [Vec<String>; 4] = [
            vec![
                "caddy".into(),
                "run".into(),
                "--adapter".into(),
                "caddyfile".into(),
                "--config".into(),
                write("Caddyfile", CADDY),
            ],
            vec!["haproxy".into(), "-db".into(), "-f".into(), write("haproxy.cfg", HAPROXY)],
            vec![
                "nginx".into(),
                "-p".into(),
                root.clone(),
                "-e".into(),
                "stderr".into(),
                "-c".into(),
                write("nginx.conf", NGINX_FRONT),
            ],
            vec!["hitch".into(), format!("--config={}", write("hitch.conf", HITCH))],
        ];
        let log = fs::File::create(folder.join("log")).unwrap();
        let programs = commands.into_iter().map(|command| {
            let mut program = Command::new(&command[0]);
            program
                .args(&command[1..])
                .stdin(Stdio::null())
                .env("HOME", &root)
                .env("XDG_DATA_HOME", &root);
            program
                .env("XDG_CONFIG_HOME", &root)
                .stdout(log.try_clone().unwrap())
                .stderr(log.try_clone().unwrap());
            program.spawn().unwrap_or_else(|error| panic!("{}: {error}", command[0]))
        });
        let fronts = Self { programs: programs.collect(), folder };
        for front in Front::ALL {
            let is_there = || std::net::TcpStream::connect(("127.0.0.1", front as u16)).ok();
            assert!(
                within(Duration::from_secs(20), is_there).is_some(),
                "{front:?}: {}",
                fronts.log()
            );
        }
        fronts
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

impl Drop for Fronts {
    fn drop(&mut self) {
        for program in &mut self.programs {
            let family = crate::common::family(program.id().into());
            let _ = program.kill();
            let _ = program.wait();
            family.into_iter().filter(|pid| *pid != u64::from(program.id())).for_each(|pid| {
                if crate::common::is_running(pid) {
                    crate::common::kill_if_there(pid, rustix::process::Signal::KILL);
                }
            });
        }
    }
}

/// One file with both, as HAProxy and Hitch take it, and each in its own.
fn make_certificates(folder: &Path) {
    let (key, certificate) = (folder.join("tls.key"), folder.join("tls.pem"));
    make_certificate(&key, &certificate);
    let both = [fs::read(&certificate).unwrap(), fs::read(&key).unwrap()].concat();
    fs::write(folder.join("both.pem"), both).unwrap();
}
