//! Applications behind `nicache run` with the settings that `nicache demo` shows: their pages are
//! kept, an edit shows at once, what is one visitor's stays with that visitor, and nobody is kept
//! waiting.
#![allow(unsafe_code)]

mod common;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use common::{Nicache, is_running, private_network, within};
use nicache_applications::{Application, Client, Settings, Site};

/// Longer than the minute for which a changed file that nobody looks at keeps everything from being
/// kept.
const PATIENCE: Duration = Duration::from_secs(100);

/// DokuWiki takes two edits within a second for one.
const HASTE: Duration = Duration::from_secs(2);

struct Behind {
    nicache: Nicache,
    /// Removed last.
    site: Option<Site>,
}

impl Behind {
    fn start(application: Application) -> Self {
        private_network();
        let settings = Settings { opcache_revalidate_freq: 0, workers: 3, ..Settings::default() };
        let site = application.prepare_with(&settings).unwrap();
        let file = site.folder().join("nicache.toml");
        std::fs::write(&file, site.configuration()).unwrap();
        let with: Vec<String> = site
            .with()
            .iter()
            .map(|command| shlex::try_join(command.iter().map(String::as_str)).unwrap())
            .collect();
        let mut options = vec!["--config", file.to_str().unwrap()];
        options.extend(with.iter().flat_map(|command| ["--with", command.as_str()]));
        let nicache = Nicache::start_with(&options, site.server(), |command| {
            if std::env::var_os("NICACHE_LOG").is_none() {
                command.env("NICACHE_LOG", "info,nicache_watch=debug,nicache_card=debug");
            }
        });
        let behind = Self { nicache, site: Some(site) };
        let front = &behind.site().pages()[0];
        let is_there = || {
            let reply = behind.client().get(&front.path);
            reply
                .is_ok_and(|reply| reply.status == 200 && reply.text().contains(&front.shows))
                .then_some(())
        };
        assert!(within(PATIENCE, is_there).is_some(), "the front page is not there");
        behind
    }

    fn site(&self) -> &Site {
        self.site.as_ref().unwrap()
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from((self.nicache.server(), 80))
    }

    fn client(&self) -> Client {
        Client::new(self.address())
    }

    fn counter(&self, name: &str) -> u64 {
        common::status(self.nicache.name())["counters"][name].as_u64().unwrap()
    }

    /// Asks for a page until the card answers.
    fn warm(&mut self, path: &str) {
        let mut client = self.client();
        let deadline = Instant::now() + PATIENCE;
        let hits = |behind: &Self| behind.counter("hits_dynamic");
        while Instant::now() < deadline {
            assert_eq!(client.get(path).unwrap().status, 200);
            // What an edited page was rendered to is looked at again when somebody asks for it;
            // nothing is kept before.
            for page in &self.site().pages()[1..3] {
                client.get(&page.path).unwrap();
            }
            let before = hits(self);
            client.get(path).unwrap();
            if hits(self) > before {
                return;
            }
        }
        let status = common::status(self.nicache.name());
        let log = self.nicache.log_text();
        if let Some(path) = std::env::var_os("NICACHE_TEST_LOG") {
            std::fs::write(path, &log).unwrap();
        }
        panic!("{path} is never kept: {:#}", status["counters"]);
    }

    /// Every edit is in the very next reply, and in those that follow.
    fn edits_show_at_once(&mut self) {
        let edits: Vec<usize> = (0..self.site().edits().len())
            .filter(|&at| self.site().edits()[at].delay().is_zero())
            .collect();
        for at in edits {
            let path = self.site().edits()[at].path().to_owned();
            for _ in 0..2 {
                self.warm(&path);
                let edit = &self.site().edits()[at];
                let is_hasty = edit.is_hasty();
                if is_hasty {
                    std::thread::sleep(HASTE);
                }
                let marker = edit.make(self.address()).unwrap();
                let mut client = self.client();
                let mut shown = 0;
                for number in 0..10 {
                    let hits = self.counter("hits_dynamic");
                    let text = client.get(&path).unwrap().text();
                    let is_right = text.contains(&marker);
                    let is_hit = self.counter("hits_dynamic") > hits;
                    // What the application mixes up is wrong without the card, too.
                    let is_the_applications = is_hasty
                        && (!is_hit || !direct(&mut self.client(), &path).contains(&marker));
                    let name = self.site().edits()[at].name();
                    assert!(
                        is_right || is_the_applications,
                        "reply {number} after `{name}` has no {marker}: {text}"
                    );
                    shown += u32::from(is_right);
                }
                assert!(shown > 5 || is_hasty, "{shown} of 10 replies show {marker}");
            }
        }
    }

    /// Two visitors who have logged in see their own pages, and nobody else does.
    fn what_is_somebody_s_stays_his(&mut self, path: &str) {
        self.warm(path);
        let logins = self.site().logins();
        let (names, mut clients): (Vec<_>, Vec<_>) = logins
            .iter()
            .map(|login| (login.name(), login.log_in(self.address()).unwrap()))
            .unzip();
        let before = (self.counter("hits_dynamic"), self.counter("bypass_cookie"));
        let (mut anonymous, rounds) = (self.client(), 12);
        for _ in 0..rounds {
            for (name, client) in names.iter().zip(&mut clients) {
                let text = client.get(path).unwrap().text();
                let shown: Vec<&&str> = names.iter().filter(|name| text.contains(**name)).collect();
                assert_eq!(shown, [name], "{text}");
                let text = anonymous.get(path).unwrap().text();
                assert!(!names.iter().any(|name| text.contains(name)), "somebody's page: {text}");
            }
        }
        assert!(
            self.counter("hits_dynamic") > before.0,
            "no anonymous visitor was answered by the card"
        );
        assert!(self.counter("bypass_cookie") >= before.1 + 2 * rounds);
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        let processes = self.nicache.processes();
        let _ = self.nicache.process.kill();
        let _ = self.nicache.process.wait();
        // They would write into the folder while it is removed.
        within(Duration::from_secs(8), || {
            (!processes.iter().any(|pid| is_running(*pid))).then_some(())
        });
        self.site.take();
    }
}

/// What the server itself says, by a header that the card lets pass.
fn direct(client: &mut Client, path: &str) -> String {
    client.request("GET", path, &[("X-Direct", "1")], b"").unwrap().text()
}

#[test]
fn dokuwiki() {
    let mut wiki = Behind::start(Application::DokuWiki);
    wiki.edits_show_at_once();
    let path = "/doku.php?id=articles:article_3";
    wiki.what_is_somebody_s_stays_his(path);

    // No reply from the card brings a session along.
    wiki.warm(path);
    let kept = wiki.client().get(path).unwrap();
    assert_eq!(kept.header("set-cookie"), None, "{:?}", kept.headers);
    // A visitor with a session has a separate trace on each page.
    let mut visitor = Client::with_cookies(wiki.address());
    direct(&mut visitor, "/doku.php?id=articles:article_7");
    let trace = |text: &str| {
        text.split_once("breadcrumbs")
            .is_some_and(|(_, rest)| rest[..rest.len().min(1500)].contains("article_7"))
    };
    for _ in 0..5 {
        assert!(trace(&visitor.get(path).unwrap().text()));
        assert!(!trace(&wiki.client().get(path).unwrap().text()));
    }
}

#[test]
fn mediawiki() {
    let mut wiki = Behind::start(Application::MediaWiki);
    wiki.edits_show_at_once();
    assert!(wiki.counter("masked") > 0);
    let path = "/index.php?title=Article_3";
    wiki.what_is_somebody_s_stays_his(path);

    // Nobody but the server answers a visitor who has cookies of the wiki.
    let mut visitor = Client::with_cookies(wiki.address());
    direct(&mut visitor, "/index.php?title=Special:UserLogin");
    wiki.warm(path);
    let before = (wiki.counter("hits"), wiki.counter("bypass_cookie"));
    for _ in 0..5 {
        assert!(visitor.get(path).unwrap().text().contains("Article 3"));
    }
    assert_eq!((wiki.counter("hits"), wiki.counter("bypass_cookie")), (before.0, before.1 + 5));
}

/// gunicorn has one process per connection: each of them may be waiting for a request that waits
/// for the reply of another.
#[test]
fn flask_with_more_visitors_than_processes() {
    let mut behind = Behind::start(Application::Flask);
    let address = behind.address();
    for _ in 0..4 {
        behind.warm("/item/1");
        let edit = behind.site().edits().iter().find(|edit| edit.path() == "/item/1").unwrap();
        let marker = edit.make(address).unwrap();
        let visit = || {
            let asked = Instant::now();
            let text = Client::new(address).get("/item/1").unwrap().text();
            assert!(text.contains(&marker), "{text}");
            asked.elapsed()
        };
        let longest = std::thread::scope(|scope| {
            let visitors: Vec<_> = (0..24).map(|_| scope.spawn(visit)).collect();
            visitors.into_iter().map(|visitor| visitor.join().unwrap()).max().unwrap()
        });
        // Whoever waits goes to the server after three seconds at the latest.
        assert!(longest < Duration::from_millis(2900), "somebody waited {longest:?}");
    }
}
