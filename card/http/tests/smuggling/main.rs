//! Request smuggling: whatever the card takes for one request, every server must take for the same
//! one.
//!
//! The card claims that the bytes of a connection are so many requests, each a candidate for a hit,
//! or one of which it knows the end. nginx, Apache, Node and Go get the same bytes, with one more
//! request behind them, and tell what they have seen. A candidate for a hit must be seen with the
//! same method, target and Host; a request that only has an end may be refused, if nothing of what
//! follows is taken for something else. Where the card makes no claim the connection is opaque, and
//! nothing can go wrong.
//!
//! `corpus/` holds requests that parsers are known to quarrel about; the second test makes more of
//! them.

mod mutation;
mod servers;

use std::path::Path;

use nicache_http::*;
use servers::{Answer, Server, Talk, start_all};

/// What the card takes a stretch of the client's bytes for.
#[derive(Clone, Debug)]
struct Claim {
    end: usize,
    is_head: bool,
    /// Method, target and Host of a candidate for a hit.
    hit: Option<(String, String, String)>,
    /// Bytes of content.
    content: u64,
    /// Another request may follow.
    keep_alive: bool,
}

/// What the card would do with a connection of these bytes, and whether another request may follow.
fn claims(bytes: &[u8]) -> (Vec<Claim>, bool) {
    let config = KeyConfig::new([7; 16]).allow_cookie("*");
    let mut claims: Vec<Claim> = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    loop {
        let at = claims.last().map_or(0, |claim| claim.end);
        if at == bytes.len() {
            return (claims, true);
        }
        let mut scratch = HeaderScratch::new();
        let claim = match parse_request(&bytes[at..], &mut scratch, &config) {
            RequestOutcome::Complete(request) => {
                let method = if request.method == Method::Head { "HEAD" } else { "GET" };
                let hit = Some((method.to_owned(), text(request.target), text(request.host)));
                let is_head = request.method == Method::Head;
                Claim {
                    end: at + request.head_len,
                    is_head,
                    hit,
                    content: 0,
                    keep_alive: request.keep_alive,
                }
            }
            RequestOutcome::Bypass {
                extent: Extent::Head { len, body, method, keep_alive, .. },
                ..
            } => {
                let end = at as u64 + len as u64 + body;
                if end > bytes.len() as u64 {
                    // The content is not whole; what is there is not claimed to be anything else.
                    return (claims, false);
                }
                let is_head = method == Method::Head;
                Claim { end: end as usize, is_head, hit: None, content: body, keep_alive }
            }
            RequestOutcome::Partial | RequestOutcome::Bypass { extent: Extent::Unknown, .. } => {
                return (claims, false);
            }
        };
        let keep_alive = claim.keep_alive;
        claims.push(claim);
        if !keep_alive {
            return (claims, false);
        }
    }
}

const SENTINEL: &str = "GET /sentinel HTTP/1.1\r\nHost: sentinel\r\nConnection: close\r\n\r\n";

/// Sends what the card claims to know, with the sentinel behind it if another request may follow;
/// says what is different.
fn compare(server: &Server, bytes: &[u8]) -> Result<bool, String> {
    let (claims, is_open) = claims(bytes);
    let Some(last) = claims.last() else { return Ok(false) };
    // The candidates for hits in front are compared alone, too: a server that comes upon something
    // else behind them may refuse all at once.
    let hits = claims.iter().take_while(|claim| claim.hit.is_some()).count();
    if (1..claims.len()).contains(&hits) {
        talk_and_judge(server, bytes, &claims[..hits], true)?;
    }
    let persists = is_open || last.end < bytes.len() && last.keep_alive;
    talk_and_judge(server, bytes, &claims, persists)?;
    Ok(true)
}

fn talk_and_judge(
    server: &Server,
    bytes: &[u8],
    claims: &[Claim],
    has_sentinel: bool,
) -> Result<(), String> {
    let mut sent = bytes[..claims.last().map_or(0, |claim| claim.end)].to_vec();
    let mut heads: Vec<bool> = claims.iter().map(|claim| claim.is_head).collect();
    if has_sentinel {
        sent.extend_from_slice(SENTINEL.as_bytes());
        heads.push(false);
    }
    let talk = server.talk(&sent, &heads);
    judge(claims, has_sentinel, &talk).map_err(|what| {
        let text = String::from_utf8_lossy(&sent);
        format!("{}: {what}\n  card: {claims:?}\n  server: {talk:?}\n  {text:?}", server.name)
    })
}

/// A candidate for a hit must have been seen as it is. Behind a request that is none the server may
/// have stopped, as the card would see from its reply; but what it has seen must be what the card
/// takes it for.
fn judge(claims: &[Claim], has_sentinel: bool, talk: &Talk) -> Result<(), String> {
    let is_refused = |answer: &Answer| {
        answer.echo.is_none() || matches!(answer.status, 400 | 408 | 411..=417 | 431 | 501 | 505)
    };
    for (index, claim) in claims.iter().enumerate() {
        let has_stopped = talk.is_closed && talk.answers.len() <= index;
        if has_stopped && claims[..=index].iter().any(|claim| claim.hit.is_none()) {
            return Ok(());
        }
        let Some(answer) = talk.answers.get(index) else {
            return Err(format!("no answer to request {index}"));
        };
        match (&claim.hit, &answer.echo) {
            // It refuses one behind, and with it those before that it has not answered yet.
            (Some(_), None)
                if talk.is_closed && claims[index..].iter().any(|claim| claim.hit.is_none()) =>
            {
                return Ok(());
            }
            (Some(_), _) if is_refused(answer) => {
                return Err(format!("request {index} is refused with {}", answer.status));
            }
            (Some((method, target, host)), Some(echo))
                if (method, target, host) != (&echo.0, &echo.1, &echo.2) =>
            {
                return Err(format!("request {index} is another one: {echo:?}"));
            }
            (None, Some(echo))
                if !is_refused(answer)
                    && echo.3.is_some_and(|content| content != claim.content) =>
            {
                return Err(format!("request {index} has other content: {echo:?}"));
            }
            _ => {}
        }
    }
    if talk.is_closed
        && talk.answers.len() == claims.len()
        && claims.iter().any(|claim| claim.hit.is_none())
    {
        return Ok(());
    }
    if !has_sentinel {
        return match talk.answers.len() == claims.len() {
            true => Ok(()),
            false => Err("more answers than requests".into()),
        };
    }
    match talk.answers.get(claims.len()).and_then(|answer| answer.echo.as_ref()) {
        Some(echo)
            if echo.1 == "/sentinel"
                && echo.2 == "sentinel"
                && talk.answers.len() == claims.len() + 1 =>
        {
            Ok(())
        }
        other => {
            Err(format!("the next request is not seen: {other:?}, {} answers", talk.answers.len()))
        }
    }
}

/// Compares all of them with all servers; every difference is told before the test fails.
fn compare_all(cases: &[(String, Vec<u8>)]) -> usize {
    let servers = start_all();
    let mut differences = Vec::new();
    let mut compared = 0;
    for server in &servers {
        for (name, bytes) in cases {
            // A machine that stood still looks like a server that says nothing.
            let compared_again = || compare(server, bytes).or_else(|_| compare(server, bytes));
            match compare(server, bytes).or_else(|_| compared_again()) {
                Ok(was_compared) => compared += usize::from(was_compared),
                Err(what) => differences.push(format!("{name}: {what}")),
            }
        }
    }
    println!(
        "{compared} comparisons with {:?}",
        servers.iter().map(|server| server.name).collect::<Vec<_>>()
    );
    assert!(
        differences.is_empty(),
        "{} differences:\n{}",
        differences.len(),
        differences.join("\n")
    );
    compared
}

#[test]
fn what_the_card_takes_for_a_request_of_the_corpus_every_server_does() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/smuggling/corpus");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 100, "{} files", files.len());
    let cases: Vec<(String, Vec<u8>)> = files
        .iter()
        .map(|file| {
            (file.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(file).unwrap())
        })
        .collect();
    assert!(compare_all(&cases) > 0);
}

#[test]
fn and_of_mutations() {
    let seed = std::env::var("NICACHE_SMUGGLING_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    let count = std::env::var("NICACHE_SMUGGLING_CASES")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(600);
    // Those that the card claims nothing of need no server.
    let cases: Vec<(String, Vec<u8>)> = mutation::mutations(seed)
        .filter(|bytes| !claims(bytes).0.is_empty())
        .take(count)
        .enumerate()
        .map(|(index, bytes)| (format!("seed {seed}, mutation {index}"), bytes))
        .collect();
    assert!(compare_all(&cases) > 0);
}
