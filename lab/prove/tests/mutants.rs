//! A server that serves the current version is proved right; servers with one fault each are not.

mod server;

use std::sync::Arc;
use std::time::Duration;

use nicache_prove::{Breach, Direct, Editor, Outcome, Page, Plan, Report, Subject, prove};
use server::{FailingEditor, Fault, OtherEditor, Server, SlowEditor};

/// A plan for `/` of a server: some hundred milliseconds of fast edits.
fn plan(server: &Server) -> Plan {
    let content = Arc::clone(&server.content);
    let subject = Subject::new(Box::new(SlowEditor { content, takes: Duration::from_millis(4) }));
    let mut plan = Plan::new(server.address, vec![Page::new("/")], vec![subject]);
    plan.edits_per_second = 50.0;
    plan.duration = None;
    (plan.replies, plan.edits) = (20_000, 40);
    plan.readers.connections = 8;
    plan.quiet = Duration::from_millis(100);
    plan
}

fn run(fault: Fault) -> Report {
    let server = Server::start(fault);
    let report = prove(plan(&server), |_| {}).unwrap();
    println!("{fault:?}: {report}");
    report
}

/// Only breaches of this kind, and the violation is described.
fn assert_only(report: &Report, breach: Breach) {
    assert_eq!(report.outcome(), Outcome::Violated, "{report}");
    assert!(report.count(breach) > 0, "{report}");
    assert_eq!(report.breaches.keys().copied().collect::<Vec<_>>(), [breach], "{report}");
    assert_eq!(report.described[0].breach, breach, "{report}");
    assert!(report.described.len() <= 10, "{report}");
}

#[test]
fn a_right_server_is_proved() {
    let report = run(Fault::None);
    assert_eq!(report.outcome(), Outcome::Proven, "{report}");
    assert!(report.replies >= 20_000 && report.edits() >= 40, "{report}");
    // One page on each connection.
    assert_eq!(report.last_replies, 8, "{report}");
    assert_eq!(report.statuses.keys().copied().collect::<Vec<_>>(), [200], "{report}");
    assert_eq!(report.pages[0].shows, ["version"], "{report}");
}

#[test]
fn a_right_server_is_proved_by_pipelined_requests_over_chunks_and_short_connections() {
    for fault in [Fault::Chunks, Fault::ShortConnections] {
        let server = Server::start(fault);
        let mut plan = plan(&server);
        plan.readers.pipeline = 4;
        let report = prove(plan, |_| {}).unwrap();
        assert_eq!(report.outcome(), Outcome::Proven, "{fault:?}: {report}");
        assert_eq!(report.connections > 100, fault == Fault::ShortConnections, "{report}");
    }
}

#[test]
fn one_edit_late() {
    let report = run(Fault::OneEditLate);
    assert!(report.count(Breach::Stale) > 1000, "{report}");
    // Every connection sees it in the end, too.
    assert_eq!(report.count(Breach::NeverUpdated), 8, "{report}");
    let described = &report.described[0];
    assert_eq!(described.shown.map(|shown| shown + 1), described.oldest, "{report}");
    assert!(described.older_by_ms.is_some() && described.excerpt.contains("version="), "{report}");
    assert!(!described.edits.is_empty(), "{report}");
}

#[test]
fn once_in_1000_replies_an_old_version() {
    let report = run(Fault::OldOnceIn(1000));
    assert!((1..=report.replies / 500).contains(&report.count(Breach::Stale)), "{report}");
}

#[test]
fn a_version_of_the_future() {
    assert_only(&run(Fault::FutureOnceIn(1000)), Breach::Impossible);
}

#[test]
fn two_versions_in_one_reply() {
    assert_only(&run(Fault::Torn), Breach::Torn);
}

#[test]
fn two_versions_are_right_on_a_page_that_is_not_atomic() {
    let server = Server::start(Fault::Torn);
    let mut plan = plan(&server);
    plan.pages[0].atomic = false;
    let report = prove(plan, |_| {}).unwrap();
    assert_eq!(report.outcome(), Outcome::Proven, "{report}");
}

#[test]
fn a_cache_of_50_ms() {
    let report = run(Fault::Cache(Duration::from_millis(50)));
    assert_only(&report, Breach::Stale);
    // The cache's time bounds how old it gets, and the descriptions say so.
    assert!(report.described.iter().all(|violation| violation.older_by_ms > Some(0.0)), "{report}");
}

#[test]
fn what_a_cache_keeps_for_50_ms_is_right_if_the_server_may_be_so_far_behind() {
    let server = Server::start(Fault::Cache(Duration::from_millis(50)));
    let mut plan = plan(&server);
    plan.subjects[0].lag = Duration::from_millis(100);
    let report = prove(plan, |_| {}).unwrap();
    assert_eq!(report.outcome(), Outcome::Proven, "{report}");
}

#[test]
fn updates_that_stop_are_found_in_the_end_even_within_the_lag() {
    let server = Server::start(Fault::StopsAfter(20));
    let mut plan = plan(&server);
    plan.subjects[0].lag = Duration::from_secs(3);
    (plan.replies, plan.edits_per_second) = (1, 200.0);
    let report = prove(plan, |_| {}).unwrap();
    assert_only(&report, Breach::NeverUpdated);
    assert_eq!(report.count(Breach::NeverUpdated), 8, "{report}");
}

#[test]
fn a_wrong_status() {
    let report = run(Fault::StatusOnceIn(1000));
    assert_only(&report, Breach::Status);
    assert!(report.statuses[&500] > 0, "{report}");
}

#[test]
fn an_allowed_status_is_counted() {
    let server = Server::start(Fault::StatusOnceIn(1000));
    let mut plan = plan(&server);
    plan.statuses = vec![500];
    let report = prove(plan, |_| {}).unwrap();
    assert!(report.statuses[&500] > 0, "{report}");
    // In the last look it is none of the 8 replies, or it is a violation.
    assert_eq!(report.violations, report.count(Breach::Status), "{report}");
    assert!(report.violations <= 1, "{report}");
}

#[test]
fn a_marker_that_is_missing() {
    assert_only(&run(Fault::MissingOnceIn(1000)), Breach::Unexpected);
}

#[test]
fn another_page() {
    for (fault, outcome) in
        [(Fault::None, Outcome::Proven), (Fault::OtherPageOnceIn(1000), Outcome::Violated)]
    {
        let server = Server::start(fault);
        let pages = ["/pages/one", "/pages/two"].map(Page::new);
        let report = prove(Plan { pages: pages.into(), ..plan(&server) }, |_| {}).unwrap();
        assert_eq!(report.outcome(), outcome, "{report}");
        if outcome == Outcome::Violated {
            assert_only(&report, Breach::Foreign);
        }
    }
}

#[test]
fn what_another_client_is_told() {
    for (fault, outcome) in
        [(Fault::None, Outcome::Proven), (Fault::OtherClientOnceIn(1000), Outcome::Violated)]
    {
        let server = Server::start(fault);
        let told = |language: &str| Page {
            fields: vec![format!("Accept-Language: {language}")],
            says: Some(format!("for {language}.")),
            ..Page::new("/told")
        };
        let report =
            prove(Plan { pages: vec![told("de"), told("fr")], ..plan(&server) }, |_| {}).unwrap();
        assert_eq!(report.outcome(), outcome, "{report}");
        if outcome == Outcome::Violated {
            assert_only(&report, Breach::Foreign);
        }
    }
}

#[test]
fn a_reply_that_is_cut_off() {
    assert_only(&run(Fault::CutOnceIn(1000)), Breach::Cut);
}

#[test]
fn a_reply_that_is_none() {
    assert_only(&run(Fault::GarbageOnceIn(1000)), Breach::Malformed);
}

#[test]
fn a_reply_that_does_not_come() {
    let server = Server::start(Fault::SilentOnceIn(5000));
    let mut plan = plan(&server);
    plan.readers.timeout = Duration::from_secs(1);
    assert_only(&prove(plan, |_| {}).unwrap(), Breach::Silent);
}

#[test]
fn a_time_that_is_too_old() {
    for (age, is_right) in [(Duration::ZERO, true), (Duration::from_secs(3), false)] {
        let server = Server::start(Fault::Clock(age));
        let mut plan = plan(&server);
        let mut page = Page::new("/time");
        page.within = Some(Duration::from_secs(1));
        plan.pages.push(page);
        plan.replies = 2000;
        plan.quiet = Duration::ZERO;
        let report = prove(plan, |_| {}).unwrap();
        assert_eq!(report.count(Breach::Aged) == 0, is_right, "{report}");
        assert_eq!(report.outcome() == Outcome::Proven, is_right, "{report}");
        assert_eq!(report.pages[1].age_ms > 2500.0, !is_right, "{report}");
    }
}

#[test]
fn the_server_itself_is_asked_and_is_a_floor() {
    // Both show what was there 300 ms ago; the one that is to be proved keeps it for another 300
    // ms.
    let direct = Server::start(Fault::Behind(Duration::from_millis(300)));
    let content = Arc::clone(&direct.content);
    for (one_state, cached) in [(false, false), (true, false), (true, true)] {
        let behind = Duration::from_millis(if cached { 600 } else { 300 });
        let server = Server::start_with(Fault::Behind(behind), Arc::clone(&content));
        let mut plan = plan(&server);
        plan.direct = Some(Direct { address: direct.address, namespace: None });
        plan.readers.direct_connections = 2;
        (plan.subjects[0].lag, plan.subjects[0].one_state) = (Duration::from_secs(1), one_state);
        plan.replies = 1000;
        let report = prove(plan, |_| {}).unwrap();
        assert_eq!(report.count(Breach::Stale) > 0, cached, "{one_state}: {report}");
        assert!(
            report.direct_replies > 100 && report.subjects[0].server_lag_ms > 250.0,
            "{report}"
        );
    }
}

#[test]
fn what_the_server_itself_still_gives_is_its_own() {
    let direct = Server::start(Fault::Behind(Duration::from_millis(300)));
    let content = Arc::clone(&direct.content);
    for (behind, is_right) in [(300, true), (600, false)] {
        let behind = Duration::from_millis(behind);
        let server = Server::start_with(Fault::Behind(behind), Arc::clone(&content));
        let mut plan = plan(&server);
        plan.direct = Some(Direct { address: direct.address, namespace: None });
        plan.readers.direct_connections = 2;
        plan.subjects[0].as_server = true;
        plan.replies = 1000;
        plan.quiet = Duration::from_millis(700);
        // A version lasts long enough for two busy connections to see it, also on a slow machine.
        (plan.burst, plan.least_gap) = (1, Duration::from_millis(60));
        let report = prove(plan, |_| {}).unwrap();
        assert_eq!(report.count(Breach::Stale) == 0, is_right, "{report}");
        assert_eq!(report.outcome() == Outcome::Proven, is_right, "{report}");
        assert!(report.as_old_as_server > 100, "{report}");
    }
}

#[test]
fn a_server_that_never_shows_the_last_edit_is_not_blamed_on_the_cache() {
    for (itself, is_right) in [(Fault::StopsAfter(10), true), (Fault::None, false)] {
        let direct = Server::start(itself);
        let server = Server::start_with(Fault::StopsAfter(10), Arc::clone(&direct.content));
        let mut plan = plan(&server);
        plan.direct = Some(Direct { address: direct.address, namespace: None });
        plan.subjects[0].as_server = true;
        let report = prove(plan, |_| {}).unwrap();
        assert_eq!(report.outcome() == Outcome::Proven, is_right, "{report}");
    }
}

#[test]
fn a_lag_that_is_not_declared_proves_nothing() {
    let server = Server::start(Fault::None);
    let direct =
        Server::start_with(Fault::Behind(Duration::from_millis(100)), Arc::clone(&server.content));
    let mut plan = plan(&server);
    plan.direct = Some(Direct { address: direct.address, namespace: None });
    plan.quiet = Duration::from_millis(500);
    let report = prove(plan, |_| {}).unwrap();
    let Outcome::NothingProven(reasons) = report.outcome() else { panic!("{report}") };
    assert!(reasons.join(" ").contains("declare its lag"), "{reasons:?}");
}

#[test]
fn without_edits_nothing_is_proven() {
    let server = Server::start(Fault::None);
    let mut plan = plan(&server);
    plan.edits_per_second = 0.0;
    plan.duration = Some(Duration::from_millis(300));
    let report = prove(plan, |_| {}).unwrap();
    let Outcome::NothingProven(reasons) = report.outcome() else { panic!("{report}") };
    assert!(reasons.iter().any(|reason| reason.contains("was never edited")), "{reasons:?}");
}

#[test]
fn with_too_few_replies_nothing_is_proven() {
    let server = Server::start(Fault::None);
    let mut plan = plan(&server);
    plan.replies = u64::MAX;
    plan.duration = Some(Duration::from_millis(300));
    let report = prove(plan, |_| {}).unwrap();
    assert!(matches!(report.outcome(), Outcome::NothingProven(_)), "{report}");
}

#[test]
fn failed_edits_leave_both_versions_possible() {
    let server = Server::start(Fault::None);
    let mut plan = plan(&server);
    let slow = SlowEditor { content: Arc::clone(&server.content), takes: Duration::ZERO };
    // The very first edit must succeed, whoever makes it.
    let failing = FailingEditor { content: Arc::clone(&server.content), edits_left: 1, failed: 0 };
    plan.subjects = Subject::group([Box::new(slow) as Box<dyn Editor>, Box::new(failing)]);
    assert_eq!(plan.subjects.len(), 1);
    plan.replies = 2000;
    let report = prove(plan, |_| {}).unwrap();
    assert_eq!(report.outcome(), Outcome::Proven, "{report}");
    let subject = &report.subjects[0];
    assert!(subject.failed > 0 && subject.first_failure.as_deref() == Some("refused"), "{report}");
    assert_eq!(subject.kinds.len(), 2, "{report}");
    assert_eq!(subject.kinds["failing"].failed, subject.failed, "{report}");
}

#[test]
fn several_subjects_on_several_pages() {
    for (fault, is_right) in [(Fault::None, true), (Fault::OtherIsStale, false)] {
        let server = Server::start(fault);
        let other = OtherEditor { content: Arc::clone(&server.content) };
        let mut plan = plan(&server);
        plan.subjects.push(Subject::new(Box::new(other)));
        plan.pages.push(Page::new("/both"));
        let report = prove(plan, |_| {}).unwrap();
        assert_eq!(report.outcome() == Outcome::Proven, is_right, "{report}");
        assert_eq!(report.pages[1].shows, ["version", "other"], "{report}");
        assert_eq!(
            (report.pages[0].violations, report.pages[1].violations == 0),
            (0, is_right),
            "{report}"
        );
    }
}

#[test]
fn what_cannot_be_proved_says_why() {
    let server = Server::start(Fault::None);
    let error = |change: &dyn Fn(&mut Plan)| {
        let mut plan = plan(&server);
        change(&mut plan);
        prove(plan, |_| {}).unwrap_err().to_string()
    };
    assert!(error(&|plan| plan.pages.push(Page::new("/missing"))).contains("/missing answers 404"));
    assert!(error(&|plan| plan.pages.push(Page::new("/empty"))).contains("none of the markers"));
    assert!(error(&|plan| plan.pages = Vec::new()).contains("--pages"));
    assert!(error(&|plan| plan.subjects = Vec::new()).contains("--edit"));
    let other = || Subject::new(Box::new(OtherEditor { content: Arc::default() }));
    assert!(error(&|plan| plan.subjects.push(other())).contains("no page shows `other`"));
    let failing = || FailingEditor { content: Arc::default(), edits_left: 0, failed: 0 };
    assert!(
        error(&|plan| plan.subjects = vec![Subject::new(Box::new(failing()))])
            .contains("failed: refused")
    );
    // A port that is never given to who asks for any.
    let nobody = "127.0.0.1:1".parse().unwrap();
    assert!(error(&|plan| plan.server = nobody).contains("could not be read"));
}
