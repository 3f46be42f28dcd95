//! What the fuzz targets, the replay of their corpus and the property tests have in common: run
//! arbitrary bytes through the public functions and check what must hold for all input.

#![allow(dead_code, reason = "each user takes some of the functions")]

use nicache_sql::*;

pub(crate) fn defaults() -> Defaults {
    Defaults { autocommit: true, usual_lexing: true, read_uncommitted: false, usual_language: true }
}

/// The events of a connection whose bytes come in the given pieces, without repetitions: what
/// nothing is known of is said for each piece anew.
pub(crate) fn events<'a>(
    dialect: Dialect,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<Event> {
    let mut session = Session::new(dialect, Some(defaults()));
    let mut events: Vec<Event> = Vec::new();
    for piece in pieces {
        session.handle_client(piece, &mut Uncached, None, &mut |event| {
            let unknown = matches!(
                event,
                Event::Everything { .. }
                    | Event::SchemaChanged
                    | Event::SchemaDoubted
                    | Event::DatabaseChanged
                    | Event::TablesChanged(_)
                    | Event::RequestEnd
            );
            let last = events.iter().rev().take(3).any(|last| *last == event);
            if !(unknown && last) {
                events.push(event);
            }
        });
    }
    events
}

pub(crate) fn stream(dialect: Dialect, bytes: &[u8]) {
    let whole = events(dialect, [bytes]);
    let single = events(dialect, bytes.chunks(1));
    assert_eq!(whole, single);
    let uneven = events(dialect, bytes.chunks(7));
    assert_eq!(whole, uneven);
    // In the middle, with replies and gaps, nothing is promised but that it ends well.
    let mut session = Session::in_the_middle(dialect);
    let mut said = 0;
    for (at, piece) in bytes.chunks(31).enumerate() {
        session.handle_client(piece, &mut Uncached, None, &mut |_| said += 1);
        session.handle_server(&bytes[bytes.len() - piece.len()..]);
        if at % 5 == 4 {
            session.handle_gap(&mut |_| said += 1);
        }
    }
    let _ = is_certain_read(dialect, bytes);
}

pub(crate) fn mysql(bytes: &[u8]) {
    stream(Dialect::MySql, bytes);
}

pub(crate) fn postgres(bytes: &[u8]) {
    stream(Dialect::Postgres, bytes);
}

/// Both directions of a connection: a byte that says who speaks (the highest bit: the server) and
/// how long, and as many bytes, and so on.
pub(crate) fn turns(dialect: Dialect, bytes: &[u8]) {
    let (mut whole, mut single) = (Turns::new(dialect), Turns::new(dialect));
    let mut rest = bytes;
    while let Some((&head, behind)) = rest.split_first() {
        let (said, behind) = behind.split_at(behind.len().min(usize::from(head & 0x7f)));
        rest = behind;
        for (turns, piece) in [(&mut whole, said.len().max(1)), (&mut single, 1)] {
            for part in said.chunks(piece) {
                match head & 0x80 {
                    0 => drop(turns.handle_client(part)),
                    _ => turns.handle_server(part),
                }
            }
        }
        assert_eq!(whole.is_over(), single.is_over());
    }
}

pub(crate) fn turns_of_mysql(bytes: &[u8]) {
    turns(Dialect::MySql, bytes);
}

pub(crate) fn turns_of_postgres(bytes: &[u8]) {
    turns(Dialect::Postgres, bytes);
}

pub(crate) fn statement(bytes: &[u8]) {
    for dialect in [Dialect::MySql, Dialect::Postgres] {
        let statements = parse(dialect, bytes);
        assert!(!statements.is_empty());
        for statement in &statements {
            let footprint = expand(statement, dialect, &Context::default(), &[], None);
            let writes = !statement.writes.is_empty()
                || matches!(statement.class, Class::Everything(_))
                || statement.everything.is_some();
            assert!(!writes || !footprint.writes.is_empty());
            assert!(statement.reads.is_empty() || !footprint.reads.is_empty());
            assert!(!matches!(statement.class, Class::Everything(_)) || statements.len() == 1);
        }
    }
}

pub(crate) fn catalogue(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for dialect in [Dialect::MySql, Dialect::Postgres] {
        let Ok(catalogue) = Catalogue::parse(dialect, &text) else { continue };
        for text in
            ["SELECT * FROM a, b, titles", "DELETE FROM a", "INSERT INTO posts (id) VALUES (1)"]
        {
            let context = Context { catalog: None, schema: Some("app"), ..Context::default() };
            expand(&parse(dialect, text.as_bytes())[0], dialect, &context, &[], Some(&catalogue));
        }
    }
}
