//! What a gateway did and holds: for people, as JSON, and as families for Prometheus.

use std::fmt::{self, Write as _};

use hdrhistogram::Histogram;
use nicache_counters::Counter;
use nicache_exposition::{Buckets, Exposition, Kind};
use nicache_initiator::BLOCK_BYTES;
use nicache_ncache::{Copies, CopyClass};
use nicache_nfs::Metrics;
use nicache_nfs::protocol::Procedure;
use nicache_web::WebCounters;
use serde::{Deserialize, Serialize};

use crate::copy_mode::CopyMode;

/// Upper ends of the classes of a histogram for Prometheus, in seconds.
const BUCKETS_S: [f64; 9] = [0.000_05, 0.000_1, 0.000_25, 0.001, 0.005, 0.025, 0.1, 0.5, 5.0];

/// How long something takes.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LatencyFigures {
    /// How many there were.
    pub count: u64,
    /// Half took no longer, in microseconds.
    pub p50_us: f64,
    /// 99 of 100 took no longer, in microseconds.
    pub p99_us: f64,
    /// The longest, in microseconds.
    pub max_us: f64,
    /// All of them together, in seconds.
    pub sum_s: f64,
    /// How many took at most 50 µs, 100 µs, 250 µs, 1 ms, 5 ms, 25 ms, 100 ms, 500 ms, 5 s.
    pub at_most: [u64; BUCKETS_S.len()],
}

impl LatencyFigures {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "shown with a few digits"
    )]
    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        let us = |nanoseconds: u64| nanoseconds as f64 / 1000.0;
        Self {
            count: histogram.len(),
            p50_us: us(histogram.value_at_quantile(0.5)),
            p99_us: us(histogram.value_at_quantile(0.99)),
            max_us: us(histogram.max()),
            sum_s: histogram.mean() * histogram.len() as f64 / 1e9,
            at_most: BUCKETS_S.map(|end| histogram.count_between(0, (end * 1e9) as u64)),
        }
    }

    fn expose(&self, text: &mut Exposition, family: &str, operation: &str) {
        let at_most: [_; BUCKETS_S.len()] =
            std::array::from_fn(|number| (BUCKETS_S[number], self.at_most[number]));
        let buckets = Buckets { at_most: &at_most, count: self.count, sum: self.sum_s };
        text.histogram(family, &[("operation", operation)], buckets);
    }
}

/// One procedure of NFS.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OperationFigures {
    /// The procedure's name in RFC 1813.
    pub name: String,
    /// How many were answered with an error.
    pub errors: u64,
    /// How many there were, and how long they took.
    pub latency: LatencyFigures,
}

/// Copies of one class.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CopyFigures {
    /// Why bytes were copied.
    pub class: String,
    /// How often bytes were copied.
    pub copies: u64,
    /// Bytes that were copied.
    pub bytes: u64,
}

nicache_counters::counters! {
    /// The logical unit.
    #[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
    #[serde(default)]
    pub struct UnitFigures {
        read_bytes as "unit_read_bytes": "Bytes read from the logical unit.",
        written_bytes as "unit_written_bytes": "Bytes written to the logical unit.",
        errors as "unit_errors": "Commands that the logical unit failed.",
    }
    beside {
        /// The unit's size in bytes.
        pub capacity_bytes: u64,
        /// Commands that read.
        pub reads: LatencyFigures,
        /// Commands that write.
        pub writes: LatencyFigures,
        /// SYNCHRONIZE CACHE.
        pub flushes: LatencyFigures,
    }
}

/// What was served by HTTP.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WebFigures {
    /// Where it was served.
    pub addresses: Vec<String>,
    /// By all of these servers.
    #[serde(flatten)]
    pub counters: WebCounters,
}

nicache_counters::counters! {
    /// All of it.
    #[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
    #[serde(default)]
    pub struct Figures {
        read_bytes: "Bytes of payload in replies.",
        written_bytes: "Bytes of payload in requests.",
        repeated_calls: "Calls that came again and got the first answer.",
        refused_calls: "Calls that no procedure saw.",
        connections: gauge "Connections of clients.",
        open_files: gauge "Files that are open.",
        cache_bytes: gauge "Payload in memory.",
        cache_bytes_max as "cache_max_bytes": gauge "Payload that may be in memory.",
        dirty_bytes: gauge "Payload that the unit does not have yet.",
        remapped as "remapped_chunks": "Chunks that moved from the index by file to the one by block.",
        evicted as "evicted_chunks": "Chunks that gave way to others.",
        declined as "declined_chunks": "Chunks that the policy did not keep, because others were worth more.",
        refused_keys: "Blocks with keys that were refused at the device.",
    }
    beside {
        /// Name of this gateway for `nicache status`.
        pub name: String,
        /// The gateway's process.
        pub pid: u32,
        /// Seconds since its start.
        pub uptime_s: u64,
        /// The unit's address, without secrets.
        pub unit: String,
        /// What clients can mount.
        pub exports: Vec<String>,
        /// Where it listens.
        pub addresses: Vec<String>,
        /// Where figures are shown to browsers and Prometheus.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub admin: Option<String>,
        /// How payload travels.
        pub copy: CopyMode,
        /// The block device below the file system.
        pub device: String,
        /// Which chunks go when the memory is full, and how that is set.
        pub policy: String,
        /// What is wrong at the moment, if something is.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub trouble: Option<String>,
        /// What was served by HTTP, if something is.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub web: Option<WebFigures>,
        /// Procedures that were called.
        pub operations: Vec<OperationFigures>,
        /// Blocks found by file and block (FHO).
        pub hits_fho: u64,
        /// Blocks found by block of the device (LBN).
        pub hits_lbn: u64,
        /// Blocks read from the unit.
        pub misses: u64,
        /// What was copied.
        pub copies: Vec<CopyFigures>,
        /// The unit.
        pub unit_commands: UnitFigures,
    }
}

impl Figures {
    pub(crate) fn set_operations(&mut self, metrics: &Metrics) {
        self.read_bytes = metrics.read_bytes;
        self.written_bytes = metrics.written_bytes;
        self.repeated_calls = metrics.repeated_calls;
        self.refused_calls = metrics.refused_calls;
        for procedure in Procedure::ALL {
            let one = metrics.procedure(procedure);
            if one.calls > 0 {
                let latency = LatencyFigures::of(&one.latency_ns);
                self.operations.push(OperationFigures {
                    name: procedure.name().to_owned(),
                    errors: one.errors,
                    latency,
                });
            }
        }
    }

    /// `received`: payload that the front end copied out of a receive buffer, in bytes.
    pub(crate) fn set_copies(&mut self, copies: &Copies, received: u64) {
        for class in CopyClass::ALL {
            let counted = copies.counted(class);
            let class = class.name().to_owned();
            self.copies.push(CopyFigures { class, copies: counted.copies, bytes: counted.bytes });
        }
        self.copies.push(CopyFigures {
            class: "receive".to_owned(),
            copies: u64::from(received > 0),
            bytes: received,
        });
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.operations.iter().map(|operation| operation.latency.count).sum()
    }

    /// Calls of one procedure.
    pub fn calls_of(&self, name: &str) -> u64 {
        self.operations
            .iter()
            .find(|operation| operation.name == name)
            .map_or(0, |one| one.latency.count)
    }

    /// Share of blocks that were found in memory, 0 to 1; 0 if none was looked for.
    #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
    pub fn hit_rate(&self) -> f64 {
        let hits = self.hits_fho + self.hits_lbn;
        if hits + self.misses == 0 { 0.0 } else { hits as f64 / (hits + self.misses) as f64 }
    }

    /// Copied bytes of a class for each byte of payload that clients read or wrote; 0 if there was
    /// none.
    #[expect(clippy::cast_precision_loss, reason = "shown with two decimals")]
    pub fn copied_per_byte(&self, class: &CopyFigures) -> f64 {
        let payload = self.read_bytes + self.written_bytes;
        if payload == 0 { 0.0 } else { class.bytes as f64 / payload as f64 }
    }

    /// A class of copies for people. What crosses the device has to do with the file system, too,
    /// so it is not compared with payload.
    fn copied(&self, class: &CopyFigures) -> String {
        let is_of_device =
            [CopyClass::Literal, CopyClass::Device].iter().any(|one| one.name() == class.class);
        if is_of_device || self.read_bytes + self.written_bytes < 1_000_000 {
            return format!("{} {}", class.class, mb(class.bytes));
        }
        format!("{} {} ({:.2} a byte)", class.class, mb(class.bytes), self.copied_per_byte(class))
    }

    /// One line, as it is redrawn on a terminal.
    pub fn line(&self) -> String {
        let mut line = format!(
            "{} calls  read {}  written {}  cache hits {:.1} %  dirty {}  connections {}",
            self.calls(),
            mb(self.read_bytes),
            mb(self.written_bytes),
            self.hit_rate() * 100.0,
            mb(self.dirty_bytes),
            self.connections
        );
        if let Some(web) = &self.web {
            let WebCounters { requests, content_bytes, .. } = web.counters;
            let _ = write!(line, "  HTTP {requests} requests {}", mb(content_bytes));
        }
        if let Some(trouble) = &self.trouble {
            let _ = write!(line, "  TROUBLE: {trouble}");
        }
        line
    }

    /// Tells its families.
    pub fn expose(&self, text: &mut Exposition) {
        text.gauge(
            "nicache_nfs_up",
            "Whether nothing is wrong with the gateway; `nicache status` says what is.",
            self.trouble.is_none().into(),
        );
        let duration = "nicache_nfs_request_duration_seconds";
        text.family(
            duration,
            Kind::Histogram,
            "Time from a whole request to its reply, by operation.",
        );
        for operation in &self.operations {
            operation.latency.expose(text, duration, &operation.name);
        }
        let errors = "nicache_nfs_request_errors";
        text.family(
            errors,
            Kind::Counter,
            "Requests that were answered with an error, by operation.",
        );
        for operation in &self.operations {
            text.value(errors, &[("operation", &operation.name)], operation.errors);
        }
        expose_counters(text, self.each().chain(self.unit_commands.each()));
        if let Some(web) = &self.web {
            expose_web(text, &web.counters);
        }
        let policy = "nicache_nfs_cache_policy_info";
        text.family(policy, Kind::Gauge, "Which chunks go when the memory is full: always 1.");
        text.value(policy, &[("policy", &self.policy)], 1);
        let blocks = "nicache_nfs_blocks";
        text.family(blocks, Kind::Counter, "Blocks that READ needed, by where they were found.");
        for (place, value) in
            [("fho", self.hits_fho), ("lbn", self.hits_lbn), ("unit", self.misses)]
        {
            text.value(blocks, &[("place", place)], value);
        }
        let copied = "nicache_nfs_copied_bytes";
        text.family(copied, Kind::Counter, "Payload and keys that were copied, by class.");
        for copy in &self.copies {
            text.value(copied, &[("class", &copy.class)], copy.bytes);
        }
        let duration = "nicache_nfs_unit_duration_seconds";
        text.family(
            duration,
            Kind::Histogram,
            "Time that the logical unit takes for a command, by command.",
        );
        let unit = &self.unit_commands;
        for (command, latency) in
            [("read", &unit.reads), ("write", &unit.writes), ("flush", &unit.flushes)]
        {
            latency.expose(text, duration, command);
        }
    }
}

fn expose_counters(text: &mut Exposition, counters: impl Iterator<Item = (&'static Counter, u64)>) {
    for (counter, value) in counters {
        let family = format!("nicache_nfs_{}", counter.name);
        if counter.is_gauge {
            text.gauge(&family, counter.help, value);
        } else {
            text.counter(&family, counter.help, value);
        }
    }
}

fn expose_web(text: &mut Exposition, web: &WebCounters) {
    let family = "nicache_nfs_http_requests";
    text.family(family, Kind::Counter, "Requests by HTTP, by the hundred of their reply's status.");
    for (hundred, count) in (2..).zip(web.statuses) {
        text.value(family, &[("status", &format!("{hundred}xx"))], count);
    }
    expose_counters(text, web.each());
}

#[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
fn mb(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} serves {} for {} s (process {})",
            self.name, self.unit, self.uptime_s, self.pid
        )?;
        if let Some(trouble) = &self.trouble {
            writeln!(f, "  TROUBLE: {trouble}")?;
        }
        writeln!(f, "  its file system is on {}", self.device)?;
        if !self.exports.is_empty() {
            writeln!(f, "  exports {} at {}", self.exports.join(", "), self.addresses.join(", "))?;
        }
        if let Some(web) = &self.web {
            let (addresses, WebCounters { requests, content_bytes, connections, cut, .. }) =
                (web.addresses.join(", "), &web.counters);
            let sent = mb(*content_bytes);
            writeln!(
                f,
                "  HTTP at {addresses}: {requests} requests, {sent} of content, {connections} connections, {cut} replies cut"
            )?;
        }
        if let Some(admin) = &self.admin {
            writeln!(f, "  admin http://{admin}/metrics")?;
        }
        writeln!(
            f,
            "  {} connections, {} open files; payload by {}",
            self.connections, self.open_files, self.copy
        )?;
        writeln!(f, "  read {}, written {}", mb(self.read_bytes), mb(self.written_bytes))?;
        for one in &self.operations {
            let latency = &one.latency;
            writeln!(
                f,
                "    {:<12} {:>10} calls {:>7} errors  p50 {:>9.0} µs  p99 {:>9.0} µs",
                one.name, latency.count, one.errors, latency.p50_us, latency.p99_us
            )?;
        }
        writeln!(
            f,
            "  cache {} of {} by {}, dirty {}; blocks found by file {}, by block {}, read from the unit {} ({:.1} % found)",
            mb(self.cache_bytes),
            mb(self.cache_bytes_max),
            self.policy,
            mb(self.dirty_bytes),
            self.hits_fho,
            self.hits_lbn,
            self.misses,
            self.hit_rate() * 100.0
        )?;
        let copied: Vec<String> = self
            .copies
            .iter()
            .filter(|copy| copy.bytes > 0)
            .map(|copy| self.copied(copy))
            .collect();
        writeln!(
            f,
            "  copied: {}",
            if copied.is_empty() { "nothing".to_owned() } else { copied.join(", ") }
        )?;
        let unit = &self.unit_commands;
        for (name, latency) in
            [("read", &unit.reads), ("write", &unit.writes), ("flush", &unit.flushes)]
        {
            let (count, p50, p99) = (latency.count, latency.p50_us, latency.p99_us);
            writeln!(
                f,
                "  unit {name:<6} {count:>10} commands  p50 {p50:>9.0} µs  p99 {p99:>9.0} µs"
            )?;
        }
        if self.refused_keys + unit.errors > 0 {
            writeln!(f, "  refused keys {}, failed commands {}", self.refused_keys, unit.errors)?;
        }
        Ok(())
    }
}

/// Blocks as bytes.
pub(crate) fn block_bytes(blocks: usize) -> u64 {
    blocks as u64 * BLOCK_BYTES as u64
}

#[cfg(test)]
mod tests {
    use nicache_exposition::Format;

    use super::*;

    fn figures() -> Figures {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 1_000_000_000, 2).unwrap();
        for nanoseconds in [40_000, 60_000, 2_000_000] {
            histogram.record(nanoseconds).unwrap();
        }
        let operation = OperationFigures {
            name: "READ".into(),
            errors: 1,
            latency: LatencyFigures::of(&histogram),
        };
        let copies = vec![CopyFigures { class: "key".into(), copies: 2, bytes: 500 }];
        Figures {
            operations: vec![operation],
            copies,
            read_bytes: 1000,
            policy: "s3-fifo:small=5%".into(),
            hits_fho: 3,
            misses: 1,
            web: Some(WebFigures {
                counters: WebCounters { cut: 2, ..WebCounters::default() },
                ..WebFigures::default()
            }),
            ..Figures::default()
        }
    }

    #[test]
    fn figures_add_up() {
        let figures = figures();
        assert_eq!(
            (figures.calls(), figures.calls_of("READ"), figures.calls_of("WRITE")),
            (3, 3, 0)
        );
        assert!(
            (figures.hit_rate() - 0.75).abs() < 1e-9
                && (figures.copied_per_byte(&figures.copies[0]) - 0.5).abs() < 1e-9
        );
        assert_eq!(figures.operations[0].latency.at_most[..4], [1, 2, 2, 2]);
        let json = serde_json::to_string(&figures).unwrap();
        assert_eq!(serde_json::from_str::<Figures>(&json).unwrap(), figures);
        assert!(
            json.contains("\"web\":{\"addresses\":[],\"content_bytes\":0,\"cut\":2,"),
            "{json}"
        );
        assert!(figures.to_string().contains("READ"), "{figures}");
        assert!(figures.to_string().contains("of 0.0 MB by s3-fifo:small=5%, dirty"), "{figures}");
    }

    #[test]
    fn every_family_is_told_once_and_has_values() {
        let mut text = Exposition::new(Format::Prometheus);
        figures().expose(&mut text);
        let text = text.finish();
        let mut families = std::collections::HashSet::new();
        for line in text.lines() {
            if let Some(family) = line.strip_prefix("# TYPE ") {
                assert!(families.insert(family.split(' ').next().unwrap().to_owned()), "{line}");
            } else if !line.starts_with('#') {
                let (series, value) = line.rsplit_once(' ').unwrap();
                let name = series.split('{').next().unwrap();
                assert!(families.iter().any(|family| name.starts_with(family.as_str())), "{line}");
                value.parse::<f64>().unwrap();
            }
        }
        assert!(
            text.contains(
                "nicache_nfs_request_duration_seconds_bucket{operation=\"READ\",le=\"0.0001\"} 2"
            ),
            "{text}"
        );
        assert!(text.contains("nicache_nfs_blocks_total{place=\"fho\"} 3"), "{text}");
        assert!(
            text.contains(
                "# TYPE nicache_nfs_http_cut_total counter\nnicache_nfs_http_cut_total 2\n"
            ),
            "{text}"
        );
        for plain in [
            "read_bytes_total 1000",
            "cache_max_bytes 0",
            "evicted_chunks_total 0",
            "declined_chunks_total 0",
            "cache_policy_info{policy=\"s3-fifo:small=5%\"} 1",
            "remapped_chunks_total 0",
            "unit_errors_total 0",
        ] {
            assert!(text.contains(&format!("\nnicache_nfs_{plain}\n")), "{plain}: {text}");
        }
    }
}
