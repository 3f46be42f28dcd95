//! What viewers of a `nicache run` are shown: samples, taken once for all who look at about the
//! same time.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use nicache_admin::{
    DatabaseSample, Description, Mode, SAMPLE_INTERVAL, Sample, Source, WatcherSample,
};

use super::cards::Cards;
use super::databases::databases;
use super::watch_link::WatchLink;
use crate::control::{Answer, Question, Status, misfit};
use crate::engine;

/// A sample that is not older is told again, so however many look, the card is asked a few
/// times a second.
const FRESH: Duration = SAMPLE_INTERVAL.checked_div(2).expect("2 is not 0");

/// Takes samples of a card in front of a server.
#[derive(Debug)]
pub(crate) struct Sampler {
    /// What does not change.
    status: Status,
    watch_kind: &'static str,
    started: Instant,
    card: Arc<Cards>,
    watch: Arc<WatchLink>,
    last: Mutex<Option<(Instant, Arc<Sample>)>>,
}

impl Sampler {
    /// For that card. `watch_kind`: who watches.
    pub(crate) fn new(
        status: Status,
        watch_kind: &'static str,
        started: Instant,
        card: Arc<Cards>,
        watch: Arc<WatchLink>,
    ) -> Self {
        Self { status, watch_kind, started, card, watch, last: Mutex::new(None) }
    }

    /// A sample of about now; `hottest`: with what is used most.
    ///
    /// # Errors
    /// The card does not answer.
    pub(crate) fn take(&self, hottest: bool) -> Result<Arc<Sample>> {
        let mut last = self.locked();
        if let Some((at, sample)) = &*last
            && at.elapsed() < FRESH
            && (sample.hottest.is_some() || !hottest)
        {
            return Ok(Arc::clone(sample));
        }
        let sample = Arc::new(self.take_anew(hottest)?);
        *last = Some((Instant::now(), Arc::clone(&sample)));
        Ok(sample)
    }

    fn take_anew(&self, hottest: bool) -> Result<Sample> {
        let hottest = match hottest {
            false => None,
            true => match self.card.ask(Question::Hottest)? {
                Answer::Hottest { objects } => Some(objects),
                Answer::Refused { reason } => bail!("{reason}"),
                _ => return Err(misfit("the card")),
            },
        };
        let (cards, counters) = match self.card.ask(Question::Cards)? {
            Answer::Cards { cards, counters } => (cards, *counters),
            Answer::Refused { reason } => bail!("{reason}"),
            _ => return Err(misfit("the card")),
        };
        let of_database = |report: crate::inquiry::DatabaseReport| DatabaseSample {
            database: report.database,
            in_step: report.in_step,
            events: report.events,
            voided: report.voided,
        };
        let status = &self.status;
        let words =
            std::iter::once(&status.server).chain(&status.with).map(|words| words.join(" "));
        let (uptime_ms, unix_ms) = moment(self.started);
        Ok(Sample {
            name: status.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            mode: Mode::Run,
            pid: status.pid,
            uptime_ms,
            unix_ms,
            serves: words.collect::<Vec<_>>().join("; "),
            urls: vec![status.url.clone()],
            published: status.published.clone(),
            bypass_on: counters.bypass_on,
            not_caching: counters.not_caching,
            watcher: WatcherSample {
                kind: self.watch_kind.to_owned(),
                unavailable: self.watch.watching().unavailable,
            },
            databases: databases(status, &self.watch).into_iter().map(of_database).collect(),
            connections: cards.iter().map(|card| card.flows).sum(),
            restarts: self.card.restarts(),
            cards,
            counters: counters.more,
            hottest,
        })
    }

    fn locked(&self) -> MutexGuard<'_, Option<(Instant, Arc<Sample>)>> {
        self.last.lock().expect("no holder of this lock panics")
    }
}

impl Source for Sampler {
    fn sample(&self, hottest: bool) -> Result<Arc<Sample>, String> {
        self.take(hottest).map_err(|error| format!("{error:#}"))
    }

    fn describe(&self, counter: &str) -> Option<Description> {
        engine::describe(counter)
    }
}

/// Milliseconds since a start, and UNIX time in milliseconds.
pub(crate) fn moment(started: Instant) -> (u64, u64) {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    (
        millis(started.elapsed()),
        millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()),
    )
}
