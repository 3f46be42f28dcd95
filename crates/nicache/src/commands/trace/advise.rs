//! `nicache trace advise`: which memory and which policy to take.

use std::process::ExitCode;

use anyhow::Result;
use nicache_report::{Fact, Mark, Report, Section, Unit};
use nicache_study::{Advice, Choice, Objective, Point, PolicyName, Room, Size, Summary, advise};
use serde_json::json;

use crate::cli::{ObjectiveOption, TraceAdviseArgs};
use crate::commands::sim::play;
use crate::study::input::Loaded;
use crate::study::{figures, input, output};

/// Policies that are weighed unless others are named, the simpler ones first; and the bound.
const DEFAULT: [PolicyName; 7] = [
    PolicyName::Lru,
    PolicyName::Sieve,
    PolicyName::S3Fifo,
    PolicyName::WTinyLfu,
    PolicyName::Gdsf,
    PolicyName::Popularity,
    PolicyName::Belady,
];

/// Weighs, and says what to take.
pub fn execute(arguments: &TraceAdviseArgs) -> Result<ExitCode> {
    let (loaded, summary) = input::load_and_count(&arguments.trace, &arguments.workload)?;
    let choices = arguments.caches.choices(&DEFAULT.map(Choice::from));
    let curves = play(&loaded.workload, &arguments.caches, &choices);
    let objective = match arguments.objective {
        ObjectiveOption::Requests => Objective::Requests,
        ObjectiveOption::Bytes => Objective::Bytes,
    };
    let advice = advise(&curves, objective);
    let sentences = match &advice {
        Some(advice) => sentences(advice, &loaded, &summary),
        None => vec!["Nothing in this trace is asked for twice: no cache helps.".to_owned()],
    };
    let room = loaded.workload.room;
    let mut drawn = figures::curves(&curves, room);
    if let Some(advice) = &advice {
        for figure in &mut drawn {
            figure
                .marks
                .push(Mark::x(advice.knee.0 as f64, format!("knee: {}", figures::show_size(advice.knee, room))));
        }
    }
    let report = Report {
        title: sentences[0].clone(),
        subtitle: loaded.read.traces.join(", "),
        facts: advice.as_ref().map_or_else(Vec::new, |advice| facts(advice, &loaded)),
        sections: vec![Section {
            title: "Why".to_owned(),
            paragraphs: sentences[1..].to_vec(),
            figures: drawn,
            tables: figures::tables(&curves, room),
        }],
        footer: "nicache trace advise".to_owned(),
    };
    let json = json!({ "advice": advice, "sentences": sentences, "totals": loaded.totals, "read": loaded.read, "curves": curves });
    output::write(&report, &json, &arguments.output)?;
    Ok(ExitCode::SUCCESS)
}

fn facts(advice: &Advice, loaded: &Loaded) -> Vec<Fact> {
    let room = loaded.workload.room;
    let at = format!("{}, {}", advice.choice.title(), figures::show_size(advice.size, room));
    vec![
        Fact::new("Requests", show(Objective::Requests, &advice.at, loaded), at.clone()),
        Fact::new("Bytes", show(Objective::Bytes, &advice.at, loaded), at),
        Fact::new("Knee", figures::show_size(advice.knee, room), "less for more memory from here on"),
        Fact::new("At most", show(advice.objective, &advice.most, loaded), "with room for everything"),
    ]
}

/// A share of all requests or bytes of the trace, not only of those that could come from a cache.
fn share(objective: Objective, point: &Point, loaded: &Loaded) -> f64 {
    let totals = &loaded.totals;
    let part = match objective {
        Objective::Requests => totals.cacheable as f64 / totals.requests.max(1) as f64,
        Objective::Bytes => totals.cacheable_bytes as f64 / totals.bytes.max(1) as f64,
    };
    part.min(1.0) * objective.share(point)
}

fn show(objective: Objective, point: &Point, loaded: &Loaded) -> String {
    figures::show_share(share(objective, point, loaded))
}

fn sentences(advice: &Advice, loaded: &Loaded, summary: &Summary) -> Vec<String> {
    let room = loaded.workload.room;
    let size = |size: Size| figures::show_size(size, room);
    let percent = |objective, point: &Point| format!("{:.0} %", 100.0 * share(objective, point, loaded));
    let mut sentences = vec![format!(
        "{} with {}: {} of requests, {} of bytes; the knee is at {}",
        size(advice.size),
        advice.choice.title(),
        percent(Objective::Requests, &advice.at),
        percent(Objective::Bytes, &advice.at),
        size(advice.knee),
    )];
    let (of, objective) = match advice.objective {
        Objective::Requests => ("of the requests", Objective::Requests),
        Objective::Bytes => ("of the bytes", Objective::Bytes),
    };
    let mut compared = Vec::new();
    if let Some(lru) = advice.lru.filter(|_| advice.choice != Choice::from(PolicyName::Lru)) {
        compared.push(format!("LRU gets {} {of}", show(objective, &lru, loaded)));
    }
    if let Some(bound) = advice.bound {
        let bounded =
            if room == Room::One { "no policy can get more than" } else { "a policy that knows the future gets" };
        compared.push(format!("{bounded} {}", show(objective, &bound, loaded)));
    }
    compared.push(format!("with room for everything it is {}", show(objective, &advice.most, loaded)));
    sentences.push(format!("With the same memory {}.", compared.join(", ")));
    if summary.span_s >= 3600.0 {
        let per_day = 86_400.0 / summary.span_s;
        let (requests, bytes) = (
            share(Objective::Requests, &advice.at, loaded) * loaded.totals.requests as f64 * per_day,
            share(Objective::Bytes, &advice.at, loaded) * loaded.totals.bytes as f64 * per_day,
        );
        sentences.push(format!(
            "Per day: {} requests that the server does not see, and {} that do not cross the bus.",
            Unit::Count.format(requests.round()),
            Unit::Bytes.format(bytes)
        ));
    }
    let first = advice.most.counts.requests - advice.most.counts.request_hits;
    let share_first = first as f64 / advice.most.counts.requests.max(1) as f64;
    sentences.push(format!(
        "{} of the requests that could come from a cache are for something that was not asked for before or had changed, which no cache \
         has; in a longer trace it would be fewer.",
        figures::show_share(share_first)
    ));
    sentences
}
