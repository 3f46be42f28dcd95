//! Structured logs on standard error, and the one live line below them on a terminal.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::options::LogFormat;

/// The live line as it stands on the terminal; empty: none.
static LIVE_LINE: Mutex<String> = Mutex::new(String::new());

/// Sets up logging for this process. `NICACHE_LOG` filters (`debug`, `nicache=trace`, ...); the
/// default is `info`.
pub fn start(format: LogFormat) {
    let filter = EnvFilter::try_from_env("NICACHE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(AroundLiveLine);
    // A second call (tests) changes nothing.
    let _ = match format {
        LogFormat::Text => builder
            .with_target(false)
            .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
            .try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}

/// Prints a line on standard output, above the live line. Whether anybody reads it does not matter.
pub fn print(line: &str) {
    let shown = LIVE_LINE.lock().expect("no holder of this lock panics");
    let mut stdout = io::stdout().lock();
    if !shown.is_empty() {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    if !shown.is_empty() {
        let _ = write!(io::stderr(), "{shown}");
    }
}

/// Shows `line` as the live line.
pub fn show_live_line(line: &str) {
    let mut shown = LIVE_LINE.lock().expect("no holder of this lock panics");
    line.clone_into(&mut shown);
    let _ = write!(io::stderr(), "\r\x1b[K{line}");
}

/// Removes the live line, if one is shown.
pub fn clear_live_line() {
    let mut shown = LIVE_LINE.lock().expect("no holder of this lock panics");
    if !shown.is_empty() {
        shown.clear();
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
}

/// What a program ends with. An error is told first, with the program's name.
pub fn code_of(program: &str, result: anyhow::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        clear_live_line();
        let _ = writeln!(io::stderr(), "{program}: {error:#}");
        ExitCode::FAILURE
    })
}

/// Whoever reads what a program prints may go at any time (`nicache check | head`, a log that is
/// rotated away, a terminal that is closed). A command that only answers ends then, as others do;
/// what serves goes on.
pub fn end_when_nobody_reads() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload_as_str().unwrap_or_default();
        if text.starts_with("failed printing to std") && text.contains("os error 32") {
            std::process::exit(NOBODY_READS);
        }
        before(panic);
    }));
}

/// What a shell says of a program that SIGPIPE has ended; EPIPE is error 32.
const NOBODY_READS: i32 = 141;

/// Writes log lines above the live line. Whether anybody reads them does not matter: an error would
/// be reported by a line on standard error.
struct AroundLiveLine;

impl MakeWriter<'_> for AroundLiveLine {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        Self
    }
}

impl Write for AroundLiveLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let shown = LIVE_LINE.lock().expect("no holder of this lock panics");
        let mut stderr = io::stderr().lock();
        let _ = if shown.is_empty() {
            stderr.write_all(bytes)
        } else {
            stderr.write_all(&[b"\r\x1b[K", bytes, shown.as_bytes()].concat())
        };
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
