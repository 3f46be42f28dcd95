//! Which files may the reply be that the server did not look up for it?
//!
//! A server may keep a file's descriptor (nginx with `open_file_cache`) or its bytes (Tomcat), and
//! send them for a while with nothing to be seen of it. If another request makes it look up a copy
//! at the same moment, or the same file by another path, the reply seems to be that. So each path
//! by which a process of the server has opened a file with the reply's bytes is a source of the
//! reply, too, if the process has it open, or if the server is one that sends what it has not
//! looked up. If what is open cannot be a source, because its path leads elsewhere by now, the
//! reply is not kept as long as it may be that file's.

use std::collections::HashSet;
use std::rc::Rc;

use nicache_coherence::{BODY_HASH_BYTES, RefusalReason, RevisionTable, Rule, Stamp};

use crate::resolve::contents;
use crate::resolve::node::Node;
use crate::resolve::openings::{Key, Opening, Openings};
use crate::resolve::resolver::{Outcome, Resolver, Walk};
use crate::witnesses::event::{Identity, LookupEvent};

/// Files that are hashed for one reply. The next one finds these known.
const HASHED_MAX: usize = 32;
/// For so long a server that keeps files may keep the bytes of one that it does not have open.
const KEPT_NS: u64 = 60_000_000_000;

/// Who keeps no files closes one sooner than that, as a rule.
const USED_NS: u64 = 1_000_000_000;

/// A reply's bytes.
#[derive(Clone, Copy)]
pub(crate) struct Body {
    pub(crate) len: u64,
    pub(crate) hash: [u8; BODY_HASH_BYTES],
    /// When its request was forwarded, and the clock before that.
    pub(crate) forwarded_ns: u64,
    pub(crate) stamp: Stamp,
    /// The server has sent files that it did not look up.
    pub(crate) is_of_keeper: bool,
}

/// The openings of all files with these bytes, by each path that is not among `found`.
///
/// # Errors
/// [`RefusalReason::NotLookedUp`] if it may be one that cannot be a source;
/// [`RefusalReason::Changed`] if it may have been one a moment ago; what [`contents::hash`] says.
pub(crate) fn copies(
    openings: &mut Openings,
    body: Body,
    found: &HashSet<(Identity, &[u8])>,
    table: &RevisionTable,
    resolver: &mut Resolver,
    (now_ns, mut tick): (u64, impl FnMut()),
) -> Result<Vec<LookupEvent>, RefusalReason> {
    if !Rule::Copies.holds() {
        return Ok(Vec::new());
    }
    let (mut copies, mut hashed): (Vec<LookupEvent>, usize) = (Vec::new(), 0);
    let mut hashes: Vec<(Rc<Node>, _)> = Vec::new();
    let (mut open, closed): (Vec<Key>, Vec<Key>) =
        openings.open_of_len(body.len).partition(|key| {
            openings.paths(*key).iter().any(|opening| held(opening, resolver).is_some())
        });
    for key in closed {
        openings.note_closed(key);
        let is_old = |opening: &Opening| opening.event.time_ns + USED_NS < body.forwarded_ns;
        // It may have been closed since the reply.
        if openings.paths(key).iter().any(is_old) {
            open.push(key);
        }
    }
    let is_recent =
        |opening: &&Opening| body.is_of_keeper && now_ns < opening.event.time_ns + KEPT_NS;
    let closed = openings.closed_of_len(body.len).filter(|_| body.is_of_keeper);
    let recent = closed.flat_map(|key| openings.paths(key)).filter(is_recent);
    let open = open.iter().flat_map(|key| openings.paths(*key));
    let all = open.map(|opening| (opening, true)).chain(recent.map(|opening| (opening, false)));
    for (opening, is_held) in all {
        let event = &opening.event;
        let Some(identity) = event.inode else { continue };
        let mut known = opening.contents;
        known = known.or_else(|| {
            hashes.iter().find(|(node, _)| node.identity == identity).map(|(_, hash)| *hash)
        });
        // By a descriptor, a file is sent as it is now.
        let may_have_changed =
            is_held && (event.on_overlay || !table.is_unchanged(&[identity.slot()], event.clock));
        if known.is_some_and(|hash| hash != body.hash) && !may_have_changed
            || event.path.starts_with(b"/") && found.contains(&(identity, &*event.path))
            || copies.iter().any(|copy| copy.inode == event.inode && copy.path == event.path)
        {
            continue;
        }
        let refused = |reason| {
            let path = String::from_utf8_lossy(&event.path);
            tracing::debug!(%path, process = event.tgid, "the reply may be what was this file");
            Err(reason)
        };
        let (node, is_there) = match resolver.resolve(event) {
            Ok(Walk { outcome: Outcome::Found(node), watched: true, .. })
                if node.identity == identity && node.is_watched() =>
            {
                (node, true)
            }
            _ if !is_held => continue,
            // Its path leads elsewhere by now.
            _ => match held(opening, resolver) {
                Some(node) if node.is_watched() => (Rc::new(node), false),
                _ => return refused(RefusalReason::NotLookedUp),
            },
        };
        let is_unchanged = opening.is_unchanged(&node, table);
        if !is_unchanged && !is_held {
            continue;
        }
        if !is_unchanged || known.is_none() {
            if hashed == HASHED_MAX {
                break;
            }
            hashed += 1;
            let hash = contents::hash(&node, &mut tick)?;
            let is_others = hash != body.hash;
            // What it was a moment ago, by its descriptor.
            if is_others && !node.slots().all(|slot| table.is_unchanged(&[slot], body.stamp)) {
                return refused(RefusalReason::Changed);
            }
            if is_unchanged {
                hashes.push((node, hash));
            }
            if is_others {
                continue;
            }
        }
        if !is_there {
            return refused(RefusalReason::NotLookedUp);
        }
        copies.push(event.clone());
    }
    let is_complete = hashed < HASHED_MAX;
    for (node, hash) in hashes {
        openings.note_contents(&node, hash, table);
    }
    if is_complete { Ok(copies) } else { Err(RefusalReason::NotLookedUp) }
}

/// The file, if the process still has it open by a descriptor that it got.
fn held(opening: &Opening, resolver: &mut Resolver) -> Option<Node> {
    opening.descriptors.iter().find_map(|descriptor| {
        let node = resolver.node_of(&format!("/proc/{}/fd/{descriptor}", opening.event.tgid));
        node.ok().filter(|node| Some(node.identity) == opening.event.inode)
    })
}
