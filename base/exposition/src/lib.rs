//! Metrics as text for Prometheus.
//!
//! Read first: Prometheus, "Exposition formats" (text format 0.0.4) and "Metric and label naming";
//! OpenMetrics 1.0, where a counter's family is named without `_total`, units are told, and the end
//! is marked.
//!
//! Families are named without `_total` here, in either format. Each is told once.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::fmt::{Display, Write as _};

/// Which text format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' own, version 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// The one that a client asks for by its `Accept` header.
    pub fn wanted(accept: Option<&str>) -> Self {
        match accept {
            Some(accept) if accept.contains("application/openmetrics-text") => Self::OpenMetrics,
            _ => Self::Prometheus,
        }
    }

    /// The format's media type.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// What the values of a family are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// They only grow.
    Counter,
    /// They rise and sink.
    Gauge,
    /// How many of something were at most so large, for several sizes.
    Histogram,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// The values of one histogram.
#[derive(Debug, Clone, Copy)]
pub struct Buckets<'a> {
    /// Upper ends, ascending, in the family's unit, and how many were at most so large.
    pub at_most: &'a [(f64, u64)],
    /// How many there were.
    pub count: u64,
    /// The sum of all, in the family's unit.
    pub sum: f64,
}

/// A text that grows by families.
#[derive(Debug)]
pub struct Exposition {
    out: String,
    format: Format,
    families: HashMap<String, Kind>,
}

impl Exposition {
    /// An empty one.
    pub fn new(format: Format) -> Self {
        Self { out: String::new(), format, families: HashMap::new() }
    }

    /// A gauge without labels.
    pub fn gauge(&mut self, family: &str, help: &str, value: u64) {
        if self.family(family, Kind::Gauge, help) {
            self.value(family, &[], value);
        }
    }

    /// A counter without labels.
    pub fn counter(&mut self, family: &str, help: &str, value: u64) {
        if self.family(family, Kind::Counter, help) {
            self.value(family, &[], value);
        }
    }

    /// Begins a family, named without `_total`. `help`: a sentence. False if there is one of that
    /// name already, which has been told.
    pub fn family(&mut self, family: &str, kind: Kind, help: &str) -> bool {
        if self.families.contains_key(family) {
            return false;
        }
        self.families.insert(family.to_owned(), kind);
        let ending = match (kind, self.format) {
            (Kind::Counter, Format::Prometheus) => "_total",
            _ => "",
        };
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(self.out, "# HELP {family}{ending} {help}");
        let _ = writeln!(self.out, "# TYPE {family}{ending} {}", kind.name());
        let unit =
            ["bytes", "seconds"].into_iter().find(|unit| family.ends_with(&format!("_{unit}")));
        if let (Format::OpenMetrics, Some(unit)) = (self.format, unit) {
            let _ = writeln!(self.out, "# UNIT {family} {unit}");
        }
        true
    }

    /// A value of the family that was begun last. Labels may hold any text.
    pub fn value(&mut self, family: &str, labels: &[(&str, &str)], value: u64) {
        let ending = match self.families.get(family) {
            Some(Kind::Counter) => "_total",
            _ => "",
        };
        self.sample(family, ending, labels, None, value);
    }

    /// A histogram of the family that was begun last.
    pub fn histogram(&mut self, family: &str, labels: &[(&str, &str)], buckets: Buckets<'_>) {
        for (end, count) in buckets.at_most {
            // OpenMetrics asks for `5.0`, and a series is the same in either format.
            let end = if end.fract() == 0.0 { format!("{end:.1}") } else { end.to_string() };
            self.sample(family, "_bucket", labels, Some(&end), count);
        }
        self.sample(family, "_bucket", labels, Some("+Inf"), buckets.count);
        self.sample(family, "_sum", labels, None, buckets.sum);
        self.sample(family, "_count", labels, None, buckets.count);
    }

    /// The whole text.
    pub fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.out.push_str("# EOF\n");
        }
        self.out
    }

    fn sample(
        &mut self,
        family: &str,
        ending: &str,
        labels: &[(&str, &str)],
        at_most: Option<&str>,
        value: impl Display,
    ) {
        let _ = write!(self.out, "{family}{ending}");
        let labels = labels.iter().copied().chain(at_most.map(|end| ("le", end)));
        let mut is_open = false;
        for (name, label) in labels {
            self.out.push(if is_open { ',' } else { '{' });
            is_open = true;
            let _ = write!(self.out, "{name}=\"");
            for c in label.chars() {
                match c {
                    '\\' => self.out.push_str("\\\\"),
                    '"' => self.out.push_str("\\\""),
                    '\n' => self.out.push_str("\\n"),
                    c => self.out.push(c),
                }
            }
            self.out.push('"');
        }
        if is_open {
            self.out.push('}');
        }
        let _ = writeln!(self.out, " {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(format: Format) -> String {
        let mut text = Exposition::new(format);
        text.gauge("up", "Whether.", 1);
        assert!(text.family("sent_bytes", Kind::Counter, "Two\nlines \\ and."));
        text.value("sent_bytes", &[("to", "a \"b\" \\ c\nd")], 7);
        assert!(!text.family("up", Kind::Counter, "Again."));
        text.counter("up", "And again.", 9);
        text.family("took_seconds", Kind::Histogram, "Time.");
        let at_most = [(0.000_05, 1), (0.5, 2), (5.0, 2)];
        let buckets = Buckets { at_most: &at_most, count: 3, sum: 9.25 };
        text.histogram("took_seconds", &[("by", "x")], buckets);
        text.finish()
    }

    const VALUES: &str = "took_seconds_bucket{by=\"x\",le=\"0.00005\"} 1
took_seconds_bucket{by=\"x\",le=\"0.5\"} 2
took_seconds_bucket{by=\"x\",le=\"5.0\"} 2
took_seconds_bucket{by=\"x\",le=\"+Inf\"} 3
took_seconds_sum{by=\"x\"} 9.25
took_seconds_count{by=\"x\"} 3
";

    #[test]
    fn of_prometheus() {
        let expected = "# HELP up Whether.
# TYPE up gauge
up 1
# HELP sent_bytes_total Two\\nlines \\\\ and.
# TYPE sent_bytes_total counter
sent_bytes_total{to=\"a \\\"b\\\" \\\\ c\\nd\"} 7
# HELP took_seconds Time.
# TYPE took_seconds histogram
";
        assert_eq!(text(Format::Prometheus), format!("{expected}{VALUES}"));
    }

    #[test]
    fn of_open_metrics() {
        let expected = "# HELP up Whether.
# TYPE up gauge
up 1
# HELP sent_bytes Two\\nlines \\\\ and.
# TYPE sent_bytes counter
# UNIT sent_bytes bytes
sent_bytes_total{to=\"a \\\"b\\\" \\\\ c\\nd\"} 7
# HELP took_seconds Time.
# TYPE took_seconds histogram
# UNIT took_seconds seconds
";
        assert_eq!(text(Format::OpenMetrics), format!("{expected}{VALUES}# EOF\n"));
    }

    #[test]
    fn who_asks_chooses() {
        assert_eq!(Format::wanted(None), Format::Prometheus);
        assert_eq!(Format::wanted(Some("text/plain")), Format::Prometheus);
        let scraper = "application/openmetrics-text;version=1.0.0,text/plain;q=0.3,*/*;q=0.2";
        assert_eq!(Format::wanted(Some(scraper)), Format::OpenMetrics);
    }
}
