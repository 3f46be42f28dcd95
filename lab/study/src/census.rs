//! What is in a trace: counted while it is read.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use nicache_trace::{Marks, Record, Verb};
use serde::Serialize;

use crate::sample::Sampler;
use crate::sort::{Sort, sent_bytes, sort};

/// Requests after which an object's name is kept.
const NAME_AFTER: u32 = 4;
/// Names that are kept; 64 MB if each is as long as it may be.
const NAMES_MAX: usize = 1 << 18;
/// Bytes of a name that are kept.
const NAME_BYTES_MAX: usize = 256;
/// Names in the summary.
const TOP: usize = 10;

/// Seconds that requests may come late by and still be counted in theirs.
const LATE_S: usize = 64;
/// Parts of the span whose requests are counted.
const PARTS: usize = 1 << 12;

/// Counts records. Memory: about 40 bytes for each object and 10 for each client; up to 256 more
/// for an object with a name that is asked for four times.
#[derive(Debug, Default)]
pub struct Census {
    /// Of the objects, and of the clients, if not all are followed.
    samplers: Option<[Sampler; 2]>,
    objects: HashMap<u64, Object, FixedState>,
    clients: HashMap<u64, (), FixedState>,
    names: HashMap<u64, Box<[u8]>, FixedState>,
    statuses: Vec<u64>,
    counts: Counted,
    first_us: Option<u64>,
    last_us: u64,
    /// Requests of each part of the span from the first request on; a part is so many seconds long.
    parts: Vec<u64>,
    part_s: u64,
    /// Requests of the last seconds: the second, and its requests.
    lately: Vec<(u64, u32)>,
    peak_per_s: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Object {
    requests: u32,
    bytes: u64,
}

/// How many requests and bytes something has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// Requests.
    pub requests: u64,
    /// Bytes of their replies' bodies.
    #[serde(serialize_with = "crate::sum::serialize")]
    pub bytes: u128,
    /// Reads: GET, and reads of files and disks.
    pub gets: u64,
    /// HEAD.
    pub heads: u64,
    /// Writes: POST, PUT, PATCH, DELETE, and writes of files and disks.
    pub writes: u64,
    /// Anything else.
    pub others: u64,
    /// Requests with a query or for a program.
    pub dynamic: u64,
    /// Requests of users with names, replies that set cookies or say that they are private.
    pub private: u64,
    /// Requests with cookies.
    pub with_cookie: u64,
    /// Requests whose reply could come from a cache.
    pub cacheable: u64,
}

/// What is in a trace.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Plain counts.
    #[serde(flatten)]
    pub counts: Counted,
    /// Distinct clients.
    pub clients: u64,
    /// Distinct objects, as far as a reply could come from a cache.
    pub objects: u64,
    /// Bytes of all these objects, each at its largest.
    #[serde(serialize_with = "crate::sum::serialize")]
    pub footprint_bytes: u128,
    /// Share of the objects that was followed, 0 to 1. Below 1 what is said of objects and clients
    /// is an estimate, and the most popular objects are those among the followed ones.
    pub sample_rate: f64,
    /// Objects that were asked for once.
    pub objects_once: u64,
    /// From the first to the last request, in seconds.
    pub span_s: f64,
    /// Most requests in a second.
    pub peak_per_s: u32,
    /// Requests by status, those that occur.
    pub statuses: Vec<(u16, u64)>,
    /// Exponent of Zipf's law for the popularity of objects, and how well it describes them (R², 0
    /// to 1).
    pub zipf: Option<Zipf>,
    /// Share of requests that the most popular 1 %, 10 % and 20 % of the objects get.
    pub top_shares: [f64; 3],
    /// Bytes of objects at 10, 25, 50, 75, 90, 99 and 100 %.
    pub object_bytes: [u64; 7],
    /// The most popular objects: name (if the trace has names), requests, bytes.
    pub top: Vec<Popular>,
    /// Requests in each part of the span, for a figure.
    pub rates: Vec<f64>,
}

/// A popular object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Popular {
    /// Its name.
    pub name: String,
    /// Its requests.
    pub requests: u32,
    /// Its bytes at its largest.
    pub bytes: u64,
}

/// `requests(rank) ~ rank^-exponent`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Zipf {
    /// The exponent.
    pub exponent: f64,
    /// Share of the variance that it explains.
    pub r_squared: f64,
}

/// Percentiles of [`Summary::object_bytes`].
pub const PERCENTILES: [f64; 7] = [0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0];

impl Census {
    /// Follows a sample of the objects, and of the clients, if there are more than this.
    pub fn sampled(objects_max: u32) -> Self {
        Self { samplers: Some([Sampler::new(objects_max); 2]), ..Self::default() }
    }

    /// Bytes that are held, but for the names.
    pub fn memory(&self) -> usize {
        // A slot has a byte of the table's own.
        25 * self.objects.capacity() + 9 * self.clients.capacity() + 25 * self.names.capacity()
    }

    /// Counts a record; `target` is its name, if it has one.
    pub fn push(&mut self, record: &Record, target: &[u8]) {
        let counts = &mut self.counts;
        counts.requests += 1;
        counts.bytes += u128::from(sent_bytes(record));
        match record.verb {
            Verb::Get => counts.gets += 1,
            Verb::Head => counts.heads += 1,
            Verb::Write => counts.writes += 1,
            Verb::Other => counts.others += 1,
        }
        counts.dynamic += u64::from(record.marks.intersects(Marks::QUERY | Marks::DYNAMIC));
        counts.private +=
            u64::from(record.marks.intersects(Marks::USER | Marks::SETS_COOKIE | Marks::PRIVATE));
        counts.with_cookie += u64::from(record.marks.contains(Marks::COOKIE));
        let status = usize::from(record.status.min(999));
        if status >= self.statuses.len() {
            self.statuses.resize(status + 1, 0);
        }
        self.statuses[status] += 1;
        self.count_client(record.client);
        self.count_second(record.time_us);
        let counts = &mut self.counts;
        if sort(record, true) != Sort::Cacheable {
            return;
        }
        counts.cacheable += 1;
        if self.samplers.is_some_and(|[objects, _]| !objects.follows(record.object)) {
            return;
        }
        let object = self.objects.entry(record.object).or_default();
        object.requests = object.requests.saturating_add(1);
        let has_body = record.verb == Verb::Get && record.status != 304;
        let bytes =
            if has_body { record.offset.saturating_add(record.bytes.unwrap_or(0)) } else { 0 };
        object.bytes = object.bytes.max(record.object_bytes.unwrap_or(bytes));
        if object.requests == NAME_AFTER && !target.is_empty() && self.names.len() < NAMES_MAX {
            self.names.insert(record.object, target[..target.len().min(NAME_BYTES_MAX)].into());
        }
        if let Some([objects, _]) = &mut self.samplers
            && objects.is_full(self.objects.len())
        {
            objects.lower(self.objects.keys().copied());
            self.objects.retain(|object, _| objects.follows(*object));
            self.names.retain(|object, _| objects.follows(*object));
        }
    }

    fn count_client(&mut self, client: u64) {
        let Some([_, clients]) = &mut self.samplers else {
            self.clients.insert(client, ());
            return;
        };
        if clients.follows(client) {
            self.clients.insert(client, ());
            if clients.is_full(self.clients.len()) {
                clients.lower(self.clients.keys().copied());
                self.clients.retain(|client, ()| clients.follows(*client));
            }
        }
    }

    /// Counts a request in its part of the span, whose length doubles when there are too many, and
    /// in its second.
    fn count_second(&mut self, time_us: u64) {
        let first_us = *self.first_us.get_or_insert(time_us);
        self.last_us = self.last_us.max(time_us);
        let second = time_us.saturating_sub(first_us) / 1_000_000;
        self.part_s = self.part_s.max(1);
        while second / self.part_s >= PARTS as u64 {
            self.part_s *= 2;
            self.parts = self.parts.chunks(2).map(|pair| pair.iter().sum()).collect();
        }
        let part = (second / self.part_s) as usize;
        if part >= self.parts.len() {
            self.parts.resize(part + 1, 0);
        }
        self.parts[part] += 1;
        self.lately.resize(LATE_S, (0, 0));
        let lately = &mut self.lately[second as usize % LATE_S];
        if lately.0 < second {
            *lately = (second, 0);
        }
        if lately.0 == second {
            lately.1 = lately.1.saturating_add(1);
            self.peak_per_s = self.peak_per_s.max(lately.1);
        }
    }

    /// The sum of it.
    pub fn summary(&self) -> Summary {
        let mut by_requests: Vec<(u64, Object)> =
            self.objects.iter().map(|(id, object)| (*id, *object)).collect();
        by_requests.sort_unstable_by_key(|(id, object)| (std::cmp::Reverse(object.requests), *id));
        let mut bytes: Vec<u64> = by_requests.iter().map(|(_, object)| object.bytes).collect();
        bytes.sort_unstable();
        let name =
            |id: &u64| self.names.get(id).map(|name| String::from_utf8_lossy(name).into_owned());
        let [of_objects, of_clients] =
            self.samplers.map_or([1.0; 2], |samplers| samplers.map(|sampler| sampler.rate()));
        let scaled = |count: usize, rate: f64| (count as f64 / rate).round() as u64;
        let footprint: u128 = bytes.iter().map(|bytes| u128::from(*bytes)).sum();
        let once = by_requests.iter().filter(|(_, object)| object.requests == 1).count();
        Summary {
            counts: self.counts,
            clients: scaled(self.clients.len(), of_clients),
            objects: scaled(by_requests.len(), of_objects),
            footprint_bytes: if of_objects < 1.0 {
                (footprint as f64 / of_objects) as u128
            } else {
                footprint
            },
            sample_rate: of_objects,
            objects_once: scaled(once, of_objects),
            span_s: self.last_us.saturating_sub(self.first_us.unwrap_or(0)) as f64 / 1e6,
            peak_per_s: self.peak_per_s,
            statuses: self
                .statuses
                .iter()
                .enumerate()
                .filter(|(_, n)| **n > 0)
                .map(|(s, n)| (s as u16, *n))
                .collect(),
            zipf: zipf(&by_requests.iter().map(|(_, object)| object.requests).collect::<Vec<_>>()),
            top_shares: [0.01, 0.1, 0.2].map(|share| top_share(&by_requests, share)),
            object_bytes: PERCENTILES.map(|share| percentile(&bytes, share)),
            top: (by_requests.iter().take(TOP))
                .map(|(id, object)| Popular {
                    name: name(id).unwrap_or_else(|| format!("object {id:016x}")),
                    requests: object.requests,
                    bytes: object.bytes,
                })
                .collect(),
            rates: rates(&self.parts, self.part_s.max(1)),
        }
    }
}

/// The share of the requests for objects that the most popular ones get.
fn top_share(by_requests: &[(u64, Object)], share: f64) -> f64 {
    let count = (by_requests.len() as f64 * share).ceil() as usize;
    let requests = |objects: &[(u64, Object)]| {
        objects.iter().map(|(_, object)| u64::from(object.requests)).sum::<u64>()
    };
    requests(&by_requests[..count.min(by_requests.len())]) as f64
        / requests(by_requests).max(1) as f64
}

fn percentile(ascending: &[u64], share: f64) -> u64 {
    let at = (ascending.len() as f64 * share).ceil() as usize;
    ascending.get(at.saturating_sub(1)).copied().unwrap_or(0)
}

/// Requests per second in each of at most 200 equal pieces of the span.
fn rates(parts: &[u64], part_s: u64) -> Vec<f64> {
    let each = parts.len().div_ceil(200).max(1);
    parts
        .chunks(each)
        .map(|piece| piece.iter().sum::<u64>() as f64 / (piece.len() as u64 * part_s) as f64)
        .collect()
}

/// Fits a line to the logarithms of ranks and requests (descending). Ranks are taken at equal
/// distances of their logarithms, so the many unpopular objects do not outweigh the popular
/// ones; those asked for once, whose number says where the trace ends and nothing of popularity,
/// are left out. None with fewer than ten points.
fn zipf(requests: &[u32]) -> Option<Zipf> {
    let mut points = Vec::new();
    let mut rank = 1.0_f64;
    while let Some(&count) = requests.get(rank as usize - 1).filter(|count| **count > 1) {
        points.push((rank.floor().ln(), f64::from(count).ln()));
        rank = (rank * 1.1).max(rank + 1.0);
    }
    if points.len() < 10 {
        return None;
    }
    let count = points.len() as f64;
    let mean_x = points.iter().map(|point| point.0).sum::<f64>() / count;
    let mean_y = points.iter().map(|point| point.1).sum::<f64>() / count;
    let sum = |of: &dyn Fn(f64, f64) -> f64| {
        points.iter().map(|(x, y)| of(x - mean_x, y - mean_y)).sum::<f64>()
    };
    let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
    if yy == 0.0 {
        return None;
    }
    Some(Zipf { exponent: -xy / xx, r_squared: xy * xy / (xx * yy) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_law_that_was_put_in_is_found() {
        let requests: Vec<u32> =
            (1..5000).map(|rank| (1e6 / f64::from(rank).powf(0.8)) as u32).collect();
        let zipf = zipf(&requests).unwrap();
        assert!((zipf.exponent - 0.8).abs() < 0.01 && zipf.r_squared > 0.999, "{zipf:?}");
        assert_eq!(super::zipf(&[5, 4, 3]), None);
        assert_eq!(super::zipf(&[1; 400]), None);
    }

    #[test]
    fn records_are_counted() {
        let mut census = Census::default();
        let get =
            Record { status: 200, bytes: Some(100), object: 7, client: 1, ..Record::default() };
        for second in 0..6 {
            census.push(&Record { time_us: 5_000_000 + second * 500_000, ..get }, b"/a");
        }
        census.push(
            &Record { status: 304, bytes: None, time_us: 65_000_000, client: 2, ..get },
            b"/a",
        );
        census.push(&Record { object: 8, bytes: Some(5), time_us: 65_000_000, ..get }, b"/b");
        census.push(
            &Record { verb: Verb::Write, marks: Marks::QUERY, time_us: 65_000_000, ..get },
            b"/a?",
        );
        census.push(&Record { status: 404, object: 9, time_us: 65_000_000, ..get }, b"/c");
        let summary = census.summary();
        assert_eq!(
            (summary.counts.requests, summary.counts.cacheable, summary.counts.writes),
            (10, 8, 1)
        );
        assert_eq!((summary.objects, summary.objects_once, summary.footprint_bytes), (2, 1, 105));
        assert_eq!((summary.clients, summary.peak_per_s, summary.span_s), (2, 4, 60.0));
        assert_eq!(summary.statuses, [(200, 8), (304, 1), (404, 1)]);
        assert_eq!(summary.top[0], Popular { name: "/a".into(), requests: 7, bytes: 100 });
        assert_eq!(summary.object_bytes[6], 100);
        assert_eq!(summary.counts.dynamic, 1);
    }

    /// Whatever a trace says: sums beyond 2^64, and times that jump by years.
    #[test]
    fn nothing_overflows_or_grows() {
        let mut census = Census::default();
        for at in 0..5000u64 {
            let (bytes, time_us) = (Some(u64::MAX), at.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            census.push(
                &Record {
                    status: 200,
                    bytes,
                    object: at,
                    time_us,
                    offset: at,
                    ..Record::default()
                },
                b"/a",
            );
        }
        let summary = census.summary();
        assert_eq!(summary.counts.bytes, 5000 * u128::from(u64::MAX));
        assert_eq!(summary.footprint_bytes, 5000 * u128::from(u64::MAX));
        assert!(census.parts.len() <= PARTS && summary.rates.len() <= 200);
        let json = serde_json::to_value(&summary).unwrap();
        assert!(json["bytes"].as_f64().unwrap() > 9e22, "{json}");
    }

    #[test]
    fn a_sample_is_near_what_is_counted() {
        let (mut all, mut some) = (Census::default(), Census::sampled(2000));
        for at in 0..200_000u64 {
            let object = nicache_trace::mix(at) % 20_000;
            let record = Record {
                status: 200,
                bytes: Some(object % 1000),
                object,
                client: at % 9000,
                ..Record::default()
            };
            all.push(&record, b"/a");
            some.push(&record, b"/a");
        }
        let (all, some) = (all.summary(), some.summary());
        assert_eq!((all.counts, all.sample_rate), (some.counts, 1.0));
        assert!(some.sample_rate < 0.15, "{}", some.sample_rate);
        let near =
            |exact: f64, got: f64| assert!((got / exact - 1.0).abs() < 0.12, "{exact} {got}");
        near(all.objects as f64, some.objects as f64);
        near(all.footprint_bytes as f64, some.footprint_bytes as f64);
        near(all.clients as f64, some.clients as f64);
    }

    #[test]
    fn an_empty_trace_has_a_summary() {
        let summary = Census::default().summary();
        assert_eq!((summary.objects, summary.span_s, summary.top.len()), (0, 0.0, 0));
    }
}
