//! The command `prove`.

use std::net::IpAddr;

use clap::{Args, ValueEnum};

use crate::options::Milliseconds;

pub(super) const PROVE_EXAMPLES: &str = concat!(
    r#"Examples:
  sudo nicache prove --url http://10.77.0.2/ --pages /,/about.html --name nic0 \
    --edit 'version: cd /srv/site && echo "version=$NICACHE_VERSION" > new && mv new part.html'
  sudo nicache prove --url http://10.77.0.2/ --pages /news --expect-hits \
    --edit 'v: mariadb shop -e "UPDATE news SET text = \"v=$NICACHE_VERSION\" WHERE id = 1"'
"#,
    "
Each edit command sets its subject to the number in $NICACHE_VERSION (and finds the subject's name \
in $NICACHE_SUBJECT); status 0 says that the change is complete. Pages show the number, as \
`NAME=NUMBER` unless --marker says otherwise. A reply must show a version that was there at some \
moment between the sending of its request and its last byte.

In the end, after a rest, every page must show the last version on every connection.

The status is 0 if all replies were right, 1 if one was not, and 2 if nothing is proven: too few \
replies or edits, no hits with --expect-hits, or no run at all."
);

/// Arguments of `prove`.
#[derive(Debug, Args)]
pub(crate) struct ProveArgs {
    /// The server that is to be proved
    #[arg(long, value_name = "http://HOST[:PORT]/")]
    pub url: String,
    /// Where the server is reached past the card. What it shows there tells how far it is behind
    /// its edits itself
    #[arg(long, value_name = "http://HOST[:PORT]/")]
    pub direct: Option<String>,
    /// Pages to read, separated by commas
    #[arg(long, value_name = "/PATH,...", value_delimiter = ',', default_value = "/")]
    pub pages: Vec<String>,
    /// Read pages by Zipf's law with this exponent, the first one most [default: all alike]
    #[arg(long, value_name = "EXPONENT")]
    pub zipf: Option<f64>,
    /// Shell command that changes a subject; the name is `version` unless given. Several commands
    /// for one subject take turns at random. Repeatable
    #[arg(long, value_name = "[NAME:] COMMAND", required = true)]
    pub edit: Vec<String>,
    /// Regular expression for the version of a subject, whose first group is the number; with one
    /// subject its name may be left out. Repeatable [default: \bNAME=(\d+)]
    #[arg(long, value_name = "[NAME:] REGEX")]
    pub marker: Vec<String>,
    /// An edit command that takes longer is killed, and has failed
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub edit_timeout: Milliseconds,
    /// Edits per second of each subject, at random times
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    pub edits_per_second: f64,
    /// Least time between two edits of a subject: some servers compare times in seconds
    #[arg(long, value_name = "TIME", default_value = "0")]
    pub least_gap: Milliseconds,
    /// Now and then, up to this many edits come at once
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=1000),
    )]
    pub burst: u32,
    /// Page whose markers of one subject may differ in one reply, because the server itself puts it
    /// together while the subject changes. Repeatable
    #[arg(long, value_name = "/PATH")]
    pub non_atomic: Vec<String>,
    /// Page that the server itself gives without its content for moments. Repeatable
    #[arg(long, value_name = "/PATH")]
    pub unsteady: Vec<String>,
    /// Page that prints the UNIX time in seconds or milliseconds, which may be so old at most when
    /// the request is sent. Repeatable
    #[arg(long, value_name = "/PATH=TIME")]
    pub within: Vec<String>,
    /// A kind of client that one of the pages answers in words of its own: it is read by such
    /// clients, too, and each must be told the text. Repeatable
    #[arg(long = "client", value_name = "/PATH NAME: VALUE => TEXT")]
    pub clients: Vec<String>,
    /// Regular expression for the time on pages of --within
    #[arg(long, value_name = "REGEX", default_value = r"\btime=(\d+)")]
    pub clock: String,
    /// How far the printed time may be from the server's execution of the request, besides
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    pub clock_slack: Milliseconds,
    /// How far the server itself may be behind the edits of a subject: a cache of its own, like
    /// PHP's opcache.revalidate_freq, or a source that nobody can watch. Repeatable
    #[arg(long, value_name = "NAME=TIME")]
    pub server_lag: Vec<String>,
    /// The server's workers are behind alike (they share what they keep, as with PHP's opcache):
    /// what a page has shown directly, no later request may get older
    #[arg(long, requires = "direct")]
    pub one_state: bool,
    /// The server itself may be behind for any time, by a mistake of its own: an old version is the
    /// server's own if the server still gives it directly later. Else it is a violation
    #[arg(long, requires = "direct")]
    pub as_server: bool,
    /// Connections
    #[arg(
        long,
        value_name = "N",
        default_value_t = 64,
        value_parser = clap::value_parser!(u16).range(1..=10_000),
    )]
    pub readers: u16,
    /// Connections to --direct
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4,
        value_parser = clap::value_parser!(u16).range(1..=10_000),
    )]
    pub direct_readers: u16,
    /// Threads that work the connections
    #[arg(
        long,
        value_name = "N",
        default_value_t = 2,
        value_parser = clap::value_parser!(u16).range(1..=64),
    )]
    pub threads: u16,
    /// Requests sent at once on a connection
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=64),
    )]
    pub pipeline: u16,
    /// Addresses of this machine that connections come from in turns, separated by commas [default:
    /// the kernel's choice]
    #[arg(long, value_name = "ADDR,...", value_delimiter = ',')]
    pub from: Vec<IpAddr>,
    /// Further request header. Repeatable
    #[arg(long, value_name = "NAME: VALUE")]
    pub header: Vec<String>,
    /// A reply that takes longer is a violation
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub timeout: Milliseconds,
    /// Status besides 200 that is not a violation. Repeatable
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(100..=599))]
    pub allow_status: Vec<u16>,
    /// Version of the first edit [default: one more than the pages show]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 62))]
    pub first_version: Option<u64>,
    /// End after this [default: 10s, or when --replies and --edits are reached if one of them is
    /// given]
    #[arg(long, value_name = "TIME")]
    pub duration: Option<Milliseconds>,
    /// With fewer replies, nothing is proven
    #[arg(long, value_name = "N")]
    pub replies: Option<u64>,
    /// With fewer edits, nothing is proven
    #[arg(long, value_name = "N")]
    pub edits: Option<u64>,
    /// Rest before the last look, besides the longest --server-lag or --within; at least the
    /// --recheck of the card
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub quiet: Milliseconds,
    /// Equal seeds choose equal pages and times of edits
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Name of the running nicache whose counters are shown
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Without hits of this kind, nothing is proven; by the counters of --name, or of the only
    /// nicache that runs [default if given: dynamic]
    #[arg(
        long,
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "dynamic",
        value_name = "KIND",
    )]
    pub expect_hits: Option<HitKind>,
    /// Answer as one line of JSON
    #[arg(long)]
    pub json: bool,
}

/// Kinds of hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HitKind {
    /// Of dynamic pages.
    Dynamic,
    /// Of files, too.
    Any,
}
