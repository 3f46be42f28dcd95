use std::os::unix::fs::MetadataExt;
use std::process::Command;

use nicache_coherence::SourceSlot;
use nicache_sql::Access;

use super::*;
use crate::databases::database::Database as _;
use crate::databases::kinds::mysql::{COM_QUERY, MySql};
use crate::databases::kinds::postgres::Postgres;
use crate::statements::asked::Asked;
use crate::statements::connections::{CONNECTIONS_MAX, QUIET_NS};

const GREETING: &[u8] = b"\x4a\0\0\0\x0a10.11\0";
const LOGIN: &[u8] = b"\x20\0\0\x01";

const STARTUP: &[u8] = b"\0\0\0\x13\0\x03\0\0user\0root\0\0";

fn all_of(server: Server) -> DatabaseRead {
    DatabaseRead { server, slot: SourceSlot::DATABASES, access: Access::EVERYTHING }
}

fn postgres_message(letter: u8, text: &str) -> Vec<u8> {
    let len = (text.len() + 5) as u32;
    [&[letter][..], &len.to_be_bytes(), text.as_bytes(), b"\0"].concat()
}

/// What a client of PostgreSQL sends at time 5 or later, to this process.
fn postgres_receives(databases: &mut Databases, client: u32, bytes: &[u8], time_ns: u64) {
    let event =
        LookupEvent { tgid: std::process::id(), path: bytes.into(), ..LookupEvent::blank(time_ns) };
    let what = SqlStep::Received { client, by_network: None, certain: false, ahead: false };
    databases.observe(&event, SqlEvent { connection: 1, kind: &Postgres, what, first: 0 });
}

/// On a busy machine the server reads what the client has said last when that has ended. Taken for
/// something that nobody understands, it would have the structure asked for again, and again.
#[test]
fn the_last_words_of_a_client_that_asks_for_the_structure_change_nothing() {
    const CLIENT: u32 = u32::MAX - 1;
    const TERMINATE: &[u8] = b"X\0\0\0\x04";
    let mut databases = Databases::new(HashSet::new(), 1);
    databases.catalogues.add_ended_client(CLIENT, 7);
    postgres_receives(&mut databases, CLIENT, STARTUP, 5);
    postgres_receives(
        &mut databases,
        CLIENT,
        &postgres_message(b'Q', Postgres.structure_query()),
        6,
    );
    postgres_receives(&mut databases, CLIENT, TERMINATE, 9);
    assert!(databases.journal.changes.is_empty() && !databases.connections.contains(1));
    // Another client, by the same number of a connection.
    postgres_receives(&mut databases, CLIENT + 1, STARTUP, 10);
    postgres_receives(&mut databases, CLIENT + 1, &postgres_message(b'Q', "DROP TABLE a"), 11);
    assert!(!databases.journal.changes.is_empty());
}

/// Another nicache's client that has ended before it could be looked at.
#[test]
fn the_question_for_the_structure_changes_nothing_whoever_asks_it() {
    let ask = |question: &str| {
        let mut databases = Databases::new(HashSet::new(), 1);
        postgres_receives(&mut databases, u32::MAX, STARTUP, 5);
        postgres_receives(&mut databases, u32::MAX, &postgres_message(b'Q', question), 6);
        assert!(databases.journal.was_asked(6, 6, |_, _| true), "it reads");
        databases.journal.changes.len()
    };
    assert_eq!(ask(Postgres.structure_query()), 0);
    assert_ne!(ask(&format!("{}; DROP TABLE a", Postgres.structure_query())), 0);
    let packet = |text: &str| [&[0, 0, 0, 0, COM_QUERY], text.as_bytes()].concat();
    let query = MySql.structure_query();
    for asked in [query, query.trim_end()] {
        assert!(MySql.is_structure_question(&packet(asked)));
    }
    assert!(!MySql.is_structure_question(&packet("DROP TABLE a")));
}

/// A connection of another database that was there before the watcher: which of its databases
/// it uses nobody knows, and a statement of it may be anything there, but nothing here.
#[test]
fn a_connection_in_the_middle_of_another_database_voids_nothing_here() {
    let mut databases = Databases::new(HashSet::new(), 1);
    databases.used.insert(7);
    let event = |tgid: u32| LookupEvent { tgid, incomplete: true, ..LookupEvent::blank(5) };
    let what =
        SqlStep::Received { client: u32::MAX, by_network: None, certain: false, ahead: false };
    let sql = |connection| SqlEvent { connection, kind: &Postgres, what, first: 0 };
    let own = std::process::id();
    databases.observe(&event(own), sql(1));
    let of = databases.known.first_process(own, 1).unwrap();
    assert_eq!((databases.servers_of(1), databases.server_of(1)), (vec![of], of));
    assert!(!databases.journal.has_changed(&[all_of(7)], Stamp(1)));
    // Of whom nothing is known, it may be ours.
    databases.observe(&event(u32::MAX), sql(2));
    assert_eq!((databases.servers_of(2), databases.server_of(2)), (vec![7], 0));
    assert!(databases.journal.has_changed(&[all_of(7)], Stamp(0)));
}

/// `mysql -e` of a timer, or a dump, has ended when a reply is judged.
/// Of strangers' servers neither the structure is asked for nor what their functions may do.
#[test]
fn a_server_is_used_through_a_network_once_it_has_been_asked() {
    let own = std::process::id();
    let event = LookupEvent { tgid: own, incomplete: true, ..LookupEvent::blank(5) };
    let what =
        SqlStep::Received { client: 0, by_network: Some(4000), certain: false, ahead: false };
    let sql = SqlEvent { connection: 1, kind: &MySql, what, first: 0 };
    let mut databases = Databases::new(HashSet::new(), 1);
    databases.observe(&event, sql);
    let server = databases.known.first_process(own, 1).unwrap();
    assert!(databases.used.is_empty() && !databases.functions_may_write());
    let mut others = Asked::default();
    others.note(4000, server + 1);
    databases.note_asked(&others, 0, 9);
    assert!(!databases.used.contains(&server));
    let mut asked = Asked::default();
    asked.note_anybody();
    databases.note_asked(&asked, 6, 9);
    assert!(!databases.used.contains(&server), "it was asked before");
    databases.note_asked(&asked, 0, 9);
    assert!(databases.used.contains(&server) && databases.functions_may_write());
}

#[test]
fn a_client_that_was_none_of_the_servers_is_known_as_such_when_it_has_ended() {
    let own = std::process::id();
    let netns = std::fs::metadata("/proc/self/ns/net").unwrap().ino() as u32;
    // In the server's network, in another one, and one that had ended before it was looked at.
    for (server_netns, has_ended, was_outside) in
        [(netns, false, false), (1, false, true), (1, true, false), (0, false, false)]
    {
        let mut databases = Databases::new(HashSet::new(), server_netns);
        let mut client = Command::new("sleep").arg("60").spawn().unwrap();
        if has_ended {
            client.kill().unwrap();
            client.wait().unwrap();
        }
        let process = client.id();
        let received = |databases: &mut Databases| {
            let event = LookupEvent { tgid: own, incomplete: true, ..LookupEvent::blank(5) };
            let what = SqlStep::Received {
                client: process,
                by_network: None,
                certain: false,
                ahead: false,
            };
            let sql = SqlEvent { connection: 1, kind: &MySql, what, first: 0 };
            databases.observe(&event, sql);
        };
        received(&mut databases);
        let is_expected =
            |client: Client, _| (client.process, client.was_outside) == (process, was_outside);
        assert!(databases.has_written(0, 9, is_expected));
        assert!(databases.was_asked(0, 9, is_expected));
        let _ = client.kill();
        let _ = client.wait();
        // One more statement of it, which was under way.
        received(&mut databases);
        assert!(databases.was_asked(0, 9, is_expected));
    }
}

/// Another site's database starts on the machine.
#[test]
fn a_server_that_begins_voids_what_others_had_that_have_ended() {
    let started = |databases: &mut Databases, server, clock| {
        databases.handle_started(server, &MySql, 1, Stamp(clock));
    };
    let has_changed = |databases: &Databases, server, since| {
        databases.journal.has_changed(&[all_of(server)], Stamp(since))
    };
    let gone = |databases: &mut Databases, server: u32, clock| {
        databases.used.insert(server);
        let event =
            LookupEvent { ret: server.into(), clock: Stamp(clock), ..LookupEvent::blank(1) };
        databases.handle_gone(&event);
    };
    let no_process = u32::MAX;
    let mut databases = Databases::new(HashSet::new(), 1);
    databases.used.extend([7, 8]);
    gone(&mut databases, 8, 9);
    assert!(!has_changed(&databases, 8, 5), "it has ended, and its files are as they were");
    started(&mut databases, no_process, 10);
    assert!(
        !has_changed(&databases, 7, 5)
            && has_changed(&databases, 8, 10)
            && has_changed(&databases, 0, 10)
    );
    assert!(!has_changed(&databases, 8, 11));
    // The same number begins anew.
    started(&mut databases, 7, 20);
    assert!(has_changed(&databases, 7, 20) && !has_changed(&databases, 7, 21));
    // One that waits for the files of one that is about to end.
    started(&mut databases, no_process, 30);
    assert!(!has_changed(&databases, 7, 25));
    gone(&mut databases, 7, 40);
    assert!(has_changed(&databases, 7, 40) && !has_changed(&databases, 7, 41));
    databases.used.extend([9, 10]);
    databases.handle_crash(9, Stamp(50));
    assert!(has_changed(&databases, 9, 50) && has_changed(&databases, 0, 50));
    assert!(!has_changed(&databases, 10, 45), "it runs on");
    databases.handle_crash(no_process, Stamp(60));
    assert!(!has_changed(&databases, 9, 55) && !has_changed(&databases, 10, 45));
}

fn observe(databases: &mut Databases, connection: u64, what: SqlStep, bytes: &[u8], time_ns: u64) {
    // Without bytes, there were some that nobody saw.
    let event = LookupEvent {
        path: bytes.into(),
        incomplete: bytes.is_empty(),
        ..LookupEvent::blank(time_ns)
    };
    databases.observe(&event, SqlEvent { connection, kind: &MySql, what, first: 0 });
}

fn received(certain: bool) -> SqlStep {
    SqlStep::Received { client: 0, by_network: None, certain, ahead: false }
}

/// The connection is none of the sockets of the process that is said to be the server.
#[test]
fn what_is_closed_is_over_unless_there_was_more_on_it() {
    for more in [false, true] {
        let mut databases = Databases::new(HashSet::new(), 0);
        let server = std::process::id();
        let observe = |databases: &mut Databases, what, bytes: &[u8], time_ns| {
            let incomplete = bytes.is_empty();
            let event = LookupEvent {
                tgid: server,
                path: bytes.into(),
                incomplete,
                ..LookupEvent::blank(time_ns)
            };
            databases.observe(&event, SqlEvent { connection: 1, kind: &MySql, what, first: 0 });
        };
        observe(&mut databases, SqlStep::Sent, GREETING, 1);
        observe(&mut databases, received(false), b"", 2);
        assert!(databases.is_in_doubt(1));
        assert!(databases.find_closed(2 + QUIET_NS).is_empty(), "it is not silent for long");
        let closed = databases.find_closed(3 + 3 * QUIET_NS);
        assert_eq!(closed.len(), 1);
        if more {
            observe(&mut databases, received(false), b"", 3);
        }
        databases.end_closed(&closed, Stamp(9));
        assert_eq!(databases.is_in_doubt(1), more);
        assert_eq!(databases.connections.contains(1), more);
    }
}

/// Connections that nobody tells the end of.
#[test]
fn there_is_always_room_for_a_new_connection() {
    let mut databases = Databases::new(HashSet::new(), 0);
    let many = 3 * CONNECTIONS_MAX as u64;
    for connection in 1..=many {
        observe(&mut databases, connection, SqlStep::Sent, GREETING, connection);
        let is_first = connection == 1;
        observe(
            &mut databases,
            connection,
            received(!is_first),
            if is_first { b"" } else { LOGIN },
            connection,
        );
        assert!(
            databases.connections.contains(connection)
                && databases.connections.len() <= CONNECTIONS_MAX
        );
    }
    assert!(databases.is_in_doubt(1) && !databases.connections.contains(2));
    // One that was forgotten is not taken for a new one, whose first packet says who the client
    // is.
    let before = databases.journal.changes.len();
    let update = b"UPDATE a SET b = 1";
    let packet = [&[update.len() as u8 + 1, 0, 0, 0, 3][..], update].concat();
    observe(&mut databases, 2, received(false), &packet, many);
    let changes = databases.journal.changes.iter().skip(before);
    assert!(
        changes.flat_map(|change| change.writes.iter()).any(|access| *access == Access::EVERYTHING)
    );
}
