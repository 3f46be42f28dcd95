//! Every script against the card, and against the stack of the host that manages a card.

mod common;

use nicache_packetscript::{BackendError, Host, Ours, RunError, Script, Side, run};

/// Scripts that the card does not pass yet, with what it does instead. One that passes does not
/// belong here.
const CARD_EXPECTED_TO_FAIL: &[(&str, &str)] = &[];

/// Scripts that the host's stack does not pass yet, with what it does instead. One that passes does
/// not belong here.
const HOST_EXPECTED_TO_FAIL: &[(&str, &str)] = &[
    (
        "handshake/flood",
        "a table full of young half-open connections drops SYNs: there are no SYN cookies",
    ),
    ("handshake/wrong-acknowledgment", "neither a reset nor an acknowledgment answers it"),
    ("path-mtu/too-big", "ICMP errors are not looked at"),
    ("path-mtu/too-small", "ICMP errors are not looked at"),
];

#[test]
fn the_card_does_what_the_scripts_say() {
    check(Side::Ours, CARD_EXPECTED_TO_FAIL, |script| {
        run(script, Side::Ours, &mut Ours::new(script)?)?;
        Ok(())
    });
}

#[test]
fn the_host_does_what_the_scripts_say() {
    check(Side::Host, HOST_EXPECTED_TO_FAIL, |script| match Host::new(script) {
        // It has no IPv6.
        Err(BackendError::Unsupported(_)) if script.setup.ip == 6 => Ok(()),
        host => run(script, Side::Host, &mut host?).map(|_| ()),
    });
}

fn check(
    side: Side,
    expected_to_fail: &[(&str, &str)],
    run: impl Fn(&Script) -> Result<(), RunError>,
) {
    let scripts = common::scripts(side);
    let mut wrong = Vec::new();
    for (name, _) in expected_to_fail {
        if !scripts.iter().any(|script| script.name == *name) {
            wrong.push(format!("{name} is expected to fail, but there is no such script"));
        }
    }
    for named in &scripts {
        let expected = expected_to_fail.iter().find(|(name, _)| *name == named.name);
        match (run(&named.script), expected) {
            (Ok(()), None) | (Err(RunError::Failed(_)), Some(_)) => {}
            (Ok(()), Some(_)) => {
                wrong.push(format!("{} is expected to fail, but passes", named.name));
            }
            (Err(error), _) => wrong.push(format!("{}: {error}", named.name)),
        }
    }
    assert!(wrong.is_empty(), "{} scripts are wrong:\n\n{}", wrong.len(), wrong.join("\n\n"));
}
