//! The debug dump: a line for each state of a component, as often as `debug` in the configuration
//! says.

use std::io::{self, Write};

use crate::observer::{Observer, Snapshot, State};

/// What the lines look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DumpFormat {
    /// For people: tick, component, `name=value`.
    Text,
    /// One JSON object in each line.
    JsonLines,
}

/// Writes snapshots of the components as they come.
#[derive(Debug)]
pub struct Dump<W> {
    out: W,
    format: DumpFormat,
    error: Option<io::Error>,
}

impl<W: Write> Dump<W> {
    /// Writes to `out`, which should be buffered.
    pub fn new(out: W, format: DumpFormat) -> Self {
        Self { out, format, error: None }
    }

    /// Ends it: everything is written, or this is the first error. After an error nothing more was
    /// written.
    pub fn finish(mut self) -> io::Result<W> {
        if let Some(error) = self.error {
            return Err(error);
        }
        self.out.flush()?;
        Ok(self.out)
    }
}

impl<W: Write> Observer for Dump<W> {
    fn handle_snapshot(&mut self, snapshot: &Snapshot) {
        if self.error.is_none() {
            let written = match self.format {
                DumpFormat::Text => write_text(&mut self.out, snapshot),
                DumpFormat::JsonLines => write_json(&mut self.out, snapshot),
            };
            self.error = written.err();
        }
    }
}

fn write_json(out: &mut impl Write, snapshot: &Snapshot) -> io::Result<()> {
    serde_json::to_writer(&mut *out, snapshot)?;
    out.write_all(b"\n")
}

fn write_text(out: &mut impl Write, snapshot: &Snapshot) -> io::Result<()> {
    write!(out, "{:>12} ", snapshot.tick)?;
    match &snapshot.state {
        State::Requests { arrived, answered, outstanding } => {
            writeln!(
                out,
                "{:<24} arrived={arrived} answered={answered} outstanding={outstanding}",
                "requests"
            )
        }
        State::Station { name, waiting, in_service, completions, utilisation, memory, bus } => {
            write!(
                out,
                "{name:<24} waiting={waiting} in_service={in_service} completions={completions} "
            )?;
            write!(out, "utilisation={utilisation:.4}")?;
            if let Some(memory) = memory {
                write!(
                    out,
                    " objects={} bytes={}/{}",
                    memory.objects, memory.bytes, memory.bytes_max
                )?;
                write!(
                    out,
                    " hits={} misses={} evictions={}",
                    memory.hits, memory.misses, memory.evictions
                )?;
            }
            if let Some(bus) = bus {
                write!(out, " to_host={} to_card={}", bus.to_host(), bus.to_card())?;
            }
            writeln!(out)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::model::run_observed;

    fn config() -> Config {
        Config::from_toml(
            "extends = 'Short8MB'\n[requests]\ncount = 100\n[debug]\nrequests_ticks = 100_000\nbus_ticks = 50_000\n\
             network_processor_memory_ticks = 200_000",
        )
        .unwrap()
    }

    #[test]
    fn each_component_is_dumped_at_its_own_frequency() {
        let mut dump = Dump::new(Vec::new(), DumpFormat::JsonLines);
        run_observed(&config(), 1, &mut dump).unwrap();
        let text = String::from_utf8(dump.finish().unwrap()).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let ticks = |component: &str| -> Vec<u64> {
            let named = lines
                .iter()
                .filter(|line| line["component"] == component || line["name"] == component);
            named.map(|line| line["tick"].as_u64().unwrap()).collect()
        };
        // 100 requests at 250,000 per second take 400,000 ns.
        assert_eq!(ticks("requests"), [100_000, 200_000, 300_000]);
        assert_eq!(ticks("bus"), (1..8).map(|at| at * 50_000).collect::<Vec<_>>());
        assert_eq!(ticks("network_processor_memory"), [200_000]);
        assert!(ticks("disk").is_empty());
        let last = lines.iter().rfind(|line| line["component"] == "requests").unwrap();
        assert_eq!(last["arrived"], 75 + u64::from(last["outstanding"] == 1));
    }

    #[test]
    fn text_is_a_line_for_each_state() {
        let mut dump = Dump::new(Vec::new(), DumpFormat::Text);
        run_observed(&config(), 1, &mut dump).unwrap();
        let text = String::from_utf8(dump.finish().unwrap()).unwrap();
        assert_eq!(text.lines().count(), 3 + 7 + 1);
        assert!(
            text.lines().any(|line| line.contains("200000 network processor memory waiting=0")),
            "{text}"
        );
        assert!(text.contains(" to_host="), "{text}");
    }

    #[test]
    fn an_error_of_the_writer_is_told_at_the_end() {
        let mut room = [0u8; 10];
        let mut dump = Dump::new(&mut room[..], DumpFormat::Text);
        run_observed(&config(), 1, &mut dump).unwrap();
        assert!(dump.finish().is_err());
    }
}
