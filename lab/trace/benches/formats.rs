//! Lines or records per second of each format, on one core.
//!
//! `cargo bench -p nicache-trace [FORMAT...]`. The data are real traces (`shared/traces` beside the
//! repository), as they are or written in another format, repeated in memory. Times are CPU time of
//! the thread, the least of several runs, so other work on the machine disturbs them little.

use std::fmt::Write as _;
use std::hint::black_box;
use std::io::Write as _;
use std::path::Path;

use nicache_trace::{Format, KeyWriter, Reader, Record, TsvWriter, Verb, write_oracle_general};

const BYTES_MIN: usize = 64 << 20;
const RUNS: usize = 7;

fn main() {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted =
        |name: &str| wanted.is_empty() || wanted.iter().any(|word| name.contains(word.as_str()));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let Some(blog) = records(&folder.join("wp-blog-2016.tsv.zst")) else {
        println!("skipped: there are no traces in {}", folder.display());
        return;
    };
    let unpacked = |name: &str| unpack(&folder.join(name));
    let epa = unpacked("epa-http.txt.zst");
    let formats: [(&str, Format, Vec<u8>); 11] = [
        ("common (EPA)", Format::Common, epa.clone()),
        ("common (NASA)", Format::Common, unpacked("nasa-aug95-first20000.txt.zst")),
        ("combined (blog)", Format::Common, written(&blog, combined)),
        ("nginx json (blog)", Format::Json, written(&blog, nginx)),
        ("caddy json (blog)", Format::Json, written(&blog, caddy)),
        ("tsv (blog)", Format::Tsv, columns(&blog)),
        ("nfs", Format::Nfs, unpacked("nfs-animation-2007-set0.csv.zst")),
        ("keys", Format::Keys, keys(&blog)),
        ("worldcup (blog)", Format::WorldCup, worldcup(&blog)),
        ("vscsi", Format::Vscsi, unpacked("cloudphysics.vscsi.zst")),
        ("oracle-general (blog)", Format::OracleGeneral, oracle_general(&blog)),
    ];
    for (name, format, bytes) in formats {
        if is_wanted(name) {
            measure(name, format, &bytes.repeat(BYTES_MIN.div_ceil(bytes.len())));
        }
    }
    if is_wanted("packed") {
        let blog = columns(&blog);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(&blog).expect("memory");
        measure(
            "packed tsv.gz (blog)",
            Format::Tsv,
            &gzip.finish().expect("memory").repeat(BYTES_MIN / blog.len()),
        );
        let zstd = std::fs::read(folder.join("wp-blog-2016.tsv.zst")).expect("a trace");
        measure("packed tsv.zst (blog)", Format::Tsv, &zstd.repeat(BYTES_MIN / blog.len()));
    }
}

fn measure(name: &str, format: Format, bytes: &[u8]) {
    let mut least = f64::INFINITY;
    let (mut records, mut bad) = (0u64, 0);
    for _ in 0..RUNS {
        let start = cpu_ns();
        let mut reader = Reader::new(bytes, Some(format)).expect("memory");
        records = 0;
        while let Some(record) = reader.read().expect("memory") {
            black_box(&record);
            records += 1;
        }
        bad = reader.bad().count;
        least = least.min(cpu_ns() - start);
    }
    assert!(bad * 100 < records, "{name}: {bad} bad of {records}");
    println!(
        "{name}: {:.2} M/s, {:.0} ns each, {:.0} MB/s of {:.0} bytes each",
        records as f64 / least * 1e3,
        least / records as f64,
        bytes.len() as f64 / least * 1e3,
        bytes.len() as f64 / records as f64,
    );
}

type Requests = Vec<(Record, String)>;

fn records(path: &Path) -> Option<Requests> {
    let mut reader = Reader::open(path, None).ok()?;
    let mut records = Vec::new();
    while let Some(record) = reader.read().expect("a trace") {
        records.push((record, String::from_utf8_lossy(reader.target()).into_owned()));
    }
    Some(records)
}

fn unpack(path: &Path) -> Vec<u8> {
    zstd::decode_all(std::fs::File::open(path).expect("a trace")).expect("zstd")
}

fn written(requests: &Requests, line: fn(&Record, &str) -> String) -> Vec<u8> {
    requests
        .iter()
        .fold(String::new(), |text, (record, target)| text + &line(record, target) + "\n")
        .into_bytes()
}

fn method(verb: Verb) -> &'static str {
    match verb {
        Verb::Get => "GET",
        Verb::Head => "HEAD",
        Verb::Write => "POST",
        Verb::Other => "OPTIONS",
    }
}

const AGENT: &str = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/48.0.2564.116 Safari/537.36";

fn client(record: &Record) -> String {
    format!("10.{}.{}.{}", record.client >> 16 & 255, record.client >> 8 & 255, record.client & 255)
}

fn combined(record: &Record, target: &str) -> String {
    let of_day = record.time_us / 1_000_000 % 86_400;
    format!(
        "{} - - [{:02}/Mar/2016:{:02}:{:02}:{:02} +0000] \"{} {target} HTTP/1.1\" {} {} \"https://blog.example/\" \"{AGENT}\"",
        client(record),
        1 + record.time_us / 86_400_000_000 % 28,
        of_day / 3600,
        of_day / 60 % 60,
        of_day % 60,
        method(record.verb),
        record.status,
        record.bytes.unwrap_or(0),
    )
}

fn nginx(record: &Record, target: &str) -> String {
    let of_day = record.time_us / 1_000_000 % 86_400;
    let mut line = String::from("{");
    let _ = write!(
        line,
        "\"time_iso8601\":\"2016-03-{:02}T{:02}:{:02}:{:02}+00:00\",\"remote_addr\":\"{}\",\"remote_user\":\"\",",
        1 + record.time_us / 86_400_000_000 % 28,
        of_day / 3600,
        of_day / 60 % 60,
        of_day % 60,
        client(record),
    );
    let _ = write!(
        line,
        "\"request\":\"{} {target} HTTP/1.1\",\"status\":{},\"body_bytes_sent\":{},\"request_time\":0.012,\
         \"http_referrer\":\"https://blog.example/\",\"http_user_agent\":\"{AGENT}\",\"http_x_forwarded_for\":\"\",\
         \"sent_http_content_type\":\"text/html; charset=UTF-8\",\"upstream_response_time\":\"0.011\"}}",
        method(record.verb),
        record.status,
        record.bytes.unwrap_or(0),
    );
    line
}

fn caddy(record: &Record, target: &str) -> String {
    let mut line = String::from("{\"level\":\"info\",");
    let _ = write!(
        line,
        "\"ts\":{}.{:06},\"logger\":\"http.log.access.log0\",\"msg\":\"handled request\",\"request\":{{\"remote_ip\":\"{}\",\
         \"remote_port\":\"41342\",\"client_ip\":\"{}\",\"proto\":\"HTTP/2.0\",\"method\":\"{}\",\"host\":\"blog.example\",\
         \"uri\":\"{target}\",",
        record.time_us / 1_000_000,
        record.time_us % 1_000_000,
        client(record),
        client(record),
        method(record.verb),
    );
    let _ = write!(
        line,
        "\"headers\":{{\"User-Agent\":[\"{AGENT}\"],\"Accept\":[\"text/html,application/xhtml+xml,*/*;q=0.8\"],\
         \"Accept-Encoding\":[\"gzip, deflate, br\"],\"Accept-Language\":[\"en-US,en;q=0.5\"],\"Cookie\":[\"REDACTED\"]}},\
         \"tls\":{{\"resumed\":false,\"version\":772,\"cipher_suite\":4865,\"proto\":\"h2\",\"server_name\":\"blog.example\"}}}},\
         \"bytes_read\":0,\"user_id\":\"\",\"duration\":0.000929675,\"size\":{},\"status\":{},\
         \"resp_headers\":{{\"Server\":[\"Caddy\"],\"Content-Encoding\":[\"gzip\"],\"Content-Type\":[\"text/html; charset=utf-8\"],\
         \"Vary\":[\"Accept-Encoding\"]}}}}",
        record.bytes.unwrap_or(0),
        record.status,
    );
    line
}

fn columns(requests: &Requests) -> Vec<u8> {
    let mut writer = TsvWriter::new(Vec::new()).expect("memory");
    for (record, target) in requests {
        writer.write(record, target.as_bytes()).expect("memory");
    }
    writer.into_inner()
}

fn keys(requests: &Requests) -> Vec<u8> {
    let mut writer = KeyWriter::new(Vec::new());
    for (record, _) in requests {
        writer.write(record).expect("memory");
    }
    writer.into_inner()
}

fn worldcup(requests: &Requests) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (record, _) in requests {
        let size = record.bytes.map_or(u32::MAX, |bytes| bytes as u32);
        for number in
            [(record.time_us / 1_000_000) as u32, record.client as u32, record.object as u32, size]
        {
            bytes.extend(number.to_be_bytes());
        }
        bytes.extend([0, 0x42, 1, 3]);
    }
    bytes
}

fn oracle_general(requests: &Requests) -> Vec<u8> {
    let records: Vec<Record> = requests.iter().map(|(record, _)| *record).collect();
    let mut bytes = Vec::new();
    write_oracle_general(&mut bytes, &records).expect("memory");
    bytes
}

fn cpu_ns() -> f64 {
    nicache_clock::thread_cpu_ns() as f64
}
