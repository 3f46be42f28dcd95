//! Hostile bytes never panic, and where a stream is cut makes no difference. Also replays the fuzz
//! corpus.

mod exercise;

use proptest::prelude::*;

fn packet(code: u8, rest: &[u8]) -> Vec<u8> {
    let mut packet = ((rest.len() + 1) as u32).to_le_bytes()[..3].to_vec();
    packet.extend([0, code]);
    packet.extend(rest);
    packet
}

fn message(kind: u8, rest: &[u8]) -> Vec<u8> {
    let mut message = vec![kind];
    message.extend((rest.len() as u32 + 4).to_be_bytes());
    message.extend(rest);
    message
}

fn mysql_start() -> Vec<u8> {
    let mut response = 0x0000_8208u32.to_le_bytes().to_vec();
    response.extend([0; 4]);
    response.push(45);
    response.extend([0; 23]);
    response.extend(b"root\0\0app\0");
    let mut packet = (response.len() as u32).to_le_bytes()[..3].to_vec();
    packet.push(1);
    packet.extend(response);
    packet
}

fn postgres_start() -> Vec<u8> {
    let parameters = b"\0\x03\0\0user\0postgres\0database\0app\0\0";
    let mut start = (parameters.len() as u32 + 4).to_be_bytes().to_vec();
    start.extend(parameters);
    start
}

fn sql() -> impl Strategy<Value = Vec<u8>> {
    let known = include_str!("statements/mysql.txt")
        .lines()
        .chain(include_str!("statements/postgres.txt").lines());
    let known: Vec<Vec<u8>> =
        known.filter(|line| !line.starts_with('\t')).map(|line| line.as_bytes().to_vec()).collect();
    prop_oneof![
        4 => prop::sample::select(known.clone()),
        1 => (prop::sample::select(known), any::<prop::sample::Index>(), any::<u8>())
            .prop_map(|(mut text, at, byte)| {
            let at = at.index(text.len());
            text[at] = byte;
            text
        }),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ]
}

fn mysql_command() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => sql().prop_map(|text| packet(3, &text)),
        1 => sql().prop_map(|text| packet(0x16, &text)),
        1 => (any::<u8>(), prop::collection::vec(any::<u8>(), 0..30))
            .prop_map(|(code, rest)| packet(code, &rest)),
        1 => prop::sample::select(vec![u32::MAX, 1])
            .prop_map(|id| packet(0x17, &[&id.to_le_bytes()[..], &[0; 5]].concat())),
        1 => prop::collection::vec(any::<u8>(), 0..10),
    ]
}

fn postgres_message() -> impl Strategy<Value = Vec<u8>> {
    let name = prop::sample::select(vec!["", "s", "t"]);
    prop_oneof![
        3 => sql().prop_map(|text| message(b'Q', &[&text[..], b"\0"].concat())),
        3 => (name, sql()).prop_map(|(name, text)| {
            let parse = message(b'P', &[name.as_bytes(), b"\0", &text, b"\0\0\0"].concat());
            let bind = message(b'B', &[b"\0", name.as_bytes(), b"\0\0\0\0\0\0\0"].concat());
            [parse, bind, message(b'E', b"\0\0\0\0\0"), message(b'S', b"")].concat()
        }),
        1 => (any::<u8>(), prop::collection::vec(any::<u8>(), 0..30))
            .prop_map(|(kind, rest)| message(kind, &rest)),
        1 => prop::collection::vec(any::<u8>(), 0..10),
    ]
}

/// Pieces of both directions, as [`exercise::turns`] takes them.
fn dialogue(
    client: impl Strategy<Value = Vec<u8>>,
    server: impl Strategy<Value = Vec<u8>>,
) -> impl Strategy<Value = Vec<u8>> {
    let piece = |by_server: u8, said: Vec<u8>| -> Vec<u8> {
        said.chunks(0x7f)
            .flat_map(|part| [&[by_server | part.len() as u8][..], part].concat())
            .collect()
    };
    let pieces = prop_oneof![
        client.prop_map(move |said| piece(0, said)),
        server.prop_map(move |said| piece(0x80, said))
    ];
    prop::collection::vec(pieces, 0..16).prop_map(|pieces| pieces.concat())
}

fn mysql_reply() -> impl Strategy<Value = Vec<u8>> {
    let body = prop::sample::select(vec![
        &b"\0\0\0\x02\0\0\0"[..],
        b"\x01",
        b"\x03def\0\0\0\x01a\0\x0c\x21\0\x01\0\0\0\x08\0\0\0\0\0",
        b"\x011",
        b"\xfe\0\0\x02\0",
        b"\xfe\0\0\x0a\0",
        b"\xff\x28\x04#42000no",
        b"\xfbfile",
        b"\0\x01\0\0\0\0\0\0\0\0\0\0",
    ]);
    let framed = (body, 0u8..6).prop_map(|(body, number)| {
        [&(body.len() as u32).to_le_bytes()[..3], &[number], body].concat()
    });
    prop_oneof![6 => framed, 1 => prop::collection::vec(any::<u8>(), 0..20)]
}

fn postgres_reply() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop::sample::select(b"RKZTDCEINSsnt123GHWcdA?".to_vec());
    let framed =
        (kind, prop::sample::select(vec![&b"I"[..], b"T", b"E", b"", b"\0\0\0\0", b"SELECT 1\0"]));
    prop_oneof![6 => framed.prop_map(|(kind, rest)| message(kind, rest)),
        1 => prop::collection::vec(any::<u8>(), 0..20)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn mysql_streams(
        commands in prop::collection::vec(mysql_command(), 0..8),
        started in prop::bool::weighted(0.9),
    ) {
        let start = if started { mysql_start() } else { Vec::new() };
        exercise::mysql(&[start, commands.concat()].concat());
    }

    #[test]
    fn postgres_streams(
        messages in prop::collection::vec(postgres_message(), 0..8),
        started in prop::bool::weighted(0.9),
    ) {
        let start = if started { postgres_start() } else { Vec::new() };
        exercise::postgres(&[start, messages.concat()].concat());
    }

    #[test]
    fn turns_of_mysql(
        said in dialogue(mysql_command(), mysql_reply()),
        started in prop::bool::weighted(0.9),
    ) {
        let start = mysql_start();
        let start = if started { [&[start.len() as u8][..], &start].concat() } else { Vec::new() };
        exercise::turns_of_mysql(&[start, said].concat());
    }

    #[test]
    fn turns_of_postgres(
        said in dialogue(postgres_message(), postgres_reply()),
        started in prop::bool::weighted(0.9),
    ) {
        let start = postgres_start();
        let start = if started { [&[start.len() as u8][..], &start].concat() } else { Vec::new() };
        exercise::turns_of_postgres(&[start, said].concat());
    }

    #[test]
    fn statements(text in sql()) {
        exercise::statement(&text);
    }

    #[test]
    fn catalogues(
        text in "((table|view|trigger|cascade|part|column|unique|opaque|routine|setting|end)(\t[0-9a-f]{0,4}|\t61|\t617070|\t){0,5}\n){0,9}end",
    ) {
        exercise::catalogue(text.as_bytes());
    }
}

#[test]
fn corpus() {
    for (target, run) in [
        ("mysql", exercise::mysql as fn(&[u8])),
        ("postgres", exercise::postgres),
        ("statement", exercise::statement),
        ("catalogue", exercise::catalogue),
        ("turns_of_mysql", exercise::turns_of_mysql),
        ("turns_of_postgres", exercise::turns_of_postgres),
    ] {
        nicache_corpus::replay(env!("CARGO_MANIFEST_DIR"), target, run);
    }
}
