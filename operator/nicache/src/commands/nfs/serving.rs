//! What others are told of a `nicache nfs`: `nicache status` and `top`, the admin port.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use nicache_admin::{CardSample, Description, Mode, Sample, Source, WatcherSample};
use nicache_exposition::Exposition;
use nicache_gateway::{Figures, Gateway, GatewayError};
use nicache_initiator::BLOCK_BYTES;

use crate::control::{Request, Response};
use crate::supervisor::sampler::moment;

/// A gateway until it is closed.
pub(super) struct Serving {
    gateway: Mutex<Option<Gateway>>,
    name: String,
    admin: Option<SocketAddr>,
    started: Instant,
}

impl Serving {
    /// For a gateway of that name.
    pub(super) fn new(gateway: Gateway, name: String, admin: Option<SocketAddr>) -> Self {
        Self { gateway: Mutex::new(Some(gateway)), name, admin, started: Instant::now() }
    }

    /// What it has done so far.
    pub(super) fn figures(&self) -> Result<Figures> {
        let figures = self.gateway().as_ref().map(Gateway::figures).context("it is ending")?;
        let admin = self.admin.map(|address| address.to_string());
        Ok(Figures { name: self.name.clone(), pid: std::process::id(), admin, ..figures })
    }

    /// Why it should end, if it should.
    pub(super) fn trouble(&self) -> Option<String> {
        self.gateway().as_ref().and_then(Gateway::trouble)
    }

    /// Ends it in order.
    pub(super) fn close(&self) -> Result<(), GatewayError> {
        let gateway = self.gateway().take();
        gateway.map_or(Ok(()), Gateway::close)
    }

    /// Answers a command.
    pub(super) fn answer(&self, request: &Request) -> Result<Response> {
        match request {
            Request::Status => Ok(Response::Nfs(Box::new(self.figures()?))),
            Request::Sample => Ok(Response::Sample(Box::new(self.sample_of(self.figures()?)))),
            Request::Why { path: Some(path), .. } => {
                // It may wait for the unit. Nobody may wait for the lock meanwhile, because whoever
                // ends the gateway needs it.
                let reporter = self.gateway().as_ref().context("it is ending")?.reporter()?;
                Ok(Response::NfsWhy(Box::new(reporter.report(path)?)))
            }
            Request::Why { .. } => {
                bail!("this is a `nicache nfs`: ask about a file, by the path below an export")
            }
            _ => bail!(
                "`nicache nfs` answers `nicache status`, `nicache top` and `nicache why` only"
            ),
        }
    }

    fn gateway(&self) -> MutexGuard<'_, Option<Gateway>> {
        self.gateway.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cache as the one card of a sample: what is looked for are blocks of 4 KB, as with
    /// `nicache serve`.
    fn sample_of(&self, figures: Figures) -> Sample {
        let (uptime_ms, unix_ms) = moment(self.started);
        let card = CardSample {
            id: figures.name.clone(),
            hits: figures.hits_fho + figures.hits_lbn,
            misses: figures.misses,
            sent_bytes: figures.read_bytes,
            saved_bytes: figures.read_bytes,
            entries: figures.cache_bytes / BLOCK_BYTES as u64,
            memory_used_bytes: figures.cache_bytes,
            memory_bytes: figures.cache_bytes_max,
            flows: figures.connections,
            ..CardSample::default()
        };
        let mut counters = BTreeMap::from([
            ("requests".to_owned(), figures.calls()),
            ("nfs_written_bytes".to_owned(), figures.written_bytes),
            ("nfs_dirty_bytes".to_owned(), figures.dirty_bytes),
            ("nfs_repeated_calls".to_owned(), figures.repeated_calls),
        ]);
        for operation in &figures.operations {
            counters.insert(
                format!("nfs_calls_{}", operation.name.to_lowercase()),
                operation.latency.count,
            );
        }
        Sample {
            name: figures.name,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            mode: Mode::Nfs,
            pid: figures.pid,
            uptime_ms,
            unix_ms,
            serves: figures.unit,
            urls: figures.exports,
            published: figures.addresses,
            not_caching: figures.trouble,
            watcher: WatcherSample { kind: "none".to_owned(), unavailable: None },
            connections: figures.connections,
            cards: vec![card],
            counters,
            ..Sample::default()
        }
    }
}

impl Source for Serving {
    fn sample(&self, _hottest: bool) -> Result<Arc<Sample>, String> {
        let sample = self.figures().map(|figures| Arc::new(self.sample_of(figures)));
        sample.map_err(|error| format!("{error:#}"))
    }

    fn own_metrics(&self, text: &mut Exposition) -> bool {
        if let Ok(figures) = self.figures() {
            figures.expose(text);
        }
        true
    }

    fn describe(&self, _counter: &str) -> Option<Description> {
        None
    }
}
