//! The command `demo`.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use nicache_applications::Application;

use crate::options::Milliseconds;

pub(super) const DEMO_EXAMPLES: &str = "Examples:
  sudo nicache demo wordpress
  sudo nicache demo flask --once --json
  sudo nicache demo dokuwiki --once --prove 60s
  sudo nicache demo mediawiki -- --publish 127.0.0.1:8080 --memory 256M

Packages of Debian that are missing are installed. The application gets a folder of its own \
below /var/lib, which is removed at the end, with its own database and configuration; nothing \
else of the machine is changed.";

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Which application
    #[arg(value_name = "APP", value_parser = application())]
    pub application: Application,
    /// End after the measurement, instead of serving until Ctrl-C
    #[arg(long)]
    pub once: bool,
    /// Read the application's pages for this long while everything that they show is changed, in
    /// every way that the application has, and judge each reply; as `nicache prove` does
    #[arg(long, value_name = "TIME")]
    pub prove: Option<Milliseconds>,
    /// Edits per second in all, with --prove
    #[arg(long, value_name = "N", default_value_t = 2.0)]
    pub edits_per_second: f64,
    /// Seconds of each of the four measurements. With 0 nothing is measured and nothing edited: the
    /// site is as its first visitor finds it
    #[arg(
        long,
        value_name = "S",
        default_value_t = 3,
        value_parser = clap::value_parser!(u32).range(0..=3600),
    )]
    pub seconds: u32,
    /// Answer as one line of JSON
    #[arg(long)]
    pub json: bool,
    /// Settings for the `nicache run` that is started
    #[arg(last = true, value_name = "RUN OPTIONS")]
    pub run: Vec<String>,
}

/// The applications by name, with what they are.
fn application() -> impl TypedValueParser<Value = Application> {
    let values = Application::ALL
        .map(|application| PossibleValue::new(application.name()).help(application.description()));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Application>())
}
