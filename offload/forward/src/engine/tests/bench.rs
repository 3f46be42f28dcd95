//! A forwarder whose card is the test.

use nicache_bus::{CardSide, Post, Received};

use super::*;

const HEADER_LEN: usize = 42;

/// Payload stays on the card.
pub(super) fn direct() -> EngineConfig {
    config(Mode::Direct, 32)
}

/// A forwarder, and the card's ends of its rings.
pub(super) struct Bench {
    pub(super) engine: Engine<Bus>,
    pub(super) forwarder: Forwarder,
    pub(super) card: CardSide,
    pub(super) window: Arc<Window>,
}

impl Bench {
    pub(super) fn new(config: EngineConfig) -> Self {
        let made = Attachment::create().unwrap();
        let files = made.files().map(|file| file.try_clone_to_owned().unwrap());
        let card = Attachment::from_files(files).unwrap().card();
        let bytes = Bus::window_bytes(config.buffers) as usize;
        let window = Arc::new(Window::create("test", bytes).unwrap());
        let bus = Bus::new(made.host(), Arc::clone(&window), config.buffers);
        let mut forwarder = Forwarder::new(setup(TARGETS), Time::ZERO).unwrap();
        forwarder.set_neighbour(1, address(SERVER), [4, 0, 0, 0, 0, 2]);
        let mut bench = Self { engine: Engine::new(bus, config), forwarder, card, window };
        bench.turn();
        // The first of each always rings.
        bench.engine.send_own(&[0; 60], 1).unwrap();
        bench.engine.backend.flush();
        assert!(bench.execute());
        bench
    }

    pub(super) fn forward(&mut self, most: usize) {
        self.engine.forward(&mut self.forwarder, most, Time::ZERO, || 1).unwrap();
    }

    pub(super) fn turn(&mut self) {
        self.engine.poll().unwrap();
        self.forward(64);
    }

    pub(super) fn may_sleep(&mut self) -> bool {
        self.engine.prepare_sleep(&self.forwarder).unwrap()
    }

    /// What the card was posted next.
    pub(super) fn take_post(&mut self) -> Post {
        Post::decode(self.card.free.pop().unwrap().expect("a post"))
    }

    /// The card reports what it has received.
    pub(super) fn report(&mut self, report: Received) {
        self.card.received.push(report.encode()).unwrap();
        let _ = self.card.free.release() | self.card.received.publish();
    }

    /// The card hands over a frame from inside, and keeps its payload.
    pub(super) fn receive(&mut self, to: &str) {
        let frame = udp(address(CLIENT), 7, address(to), 9, &payload(1, 1000));
        let post = self.take_post();
        self.window.write(post.mmaddr, &frame[..HEADER_LEN]).unwrap();
        self.report(Received {
            mmaddr: post.mmaddr,
            len: frame.len() as u32,
            header_len: HEADER_LEN as u8,
            is_split: true,
            is_first: true,
            is_last: true,
            ..Received::default()
        });
    }

    /// Until the ring of commands is full, with frames of which nothing is under way.
    pub(super) fn fill(&mut self) {
        while self.engine.send_own(&[0; 60], 1).unwrap() == Sent::Yes {}
        self.engine.backend.flush();
    }

    /// The card does what it was told. True: it rings.
    pub(super) fn execute(&mut self) -> bool {
        while self.card.commands.pop().unwrap().is_some() {}
        self.card.commands.release()
    }
}
