//! Files change at any moment: a reply is of one version as a whole (I2), and of one that was there
//! after its request was sent (I1); directories know nothing that the page cache has not (I8), and
//! nothing stays taken.

mod world;

use std::collections::VecDeque;
use std::time::Duration;

use nicache_host::Coherence;
use nicache_host::server::Route;
use nicache_port::{Capabilities, FaultRates};
use proptest::prelude::*;

use self::world::client::ConversationId;
use self::world::folder::{Change, Writer};
use self::world::{Settings, World};

const LIMIT: Duration = Duration::from_secs(900);
const FILES: [(&str, usize); 5] = [
    ("small", 100),
    ("block", 4096),
    ("some", 10_000),
    ("large", 200_000),
    ("streamed", (8 << 20) + 70_000),
];
/// The one that is streamed.
const STREAMED: usize = 4;

/// A client with its requests that are under way, each with the version that the file had when it
/// was sent.
struct Reader {
    id: ConversationId,
    asked: VecDeque<(&'static str, usize)>,
}

/// A world with clients and a writer.
struct Site {
    world: World,
    readers: Vec<Reader>,
    writer: Option<Writer>,
    whole: usize,
    /// Replies that were refused or cut.
    failed: usize,
}

impl Site {
    fn new(settings: Settings) -> Self {
        Self::of(World::new(settings))
    }

    fn of(mut world: World) -> Self {
        FILES.iter().for_each(|(name, len)| world.folder.create(name, *len));
        Self { world, readers: Vec::new(), writer: None, whole: 0, failed: 0 }
    }

    /// A new client of a card.
    fn connect(&mut self, card: usize) {
        let id = self.world.client.connect(card);
        self.readers.push(Reader { id, asked: VecDeque::new() });
    }

    fn ask(&mut self, reader: usize, file: usize) {
        let name = FILES[file].0;
        let version = self.world.folder.version(name);
        let Reader { id, asked } = &mut self.readers[reader];
        if !self.world.client.get(*id).is_over {
            self.world.client.ask(*id, &format!("/{name}"));
            asked.push_back((name, version));
        }
    }

    /// Compares the replies that are there.
    fn take(&mut self) {
        let Self { world, readers, whole, failed, .. } = self;
        for Reader { id, asked } in readers {
            while let Some(&(name, since)) = asked.front() {
                let versions = world.folder.versions(name);
                if let Some(reply) = world.client.next_reply(*id) {
                    asked.pop_front();
                    *(if reply.status == 200 { &mut *whole } else { &mut *failed }) += 1;
                    if reply.status != 200 {
                        assert_eq!(reply.status, 503, "{name}");
                    } else if !versions[since..].contains(&reply.body) {
                        let stale = versions.iter().position(|version| *version == reply.body);
                        panic!(
                            "{name} since version {since}: {} bytes of version {stale:?}",
                            reply.body.len()
                        );
                    }
                    world.check_inclusion();
                } else if world.client.get(*id).is_over {
                    // What has come must be the beginning of one version.
                    let rest = world.client.rest(*id);
                    assert!(
                        versions[since..].iter().any(|version| version.starts_with(&rest)),
                        "{name} is torn"
                    );
                    *failed += asked.len();
                    asked.clear();
                } else {
                    break;
                }
            }
        }
    }

    fn is_done(&self) -> bool {
        self.readers.iter().all(|reader| reader.asked.is_empty())
    }

    /// Waits for all replies.
    fn finish(&mut self) {
        let end = self.world.now() + LIMIT;
        loop {
            self.take();
            if self.is_done() {
                return;
            }
            assert!(self.world.now() < end, "{}", self.world.client.describe());
            self.world.run_turns(1);
        }
    }

    fn change(&mut self, file: usize, change: Change, len: usize) {
        self.writer.take_if(|writer| writer.name() == FILES[file].0);
        self.world.folder.change(FILES[file].0, change, len);
    }

    /// Writes a part of a file, and leaves it open for writing until its end is reached.
    fn write_part(&mut self, file: usize) {
        let mut writer = match self.writer.take() {
            Some(writer) => writer,
            None => self.world.folder.begin(FILES[file].0),
        };
        if !self.world.folder.write(&mut writer, FILES[file].1 / 3 + 1) {
            self.writer = Some(writer);
        }
    }
}

fn settings(seed: u64) -> Settings {
    Settings { seed, pages: 4096, ..Settings::default() }
}

#[test]
fn each_kind_of_change_is_seen_by_the_next_request() {
    for coherence in [Coherence::Lazy, Coherence::Eager, Coherence::Update] {
        for change in Change::ALL {
            let mut site = Site::new(Settings { coherence, ..settings(1) });
            site.connect(0);
            for round in 1..6 {
                for (file, (_, len)) in FILES.into_iter().enumerate().take(STREAMED) {
                    site.ask(0, file);
                    site.finish();
                    site.change(file, change, len - round);
                    site.ask(0, file);
                    site.finish();
                }
            }
            assert_eq!((site.whole, site.failed), (40, 0));
            site.world.check_nothing_is_left();
        }
    }
}

/// Without a witness nothing is kept, and nothing is stale.
#[test]
fn changes_that_nobody_witnesses() {
    for change in Change::ALL {
        let mut site = Site::of(World::unwatched(settings(1)));
        site.connect(0);
        for (file, (_, len)) in FILES.into_iter().enumerate().take(STREAMED) {
            site.ask(0, file);
            site.finish();
            site.change(file, change, len - 1);
            site.ask(0, file);
            site.finish();
        }
        assert_eq!((site.whole, site.failed), (8, 0));
        let counters = site.world.service.counters();
        assert_eq!(counters.unkept_bytes, counters.content_bytes);
        site.world.check_nothing_is_left();
    }
}

/// With `Update`, what a card has is replaced where it is, and the next reply comes from there.
#[test]
fn what_is_updated_is_used() {
    let mut site = Site::new(Settings { coherence: Coherence::Update, ..settings(3) });
    site.connect(0);
    for _ in 0..3 {
        site.ask(0, 2);
        site.finish();
        site.change(2, Change::InPlace, 0);
        site.world.run_for(Duration::from_millis(20));
    }
    let before = *site.world.service.driver(0).unwrap().directory().counters();
    assert_eq!(before.updated, 9);
    site.ask(0, 2);
    site.finish();
    let after = *site.world.service.driver(0).unwrap().directory().counters();
    assert_eq!((after.misses, after.invalidated, after.inserted), (3, 0, 3), "{after:?}");
    assert_eq!(after.hits, before.hits + 3);
}

/// Kim et al. 2002, section 6.3: clients go to the card that has the file, and are told nothing old
/// by it.
#[test]
fn clients_are_served_by_the_card_that_has_the_file() {
    for coherence in [Coherence::Lazy, Coherence::Eager, Coherence::Update] {
        let mut site =
            Site::new(Settings { coherence, cards: 2, route: Route::Affinity, ..settings(3) });
        (0..8).for_each(|reader| site.connect(reader % 2));
        for round in 0..3 {
            for reader in 0..8 {
                site.ask(reader, 3);
                site.ask(reader, 2);
                site.finish();
                site.world.run_for(Duration::from_millis(10));
            }
            site.change(3, Change::InPlace, 0);
            site.change(2, Change::ALL[round], 9000);
        }
        assert_eq!((site.whole, site.failed), (48, 0));
        assert_eq!(site.world.service.counters().rerouted, 4);
        let blocks = [0, 1].map(|card| site.world.service.driver(card).unwrap().directory().len());
        assert!(blocks.contains(&0), "both cards have blocks: {blocks:?}");
        site.world.check_nothing_is_left();
    }
}

/// A large reply that has begun comes to its end as it began, or not at all.
#[test]
fn a_streamed_reply_is_cut_when_its_file_changes() {
    for change in Change::ALL {
        let mut site = Site::new(settings(3));
        site.connect(0);
        site.ask(0, STREAMED);
        let id = site.readers[0].id;
        site.world.run_until(LIMIT, |world| world.client.get(id).received.len() > 1 << 20);
        site.change(STREAMED, change, 5000);
        site.finish();
        // A file that was replaced is still what it was.
        let is_same_file = matches!(change, Change::InPlace | Change::Truncated);
        assert!(site.failed == 1 || !is_same_file, "{change:?}");
        site.connect(0);
        site.ask(1, STREAMED);
        site.finish();
        assert_eq!(site.whole + site.failed, 2);
        assert!(site.whole >= 1);
        site.world.check_nothing_is_left();
    }
}

/// While a file is open for writing its bytes are not kept; a reply of it is nevertheless of one
/// moment.
#[test]
fn a_file_that_is_being_written() {
    for (file, seed) in [(2, 4), (3, 5), (STREAMED, 6)] {
        let mut site = Site::new(settings(seed));
        site.connect(0);
        for _ in 0..12 {
            site.write_part(file);
            site.ask(0, file);
            let turns = site.world.random.usize(0..300);
            site.world.run_turns(turns);
            site.take();
            if site.readers[0].asked.is_empty() {
                site.connect(0);
                site.readers.swap_remove(0);
            }
        }
        site.finish();
        assert!(site.whole > 0);
        site.world.check_nothing_is_left();
    }
}

#[derive(Clone, Debug)]
enum Step {
    Connect(usize),
    Ask(usize, usize),
    Change(usize, Change, usize),
    Write(usize),
    Turns(usize),
    Wait(u64),
    /// A client is gone.
    Abort(usize),
    /// A card begins anew.
    Attach(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let file = || prop_oneof![80 => 0..STREAMED, 1 => Just(STREAMED)];
    let change = (0..Change::ALL.len()).prop_map(|change| Change::ALL[change]);
    let step = prop_oneof![
        2 => (0usize..2).prop_map(Step::Connect),
        12 => (0usize..8, file()).prop_map(|(reader, file)| Step::Ask(reader, file)),
        6 => (file(), change, 0usize..20_000)
            .prop_map(|(file, change, len)| Step::Change(file, change, len)),
        2 => file().prop_map(Step::Write),
        12 => (1usize..80).prop_map(Step::Turns),
        4 => (1u64..40).prop_map(Step::Wait),
        1 => (0usize..8).prop_map(Step::Abort),
        1 => (0usize..2).prop_map(Step::Attach),
    ];
    proptest::collection::vec(step, 1..90)
}

fn worlds() -> impl Strategy<Value = Settings> {
    let coherence =
        prop_oneof![Just(Coherence::Lazy), Just(Coherence::Eager), Just(Coherence::Update)];
    let room = (prop_oneof![0u32..9, Just(512)], prop_oneof![50u32..400, Just(4096)]);
    let wire = (0.0..0.03, 0.0..0.03, 1_000u64..2_000_000);
    (any::<(u64, bool, bool)>(), coherence, room, wire, 0.0..0.9).prop_map(
        |(
            (seed, is_full, has_two),
            coherence,
            (cache_blocks, pages),
            (loss, reorder, latency_ns),
            laziness,
        )| {
            let rates = FaultRates {
                loss,
                reorder,
                reorder_ns: 3_000_000,
                latency_ns,
                ..FaultRates::default()
            };
            let capabilities = if is_full { Capabilities::FULL } else { Capabilities::PLAIN };
            let (cards, route) = if has_two { (2, Route::Affinity) } else { (1, Route::Fixed) };
            let settings = Settings {
                seed,
                capabilities,
                cache_blocks,
                pages,
                coherence,
                cards,
                route,
                ..Settings::default()
            };
            Settings { rates, laziness, ..settings }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    })]

    #[test]
    fn replies_are_of_one_version_and_not_of_an_old_one(settings in worlds(), steps in steps()) {
        let cards = settings.cards as usize;
        let mut site = Site::new(settings);
        (0..cards).for_each(|card| site.connect(card));
        for step in steps {
            match step {
                Step::Connect(card) => site.connect(card % cards),
                Step::Ask(reader, file) => {
                    let reader = reader % site.readers.len();
                    site.ask(reader, file);
                }
                Step::Change(file, change, len) => site.change(file, change, len),
                Step::Write(file) => site.write_part(file),
                Step::Turns(turns) => site.world.run_turns(turns),
                Step::Wait(ms) => site.world.run_for(Duration::from_millis(ms)),
                Step::Abort(reader) => {
                    let id = site.readers[reader % site.readers.len()].id;
                    site.world.client.abort(id);
                }
                Step::Attach(card) => site.world.attach(card % cards),
            }
            site.take();
            site.world.check_inclusion();
        }
        site.finish();
        site.world.check_nothing_is_left();
    }
}
