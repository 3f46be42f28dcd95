//! Small sites, by the virtual clock: how many of their visitors the card answers, and what that
//! costs the server.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nicache_cache::AgeBounds;
use nicache_coherence::{Class, RefusalReason, Reinstatement};
use nicache_tcp::Time;

use crate::script::{OWN_PORTS, PROXY, SOURCE, Script, Serve};

const PAGES: u64 = 12;
/// Two desktop browsers, a phone, and two bots.
const CLIENTS: [&str; 5] = [
    "User-Agent: Chrome/131.0\r\nsec-ch-ua-platform: \"Windows\"\r\nUpgrade-Insecure-Requests: 1\r\nAccept: text/html\r\n\
     Sec-Fetch-Site: none\r\nAccept-Encoding: gzip, br, zstd\r\nAccept-Language: en-US,en;q=0.9\r\n",
    "User-Agent: Firefox/132.0\r\nAccept: text/html\r\nAccept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, br\r\nDNT: 1\r\n\
     Upgrade-Insecure-Requests: 1\r\nSec-Fetch-Site: cross-site\r\nPriority: u=0, i\r\n",
    "User-Agent: Phone/18.0 Mobile\r\nAccept: text/html\r\nAccept-Language: en-US,en;q=0.9\r\nAccept-Encoding: gzip, br\r\n",
    "User-Agent: Googlebot/2.1\r\nAccept: text/html\r\nAccept-Encoding: gzip, br\r\n",
    "User-Agent: bingbot/2.0\r\nAccept: */*\r\nAccept-Encoding: gzip, br\r\n",
];

/// Numbers that look like chance, the same each time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    /// The number of a page, by Zipf's law.
    fn page(&mut self) -> u64 {
        let weight = |page: u64| 720_720 / (page + 1);
        let mut left = self.below((0..PAGES).map(weight).sum());
        (0..PAGES)
            .find(|page| left.checked_sub(weight(*page)).map(|rest| left = rest).is_none())
            .unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    visits: u32,
    hits: u32,
    executions: u32,
}

impl Count {
    fn share(&self) -> u32 {
        self.hits * 100 / self.visits.max(1)
    }
}

/// A site whose program writes something down each minute, if it `changes`, which is a source of
/// all pages and leaves them as they were.
struct Site {
    script: Script,
    chance: Chance,
    takes: Duration,
    begun: Time,
    changes: bool,
    /// For how long the note is good that the program keeps, if it keeps one: the first execution
    /// after that writes a new one.
    note: Option<Duration>,
    noted: Time,
    /// Whether two executions at one time change what the other reads, and whether the last one
    /// was not alone.
    notes: Option<bool>,
    /// The address of all visitors, if they have one.
    address: Option<[u8; 4]>,
    /// This page is refused to those of whose request this is a part.
    refuses: Option<(&'static str, &'static str)>,
    minutes: u64,
    all: Count,
    /// Executions for each page.
    of_page: [u32; PAGES as usize],
}

impl Site {
    fn new(takes: Duration, changes: bool) -> Self {
        let script = Script::with_ages(Class::Dynamic, AgeBounds::default());
        *script.reinstatement.lock().expect("one thread") = Reinstatement::Gone;
        let begun = script.now;
        Self {
            script,
            chance: Chance(7),
            takes,
            begun,
            changes,
            note: None,
            noted: begun,
            notes: None,
            address: None,
            refuses: None,
            minutes: 0,
            all: Count::default(),
            of_page: [0; _],
        }
    }

    /// Somebody visits some page.
    fn visit(&mut self) {
        let (number, page) = (self.chance.below(200), self.chance.page());
        self.visit_as(number as usize % CLIENTS.len(), number as u8, page);
    }

    /// A client of this kind visits a page: whether it gets it, and from the card.
    fn visit_as(&mut self, kind: usize, number: u8, page: u64) -> (bool, bool) {
        let mut request = format!("GET /page/{page} HTTP/1.1\r\nHost: a\r\n{}", CLIENTS[kind]);
        if self.address == Some(PROXY) {
            request +=
                &format!("X-Forwarded-For: 198.51.100.{number}\r\nX-Forwarded-Proto: https\r\n");
        }
        request += "\r\n";
        let address = self.address.unwrap_or([10, 0, 1, number]);
        let (reply, is_hit) =
            self.with_server(|script, serve| script.visit(address, request.as_bytes(), serve));
        self.all.visits += 1;
        self.all.hits += u32::from(is_hit);
        (reply.starts_with(b"HTTP/1.1 200 "), is_hit)
    }

    fn with_server<T>(&mut self, act: impl FnOnce(&mut Script, &mut Serve<'_>) -> T) -> T {
        let (takes, executions, refuses) = (self.takes, &mut self.all.executions, self.refuses);
        let of_page = &mut self.of_page;
        let (note, noted, notes) = (self.note, &mut self.noted, &mut self.notes);
        let (table, refused) = (Arc::clone(&self.script.table), Arc::clone(&self.script.refused));
        let beside = Arc::clone(&self.script.asks_beside);
        let mut serve = |now: Time, head: &[u8]| {
            *executions += 1;
            let asks_beside = beside.load(Ordering::Relaxed);
            let was_alone =
                notes.as_mut().is_none_or(|was_beside| !std::mem::replace(was_beside, asks_beside));
            let is_alone = notes.is_none() || was_alone && !asks_beside;
            let writes = note.is_some_and(|note| now >= *noted + note) || !is_alone;
            if writes {
                *noted = now;
                table.record_change(SOURCE);
            }
            *refused.lock().expect("one thread") = writes.then_some(RefusalReason::Wrote);
            let head = String::from_utf8_lossy(head);
            assert!(head.matches(" nicache/").count() <= 1, "another class than was meant: {head}");
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            if let Some(count) = path
                .rsplit('/')
                .next()
                .and_then(|page| of_page.get_mut(page.parse::<usize>().ok()?))
            {
                *count += 1;
            }
            let date = "Date: Tue, 14 Nov 2023 22:13:20 GMT";
            let is_refused = refuses.is_some_and(|(page, who)| path == page && head.contains(who));
            let status = if is_refused { "403 Forbidden" } else { "200 OK" };
            (
                takes,
                format!(
                    "HTTP/1.1 {status}\r\n{date}\r\nContent-Length: {}\r\n\r\n{path}",
                    path.len()
                )
                .into_bytes(),
            )
        };
        act(&mut self.script, &mut serve)
    }

    /// So many visitors at this pace.
    fn go_on(&mut self, pause: Duration, visits: u32) -> Count {
        let before = self.all;
        for _ in 0..visits {
            let end = self.script.now + pause;
            let minute = (self.script.now - self.begun).as_secs() / 60;
            if self.changes && minute > self.minutes {
                self.minutes = minute;
                self.script.table.record_change(SOURCE);
            }
            self.visit();
            while self.script.now < end {
                self.script.poll_once_after(Duration::from_millis(50).min(end - self.script.now));
                self.with_server(Script::answer_card);
            }
        }
        Count {
            visits: self.all.visits - before.visits,
            hits: self.all.hits - before.hits,
            executions: self.all.executions - before.executions,
        }
    }
}

/// A program that writes down what it has made, and reads it at the same time for somebody else,
/// may read half of it. So for one visitor the server works alone.
#[test]
fn the_card_does_not_ask_while_the_server_works_for_a_visitor() {
    let mut site = Site::new(Duration::from_millis(30), true);
    site.go_on(Duration::from_millis(500), 480);
    site.go_on(Duration::from_secs(1), 300);
    assert!(site.all.executions > 300, "{:?}", site.all);
    assert_eq!(site.script.asked_for_same, 0);
    // What it asks for ahead of the next visitor may be what this one waits for.
    let mut slow = Site::new(Duration::from_millis(600), false);
    slow.note = Some(Duration::from_secs(20));
    slow.go_on(Duration::from_millis(500), 480);
    slow.go_on(Duration::from_secs(2), 200);
    assert!(slow.all.executions > 300, "{:?}", slow.all);
    assert_eq!(slow.script.asked_for_same, 0);
}

#[test]
fn most_visitors_of_a_small_site_get_hits() {
    for (changes, pace_ms, visits, least) in [
        (false, 1_000, 180, 90),
        (false, 100, 600, 97),
        (true, 1_000, 180, 80),
        (true, 100, 1200, 95),
    ] {
        let mut site = Site::new(Duration::from_millis(30), changes);
        let warm = site.go_on(Duration::from_millis(500), 480);
        let count = site.go_on(Duration::from_millis(pace_ms), visits);
        let said = format!(
            "changes: {changes}, every {pace_ms} ms: {} % hits, warm {} %, {warm:?} {count:?}",
            count.share(),
            warm.share()
        );
        assert!(site.all.executions <= site.all.visits + site.all.visits / 20 + 1, "{said}");
        assert!(count.share() >= least, "{said}");
    }
}

/// A page that clients of one kind alone have come to, on a site that others come to as well.
#[test]
fn the_first_of_a_kind_finds_the_page_answered_unless_he_is_refused() {
    for refuses in [None, Some(("/page/1", "Phone"))] {
        let mut site = Site::new(Duration::from_millis(30), false);
        site.refuses = refuses;
        for number in 0..40 {
            site.visit_as(2 * usize::from(number % 2), number, 0);
            site.visit_as(0, number, 1);
            site.script.poll_once_after(Duration::from_secs(1));
            site.with_server(Script::answer_card);
        }
        let executions = site.all.executions;
        let is_refused = refuses.is_some();
        for number in 100..104 {
            assert_eq!(site.visit_as(2, number, 1), (!is_refused, !is_refused), "{refuses:?}");
            assert_eq!(site.visit_as(0, number, 1), (true, true), "{refuses:?}");
        }
        let asked = site.all.executions - executions;
        assert!(
            (4 * u32::from(is_refused)..=4 * u32::from(is_refused) + 1).contains(&asked),
            "{refuses:?}: {asked}"
        );
    }
}

/// Another program on the card's machine may use the ports of the card's own client: only those
/// that this one has open are the card's.
#[test]
fn a_proxy_that_uses_the_cards_own_ports_is_not_the_card() {
    let mut site = Site::new(Duration::from_millis(30), false);
    site.address = Some(PROXY);
    for number in 0..20 {
        site.visit_as(0, number, 0);
    }
    let own_requests = site.script.card.counters().recheck_requests;
    for (number, port) in
        (100..).zip([*OWN_PORTS.start(), OWN_PORTS.start() + 1, OWN_PORTS.start() + 255])
    {
        let fields =
            format!("X-Forwarded-For: 198.51.100.{number}\r\nX-Forwarded-Proto: https\r\n");
        let request = format!("GET /page/0 HTTP/1.1\r\nHost: a\r\n{}{fields}\r\n", CLIENTS[0]);
        site.script.client_port = port;
        let (reply, is_hit) =
            site.with_server(|script, serve| script.ask_as(PROXY, request.as_bytes(), serve));
        assert!(is_hit && reply.starts_with(b"HTTP/1.1 200 "), "from port {port}");
    }
    assert_eq!(site.script.card.counters().recheck_requests, own_requests);
}

/// What frameworks do: each reply has the number of its execution, and how long that took.
#[test]
fn replies_that_differ_in_the_number_of_the_execution_are_the_same() {
    for (field, is_of_execution) in
        [("X-Request-Id", true), ("X-Runtime", true), ("server-timing", true), ("X-Other", false)]
    {
        let mut script = Script::with_ages(Class::Dynamic, AgeBounds::default());
        let (mut executions, mut hits, mut shown) = (0, 0, 0);
        for number in 0..20 {
            let mut serve = |_: Time, _: &[u8]| {
                executions += 1;
                let text = format!(
                    "HTTP/1.1 200 OK\r\nDate: Tue, 14 Nov 2023 22:13:20 GMT\r\n{field}: {executions}\r\nContent-Length: 2\r\n\r\nok"
                );
                (Duration::from_millis(10), text.into_bytes())
            };
            let (reply, is_hit) =
                script.visit([10, 0, 1, number], b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &mut serve);
            let reply = String::from_utf8(reply).expect("text");
            assert!(
                reply.starts_with("HTTP/1.1 200 OK\r\nDate: ")
                    && reply.ends_with("\r\nContent-Length: 2\r\n\r\nok")
            );
            hits += u32::from(is_hit);
            shown += u32::from(is_hit && reply.contains(field));
        }
        assert_eq!(
            (hits >= 10, shown),
            (is_of_execution, 0),
            "{field}: {hits} hits, {executions} executions"
        );
    }
}

/// What WordPress does: every page reads a note that is good for a minute, and the first execution
/// after that writes a new one. All visitors have one address: that of a proxy elsewhere which says
/// nothing of them, or that of one on the card's machine which says who they are. What hits have
/// saved before is not used up on pages that hardly anybody comes to.
#[test]
fn a_note_that_is_written_anew_each_minute_costs_few_hits() {
    for address in [[10, 0, 1, 1], PROXY] {
        let mut site = Site::new(Duration::from_millis(45), false);
        (site.note, site.address) = (Some(Duration::from_secs(60)), Some(address));
        site.go_on(Duration::from_millis(500), 400);
        let slow = site.go_on(Duration::from_secs(1), 150);
        let fast = site.go_on(Duration::from_millis(100), 600);
        let slower = site.go_on(Duration::from_secs(1), 600);
        for (count, least) in [(slow, 80), (fast, 95), (slower, 80)] {
            let is_cheap = count.executions <= count.visits + count.visits / 20;
            let said =
                format!("{address:?}: {} % {count:?}, {slow:?} {fast:?} {slower:?}", count.share());
            assert!(count.share() >= least && is_cheap, "{said}");
        }
    }
}

/// A page that changes more often than somebody comes to it is not asked for after each change,
/// though others could pay for that.
#[test]
fn a_page_that_changes_before_anybody_comes_costs_no_more_than_its_visitors() {
    let mut site = Site::new(Duration::from_millis(30), false);
    for second in 0..600 {
        if second % 7 == 0 {
            site.script.table.record_change(SOURCE);
        }
        site.visit_as(0, second as u8, 0);
        if second % 20 == 10 {
            site.visit_as(0, second as u8, 1);
        }
        for _ in 0..18 {
            site.script.poll_once_after(Duration::from_millis(50));
            site.with_server(Script::answer_card);
        }
    }
    assert!(site.all.share() >= 70, "{:?}", site.all);
    assert!(site.of_page[1] <= 30 + 4, "{:?}", site.of_page);
}

/// One page, one client, from its first visit on. What the program writes down while it works is
/// read by others that work at the same time.
#[test]
fn a_client_who_comes_back_now_and_then_gets_hits() {
    for (seconds, least) in [(5, 80), (15, 70), (30, 50)] {
        let mut site = Site::new(Duration::from_millis(80), false);
        (site.address, site.notes) = (Some([10, 0, 1, 1]), Some(false));
        for _ in 0..600 / seconds {
            site.visit_as(0, 1, 0);
            for _ in 0..seconds * 20 {
                site.script.poll_once_after(Duration::from_millis(50));
                site.with_server(Script::answer_card);
            }
        }
        let said = format!("every {seconds} s: {} % {:?}", site.all.share(), site.all);
        assert!(site.all.share() >= least && site.all.executions <= site.all.visits, "{said}");
    }
}

/// A site that was busy and then has a visitor every five seconds does not spend at once what its
/// pages have saved: in no stretch of visits does the server work much more than for those.
#[test]
fn what_a_busy_hour_has_saved_is_not_spent_in_a_quiet_one() {
    const ALLOWANCE: u32 = 32;
    for (changes, note) in [(false, None), (true, None), (false, Some(60))] {
        let mut site = Site::new(Duration::from_millis(30), changes);
        site.note = note.map(Duration::from_secs);
        site.go_on(Duration::from_millis(500), 480);
        for pause_s in [5, 1] {
            for _ in 0..4 {
                let count = site.go_on(Duration::from_secs(pause_s), 60);
                assert!(
                    count.executions <= count.visits + count.visits / 20 + ALLOWANCE,
                    "changes: {changes}, note: {note:?}, every {pause_s} s: {count:?}"
                );
            }
        }
    }
}

/// A site that had a visitor every five seconds has one every second now: its pages change each
/// minute. That the pages have more visitors, too, is not learned page by page.
#[test]
fn a_site_that_wakes_up_is_known_within_a_minute() {
    let shares: Vec<u32> = (0..12)
        .map(|run| {
            let mut site = Site::new(Duration::from_millis(30), run % 2 == 0);
            site.chance = Chance(7 + run);
            site.note = (run % 2 == 1).then_some(Duration::from_secs(60));
            site.go_on(Duration::from_millis(250), 240);
            site.go_on(Duration::from_secs(5), 240);
            site.go_on(Duration::from_secs(1), 60).share()
        })
        .collect();
    assert!(shares.iter().sum::<u32>() / shares.len() as u32 >= 57, "{shares:?}");
}
