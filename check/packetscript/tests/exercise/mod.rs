//! What the fuzz target and the replay of its corpus have in common: read arbitrary bytes as a
//! script, and run what could be read against a server that is silent.

use std::time::Duration;

use nicache_packetscript::{Backend, BackendError, RunError, ServerAction, Side, parse, run};

/// Nothing ever comes from it.
struct Silent(Duration);

impl Backend for Silent {
    fn now(&self) -> Duration {
        self.0
    }
    fn send(&mut self, frame: &[u8]) -> Result<(), BackendError> {
        assert!((34..=65_600).contains(&frame.len()), "a frame of {} bytes", frame.len());
        Ok(())
    }
    fn receive(&mut self, until: Duration) -> Result<Option<(Duration, Vec<u8>)>, BackendError> {
        self.0 = self.0.max(until);
        Ok(None)
    }
    fn act(&mut self, _: ServerAction) -> Result<(), BackendError> {
        Ok(())
    }
    fn tolerance(&self, _: Duration) -> (Duration, Duration) {
        (Duration::ZERO, Duration::ZERO)
    }
}

/// Any bytes are read or refused with a line that is there, and run or fail with one.
pub(crate) fn script(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.lines().count();
    let script = match parse(&text) {
        Ok(script) => script,
        Err(error) => {
            assert!(error.line <= lines.max(1) && !error.reason.is_empty());
            return;
        }
    };
    assert!(script.lines.is_sorted_by_key(|line| line.number));
    for side in [Side::Ours, Side::Linux] {
        match run(&script, side, &mut Silent(Duration::ZERO)) {
            Ok(_) => {}
            Err(RunError::Failed(failure)) => {
                let number = failure.line;
                assert!(
                    script.lines.iter().any(|line| line.number == number),
                    "line {number} is in the script"
                );
                assert!(!failure.to_string().is_empty());
            }
            Err(RunError::Backend(error)) => panic!("{error}"),
        }
    }
}
