//! Several caches that share a workload, as several cards do: each gets a part of the requests and
//! has a memory of its own (Kim et al. 2002, section 3, figure 3).

use serde::Serialize;

use crate::{Access, Workload};

/// By what requests are given to caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SplitBy {
    /// In turns: each has as many.
    Requests,
    /// Each client has its cache, as where connections are spread by address. Without clients in
    /// the trace: in turns.
    Clients,
    /// Each object has its cache, as where requests are spread by what they ask for.
    Objects,
}

/// The part of each cache. What changes has changed for all of them, whoever notices first.
pub fn split(workload: &Workload, caches: usize, by: SplitBy) -> Vec<Workload> {
    let caches = caches.max(1);
    let mut parts: Vec<Workload> = (0..caches)
        .map(|_| Workload {
            accesses: Vec::with_capacity(workload.accesses.len() / caches + 1),
            seconds: Vec::new(),
            clients: Vec::new(),
            objects: workload.objects,
            room: workload.room,
            warm_up: 0,
            sampled: workload.sampled,
        })
        .collect();
    // How often an object has changed, and how many of these changes each cache has noticed.
    let mut changes = vec![0u32; workload.objects as usize];
    let mut noticed = vec![0u32; workload.objects as usize * caches];
    let mut request = 0;
    for (at, &access) in workload.accesses.iter().enumerate() {
        let object = access.object() as usize;
        let part = match by {
            SplitBy::Clients if !workload.clients.is_empty() => {
                spread(u64::from(workload.clients[at]), caches)
            }
            SplitBy::Objects => spread(u64::from(access.object()), caches),
            SplitBy::Requests | SplitBy::Clients => request % caches,
        };
        changes[object] += u32::from(access.is_changed());
        let seen = std::mem::replace(&mut noticed[object * caches + part], changes[object]);
        let mut given = Access::new(access.object(), access.bytes())
            .changed(seen != changes[object])
            .without_fill(!access.fills())
            .ending(access.ends_request());
        if by == SplitBy::Objects {
            // The blocks of a request are in several caches: each is a request of its own.
            given = given.ending(true);
        }
        parts[part].warm_up += usize::from(at < workload.warm_up);
        parts[part].accesses.push(given);
        parts[part].seconds.extend(workload.seconds.get(at));
        parts[part].clients.extend(workload.clients.get(at));
        request += usize::from(access.ends_request());
    }
    parts
}

/// Numbers that follow each other fall to caches as if by lot.
fn spread(number: u64, caches: usize) -> usize {
    let mixed = (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((u128::from(mixed ^ (mixed >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93) as u64 >> 33)
        % caches as u64) as usize
}

#[cfg(test)]
mod tests {
    use nicache_policy::Lru;
    use proptest::prelude::*;

    use super::*;
    use crate::{Room, simulate};

    fn accesses_of(parts: &[Workload]) -> Vec<Vec<Access>> {
        parts.iter().map(|part| part.accesses.clone()).collect()
    }

    #[test]
    fn requests_take_turns_with_all_their_blocks() {
        let block = |object: u32, ends: bool| Access::new(object, 9).ending(ends);
        let accesses =
            [block(0, false), block(1, true), block(2, true), block(0, false), block(1, true)];
        let parts = split(&Workload::of(accesses.to_vec(), Room::One), 2, SplitBy::Requests);
        assert_eq!(
            accesses_of(&parts),
            [vec![accesses[0], accesses[1], accesses[3], accesses[4]], vec![accesses[2]]]
        );
    }

    #[test]
    fn a_change_is_noticed_by_each_cache_once() {
        let access = Access::new(0, 9).ending(true);
        let all = vec![access, access, access.changed(true), access, access, access];
        let parts = split(&Workload::of(all, Room::One), 2, SplitBy::Requests);
        assert_eq!(
            accesses_of(&parts),
            [
                vec![access, access.changed(true), access],
                vec![access, access.changed(true), access]
            ]
        );
    }

    #[test]
    fn a_client_has_one_cache() {
        let mut workload = Workload::of(
            (0..400).map(|object| Access::new(object, 1).ending(true)).collect(),
            Room::One,
        );
        workload.clients = (0..400).map(|at| at % 37).collect();
        let parts = split(&workload, 3, SplitBy::Clients);
        assert!(
            parts.iter().all(|part| part.accesses.len() > 60),
            "{:?}",
            parts.iter().map(|part| part.accesses.len())
        );
        for client in 0..37 {
            assert_eq!(parts.iter().filter(|part| part.clients.contains(&client)).count(), 1);
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost(
            objects in prop::collection::vec(0u32..30, 0..200),
            caches in 1usize..5,
            by in 0usize..3,
        ) {
            let by = [SplitBy::Requests, SplitBy::Clients, SplitBy::Objects][by];
            let all: Vec<Access> =
                objects.iter().map(|&object| Access::new(object, 3).ending(true)).collect();
            let workload = Workload::of(all, Room::One);
            let parts = split(&workload, caches, by);
            let mut split: Vec<u32> = parts
                .iter()
                .flat_map(|part| part.accesses.iter().map(|access| access.object()))
                .collect();
            let mut whole = objects;
            split.sort_unstable();
            whole.sort_unstable();
            prop_assert_eq!(split, whole);
            if by == SplitBy::Objects {
                let hits =
                    |workload: &Workload| simulate(Lru::new(30, 30), workload, 30, |_| {}).hits;
                prop_assert_eq!(parts.iter().map(hits).sum::<u64>(), hits(&workload));
            }
        }
    }
}
