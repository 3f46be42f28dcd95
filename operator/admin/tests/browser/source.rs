//! A nicache of numbers that a test sets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nicache_admin::{
    AdminServer, CardSample, Crossing, Description, Direction, HotObject, Reach, Sample, Source,
    WatcherSample,
};

/// A script in a target, as a client may send it.
pub(crate) const HOSTILE: &str =
    "/<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>";

pub(crate) struct Numbers {
    started: Instant,
    /// What the next samples are.
    pub sample: Mutex<Result<Sample, String>>,
}

impl Source for Numbers {
    fn sample(&self, hottest: bool) -> Result<Arc<Sample>, String> {
        let mut sample = self.sample.lock().unwrap();
        if let Ok(sample) = sample.as_mut() {
            sample.uptime_ms = self.started.elapsed().as_millis() as u64;
            sample.unix_ms =
                SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
            grow(sample);
        }
        let shown = sample.clone()?;
        Ok(Arc::new(Sample { hottest: shown.hottest.clone().filter(|_| hottest), ..shown }))
    }

    fn describe(&self, _counter: &str) -> Option<Description> {
        None
    }
}

/// A second passes: rates that change a little.
fn grow(sample: &mut Sample) {
    let wave = 1.0 + 0.4 * (sample.uptime_ms as f64 / 4000.0).sin();
    let add = |value: &mut u64, rate: f64| *value += (rate * wave) as u64;
    for card in &mut sample.cards {
        add(&mut card.hits, 41_000.0);
        add(&mut card.misses, 2300.0);
        add(&mut card.bypasses, 900.0);
        add(&mut card.sent_bytes, 310e6);
        add(&mut card.saved_bytes, 330e6);
        add(&mut card.evictions, 12.0);
        for (crossing, rate) in card.bus.iter_mut().zip([14e6, 2.2e6, 1.1e6, 0.3e6, 0.08e6]) {
            add(&mut crossing.bytes, rate);
        }
    }
    for (rate, value) in
        [500.0, 120.0, 3.0, 0.0, 20.0].into_iter().zip(sample.counters.values_mut())
    {
        add(value, rate);
    }
}

/// A nicache with two busy queues.
pub(crate) fn busy() -> Sample {
    let classes = ["content", "network_headers", "application_headers", "overhead", "other"];
    let bus = classes.map(|class| Crossing {
        class: class.into(),
        direction: Direction::ToHost,
        bytes: 1000,
    });
    let card = |id: &str| CardSample {
        id: id.into(),
        entries: 48_123,
        memory_used_bytes: 231_000_000,
        memory_bytes: 268_435_456,
        flows: 812,
        bus: bus.to_vec(),
        ..CardSample::default()
    };
    let targets = [
        "/",
        "/assets/application-5f1c2d3e4b5a69788796a5b4c3d2e1f0f1e2d3c4b5a6.js",
        "/index.php?title=Main_Page&action=render&useskin=vector-2022&uselang=en",
        HOSTILE,
        "/style.css",
        "/favicon.ico",
    ];
    let hottest = targets.iter().enumerate().map(|(number, target)| HotObject {
        host: "www.example.com".into(),
        target: (*target).into(),
        hits_per_s: 18_000.0 / (number + 1) as f64,
        body_bytes: 7000 * (number as u64 * number as u64 + 1),
        is_dynamic: number == 2,
    });
    let counters = [
        "bypass_cookie",
        "bypass_method",
        "fill_aborted_too_large",
        "fill_not_shared_private",
        "fill_refused_wrote",
    ];
    Sample {
        name: "shop".into(),
        version: "0.1.0".into(),
        pid: 4711,
        serves: "nginx -c /etc/nginx/nginx.conf -g daemon off;".into(),
        urls: vec!["http://10.77.0.2/".into()],
        published: vec!["0.0.0.0:80".into()],
        watcher: WatcherSample { kind: "kernel".into(), unavailable: None },
        connections: 1624,
        cards: vec![card("0"), card("1")],
        counters: counters.map(|name| (name.to_owned(), 5)).into_iter().collect::<BTreeMap<_, _>>(),
        hottest: Some(hottest.collect()),
        ..Sample::default()
    }
}

/// An admin port for it.
pub(crate) fn serve(sample: Sample) -> (Arc<Numbers>, AdminServer) {
    let numbers = Arc::new(Numbers { started: Instant::now(), sample: Mutex::new(Ok(sample)) });
    let server = serve_at(&numbers, 0);
    (numbers, server)
}

/// An admin port of these numbers at a TCP port of this machine; 0: a free one.
pub(crate) fn serve_at(numbers: &Arc<Numbers>, port: u16) -> AdminServer {
    let address = ([127, 0, 0, 1], port).into();
    let mut server = AdminServer::bind(address, Reach::Machine).unwrap();
    server.serve(Arc::clone(numbers) as Arc<dyn Source>).unwrap();
    server
}

/// Polls until `look` is true.
pub(crate) fn within(limit: Duration, what: &str, mut look: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !look() {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
