//! Replies for which a database was asked: what it was asked must be known.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use nicache_coherence::{Class, FillRequest, RefusalReason, Verdict};

use crate::common::ServerThread;
use crate::scene::Scene;

/// Greets each client, and answers each packet with an OK.
const DATABASE: &str = r#"
    use IO::Socket::UNIX;
    my $listener = IO::Socket::UNIX->new(Local => $ARGV[0], Listen => 5) or die;
    syswrite(STDOUT, "up\n");
    while (my $client = $listener->accept()) {
        fork() and next;
        syswrite($client, pack("C3Ca*", 5, 0, 0, 0, "hello"));
        while (sysread($client, my $header, 4)) {
            my ($low, $high) = unpack("vC", $header);
            sysread($client, my $text, $low + ($high << 16));
            syswrite($client, pack("C3CC7", 7, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0));
        }
        exit;
    }
"#;

/// Says who it is, and asks whether the database is there each time that it is told to. Its
/// connection is the one that it was started with, or one of its own.
const CLIENT: &str = r#"
    use IO::Socket::UNIX;
    my $database;
    if ($ARGV[0]) { $database = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die; }
    else { open($database, "+<&=", 2) or die; }
    sub ask {
        syswrite($database, pack("C3Ca*", length($_[1]), 0, 0, @_));
        sysread($database, my $answer, 11) or exit;
    }
    sysread($database, my $greeting, 9);
    # Protocol 4.1, and a user without a password.
    ask(1, pack("VVCx23a*", 0x8200, 1 << 24, 33, "site\0\0"));
    syswrite(STDOUT, "up\n");
    while (sysread(STDIN, my $line, 1)) {
        ask(0, "\x0e");
        syswrite(STDOUT, "asked\n");
    }
"#;

struct Program {
    process: Child,
    tell: ChildStdin,
    told: BufReader<ChildStdout>,
}

impl Program {
    fn start(mut command: Command) -> Self {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let tell = process.stdin.take().unwrap();
        let told = BufReader::new(process.stdout.take().unwrap());
        let mut program = Self { process, tell, told };
        program.hear("up\n");
        program
    }

    fn hear(&mut self, expected: &str) {
        let mut line = String::new();
        self.told.read_line(&mut line).unwrap();
        assert_eq!(line, expected);
    }

    fn ask(&mut self) {
        self.tell.write_all(b"?").unwrap();
        self.hear("asked\n");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn start_database(program: &Path, socket: &Path) -> Program {
    // Known by the name that it is called by.
    std::os::unix::fs::symlink("/usr/bin/perl", program).unwrap();
    let mut command = Command::new(program);
    command.args(["-e", DATABASE]).arg(socket);
    Program::start(command)
}

/// In the server's network.
fn start_client(server: &ServerThread, socket: PathBuf, connection: Option<UnixStream>) -> Program {
    server.run(move || {
        let mut command = Command::new("perl");
        command.args(["-e", CLIENT]);
        match connection {
            Some(connection) => command.stderr(Stdio::from(OwnedFd::from(connection))),
            None => command.arg(socket),
        };
        Program::start(command)
    })
}

fn judge(scene: &mut Scene, client: &mut Program) -> Verdict {
    scene.settled(|scene| {
        let forwarded = scene.forward();
        client.ask();
        let request = FillRequest {
            id: 7,
            stamp: forwarded.stamp,
            asked: scene.table.advance_clock(),
            forwarded_ns: forwarded.at_ns,
            finished_ns: nicache_clock::monotonic_ns(),
            lost: forwarded.lost,
            body_len: 5,
            body_hash: *blake3::hash(b"asked").as_bytes(),
            last_modified: None,
            may_be_static: false,
            may_be_dynamic: true,
            previous: None,
            client: std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 1),
            target: b"/page",
        };
        let mut resolver = scene.registrar.resolver();
        scene.registrar.judge(&request, &mut resolver).verdict
    })
}

/// The kernel names as its client who has made the connection, and not who has it now.
#[test]
fn a_database_that_is_asked_by_a_connection_of_somebody_else_is_unclear() {
    let mut scene = Scene::new();
    let socket = scene.path("socket");
    let _database = start_database(&scene.path("mariadbd"), &socket);
    scene.registrar.follow_databases(scene.watcher.databases());
    let mut client = start_client(&scene.server, socket.clone(), None);
    // No statement: it says nothing that a page could depend on.
    let verdict = judge(&mut scene, &mut client);
    assert!(matches!(verdict, Verdict::Stored { class: Class::Dynamic, .. }), "{verdict:?}");

    let connection = UnixStream::connect(&socket).unwrap();
    let mut client = start_client(&scene.server, socket, Some(connection));
    let verdict = judge(&mut scene, &mut client);
    assert_eq!(verdict, Verdict::Refused(RefusalReason::DatabaseUnclear));
}
