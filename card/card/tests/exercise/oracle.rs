//! What a client that has told no lies must have got, and a host must have been asked.

use super::client::{Asked, Client};
use super::content::{Group, PRIVATE, groups, groups_of};
use super::host::HostEnd;

const START: &[u8] = b"HTTP/1.1 ";

/// The replies are those to the requests, in order, each of one version that was not older than its
/// request.
pub(super) fn check_replies(client: &Client, versions: &[u8]) {
    let starts: Vec<usize> = (0..client.got.len())
        .filter(|&at| client.got[at..].starts_with(START))
        .chain([client.got.len()])
        .collect();
    assert!(starts[0] == 0 || client.got.len() < START.len(), "the stream begins with a reply");
    let mut asked = client.asked.iter();
    for (number, pair) in starts.windows(2).enumerate() {
        let reply = &client.got[pair[0]..pair[1]];
        if reply.len() < START.len() + 3 || reply[START.len()] == b'1' {
            continue;
        }
        let is_whole = number + 2 < starts.len();
        // The server has broken off what followed a request that it did not understand.
        let Some(asked) = asked.next() else {
            panic!("a reply to nothing: {}", String::from_utf8_lossy(reply))
        };
        check_reply(asked, reply, is_whole, versions);
    }
}

fn check_reply(asked: &Asked, reply: &[u8], is_whole: bool, versions: &[u8]) {
    let status = &reply[START.len()..START.len() + 3];
    let found: Vec<Group> = groups(reply).into_iter().map(|(_, group)| group).collect();
    let Some(first) = found.first() else {
        let lacks = is_whole && status == b"200" && asked.bytes.starts_with(b"GET");
        let empty = asked.path == PRIVATE
            || (0..=versions[usize::from(asked.path)]).any(|v| groups_of(asked.path, v) == 0);
        assert!(!lacks || empty, "no content: {}", String::from_utf8_lossy(reply));
        return;
    };
    assert!(
        asked.bytes.starts_with(b"GET"),
        "content for {}",
        String::from_utf8_lossy(&asked.bytes)
    );
    assert_eq!(first.path, asked.path, "the reply to another request");
    assert!(found.iter().all(|group| group.version == first.version), "one version");
    if asked.path != PRIVATE {
        assert!(
            (asked.floor..=versions[usize::from(asked.path)]).contains(&first.version),
            "{first:?} for a request of {}",
            asked.floor
        );
    }
    if asked.is_partial {
        return;
    }
    assert!(
        found.iter().zip(0..).all(|(group, index)| group.index == index),
        "from the start, in order"
    );
    let all = groups_of(first.path, first.version) as usize;
    assert!(
        found.len() == all || (found.len() < all && !is_whole),
        "{} of {all} groups",
        found.len()
    );
}

/// Whatever has come at the host is what the client has sent, each request once and in order, and
/// on each connection behind the client's header.
pub(super) fn check_requests(client: &Client, ends: &[HostEnd]) {
    let mut asked = client.asked.iter();
    for end in ends.iter().filter(|end| (end.address, end.port) == (client.address, client.port)) {
        if let Some(preface) = end.preface.as_ref().filter(|_| !end.requests.is_empty()) {
            assert_eq!(
                preface.escape_ascii().to_string(),
                client.preface.escape_ascii().to_string(),
                "what came first"
            );
        }
        for request in &end.requests {
            assert!(
                asked.any(|asked| asked.bytes == *request),
                "the host was asked {}",
                String::from_utf8_lossy(request)
            );
        }
    }
}
