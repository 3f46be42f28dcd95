//! T: how it is earned and lost, what that saves, and what it may cost.

use std::time::Duration;

use nicache_cache::AgeBounds;
use nicache_coherence::{Class, RefusalReason, Reinstatement};
use nicache_http::{HttpDate, parse_imf_fixdate};
use nicache_tcp::{Flags, Seq, Time};

use crate::script::{SOURCE, Script, Serve};

const PLAIN: &str = "/object";
const FIRST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_secs(60);

/// A site of one page, and its visitors.
struct Site {
    script: Script,
    target: &'static str,
    /// What the page says at a time.
    says: fn(Duration) -> u64,
    takes: Duration,
    begun: Time,
    visits: u32,
    hits: u32,
    executions: u32,
    /// All visitors have one address, as behind a proxy.
    is_proxied: bool,
}

impl Site {
    fn new(class: Class, says: fn(Duration) -> u64) -> Self {
        let script = Script::with_ages(class, AgeBounds { first: FIRST, most: MOST });
        let begun = script.now;
        let takes = Duration::from_millis(20);
        Self {
            script,
            target: PLAIN,
            says,
            takes,
            begun,
            visits: 0,
            hits: 0,
            executions: 0,
            is_proxied: false,
        }
    }

    fn time(&self) -> Duration {
        self.script.now - self.begun
    }

    /// One visit; what it is told, and when it was asked.
    fn visit(&mut self) -> (u64, Duration) {
        let asked = self.time();
        let number = if self.is_proxied { 1 } else { self.visits % 200 + 10 };
        let request = format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", self.target);
        let address = [10, 0, 1, number as u8];
        let (reply, is_hit) =
            self.with_server(|script, serve| script.visit(address, request.as_bytes(), serve));
        self.visits += 1;
        self.hits += u32::from(is_hit);
        let text = String::from_utf8(reply).expect("a reply");
        let (_, body) = text.split_once("\r\n\r\n").expect("a head");
        (body.parse().expect("a number"), asked)
    }

    /// With its server, which counts.
    fn with_server<T>(&mut self, act: impl FnOnce(&mut Script, &mut Serve<'_>) -> T) -> T {
        let (says, takes, begun, executions) =
            (self.says, self.takes, self.begun, &mut self.executions);
        let mut serve = |now: Time, _: &[u8]| {
            *executions += 1;
            let body = says(now - begun).to_string();
            let date = "Date: Tue, 14 Nov 2023 22:13:20 GMT";
            let reply = format!(
                "HTTP/1.1 200 OK\r\n{date}\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            (takes, reply.into_bytes())
        };
        act(&mut self.script, &mut serve)
    }

    /// So much time passes, in which the card asks what it wants to.
    fn wait_and_answer(&mut self, time: Duration) {
        let end = self.time() + time;
        while self.time() < end {
            let step = Duration::from_millis(250).min(end - self.time());
            self.script.poll_once_after(step);
            self.with_server(Script::answer_card);
        }
    }

    /// Visits at this pace for so long, with no reply older than T. How many were not of the
    /// present.
    fn go_on(&mut self, pace: Duration, time: Duration) -> u32 {
        let (end, mut old) = (self.time() + time, 0);
        while self.time() < end {
            let earned = self.earned().unwrap_or(FIRST);
            let (told, asked) = self.visit();
            let is_present = [asked, self.time()].iter().any(|time| (self.says)(*time) == told);
            let is_fresh = is_present || was_told_within(self.says, asked, earned, told);
            assert!(is_fresh, "at {asked:?} it was told {told}, and T is {earned:?}");
            old += u32::from(!is_present);
            let rest = (asked + pace).saturating_sub(self.time());
            self.script.poll_once_after(rest);
        }
        old
    }

    /// T of the entry, if there is one.
    fn earned(&self) -> Option<Duration> {
        let (views, _) = self.script.card.entries_where(|_| true, 1, self.script.now);
        views.first().map(|view| view.earned)
    }
}

/// Was that said within a time before?
fn was_told_within(says: fn(Duration) -> u64, asked: Duration, age: Duration, told: u64) -> bool {
    let steps = age.as_millis() as u64 / 10 + 1;
    (0..=steps).any(|step| says(asked.saturating_sub(Duration::from_millis(10 * step))) == told)
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn few_visitors_get_hits_and_cost_the_server_nothing() {
    for class in [Class::Static, Class::Dynamic] {
        for is_proxied in [false, true] {
            for (pause, least) in [(5, 0.8), (15, 0.7), (30, 0.5)] {
                let mut site = Site::new(class, |_| 7);
                site.is_proxied = is_proxied;
                site.go_on(seconds(pause), seconds(600));
                let share = f64::from(site.hits) / f64::from(site.visits);
                let said = format!(
                    "{class:?}, one in {pause} s: {} hits, {} executions",
                    site.hits, site.executions
                );
                assert!(share >= least && site.executions <= site.visits, "{said}");
            }
        }
    }
}

/// Below one visit in T nothing is gained, and hardly anything lost.
#[test]
fn a_page_that_is_rarely_asked_for_is_not_made_twice() {
    for is_proxied in [false, true] {
        for pause_ms in [1_400, 70_000, 200_000] {
            let mut site = Site::new(Class::Dynamic, |_| 7);
            site.is_proxied = is_proxied;
            site.go_on(Duration::from_millis(pause_ms), Duration::from_millis(pause_ms * 40));
            assert!(
                site.executions <= site.visits + site.visits / 20,
                "{pause_ms}: {} of {}",
                site.executions,
                site.visits
            );
        }
    }
}

#[test]
fn a_slow_page_is_hit_too() {
    let mut site = Site::new(Class::Dynamic, |_| 7);
    site.takes = Duration::from_millis(1_200);
    site.go_on(seconds(2), seconds(120));
    assert!(
        site.hits * 2 > site.visits && site.executions <= site.visits,
        "{} of {}",
        site.hits,
        site.visits
    );
}

#[test]
fn a_page_that_knows_the_time_is_as_old_as_it_has_earned() {
    for class in [Class::Static, Class::Dynamic] {
        // "3 minutes ago" for ten minutes, then the same text for a day.
        let mut site = Site::new(class, |time| (time.as_secs() / 60).min(10));
        site.go_on(Duration::from_millis(700), seconds(50));
        assert!(site.earned().expect("an entry") >= seconds(10));
        site.go_on(Duration::from_millis(700), seconds(540));
        assert!(site.earned().is_none_or(|earned| earned == FIRST), "{:?}", site.earned());
        assert!(
            site.hits > 0 && site.executions <= site.visits,
            "{} of {}",
            site.executions,
            site.visits
        );
        // Trusted again, in time.
        site.go_on(seconds(20), seconds(86_400));
        assert_eq!(site.earned(), Some(MOST));
    }
}

#[test]
fn a_scheduled_change_shows_within_a_minute() {
    let mut site = Site::new(Class::Dynamic, |time| u64::from(time.as_secs() >= 3_600));
    assert!(site.go_on(seconds(7), seconds(3_590)) == 0);
    assert_eq!(site.earned(), Some(MOST));
    let old = site.go_on(seconds(1), seconds(120));
    assert!(old > 0 && old <= 60, "{old} seconds");
    assert_eq!(site.earned(), Some(FIRST));
}

#[test]
fn an_end_of_its_own_is_not_earned_away() {
    for target in ["/object?expires=9&md5=x", "/object?token=8", "/object/1900000000"] {
        for class in [Class::Static, Class::Dynamic] {
            let mut site = Site::new(class, |_| 7);
            site.target = target;
            site.go_on(Duration::from_millis(400), seconds(120));
            assert_eq!(site.earned(), Some(FIRST), "{target}");
            assert!(site.hits > site.visits / 2, "{target}");
        }
    }
}

#[test]
fn a_change_that_is_seen_is_no_reason_for_distrust() {
    let mut site = Site::new(Class::Dynamic, |time| time.as_secs() / 200);
    site.go_on(seconds(5), seconds(200));
    assert!(site.earned().expect("an entry") >= seconds(40));
    *site.script.reinstatement.lock().expect("one thread") = Reinstatement::Gone;
    site.script.table.record_change(SOURCE);
    site.go_on(seconds(5), seconds(190));
    assert!(
        site.earned().expect("an entry") >= seconds(30),
        "it is earned anew: {:?}",
        site.earned()
    );
}

/// `Expires` of a reply of which `lifetime` says when it ends, by the time at which it was made.
fn expires_of_hits(class: Class, lifetime: fn(u64) -> u64) -> Vec<(u64, u64)> {
    const BASE_S: u64 = 1_700_000_000;
    let bounds = AgeBounds { first: FIRST, most: MOST };
    let mut script = Script::with_ages(class, bounds);
    let begun = script.now;
    let mut said = Vec::new();
    for number in 0..120u8 {
        let mut serve = |now: Time, _: &[u8]| {
            let now_s = BASE_S + (now - begun).as_secs();
            let [date, expires] = [now_s, lifetime(now_s)].map(|time| {
                String::from_utf8_lossy(HttpDate::from_unix_s(time).as_bytes()).into_owned()
            });
            let head = format!(
                "HTTP/1.1 200 OK\r\nDate: {date}\r\nExpires: {expires}\r\nContent-Length: 1\r\n\r\nx"
            );
            (Duration::from_millis(5), head.into_bytes())
        };
        script.unix_s = BASE_S + script.now.since(begun).as_secs();
        let (reply, is_hit) = script.visit(
            [10, 0, 1, number],
            b"GET /object HTTP/1.1\r\nHost: a\r\n\r\n",
            &mut serve,
        );
        let text = String::from_utf8(reply).expect("text");
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the field");
            parse_imf_fixdate(line.as_bytes()).expect("a date")
        };
        if is_hit {
            said.push((field("Date: "), field("Expires: ")));
        }
        script.wait(Duration::from_millis(700));
    }
    said
}

#[test]
fn expires_does_what_the_servers_does() {
    for class in [Class::Static, Class::Dynamic] {
        let moving = expires_of_hits(class, |now_s| now_s + 10);
        assert!(
            moving.len() > 60 && moving.iter().all(|(date, expires)| *expires == date + 10),
            "{moving:?}"
        );
        const FIXED: u64 = 1_700_000_400;
        let fixed = expires_of_hits(class, |_| FIXED);
        // Before it is known, it is at most T late.
        assert!(
            fixed.len() > 60 && fixed.iter().all(|(_, expires)| expires.abs_diff(FIXED) <= 1),
            "{fixed:?}"
        );
        assert!(fixed.iter().skip(8).all(|(_, expires)| *expires == FIXED), "{fixed:?}");
        let over = expires_of_hits(class, |_| 375_007_920);
        assert!(
            over.len() > 60 && over.iter().all(|(_, expires)| *expires == 375_007_920),
            "{over:?}"
        );
    }
}

/// What players and returning browsers ask for renews nothing by itself: the card asks for the
/// whole.
#[test]
fn an_entry_that_has_lapsed_comes_back_for_those_who_want_a_part() {
    for field in ["Range: bytes=0-0", "If-None-Match: \"other\""] {
        for class in [Class::Static, Class::Dynamic] {
            let mut site = Site::new(class, |_| 7);
            site.go_on(Duration::from_millis(400), seconds(10));
            site.script.poll_once_after(seconds(300));
            let (hits, executions) = (site.hits, site.executions);
            let request = format!("GET {PLAIN} HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n");
            for number in 0..4u8 {
                let mut serve = |_, _: &[u8]| {
                    site.executions += 1;
                    let date = "Date: Tue, 14 Nov 2023 22:13:20 GMT";
                    (
                        Duration::from_millis(5),
                        format!("HTTP/1.1 200 OK\r\n{date}\r\nContent-Length: 1\r\n\r\n7")
                            .into_bytes(),
                    )
                };
                site.script.visit([10, 0, 2, number], request.as_bytes(), &mut serve);
            }
            site.visit();
            assert_eq!(site.hits, hits + 1, "{field}, {class:?}");
            // Five visitors, and one whom the card expected.
            let more = site.executions - executions;
            assert!(more <= 6, "{field}, {class:?}: {more}");
        }
    }
}

/// Each time that an entry has lapsed the first who asks takes the reply as slowly as possible.
#[test]
fn an_entry_that_has_lapsed_comes_back_although_who_asks_reads_slowly() {
    for class in [Class::Static, Class::Dynamic] {
        let mut site = Site::new(class, |_| 7);
        site.go_on(Duration::from_millis(400), seconds(10));
        site.script.poll_once_after(seconds(300));
        let hits = site.hits;
        (site.script.seq, site.script.ack) = (Seq(1000), Seq(0));
        site.script.open_another();
        site.script.ask(60_000);
        let syn = site.script.take_at_host().remove(0);
        site.script.send_host(Flags::SYN | Flags::ACK, Seq(500_000), syn.head.seq + 1, b"");
        let sent = site.script.take_at_host();
        let request = sent.iter().find(|segment| !segment.payload.is_empty()).expect("the request");
        let reply =
            b"HTTP/1.1 200 OK\r\nDate: Tue, 14 Nov 2023 22:13:20 GMT\r\nContent-Length: 1\r\n\r\n";
        site.script.send_host(Flags::ACK, Seq(500_001), request.end(), reply);
        let taken: usize =
            site.script.take_at_client().iter().map(|segment| segment.payload.len()).sum();
        site.script.ack += taken as u32;
        site.script.acknowledge(0);
        site.script.wait(seconds(3));
        assert_eq!(site.script.card.fills_in_use(), 0);
        site.with_server(|script, serve| script.answer_card(serve));
        site.visit();
        assert_eq!(site.hits, hits + 1, "{class:?}");
    }
}

/// The server keeps its files open, so nobody can say by which one it has answered.
#[test]
fn a_file_that_is_not_looked_up_again_is_renewed_as_long_as_its_sources_are_unchanged() {
    let mut site = Site::new(Class::Static, |_| 7);
    site.go_on(seconds(1), seconds(20));
    *site.script.refused.lock().expect("one thread") = Some(RefusalReason::NotLookedUp);
    site.go_on(seconds(5), seconds(400));
    assert_eq!(site.earned(), Some(MOST));
    assert!(site.hits > site.visits / 2, "{} of {}", site.hits, site.visits);
    *site.script.reinstatement.lock().expect("one thread") = Reinstatement::Gone;
    site.script.table.record_change(SOURCE);
    let hits = site.hits;
    site.go_on(seconds(5), seconds(60));
    assert_eq!(site.hits, hits, "it has changed");
}

/// One visit in three has the program write something down a moment later, which is a source of the
/// page and leaves it as it was.
#[test]
fn a_page_that_changes_nothing_of_itself_is_asked_for_ahead_of_visitors() {
    for (pause, share) in [(5u64, 80), (15, 70), (30, 40)] {
        let mut site = Site::new(Class::Dynamic, |_| 7);
        *site.script.reinstatement.lock().expect("one thread") = Reinstatement::Gone;
        for number in 0..600 / pause {
            site.visit();
            site.wait_and_answer(seconds(1));
            if number % 3 == 0 {
                site.script.table.record_change(SOURCE);
            }
            site.wait_and_answer(seconds(pause - 1));
        }
        let said = format!(
            "one in {pause} s: {} hits of {} visits, {} executions",
            site.hits, site.visits, site.executions
        );
        println!("{said}");
        assert!(site.hits * 100 >= site.visits * share, "{said}");
        assert!(site.executions <= site.visits + site.visits / 20 + 1, "{said}");
    }
}

/// Once nobody comes any more, the page costs the server nothing.
#[test]
fn a_page_that_nobody_comes_to_is_not_asked_for() {
    let mut site = Site::new(Class::Dynamic, |_| 7);
    *site.script.reinstatement.lock().expect("one thread") = Reinstatement::Gone;
    site.go_on(seconds(2), seconds(120));
    let executions = site.executions;
    for _ in 0..100 {
        site.script.table.record_change(SOURCE);
        site.wait_and_answer(seconds(10));
    }
    assert!(
        site.executions <= executions + 3,
        "{} executions for nobody",
        site.executions - executions
    );
}
