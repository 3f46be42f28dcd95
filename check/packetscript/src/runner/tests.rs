//! The runner against servers that say what the test wants: what differs from a script must be
//! found.

use proptest::prelude::*;

use super::*;
use crate::content;
use crate::describe::describe;
use crate::option::TcpOption;
use crate::parse::parse;
use crate::script::ServerAction;

const ISN: u32 = 4_294_967_000;
const SYN: u8 = 2;
const PSH: u8 = 8;
const ACK: u8 = 0x10;

/// A server that sends certain frames at certain times, whatever it gets.
struct Canned {
    now: Duration,
    frames: VecDeque<(Duration, Vec<u8>)>,
}

impl Backend for Canned {
    fn now(&self) -> Duration {
        self.now
    }
    fn send(&mut self, _: &[u8]) -> Result<(), BackendError> {
        Ok(())
    }
    fn receive(&mut self, until: Duration) -> Result<Option<(Duration, Vec<u8>)>, BackendError> {
        match self.frames.front() {
            Some((at, _)) if *at <= until => {
                self.now = self.now.max(*at);
                Ok(self.frames.pop_front())
            }
            _ => {
                self.now = self.now.max(until);
                Ok(None)
            }
        }
    }
    fn act(&mut self, _: ServerAction) -> Result<(), BackendError> {
        Ok(())
    }
    fn tolerance(&self, _: Duration) -> (Duration, Duration) {
        (Duration::from_millis(1), Duration::from_millis(1))
    }
}

/// A segment of the server.
fn segment(flags: u8, seq: u32, ack: u32, payload: &[u8]) -> Packet {
    Packet {
        source: endpoint::server(4),
        destination: endpoint::client(4),
        ecn: 0,
        source_port: 80,
        destination_port: endpoint::client_port(1),
        seq: ISN.wrapping_add(seq),
        ack: ack.wrapping_add(1_000_000),
        flags,
        window: 500,
        urgent: 0,
        options: if flags & SYN != 0 { vec![TcpOption::Mss(1460)] } else { Vec::new() },
        payload: payload.to_vec(),
    }
}

const SCRIPT: &str = "
object /x 500
stream GET /x in 100
+0 < S 0:0(0) win 1000 <mss 1000>
+0 > S. 0:0(0) ack 1 <mss 1460>
+0.02 < P. 1:101(100) ack 1 win 1000
any order {
+0.01 > P. 301:501(200) ack 101
+0.01 > . 1:301(300) ack 101 in 1
}
+0.05 > F. 501:501(0) ack 101
+0 no packet for 0.1
";

/// What a server sends that does as the script says.
fn right() -> Vec<(u64, Packet)> {
    let object = crate::script::Object { path: "/x".to_owned(), reply_bytes: 500 };
    let reply = content::reply(&object, false, 1_700_000_000);
    vec![
        (0, segment(SYN | ACK, 0, 1, b"")),
        (30, segment(ACK, 1, 101, &reply[..300])),
        (30, segment(ACK | PSH, 301, 101, &reply[300..])),
        (80, segment(ACK | 1, 501, 101, b"")),
    ]
}

fn outcome(text: &str, frames: &[(u64, Packet)]) -> Result<(), String> {
    let script = parse(text).map_err(|error| error.to_string())?;
    let frames =
        frames.iter().map(|(ms, packet)| (Duration::from_millis(*ms), packet.frame())).collect();
    let mut server = Canned { now: Duration::ZERO, frames };
    run(&script, Side::Ours, &mut server).map(|_| ()).map_err(|error| error.to_string())
}

#[test]
fn what_is_as_the_script_says_passes() {
    assert_eq!(outcome(SCRIPT, &right()), Ok(()));
}

/// Changes the right frames and expects words in the error.
fn is_found(words: &str, change: impl Fn(&mut Vec<(u64, Packet)>)) {
    let mut frames = right();
    change(&mut frames);
    let error = outcome(SCRIPT, &frames).expect_err(words);
    assert!(error.contains(words), "`{words}` is not in: {error}");
    assert!(
        error.contains("line ") && error.contains("<  S 0:0(0)"),
        "line and trace are told: {error}"
    );
}

#[test]
fn every_difference_is_found() {
    is_found("the acknowledgment is 2, not 1", |frames| frames[0].1.ack += 1);
    is_found("the flags is S, not S.", |frames| frames[0].1.flags = SYN);
    is_found("mss is missing", |frames| frames[0].1.options.clear());
    is_found("mss is another", |frames| frames[0].1.options = vec![TcpOption::Mss(1400)]);
    is_found("an option that is not expected", |frames| {
        frames[0].1.options.push(TcpOption::SackPermitted);
    });
    is_found("it is none of the group", |frames| frames[1].1.seq += 1);
    is_found("the payload is wrong: byte 201", |frames| frames[1].1.payload[200] ^= 1);
    is_found("is missing", |frames| drop(frames.drain(1..)));
    is_found("nothing came until", |frames| drop(frames.pop()));
    is_found("it came at 0.090000, not between 0.079000 and 0.081000", |frames| frames[3].0 = 90);
    is_found("it came at 0.060000", |frames| frames[3].0 = 60);
    is_found("came at 0.040000", |frames| frames[2].0 = 40);
    is_found("no packet was to come", |frames| frames.push((100, frames[3].1.clone())));
    is_found("the length is 1, not 0", |frames| frames[3].1.payload.push(0));
}

#[test]
fn a_damaged_frame_is_found() {
    let script = parse(SCRIPT).unwrap();
    let mut frame = segment(SYN | ACK, 0, 1, b"").frame();
    frame[40] ^= 1;
    let mut server =
        Canned { now: Duration::ZERO, frames: VecDeque::from([(Duration::ZERO, frame)]) };
    let error = run(&script, Side::Ours, &mut server).unwrap_err().to_string();
    assert!(error.contains("its TCP checksum is wrong"), "{error}");
}

#[test]
fn what_may_come_is_passed_over_as_often_as_the_script_says() {
    let extra = |count: usize| {
        let mut frames = right();
        for _ in 0..count {
            frames.insert(3, (50, segment(ACK, 501, 101, b"")));
        }
        frames
    };
    let with = |line: &str| SCRIPT.replace("any order {", &format!("{line}\nany order {{"));
    assert!(outcome(SCRIPT, &extra(1)).is_err());
    assert_eq!(outcome(&with("+0 may > . 501:501(0) ack 101"), &extra(1)), Ok(()));
    assert!(outcome(&with("+0 may > . 501:501(0) ack 101"), &extra(2)).is_err());
    assert_eq!(outcome(&with("+0 may any > . 501:501(0)"), &extra(5)), Ok(()));
    assert_eq!(outcome(&SCRIPT.replace("object", "ignore acks\nobject"), &extra(5)), Ok(()));
}

#[test]
fn lines_for_the_other_side_are_left_out() {
    let text = SCRIPT.replace("+0.05 > F.", "only linux (another end) +1 > R. 1:1(0)\n+0.05 > F.");
    assert_eq!(outcome(&text, &right()), Ok(()));
    let text = text.replace("only linux", "only ours");
    assert!(outcome(&text, &right()).is_err());
}

#[test]
fn rows_have_as_many_segments_as_they_say() {
    let row = |count: u32| {
        SCRIPT.replace(
            "any order {\n+0.01 > P. 301:501(200) ack 101\n+0.01 > . 1:301(300) ack 101 in 1\n}",
            &format!("+0.01 > . 1:501(500) ack 101 in {count}"),
        )
    };
    assert_eq!(outcome(&row(2), &right()), Ok(()));
    assert!(
        outcome(&row(3), &right())
            .unwrap_err()
            .contains("2 segments have 500 bytes, where 3 were to")
    );
    assert!(outcome(&row(1), &right()).is_err());
}

fn any_segment() -> impl Strategy<Value = Packet> {
    let options = prop_oneof![
        Just(Vec::new()),
        (any::<u32>(), any::<u32>())
            .prop_map(|(val, ecr)| vec![TcpOption::Timestamps { val, ecr }]),
        (any::<u32>(), any::<u32>()).prop_map(|block| vec![TcpOption::Sack(vec![block])]),
        (any::<u16>(), 0u8..15)
            .prop_map(|(mss, scale)| vec![TcpOption::Mss(mss), TcpOption::WindowScale(scale)]),
    ];
    (any::<(u8, u32, u32, u16)>(), 0usize..50, 0u8..4, options).prop_map(
        |((flags, seq, ack, window), len, ecn, options)| {
            let mut packet = segment(flags, seq, ack, &vec![7; len]);
            // The urgent bit is told by its pointer.
            packet.urgent = u16::from(flags & 0x20 != 0);
            Packet { window, ecn, options, ..packet }
        },
    )
}

proptest! {
    /// The listing is in the language of scripts: what it says of a segment matches that segment,
    /// and no other.
    #[test]
    fn a_description_matches_its_segment_alone(packet in any_segment(), other in any_segment()) {
        let mut connection = Connection::new(1, 1_000_000, Streams::default());
        connection.server_isn = Some(ISN);
        let text = describe(&packet, Sender::Server, &connection);
        let script = parse(&format!("+0 > {text}"))
            .map_err(|error| TestCaseError::fail(error.to_string()))?;
        let Event::Expect(expectation) = &script.lines[0].event else { panic!("an expectation") };
        prop_assert_eq!(
            matching::differences(&expectation.segment, &packet, &connection),
            Vec::<String>::new()
        );
        let is_same = describe(&other, Sender::Server, &connection) == text;
        let fits = matching::differences(&expectation.segment, &other, &connection).is_empty();
        prop_assert!(is_same || !fits || differs_unseen(&packet, &other), "{other:?} fits {text}");
    }
}

/// PSH, options that are not named and the acknowledgment of a segment without ACK are not looked
/// at.
fn differs_unseen(one: &Packet, other: &Packet) -> bool {
    one.flags & !PSH == other.flags & !PSH
        && one.seq == other.seq
        && one.payload.len() == other.payload.len()
}
