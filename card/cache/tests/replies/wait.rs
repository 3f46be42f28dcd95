//! Who waits for another one's reply, for how long, and who is let through when the server is
//! silent.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use nicache_cache::{Awaited, Counters, Fills, Miss, WAITERS_MAX, Wait, Waiters};
use nicache_coherence::{Class, Reinstatement};
use nicache_tcp::Time;
use proptest::prelude::*;

use crate::fixture::{Cache, SOURCE};

const FIRST: Awaited = Awaited::First { miss: Miss::Uri };
const MS: Duration = Duration::from_millis(1);

impl Cache {
    /// A connection that was opened at `opened` waits.
    fn wait(&mut self, id: u32, opened: Time, earlier: Option<Wait>, awaited: Awaited) -> Wait {
        self.waiters.wait(id, opened, earlier, awaited, &mut self.counters, self.now)
    }

    fn may_collapse(&mut self, earlier: Option<&Wait>, target: &str) -> bool {
        let key = self.key(target);
        self.waiters.may_collapse(earlier, &key, &mut self.fills, self.now)
    }

    fn is_held_up(&self, earlier: Option<&Wait>, opened: Time) -> bool {
        self.waiters.is_held_up(earlier, opened, Duration::ZERO, |_| true, self.now)
    }

    fn woken(&mut self) -> Vec<u32> {
        let count = self.waiters.to_look_at(&self.fills);
        (0..count).map(|_| self.waiters.take_first().expect("as many as were said")).collect()
    }
}

fn client(number: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, number), 4711)
}

#[test]
fn who_comes_while_the_server_works_waits_and_not_for_long() {
    let mut cache = Cache::new(Class::Dynamic);
    assert!(!cache.may_collapse(None, "/p"), "there is nobody to wait for");
    let before = Wait { since: cache.now, due: cache.now, collapsed: None };
    cache.pass(1);
    cache.forward(9, "/p").expect("a fill");
    assert!(cache.may_collapse(None, "/p") && !cache.may_collapse(None, "/q"));
    assert!(
        !cache.may_collapse(Some(&before), "/p"),
        "the client has waited for another one already"
    );
    let now = cache.now;
    let wait = cache.wait(1, now, None, FIRST);
    assert_eq!(wait, Wait { since: now, due: now + 30 * MS, collapsed: Some(Miss::Uri) });
    cache.pass(30);
    let again = cache.wait(1, now, Some(wait), FIRST);
    assert_eq!(
        (again.since, again.due),
        (now, now + 40 * MS),
        "a silent server is looked at every 10 ms"
    );
    assert_eq!(
        (cache.counters.waits, cache.counters.waits_collapsed),
        (1, 1),
        "the client is counted once"
    );
    cache.pass(219);
    assert!(cache.may_collapse(Some(&again), "/p"));
    cache.pass(1);
    assert!(!cache.may_collapse(Some(&again), "/p"), "250 ms are over");
    assert!(
        !cache.may_collapse(None, "/p"),
        "nobody waits for what another one has waited for in vain"
    );
}

#[test]
fn nobody_waits_for_a_page_that_was_not_kept() {
    let mut cache = Cache::new(Class::Dynamic);
    cache.visit(1, "/p", "one");
    cache.forward(2, "/p").expect("a fill");
    assert!(!cache.may_collapse(None, "/p"), "the last reply was only the first of two");
}

#[test]
fn those_who_wait_are_looked_at_when_a_fill_has_ended() {
    let mut cache = Cache::new(Class::Static);
    let fill = cache.forward(9, "/a").expect("a fill");
    let opened = cache.now;
    let waits = [1, 2].map(|id| cache.wait(id, opened, None, FIRST));
    assert_eq!(cache.woken(), [], "nothing has happened");
    cache.reply(fill, "one");
    assert_eq!(cache.woken(), [], "the reply is not judged");
    cache.talk();
    assert_eq!(cache.woken(), [1, 2]);
    cache.wait(2, opened, Some(waits[1]), FIRST);
    assert_eq!(cache.woken(), [], "they were looked at");
    let other = cache.forward(8, "/b").expect("a fill");
    cache.reply(other, "two");
    cache.talk();
    assert_eq!(cache.woken(), [2], "any fill may be what somebody waits for");
    assert_eq!(cache.waiters.take_first(), None);
}

#[test]
fn an_answer_about_a_suspect_wakes_too() {
    let mut cache = Cache::new(Class::Static);
    cache.visit(1, "/a", "one");
    cache.mood().reinstatement = Reinstatement::Stays;
    cache.woken();
    cache.table.record_change(SOURCE);
    cache.find("/a");
    let opened = cache.now;
    let wait = cache.wait(1, opened, None, Awaited::Verdict);
    assert_eq!((wait.due, wait.collapsed), (opened + 20 * MS, None));
    cache.talk();
    assert_eq!(cache.woken(), [1]);
    cache.pass(20);
    assert!(!cache.waiters.may_wait(Some(&wait), Awaited::Verdict, cache.now));
}

#[test]
fn a_silent_server_is_asked_once_more_by_the_oldest_connection() {
    let mut cache = Cache::new(Class::Dynamic);
    let (old, young) = (cache.now, cache.now + MS);
    cache.pass(1);
    cache.forward(9, "/p").expect("a fill");
    let first = cache.wait(1, old, None, FIRST);
    let second = cache.wait(2, young, None, FIRST);
    cache.pass(29);
    assert!(!cache.is_held_up(Some(&first), old));
    cache.pass(1);
    assert!(cache.is_held_up(Some(&first), old) && !cache.is_held_up(Some(&second), young));
    let is_gone =
        cache.waiters.is_held_up(Some(&second), young, Duration::ZERO, |&id| id != 1, cache.now);
    assert!(is_gone, "the oldest of those that are still there");
    assert!(
        !cache.waiters.is_held_up(Some(&first), old, 10 * MS, |_| true, cache.now),
        "it usually needs 10 ms"
    );
    let unanswered = cache.fills.unanswered(&cache.key("/p"));
    assert_eq!(unanswered.map(|unanswered| unanswered.client), Some(client(9)));
    cache.waiters.leave(&1, first.since, cache.now);
    cache.waiters.release(1, unanswered, cache.now);
    cache.pass(59);
    assert!(!cache.is_held_up(Some(&second), young), "the next one waits for twice as long");
    cache.pass(1);
    assert!(cache.is_held_up(Some(&second), young));
    cache.waiters.handle_reply(&1, || client(1), cache.now);
    assert!(!cache.is_held_up(Some(&second), young), "the server has spoken");
    cache.pass(30);
    assert!(cache.is_held_up(Some(&second), young));
}

#[test]
fn a_server_that_waiting_connections_hold_up_is_known_for_a_minute() {
    let mut cache = Cache::new(Class::Dynamic);
    let opened = cache.now;
    cache.forward(9, "/p").expect("a fill");
    let first = cache.wait(1, opened, None, FIRST);
    cache.pass(30);
    let unanswered = cache.fills.unanswered(&cache.key("/p"));
    cache.waiters.leave(&1, first.since, cache.now);
    cache.waiters.release(1, unanswered, cache.now);
    assert!(!cache.is_held_up(None, opened));
    cache.pass(10);
    cache.waiters.handle_reply(&1, || client(1), cache.now);
    assert!(
        cache.is_held_up(None, opened),
        "it was answered in a third of the time: one more goes at once"
    );
    cache.waiters.release(2, None, cache.now);
    assert!(!cache.is_held_up(None, opened), "and the next one when that is answered");
    cache.waiters.handle_reply(&7, || client(9), cache.now);
    assert!(cache.is_held_up(None, opened), "the one that all waited for is answered");
    cache.pass(60_000);
    assert!(!cache.is_held_up(None, opened));
}

#[test]
fn those_for_whom_it_gets_too_long_leave_one_after_the_other() {
    let mut cache = Cache::new(Class::Dynamic);
    let (since, awaited) = (cache.now, Awaited::Reply { usual: 100 * MS, miss: Miss::Stale });
    let waits = [1, 2, 3].map(|id| cache.wait(id, since, None, awaited));
    let may_wait =
        |cache: &Cache, at: usize| cache.waiters.may_wait(Some(&waits[at]), awaited, cache.now);
    cache.pass(2_999);
    assert!((0..3).all(|at| may_wait(&cache, at)));
    cache.pass(1);
    assert!(!may_wait(&cache, 0));
    cache.waiters.leave(&1, since, cache.now);
    assert!(may_wait(&cache, 1), "one has just left");
    cache.pass(400);
    assert!(!may_wait(&cache, 1), "four times what the server needs are over");
    cache.waiters.leave(&2, since, cache.now);
    assert!(may_wait(&cache, 2));
}

#[test]
fn room_for_those_who_wait_is_bounded() {
    let mut cache = Cache::new(Class::Static);
    let now = cache.now;
    for id in 0..WAITERS_MAX as u32 {
        assert!(cache.waiters.may_wait(None, FIRST, now));
        cache.wait(id, now, None, FIRST);
    }
    assert!(!cache.waiters.may_wait(None, FIRST, now));
    cache.waiters.leave(&5, now, now);
    assert!(cache.waiters.may_wait(None, FIRST, now));
}

/// One who waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    wait: Wait,
    awaited: Awaited,
}

fn any_awaited() -> impl Strategy<Value = Awaited> {
    prop_oneof![
        (0u64..2_000).prop_map(|usual| Awaited::Reply {
            usual: Duration::from_millis(usual),
            miss: Miss::Stale
        }),
        Just(FIRST),
        Just(Awaited::Verdict),
    ]
}

proptest! {
    /// Whoever comes, whatever they wait for and whoever is let through: each is looked at in time,
    /// never at once again, and gone after 6 s.
    #[test]
    fn nobody_waits_for_ever(arrivals in prop::collection::vec((0u64..500, any_awaited()), 1..20)) {
        let (mut waiters, mut counters, fills) =
            (Waiters::new(), Counters::default(), Fills::new());
        let mut waiting: Vec<Option<Waiting>> = Vec::new();
        let mut arrivals = arrivals.into_iter();
        let (mut now, mut next) = (Time(1_000_000_000), arrivals.next());
        while next.is_some() || waiting.iter().any(Option::is_some) {
            prop_assert_eq!(waiters.to_look_at(&fills), 0);
            let due = waiting.iter().flatten().map(|one| one.wait.due).min();
            let arrival = next.map(|(pause, _)| now + Duration::from_millis(pause));
            if let (Some((_, awaited)), Some(at)) = (next, arrival)
                && due.is_none_or(|due| at <= due)
            {
                now = at;
                let wait = waiters.wait(waiting.len(), now, None, awaited, &mut counters, now);
                waiting.push(Some(Waiting { wait, awaited }));
                next = arrivals.next();
                continue;
            }
            let Some(due) = due else { break };
            now = due;
            for (id, place) in waiting.iter_mut().enumerate() {
                let Some(one) = place.filter(|one| one.wait.due <= now) else { continue };
                prop_assert!(now <= one.wait.since + Duration::from_secs(6));
                *place = None;
                let is_held_up = waiters.is_held_up(
                    Some(&one.wait),
                    one.wait.since,
                    Duration::ZERO,
                    |_| true,
                    now,
                );
                if waiters.may_wait(Some(&one.wait), one.awaited, now) && !is_held_up {
                    let wait = waiters.wait(
                        id,
                        one.wait.since,
                        Some(one.wait),
                        one.awaited,
                        &mut counters,
                        now,
                    );
                    prop_assert!(wait.due > now && wait.since == one.wait.since);
                    *place = Some(Waiting { wait, ..one });
                } else {
                    waiters.leave(&id, one.wait.since, now);
                    if is_held_up {
                        waiters.release(id, None, now);
                    }
                }
            }
        }
        prop_assert_eq!(waiters.take_first(), None);
        prop_assert_eq!(counters.waits as usize, waiting.len());
    }
}
