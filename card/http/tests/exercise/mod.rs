//! What the fuzz targets, the replay of their corpus and the property tests have in common: run
//! arbitrary bytes through the public functions and check what must hold for all input.

#![allow(dead_code, reason = "each user takes some of the functions")]

use nicache_http::*;

pub(crate) fn config() -> KeyConfig {
    KeyConfig::new([42; 16]).allow_cookie("_ga*").allow_header("X-Harmless")
}

/// An outcome without its borrows, to compare outcomes of different buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Partial,
    Complete {
        head_len: usize,
        key: Key,
        target: Vec<u8>,
        host: Vec<u8>,
        headers: usize,
        keep_alive: bool,
    },
    Bypass(BypassReason, Extent),
}

pub(crate) fn see_request(bytes: &[u8]) -> Seen {
    let mut scratch = HeaderScratch::new();
    match parse_request(bytes, &mut scratch, &config()) {
        RequestOutcome::Partial => Seen::Partial,
        RequestOutcome::Complete(request) => Seen::Complete {
            head_len: request.head_len,
            key: request.key,
            target: request.target.to_vec(),
            host: request.host.to_vec(),
            headers: request.headers.len(),
            keep_alive: request.keep_alive,
        },
        RequestOutcome::Bypass { reason, extent, .. } => Seen::Bypass(reason, extent),
    }
}

/// The prefixes that are tried: all of a short input, else those at line ends and around.
fn prefixes(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let all = bytes.len() <= 300;
    (0..=bytes.len())
        .filter(move |at| all || *at % 97 == 0 || bytes[at.saturating_sub(3)..*at].contains(&b'\n'))
}

/// A request head is accepted only if it is exactly what it seems to be.
fn check_strictness(head: &[u8], headers: usize) {
    assert!(head.ends_with(b"\r\n\r\n"));
    let lines = head.windows(2).filter(|pair| pair == b"\r\n").count();
    assert_eq!(lines, headers + 2);
    assert_eq!(head.iter().filter(|b| **b == b'\n').count(), lines, "bare LF");
    assert_eq!(head.iter().filter(|b| **b == b'\r').count(), lines, "bare CR");
    assert!(!head.iter().any(|b| b.is_ascii_control() && !b"\r\n\t".contains(b)));
    let lower = head.to_ascii_lowercase();
    for forbidden in [
        &b"\ntransfer-encoding"[..],
        b"\ncontent-length",
        b"\nupgrade:",
        b"\nexpect",
        b"\nauthorization",
    ] {
        assert!(!lower.windows(forbidden.len()).any(|window| window == forbidden));
    }
    assert!(lower.windows(6).filter(|window| *window == b"\nhost:").count() <= 1);
}

pub(crate) fn request(bytes: &[u8]) {
    let whole = see_request(bytes);
    match &whole {
        Seen::Partial => assert!(bytes.len() < HEAD_BYTES_MAX),
        Seen::Complete { head_len, headers, .. } => {
            check_strictness(&bytes[..*head_len], *headers);
            assert_eq!(see_request(&bytes[..*head_len]), whole, "the head alone");
            let mut more = bytes[..*head_len].to_vec();
            more.extend_from_slice(b"\r\n\0 pipelined \xff");
            assert_eq!(see_request(&more), whole, "the head and something else behind it");
            for at in prefixes(&bytes[..*head_len]).filter(|at| at < head_len) {
                assert_eq!(see_request(&bytes[..at]), Seen::Partial, "first {at} bytes");
            }
            own_request(&bytes[..*head_len]);
        }
        Seen::Bypass(reason, Extent::Head { len, .. }) => {
            assert!(*len <= bytes.len() && *len <= HEAD_BYTES_MAX);
            for at in prefixes(&bytes[..*len]).filter(|at| at < len) {
                assert_eq!(see_request(&bytes[..at]), Seen::Partial, "{reason}, first {at} bytes");
            }
        }
        Seen::Bypass(_, Extent::Unknown) => {
            let mut lost = false;
            for at in prefixes(bytes) {
                match see_request(&bytes[..at]) {
                    Seen::Partial => assert!(!lost, "lost, then partial again at {at}"),
                    Seen::Bypass(_, Extent::Unknown) => lost = true,
                    other => panic!("{other:?} at {at}, but lost in the end"),
                }
            }
        }
    }
}

/// The card's own request for the same has the same key, and nothing that says whose the first one
/// was.
fn own_request(head: &[u8]) {
    let keys = config();
    let Some(bare) = recheck_head(head, None, &keys) else { return };
    let lines: Vec<u8> = Trait::ALL.into_iter().flat_map(|of| trait_lines(head, of)).collect();
    let see = |head: &[u8]| {
        let mut scratch = HeaderScratch::new();
        let RequestOutcome::Complete(request) = parse_request(head, &mut scratch, &keys) else {
            panic!("{}", head.escape_ascii())
        };
        (request.key, Tokens::of(request.headers, &keys))
    };
    let own = with_class_headers(&bare, &lines, 0x5eed_5eed);
    if own.len() > SHARED_HEAD_BYTES_MAX {
        return;
    }
    let ((key, tokens), (own_key, own_tokens)) = (see(head), see(&own));
    assert_eq!(key, own_key, "{}: {}", head.escape_ascii(), own.escape_ascii());
    // A value that is in the key as it is (one of `Forwarded` that is not plain) is the same in
    // both.
    let repeats = own
        .split(|byte| *byte == b'\n')
        .any(|line| line.to_ascii_lowercase().starts_with(b"forwarded:"));
    // Two digits of one token may come out as another token's.
    let is_rich = head.iter().filter(|byte| byte.is_ascii_digit()).count() > 24;
    assert!(
        repeats
            || is_rich
            || tokens.are_apart(&own_tokens)
            || !tokens.are_apart(&tokens) && is_cut(&tokens),
        "{}: {}",
        head.escape_ascii(),
        own.escape_ascii()
    );
}

/// Has the request more tokens than are kept?
fn is_cut(tokens: &Tokens) -> bool {
    !tokens.are_apart(&Tokens::default())
}

/// The first bytes of a connection.
pub(crate) fn preface(bytes: &[u8]) {
    let whole = parse_preface(bytes);
    let mut decided = None;
    for at in prefixes(bytes).filter(|at| *at < bytes.len()) {
        let part = parse_preface(&bytes[..at]);
        assert!(part == Preface::Partial || part == whole, "first {at} bytes: {part:?}, {whole:?}");
        assert!(decided.is_none() || decided == Some(part), "decided, then {part:?} at {at}");
        decided = Some(part).filter(|part| *part != Preface::Partial);
    }
    match whole {
        Preface::Partial => assert!(bytes.len() < PREFACE_BYTES_MAX),
        Preface::Header(header) => {
            assert!(header.len <= bytes.len() && header.len <= PREFACE_BYTES_MAX);
            assert_eq!(parse_preface(&bytes[..header.len]), whole, "the header alone");
        }
        Preface::Absent | Preface::Malformed => {}
    }
}

pub(crate) fn reply(bytes: &[u8]) {
    for method in [Method::Get, Method::Head, Method::Other] {
        let outcome = parse_reply(bytes, method);
        let framing = parse_framing(bytes, method);
        let head = match outcome {
            ReplyOutcome::Partial => {
                assert_eq!(framing, Ok(None));
                continue;
            }
            ReplyOutcome::Malformed(reason) => {
                assert_eq!(framing, Err(reason));
                continue;
            }
            ReplyOutcome::Complete(head) => head,
        };
        let framing = framing.expect("the same verdict").expect("a whole head");
        assert_eq!(
            (framing.status, framing.head_len, framing.framing, framing.keep_alive),
            (head.status, head.head_len, head.framing, head.keep_alive)
        );
        assert_eq!(
            framing.content_length.map(|length| length.to_string().into_bytes()).as_deref(),
            head.content_length
        );
        assert!(head.head_len <= bytes.len() && head.head_len <= HEAD_BYTES_MAX);
        assert!((100..=599).contains(&head.status) && head.status != 101);
        assert!(!(head.framing == Framing::Close && head.keep_alive));
        for at in prefixes(&bytes[..head.head_len]).filter(|at| *at < head.head_len) {
            assert!(
                matches!(parse_reply(&bytes[..at], method), ReplyOutcome::Partial),
                "first {at} bytes"
            );
        }
        if head.shareable.is_ok() {
            assert!(method == Method::Get && head.status == 200 && head.framing != Framing::None);
            assert!(head.version == Version::Http11 || head.always_closes());
            assert!(matches!(head.vary, Vary::Names(_)));
        }
        if head.shareable.is_ok() || head.learnable_304 {
            template(&bytes[..head.head_len]);
        }
        let mut follower = Follower::new(head.framing);
        let _ = follower.follow(&bytes[head.head_len..], |_| {});
    }
}

/// A head that may be shared has a template that writes it again, and at another time differs in
/// whole dates only.
fn template(head: &[u8]) {
    let template = HeadTemplate::new(head).expect("a plain head");
    let ReplyOutcome::Complete(parsed) = parse_reply(head, Method::Get) else {
        panic!("no longer a head");
    };
    // A head without a date is always the same.
    let has_date = parsed.date.is_some();
    let date_s =
        parsed.date.map_or(784_111_777, |date| parse_imf_fixdate(date).expect("an IMF-fixdate"));
    let mut out = vec![0; head.len()];
    assert_eq!(template.render(&HttpDate::from_unix_s(date_s), &mut out), head.len());
    assert_eq!(out, head, "the same moment gives the same bytes");
    let later = HttpDate::from_unix_s(date_s + 86_461);
    template.render(&later, &mut out);
    let ReplyOutcome::Complete(rendered) = parse_reply(&out, Method::Get) else {
        panic!("no longer a head");
    };
    assert_eq!(rendered.date, has_date.then_some(&later.as_bytes()[..]));
    assert_eq!(
        (rendered.etag, rendered.framing, rendered.vary),
        (parsed.etag, parsed.framing, parsed.vary)
    );
    assert!(has_date || out == head);
    let differing = out.iter().zip(head).filter(|(a, b)| a != b).count();
    assert!(
        differing <= 2 * 22,
        "{differing} bytes differ, but two dates have only 22 bytes that can"
    );
    assert_eq!(template.render(&later, &mut out[1..]), 0);
}

/// What a follower makes of the pieces: content, end, fault, plainness.
pub(crate) fn follow(
    framing: Framing,
    pieces: &[&[u8]],
) -> (Vec<u8>, Option<usize>, Option<BodyFault>, bool) {
    let mut follower = Follower::new(framing);
    let mut content = Vec::new();
    let mut before = 0;
    for piece in pieces {
        let followed = follower.follow(piece, |bytes| content.extend_from_slice(bytes));
        assert_eq!(follower.body_bytes(), content.len() as u64);
        if followed.fault.is_some() || followed.finished_at.is_some() {
            assert_eq!(followed.finished_at.is_some(), follower.is_finished());
            let finished_at = followed.finished_at.map(|at| before + at);
            return (content, finished_at, followed.fault, follower.is_plain());
        }
        before += piece.len();
    }
    (content, follower.is_finished().then_some(before), None, follower.is_plain())
}

/// The first three bytes choose the framing and the piece lengths, the rest is the body.
pub(crate) fn body(bytes: &[u8]) {
    let [choice, first, second, rest @ ..] = bytes else {
        return;
    };
    let framing = match choice % 4 {
        0 => Framing::Length(u64::from(*first) * 3),
        1 => Framing::Close,
        _ => Framing::Chunked,
    };
    let whole = follow(framing, &[rest]);
    let lengths = [usize::from(*first % 16) + 1, usize::from(*second % 64) + 1];
    let mut pieces = Vec::new();
    let mut left = rest;
    for length in lengths.into_iter().cycle() {
        if left.is_empty() {
            break;
        }
        let (piece, behind) = left.split_at(length.min(left.len()));
        pieces.push(piece);
        left = behind;
    }
    assert_eq!(follow(framing, &pieces), whole);
    let bytewise: Vec<&[u8]> = rest.chunks(1).collect();
    assert_eq!(follow(framing, &bytewise), whole);
}

/// Two validators and a condition, each ended by a line feed.
pub(crate) fn conditional(bytes: &[u8]) {
    let mut fields = bytes.split(|b| *b == b'\n').map(|field| (!field.is_empty()).then_some(field));
    let mut next = || fields.next().flatten();
    let (etag, last_modified) = (next(), next());
    let condition = Conditional {
        if_none_match: next(),
        if_modified_since: next(),
        if_match: next(),
        if_unmodified_since: next(),
        no_cache: false,
    };
    let verdict = evaluate(&condition, etag, last_modified);
    if !condition.is_conditional() {
        assert_eq!(verdict, Verdict::Full);
    }
    if let (Some(tags), Verdict::Full) = (condition.if_match, verdict) {
        assert!(
            tags == b"*"
                || tags.windows(etag.map_or(0, <[u8]>::len)).any(|window| Some(window) == etag)
        );
    }
    if condition.if_match.is_none() && condition.if_unmodified_since.is_none() {
        assert_ne!(verdict, Verdict::Failed);
    }
    if let (Some(tags), Verdict::NotModified) = (condition.if_none_match, verdict)
        && tags != b"*"
    {
        let opaque = etag.expect("a tag to match").strip_prefix(b"W/").or(etag).expect("a tag");
        assert!(tags.windows(opaque.len()).any(|window| window == opaque));
    }
    if let (Some(date), Verdict::NotModified) = (condition.if_modified_since, verdict) {
        assert_eq!(Some(date), last_modified);
    }
    if let Some(unix_s) = condition.if_modified_since.and_then(parse_imf_fixdate) {
        assert_eq!(
            Some(&HttpDate::from_unix_s(unix_s).as_bytes()[..]),
            condition.if_modified_since
        );
    }
}

/// A length, If-Range, an entity tag and a Last-Modified, each ended by a line feed, and a Range:
/// the two readings agree, and what is learned from a reply with these ranges writes it again.
pub(crate) fn ranges(bytes: &[u8]) {
    let mut fields = bytes.splitn(5, |b| *b == b'\n');
    let mut next = || fields.next().unwrap_or_default();
    let (len, if_range, etag, last_modified, range) = (next(), next(), next(), next(), next());
    let len = std::str::from_utf8(len).ok().and_then(|len| len.parse().ok()).unwrap_or(1000);
    let some = |value: &'_ [u8]| (!value.is_empty()).then(|| value.to_vec());
    let (own, modified) = (some(etag), some(last_modified));
    if agreed_if_range(if_range, own.as_deref(), modified.as_deref(), u64::MAX) == IfRange::Applies
    {
        let modified_s = modified.as_deref().and_then(parse_imf_fixdate);
        assert!(
            if_range_applies(if_range, etag, modified_s),
            "servers agree on what the RFC forbids"
        );
    }
    let Agreed::Parts(parts) = agreed(range, len) else { return };
    assert_eq!(wanted(range, len), Wanted::Parts(parts.clone()));
    assert!(parts.windows(2).all(|two| two[0].to < two[1].from));
    match parts.as_slice() {
        [part] => one_part(*part, len),
        parts => several_parts(parts, len),
    }
}

fn one_part(part: ByteRange, len: u64) {
    let written = |part: ByteRange| {
        format!(
            "HTTP/1.1 206 Partial Content\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Length: {}\r\nETag: \"a\"\r\n\
             Content-Range: bytes {}-{}/{len}\r\n\r\n",
            part.len(),
            part.from,
            part.to - 1
        )
    };
    // Learned from another range, the template writes this one.
    let head = written(ByteRange { from: 0, to: 1 });
    let ReplyOutcome::Complete(reply) = parse_reply(head.as_bytes(), Method::Get) else {
        panic!("a plain head")
    };
    let learned =
        PartialTemplate::learn(&reply, head.as_bytes(), Some(ByteRange { from: 0, to: 1 }), len);
    let template = learned.expect("a plain 206");
    let mut out = vec![0; 1024];
    let filled =
        template.render(&HttpDate::from_unix_s(784_111_777), part.len(), Some(part), len, &mut out);
    assert_eq!(filled, template.len_for(part.len(), Some(part), len));
    assert_eq!(std::str::from_utf8(&out[..filled]).unwrap(), written(part));
}

fn several_parts(parts: &[ByteRange], len: u64) {
    for breaks_first in [true, false] {
        let mut body = Vec::new();
        for part in parts {
            let range = format!("Content-Range: bytes {}-{}/{len}", part.from, part.to - 1);
            body.extend(format!("\r\n--x\r\nContent-Type: a/b\r\n{range}\r\n\r\n").bytes());
            // The content does not matter here, and may be long.
        }
        body.extend(b"\r\n--x--\r\n");
        let body = &body[if breaks_first { 0 } else { 2 }..];
        // More than a length may say is asked for of nobody.
        let content =
            parts.iter().try_fold(body.len() as u64, |sum, part| sum.checked_add(part.len()));
        let Some(content) = content.map(|sum| sum - body.len() as u64) else { return };
        let head = format!(
            "HTTP/1.1 206 Partial Content\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
             Content-Type: multipart/byteranges; boundary=x\r\nContent-Length: {}\r\n\r\n",
            body.len() as u64 + content
        );
        // More content than a length may say is not a reply.
        let ReplyOutcome::Complete(reply) = parse_reply(head.as_bytes(), Method::Get) else {
            return;
        };
        let asked = PartsAsked::new(parts, len);
        let kind = reply.content_type.expect("a type");
        let format = PartFormat::learn(&reply, kind, body, &asked, len).expect("plain parts");
        assert_eq!(format.body_len(parts, len), body.len() as u64 + content);
        let mut text = vec![0; body.len()];
        let mut at = 0;
        for (index, part) in parts.iter().enumerate() {
            at += format.render_head(*part, len, index == 0, &mut text[at..]);
        }
        at += format.render_end(&mut text[at..]);
        assert_eq!((at, &text[..]), (body.len(), body));
        let longer = head.replace("Content-Length: ", "Content-Length: 9");
        if let ReplyOutcome::Complete(reply) = parse_reply(longer.as_bytes(), Method::Get) {
            assert_eq!(
                PartFormat::learn(&reply, kind, body, &asked, len),
                None,
                "a length that does not fit"
            );
        }
    }
}
