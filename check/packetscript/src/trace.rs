//! What has happened, as a listing.

use std::fmt;
use std::time::Duration;

/// Lines of a listing that are kept; of a longer one the middle is left out.
const LINES_MAX: usize = 400;

/// A listing of segments and other events.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    lines: Vec<(Duration, String)>,
}

impl Trace {
    /// Adds a line. Lines may come in any order of time.
    pub fn note(&mut self, at: Duration, text: String) {
        self.lines.push((at, text));
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: Vec<_> = self.lines.iter().collect();
        lines.sort_by_key(|(at, _)| *at);
        let skipped = lines.len().saturating_sub(LINES_MAX);
        for (number, (at, text)) in lines.into_iter().enumerate() {
            if skipped > 0 && number == LINES_MAX / 2 {
                writeln!(f, "    ... {skipped} lines are left out ...")?;
            }
            if skipped > 0 && (LINES_MAX / 2..LINES_MAX / 2 + skipped).contains(&number) {
                continue;
            }
            writeln!(f, "    {:>10.6}  {text}", at.as_secs_f64())?;
        }
        Ok(())
    }
}
