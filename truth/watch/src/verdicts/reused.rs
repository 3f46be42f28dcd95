//! Look-ups that were done again for an earlier reply to the same request, and need not be done
//! once more: what the published system calls a *pickled* invalidation set (section 2.3). A page
//! that is made again each second by the same look-ups costs the watcher next to nothing.
//!
//! Why that is as good. The earlier reply's survey was made after its stamp, behind the barriers,
//! so it shows every change whose witness had fired by then. If no source has a stamp at or above
//! that one now, nothing has changed from the survey up to now, the whole of the new request
//! included: each look-up led where the survey led, each file was as long as it is and nobody
//! opened one for writing (which stamps it), and whoever had it open is done, if the request was
//! forwarded after the survey. So the same survey would come out.
//!
//! The new look-ups must be among the earlier ones, from the same root: a set may be larger than
//! needed, never smaller.

use std::collections::HashSet;
use std::sync::Arc;

use nicache_coherence::{RevisionTable, Stamp};

use crate::resolve::resolver::{Resolver, Root};
use crate::verdicts::records::{Looked, Record};
use crate::witnesses::event::{EventKind, Identity, LookupEvent};

/// What a look-up was and what came of it, but for who made it.
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Signature<'a> {
    is_list: bool,
    path: &'a [u8],
    directory: Option<Identity>,
    /// The process, if its working directory matters.
    process: Option<u32>,
    nofollow: bool,
    error: i64,
    opened: Option<(Identity, u64, u64)>,
}

/// What a look-up was and what came of it, to be compared.
pub(crate) fn signature(event: &LookupEvent) -> Signature<'_> {
    Signature {
        is_list: event.kind == EventKind::Readdir,
        path: &event.path,
        directory: event.directory,
        process: event.is_relative().then_some(event.tgid),
        nofollow: event.nofollow,
        error: event.ret.min(0),
        opened: event.inode.map(|inode| (inode, event.size, event.changed_ns)),
    }
}

/// The root of all these look-ups; `None` if there are several, or it cannot be told.
pub(crate) fn common_root<'a>(
    events: impl Iterator<Item = &'a LookupEvent>,
    resolver: &mut Resolver,
) -> Option<Root> {
    let (mut common, mut seen) = (None, HashSet::new());
    for event in events {
        if !seen.insert(event.owner()) {
            continue;
        }
        let root = resolver.root_of(event).ok()?;
        if *common.get_or_insert(root) != root {
            return None;
        }
    }
    common
}

/// What `lookups` depend on, if the earlier record says so.
pub(crate) fn reuse(
    record: &Record,
    lookups: &[&LookupEvent],
    forwarded_ns: u64,
    table: &RevisionTable,
    resolver: &mut Resolver,
) -> Option<Arc<Looked>> {
    let looked = &record.looked;
    let is_unchanged =
        |since: Stamp| looked.sources.iter().all(|&slot| table.stamp_of(slot) < since);
    if looked.root.is_none()
        || forwarded_ns <= looked.looked_ns
        || lookups.iter().any(|event| event.incomplete || event.own_root)
        || !is_unchanged(record.since)
    {
        return None;
    }
    let known: HashSet<Signature<'_>> = looked.events.iter().map(signature).collect();
    let is_known = lookups.iter().all(|event| known.contains(&signature(event)));
    (is_known && common_root(lookups.iter().copied(), resolver) == looked.root)
        .then(|| Arc::clone(looked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_may_lead_elsewhere_is_another_look_up() {
        let inode = Identity { dev: 1, ino: 2 };
        let event = LookupEvent { path: b"/a/b"[..].into(), ret: 3, ..LookupEvent::blank(1) };
        let opened = LookupEvent { inode: Some(inode), size: 10, ..event.clone() };
        let others = [
            LookupEvent { path: b"/a/c"[..].into(), ..event.clone() },
            LookupEvent { ret: -2, ..event.clone() },
            LookupEvent { nofollow: true, ..event.clone() },
            LookupEvent { kind: EventKind::Readdir, ..event.clone() },
            LookupEvent { directory: Some(inode), ..event.clone() },
            LookupEvent { size: 11, ..opened.clone() },
            LookupEvent { changed_ns: 1, ..opened.clone() },
            LookupEvent { inode: Some(Identity { ino: 3, ..inode }), ..opened.clone() },
            opened,
        ];
        for other in &others {
            assert!(signature(other) != signature(&event), "{other:?}");
        }
        let later = LookupEvent { time_ns: 9, tgid: 7, tid: 7, ret: 4, ..event.clone() };
        assert!(signature(&later) == signature(&event));
        let relative = LookupEvent { path: b"a"[..].into(), ..event.clone() };
        assert!(signature(&LookupEvent { tgid: 7, ..relative.clone() }) != signature(&relative));
    }
}
