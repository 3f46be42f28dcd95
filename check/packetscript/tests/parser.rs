//! The parser: all scripts and the fuzzing corpus, damaged scripts, and what is refused with which
//! words.

mod common;
mod exercise;

use std::path::Path;

use nicache_packetscript::{Side, parse};
use proptest::prelude::*;

#[test]
fn the_corpus_is_replayed() {
    nicache_corpus::replay(env!("CARGO_MANIFEST_DIR"), "script", exercise::script);
}

#[test]
fn what_is_wrong_is_said() {
    let events = "+0 < S 0:0(0)\n";
    for (text, line, words) in [
        ("", 1, "there is no event"),
        ("\n\n// nothing\n", 3, "there is no event"),
        ("object x 100\n", 1, "`x` is not a path"),
        ("object /x 10\n", 1, "a reply has"),
        ("stream GET /x in 5\n", 1, "the head of this request has"),
        ("stream PUT /x in 500\n", 1, "`PUT` is not a method here"),
        ("stream GET /x in 100\nstream GET /x in 100\n", 2, "known already"),
        ("ip 5\n", 1, "there is no IP version 5"),
        ("mtu 100\n", 1, "an MTU is from"),
        ("linux sysctl ../x 1\n", 1, "is not a name below net.ipv4"),
        ("linux sysctl tcp_ecn on\n", 1, "needs a value"),
        ("+0 < S 0:1(0)\n", 1, "end at 0, not at 1"),
        ("+0 < X 0:0(0)\n", 1, "`X` in `X` is not a flag"),
        ("+0 < S *:0(0)\n", 1, "has flags and a sequence number"),
        ("+0 < S 0:0(0) win 5..6\n", 1, "has one window"),
        ("+0 < S 0:0(0) win 70000\n", 1, "a window is expected"),
        ("+0 < S 0:0(0) <mss>\n", 1, "a segment size is expected"),
        ("+0 < S 0:0(0) <foo 1>\n", 1, "`foo` is not an option"),
        ("+0 < S 0:0(0) <mss 1\n", 1, "`>` is missing"),
        ("+0 < S 0:0(0) <TS val 1>\n", 1, "`ecr` is expected"),
        ("+0 < S 0:0(0) <sack 1:2 3:4 5:6 7:8 9:10>\n", 1, "one to four blocks"),
        ("+0 < [ecn] S 0:0(0)\n", 1, "is not an ECN codepoint"),
        ("+0 < #0 S 0:0(0)\n", 1, "connections have numbers"),
        ("+0..1 < S 0:0(0)\n", 1, "only what is expected has a tolerance"),
        ("+1h > S 0:0(0)\n", 1, "is not a unit of time"),
        ("+2..1 > S 0:0(0)\n", 1, "the range of times is empty"),
        ("@1 > S 0:0(0)\n", 1, "is a range"),
        ("+0 > S 0:0(0) in 0\n", 1, "1 to 4096 segments"),
        ("+0 > . *:*(100) in 2\n", 1, "has a sequence number and a length"),
        ("+0 jump\n", 1, "`jump` is not an event"),
        ("+0 server dance\n", 1, "a server does not `dance`"),
        ("any order {\n+0 < S 0:0(0)\n}\n", 2, "only expectations"),
        ("any order {\n}\n", 2, "this group is empty"),
        ("any order {\n+0 > S 0:0(0)\n", 2, "`}` is missing"),
        ("}\n", 1, "nothing is open"),
        ("only ours: +0 < S 0:0(0)\n", 1, "nobody to run against"),
        ("only ours () +0 < S 0:0(0)\n", 1, "the reason is missing"),
        (
            "only linux (a) {\nonly ours (b) +0 < S 0:0(0)\n}\n",
            2,
            "in a block for one side already",
        ),
        ("+0 < S 0:0(0)\nonly linux (late)\n", 2, "from its beginning"),
    ] {
        let error = parse(text).expect_err(text);
        assert_eq!(error.line, line, "{text}: {error}");
        assert!(error.reason.contains(words), "`{words}` is not in the error of {text}: {error}");
    }
    assert!(parse(events).is_ok());
}

#[test]
fn set_up_and_lines_are_as_written() {
    let script =
        parse("only linux (why) // not here\nip 6\nclient isn 7 // the last\n\n +1.5~0.1 > #2 . 1:2(1) // comment\n")
            .unwrap();
    assert_eq!(script.setup.only, Some((Side::Linux, "why".to_owned())));
    assert_eq!((script.setup.ip, script.setup.client_isn), (6, 7));
    assert_eq!((script.lines.len(), script.lines[0].number), (1, 5));
    assert_eq!(script.lines[0].text, "+1.5~0.1 > #2 . 1:2(1) // comment");
}

#[test]
fn every_script_says_which_rule_it_is_about() {
    for side in [Side::Ours, Side::Host, Side::Linux] {
        for named in common::scripts(side) {
            let is_for_side = |only: &Option<(Side, String)>| {
                only.as_ref().is_none_or(|(only, _)| side.reads(*only))
            };
            let lines = named.script.lines.iter().filter(|line| is_for_side(&line.only)).count();
            assert!(lines >= 3, "{} has {lines} lines for {side:?}", named.name);
        }
    }
    for text in all_texts() {
        let first = text.lines().next().unwrap_or_default();
        assert!(
            first.starts_with("// ") && first.len() > 30,
            "a rule is expected instead of `{first}`"
        );
    }
}

fn all_texts() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let scripts = common::scripts(Side::Ours);
    scripts
        .iter()
        .map(|named| std::fs::read_to_string(root.join(&named.name).with_extension("pkt")).unwrap())
        .collect()
}

proptest! {
    /// Characters of a script are changed, taken away or doubled, or lines exchanged.
    #[test]
    fn damaged_scripts_never_panic(
        which: usize,
        changes in proptest::collection::vec((any::<usize>(), 0u8..4, any::<char>()), 1..5),
    ) {
        let texts = all_texts();
        let mut text: Vec<char> = texts[which % texts.len()].chars().collect();
        for (at, kind, other) in changes {
            let at = at % text.len();
            match kind {
                0 => text[at] = other,
                1 => drop(text.remove(at)),
                2 => text.insert(at, text[at]),
                _ => text.rotate_left(at),
            }
        }
        exercise::script(text.iter().collect::<String>().as_bytes());
    }

    #[test]
    fn any_text_never_panics(text in "(?s).{0,200}") {
        exercise::script(text.as_bytes());
    }

    #[test]
    fn any_words_never_panic(
        words in proptest::collection::vec(
            prop_oneof![
                Just("+0"), Just("<"), Just(">"), Just("S."), Just("0:0(0)"), Just("1:101(100)"),
                Just("ack"), Just("1"), Just("win"), Just("*"), Just("<mss 1460>"), Just("<TS>"),
                Just("<sack 1:2>"), Just("\n"), Just("any order {\n"), Just("}\n"),
                Just("only ours (x)"), Just("{"), Just("in"), Just("2"), Just("stream"),
                Just("GET"), Just("/x"), Just("100"), Just("object"), Just("..."), Just("may"),
                Just("no packet for"), Just("too-big mtu 1000 about 1(1000)"), Just("flood"),
                Just("server"), Just("close"), Just("[ce]"), Just("#2"), Just("other bytes"),
            ],
            0..40,
        ),
    ) {
        exercise::script(words.join(" ").as_bytes());
    }
}
