//! How connections end that nobody has ended in order: no client takes what was cut for whole, or
//! waits for who is gone.

mod world;

use std::os::fd::OwnedFd;
use std::time::Duration;

use nicache_host::server::LiveSource;
use rustix::pipe::{PipeFlags, pipe_with};
use smoltcp::socket::tcp::State;

use self::world::client::ConversationId;
use self::world::{Settings, World};

const SECOND: Duration = Duration::from_secs(1);

/// With a viewer of a stream, whose source is the file.
fn with_viewer() -> (World, ConversationId, OwnedFd) {
    let mut world = World::new(Settings::default());
    let (fifo, source) = pipe_with(PipeFlags::NONBLOCK).unwrap();
    world.service.add_live(LiveSource { path: b"/tv".to_vec(), fifo: Some(fifo) });
    let viewer = world.client.connect(0);
    world.client.ask(viewer, "/tv");
    world.run_for(SECOND);
    (world, viewer, source)
}

fn show(world: &mut World, source: &OwnedFd, bytes: &[u8]) {
    assert_eq!(rustix::io::write(source, bytes), Ok(bytes.len()));
    world.run_for(SECOND);
}

#[test]
fn a_source_that_pauses_ends_no_viewer() {
    let (mut world, viewer, source) = with_viewer();
    show(&mut world, &source, b"one");
    world.run_for(SECOND * 3600);
    show(&mut world, &source, b"two");
    assert_eq!(world.client.rest(viewer), b"onetwo");
    assert_eq!(world.client.state(viewer), State::Established);
    // One that waits for too long does not take that for the end of the stream.
    world.run_for(SECOND * 7300);
    assert_eq!(world.client.state(viewer), State::Closed);
    world.check_nothing_is_left();
}

#[test]
fn the_end_of_the_host_is_told_to_all() {
    let (mut world, viewer, source) = with_viewer();
    world.folder.create("small", 100);
    world.folder.create("large", 8 << 20);
    show(&mut world, &source, b"one");
    let [idle, slow] = [0; 2].map(|card| world.client.connect(card));
    world.client.get(slow).reads = false;
    world.client.ask(idle, "/small");
    world.client.ask(slow, "/large");
    world.run_for(SECOND * 5);
    assert!(world.client.next_reply(idle).is_some());
    world.service.end_all(world.now());
    assert!(!world.service.has_said_all());
    world.run_for(SECOND);
    assert!(world.service.has_said_all());
    let states = [idle, slow, viewer].map(|id| world.client.state(id));
    assert_eq!(states, [State::CloseWait, State::Closed, State::Closed]);
    world.client.get(slow).reads = true;
    world.check_nothing_is_left();
}

/// A mobile client in a tunnel.
#[test]
fn a_client_is_out_of_reach_for_minutes() {
    for (silence, is_kept) in [(200, true), (400, false)] {
        let mut world = World::new(Settings::default());
        world.client.timestamps = true;
        world.folder.create("large", 1_000_000);
        let id = world.client.connect(0);
        world.client.ask(id, "/large");
        world.run_until(SECOND, |world| world.client.get(id).received.len() > 10_000);
        world.client.is_out_of_reach = true;
        world.run_for(SECOND * silence);
        world.client.is_out_of_reach = false;
        // What was sent last is sent again after a minute at most.
        world.run_for(SECOND * 90);
        assert_eq!(world.client.next_reply(id).is_some(), is_kept, "{silence} s");
        if !is_kept {
            assert_eq!(world.client.state(id), State::Closed);
        }
    }
}
