//! Reading scripts.

mod cursor;
mod error;
mod event;
mod options;
mod segment;
mod setup;

pub use error::ParseError;
pub(crate) use segment::FLAG_LETTERS;

use crate::script::{Event, Line, Script, Setup, Side, When};
use cursor::{Cursor, Reason};

/// Lines of the longest script.
const LINES_MAX: usize = 10_000;
/// Bytes of all streams and replies together.
const STREAM_BYTES_MAX: usize = 64 << 20;

/// Reads a script.
///
/// # Errors
/// The first line that cannot be read, with what is expected there.
pub fn parse(text: &str) -> Result<Script, ParseError> {
    let mut reader = Reader::default();
    let mut last = (1, "");
    for (at, line) in text.lines().enumerate() {
        last = (at + 1, line);
        let result = if at < LINES_MAX {
            reader.line(at + 1, line)
        } else {
            Err(format!("{LINES_MAX} lines are the most"))
        };
        result.map_err(|reason| ParseError {
            line: at + 1,
            text: line.trim().to_owned(),
            reason,
        })?;
    }
    reader.finish().map_err(|reason| ParseError {
        line: last.0,
        text: last.1.trim().to_owned(),
        reason,
    })
}

type Only = Option<(Side, String)>;

/// What has been read so far.
#[derive(Default)]
struct Reader {
    setup: Setup,
    lines: Vec<Line>,
    /// The block for one side that is open.
    block: Only,
    /// The group in any order that is open: its own line, and its members.
    group: Option<(Line, Vec<Line>)>,
}

impl Reader {
    fn line(&mut self, number: usize, text: &str) -> Result<(), Reason> {
        let code = without_comment(text);
        if code.is_empty() {
            return Ok(());
        }
        if code == "}" {
            return self.close();
        }
        let mut cursor = Cursor::new(code);
        let only = read_only(&mut cursor)?;
        if only.is_some() && self.block.is_some() {
            return Err("this is in a block for one side already".into());
        }
        if cursor.is_empty() {
            if !self.lines.is_empty() || self.group.is_some() || self.setup.only.is_some() {
                return Err("a whole script is for one side from its beginning: put this before the first event".into());
            }
            self.setup.only = only;
            return Ok(());
        }
        if only.is_some() && cursor.rest() == "{" {
            if self.group.is_some() {
                return Err("a block cannot begin in a group".into());
            }
            self.block = only;
            return Ok(());
        }
        let is_first =
            self.lines.is_empty() && self.group.is_none() && self.block.is_none() && only.is_none();
        if is_first && setup::read(&mut self.setup, cursor.rest())? {
            return Ok(());
        }
        self.event(number, text, cursor.rest(), only)
    }

    fn event(&mut self, number: usize, text: &str, code: &str, only: Only) -> Result<(), Reason> {
        let (when, event) = event::read(code)?;
        let only = only.or_else(|| self.block.clone());
        let line = |event| Line { number, text: text.trim().to_owned(), only, when, event };
        match (event, &mut self.group) {
            (None, Some(_)) => return Err("a group cannot be in a group".into()),
            (None, none) => {
                if !matches!(when, When::After { .. }) {
                    return Err("a group begins at a certain time".into());
                }
                *none = Some((line(Event::AnyOrder(Vec::new())), Vec::new()));
            }
            (Some(event @ Event::Expect(_)), Some((_, members))) => members.push(line(event)),
            (Some(_), Some(_)) => return Err("in a group there are only expectations: >".into()),
            (Some(event), None) => {
                let sends = !matches!(event, Event::Expect(_));
                if sends && !matches!(when, When::After { tolerance: None, .. }) {
                    return Err("only what is expected has a tolerance".into());
                }
                self.lines.push(line(event));
            }
        }
        Ok(())
    }

    /// The end of a group or of a block.
    fn close(&mut self) -> Result<(), Reason> {
        if let Some((mut line, members)) = self.group.take() {
            if members.is_empty() {
                return Err("this group is empty".into());
            }
            line.event = Event::AnyOrder(members);
            self.lines.push(line);
            return Ok(());
        }
        match self.block.take() {
            Some(_) => Ok(()),
            None => Err("nothing is open".into()),
        }
    }

    fn finish(self) -> Result<Script, Reason> {
        if self.group.is_some() || self.block.is_some() {
            return Err("`}` is missing at the end".into());
        }
        if self.lines.is_empty() {
            return Err("there is no event".into());
        }
        let setup = &self.setup;
        let reply = |path: &str| {
            setup.objects.iter().find(|object| object.path == path).map_or(0, |o| o.reply_bytes)
        };
        let requests = setup.streams.iter().flat_map(|(_, requests)| requests);
        let bytes: usize =
            requests.map(|one| one.head_bytes + one.body_bytes + reply(&one.path)).sum();
        if bytes > STREAM_BYTES_MAX {
            return Err(format!(
                "all streams with their replies have {bytes} bytes; {STREAM_BYTES_MAX} are the most"
            ));
        }
        Ok(Script { setup: self.setup, lines: self.lines })
    }
}

/// A comment begins with `//` at the line's beginning or behind a blank.
fn without_comment(text: &str) -> &str {
    let text = text.trim();
    if text.starts_with("//") {
        return "";
    }
    [" //", "\t//"]
        .iter()
        .filter_map(|mark| text.find(mark))
        .min()
        .map_or(text, |at| text[..at].trim_end())
}

/// `only ours (reason)`.
fn read_only(cursor: &mut Cursor<'_>) -> Result<Only, Reason> {
    if !cursor.take_word("only") {
        return Ok(None);
    }
    let side = match cursor.word() {
        "ours" => Side::Ours,
        "host" => Side::Host,
        "linux" => Side::Linux,
        word => return Err(format!("`{word}` is nobody to run against: ours, host or linux")),
    };
    cursor.expect("(")?;
    let reason = cursor.until(')')?;
    if reason.is_empty() {
        return Err("the reason is missing: only ours (why)".into());
    }
    Ok(Some((side, reason.to_owned())))
}
