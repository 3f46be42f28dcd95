//! Servers whose replies look otherwise than those of nginx: no `Date`, a head in pieces or longer
//! than a segment, an end of the connection that nobody announces, an `ETag` that is not one, a
//! field set twice, an offer to upgrade, a log that is not opened as one. Each has hits for clients
//! who keep the connection, who close it, and who speak HTTP/1.0, and shows an edit at once.

use std::process::Command;
use std::time::{Duration, Instant};

use super::apache;
use super::site::Folder;
use super::stage::{Stage, Traits, get, is_there};

/// Requests of each kind; the card has all it needs after a few.
const REQUESTS: usize = 12;
const HITS_MIN: u64 = 6;
/// More of them for so long if there were not enough hits.
const PATIENCE: Duration = Duration::from_secs(60);

/// A script of each language that reads `note.txt` for each request.
const RACK: &str = "run lambda { |e| [200, {'Content-Type' => 'text/plain'}, [File.read('@FOLDER@/site/note.txt')]] }\n";
const WSGI: &str = "from wsgiref.simple_server import make_server
def note(environ, start):
    body = open('@FOLDER@/site/note.txt', 'rb').read()
    start('200 OK', [('Content-Type', 'text/plain'), ('Content-Length', str(len(body)))])
    return [body]
make_server('0.0.0.0', 80, note).serve_forever()
";
const MOJOLICIOUS: &str = "use Mojolicious::Lite -signatures;
get '/note.txt' => sub ($c) {
    open my $file, '<', '@FOLDER@/site/note.txt';
    $c->render(text => join '', <$file>);
};
app->start;
";

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn check(name: &'static str, command: impl FnOnce(&Folder) -> Vec<String>) {
    check_with(&Stage::new(name, Traits::default(), &[], |folder| {
        folder.put("note.txt", b"note 0");
        command(folder)
    }));
}

fn check_with(stage: &Stage) {
    let requests = [
        ("kept", get("/note.txt", "")),
        ("closed", get("/note.txt", "Connection: close\r\n")),
        ("old", b"GET /note.txt HTTP/1.0\r\nHost: files\r\n\r\n".to_vec()),
    ];
    for (number, (kind, request)) in requests.iter().enumerate() {
        let (before, begun) = (stage.hits(), Instant::now());
        let hits = || stage.hits() - before;
        // On a busy machine a server may have what it read before for longer.
        for done in 0.. {
            if done >= REQUESTS && (hits() >= HITS_MIN || begun.elapsed() > PATIENCE) {
                break;
            }
            let reply = stage.ask(request);
            assert_eq!(String::from_utf8_lossy(&reply.body), format!("note {number}"), "{kind}");
            std::thread::sleep(Duration::from_millis(80));
        }
        let hits = hits();
        assert!(hits >= HITS_MIN, "{}, {kind}: {hits} hits: {:?}", stage.name, stage.counters());
        std::fs::write(stage.path_of_note(), format!("note {}", number + 1)).unwrap();
    }
}

impl Stage {
    fn path_of_note(&self) -> std::path::PathBuf {
        self.folder.path("note.txt")
    }
}

/// Puma: no `Date`.
#[test]
fn puma() {
    if is_there("puma") {
        check("Puma", |folder| {
            words(&format!("puma -b tcp://0.0.0.0:80 {}", folder.write("note.ru", RACK)))
        });
    }
}

/// Mojolicious: closes when it is asked to, without a word.
#[test]
fn mojolicious() {
    if Command::new("perl")
        .args(["-MMojolicious", "-e1"])
        .status()
        .is_ok_and(|status| status.success())
    {
        check("Mojolicious", |folder| {
            words(&format!(
                "perl {} prefork -m production -l http://*:80 -P {}",
                folder.write("note.pl", MOJOLICIOUS),
                folder.write("note.pid", "")
            ))
        });
    } else {
        println!("skipped: Mojolicious is not installed (tools/setup test)");
    }
}

/// Python's wsgiref: the status line is a segment of its own.
#[test]
fn wsgiref() {
    check("wsgiref", |folder| {
        words(&format!("/usr/bin/python3 {}", folder.write("note.py", WSGI)))
    });
}

/// WEBrick: an `ETag` without quotes.
#[test]
fn webrick() {
    if is_there("ruby") {
        check("WEBrick", |folder| {
            words(&format!("ruby -run -e httpd {} -p 80", folder.root().display()))
        });
    }
}

/// Apache that offers HTTP/2 in the first reply of each connection, sets a field twice, and has a
/// head that is longer than a segment.
#[test]
fn apache_with_an_offer() {
    if !is_there("apache2") {
        return;
    }
    let policy = "x".repeat(2500);
    check("Apache with h2c", |folder| {
        let base = apache::base(["mpm_event", "authz_core", "http2", "headers", "mime"]);
        let file = folder.write(
            "apache.conf",
            &format!(
                "{base}
                 Protocols h2 h2c http/1.1
                 Header always set X-Frame-Options DENY
                 Header always add X-Frame-Options SAMEORIGIN
                 Header always set Content-Security-Policy \"script-src {policy}\"
                 "
            ),
        );
        words(&format!("apache2 -f {file} -DFOREGROUND"))
    });
}

/// PHP's own server, whose log a shell has opened with `>`.
#[test]
fn a_log_that_is_not_opened_as_one() {
    let log = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
    let stage = Stage::adjusted(
        "PHP's own server",
        |folder| {
            folder.put("note.txt", b"note 0");
            words(&format!("php -S 0.0.0.0:80 -t {}", folder.root().display()))
        },
        |nicache| {
            let run: Vec<_> = [nicache.get_program()]
                .into_iter()
                .chain(nicache.get_args())
                .map(ToOwned::to_owned)
                .collect();
            *nicache = Command::new("sh");
            nicache.args(["-c", "exec \"$@\" 2> \"$0\""]).arg(log.path()).args(run);
        },
    );
    check_with(&stage);
    let lines = std::fs::read_to_string(log.path()).unwrap();
    assert!(lines.matches("/note.txt").count() > 2, "{lines}");
}
