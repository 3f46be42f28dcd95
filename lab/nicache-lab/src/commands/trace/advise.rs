//! `nicache trace advise`: which memory and which policy to take.

use std::process::ExitCode;

use anyhow::Result;
use nicache_report::{Fact, Mark, Report, Section, Unit};
use nicache_study::{
    Advice, Choice, Curve, Objective, Point, PolicyName, Size, Summary, advise, spread,
};
use serde::Serialize;
use serde_json::json;

use crate::cli::{ObjectiveOption, TraceAdviseArgs};
use crate::commands::sim::{
    figure_without, memory_fact, play, play_at, varying_share, without_variants,
};
use crate::study::figures::Shown;
use crate::study::input::Loaded;
use crate::study::{figures, input, output};

/// Policies that are weighed unless others are named, the simpler ones first; and what they are
/// compared with.
const DEFAULT: [PolicyName; 8] = [
    PolicyName::Lru,
    PolicyName::Sieve,
    PolicyName::S3Fifo,
    PolicyName::WTinyLfu,
    PolicyName::Gdsf,
    PolicyName::Popularity,
    PolicyName::Belady,
    PolicyName::PfooL,
];

/// What the advice would be if each target were one object.
#[derive(Debug, Serialize)]
struct Sensitivity {
    /// The most by which a hit rate at any size with any of the policies differs, in points.
    hit_rate_points_max: f64,
    /// The most by which a byte hit rate at any size with any of the policies differs, in points.
    byte_hit_rate_points_max: f64,
    /// Hit rate of what is advised, without variants.
    hit_rate: Option<f64>,
    /// What would be advised.
    advice: Option<Advice>,
}

/// Weighs, and says what to take.
pub(super) fn execute(arguments: &TraceAdviseArgs) -> Result<ExitCode> {
    let (loaded, summary) =
        input::load_and_count(&arguments.trace, &arguments.workload, arguments.sample)?;
    let choices = arguments.caches.choices(&DEFAULT.map(Choice::from));
    let curves = play(&loaded.workload, &arguments.caches, &choices);
    let shown = Shown::of(&loaded);
    let objective = match arguments.objective {
        ObjectiveOption::Requests => Objective::Requests,
        ObjectiveOption::Bytes => Objective::Bytes,
    };
    let advice = advise(&curves, objective);
    let without = loaded.without_variants.as_ref().map(|other| {
        let sizes = curves
            .first()
            .map(|curve| curve.points.iter().map(|point| point.size).collect::<Vec<_>>());
        play_at(other, &arguments.caches, &choices, sizes.unwrap_or_default())
    });
    let sensitivity = without
        .as_ref()
        .map(|without| sensitivity(&curves, without, advice.as_ref(), objective, &shown));
    let told = Told { loaded: &loaded, shown: &shown, summary: &summary };
    let mut sentences = match &advice {
        Some(advice) => told.sentences(advice),
        None => vec!["Nothing in this trace is asked for twice: no cache helps.".to_owned()],
    };
    if let (Some(advice), Some(sensitivity)) = (&advice, &sensitivity) {
        sentences.push(told.sensitivity(advice, sensitivity));
    }
    let mut drawn = figures::curves(&curves, &shown);
    if let Some(advice) = &advice {
        for figure in &mut drawn {
            let knee = format!("knee: {}", figures::show_size(advice.knee, shown.room));
            figure.marks.push(Mark::x(advice.knee.0 as f64, knee));
        }
    }
    let mut sections = vec![Section {
        title: "Why".to_owned(),
        paragraphs: [&sentences[1..], &shown.notes(&curves)].concat(),
        figures: drawn,
        tables: figures::tables(&curves, &shown),
    }];
    let mut json = json!({
        "advice": advice, "sentences": sentences, "totals": loaded.totals, "read": loaded.read,
        "curves": shown.json(&curves)?,
        "sensitivity": sensitivity, "sample_rate": summary.sample_rate,
    });
    if let Some(without) = &without {
        let figures = figures::curves(without, &shown).into_iter().map(figure_without).collect();
        sections.push(Section {
            title: "Each target as one object".to_owned(),
            paragraphs: vec![without_variants(&loaded)],
            figures,
            tables: figures::tables(without, &shown),
        });
        json["curves_without_variants"] = shown.json(without)?;
    }
    let report = Report {
        title: sentences[0].clone(),
        subtitle: loaded.read.traces.join(", "),
        facts: advice.as_ref().map_or_else(Vec::new, |advice| told.facts(advice)),
        sections,
        footer: "nicache trace advise".to_owned(),
    };
    output::write(&report, &json, &arguments.output)?;
    Ok(ExitCode::SUCCESS)
}

fn sensitivity(
    curves: &[Curve],
    without: &[Curve],
    advice: Option<&Advice>,
    objective: Objective,
    shown: &Shown,
) -> Sensitivity {
    let points = |objective: Objective| {
        let pairs = curves
            .iter()
            .zip(without)
            .flat_map(|(with, without)| with.points.iter().zip(&without.points));
        let differences = pairs
            .map(|(with, without)| shown.rate(objective, with) - shown.rate(objective, without));
        100.0 * differences.map(f64::abs).fold(0.0, f64::max)
    };
    let same = |advice: &Advice| {
        let curve = without.iter().find(|curve| curve.choice == advice.choice)?;
        let point = curve.points.iter().find(|point| point.size == advice.at.size)?;
        Some(shown.rate(Objective::Requests, point))
    };
    Sensitivity {
        hit_rate_points_max: points(Objective::Requests),
        byte_hit_rate_points_max: points(Objective::Bytes),
        hit_rate: advice.and_then(same),
        advice: advise(without, objective),
    }
}

/// What advice is given from.
struct Told<'a> {
    loaded: &'a Loaded,
    shown: &'a Shown,
    summary: &'a Summary,
}

impl Told<'_> {
    fn show(&self, objective: Objective, point: &Point) -> String {
        figures::show_share(self.shown.rate(objective, point))
    }

    fn size(&self, size: Size) -> String {
        figures::show_size(size, self.shown.room)
    }

    fn facts(&self, advice: &Advice) -> Vec<Fact> {
        let at = format!("{}, {}", advice.choice.title(), self.size(advice.size));
        let mut facts = vec![
            Fact::new(
                "Hit rate",
                self.show(Objective::Requests, &advice.at),
                format!("of all requests; {at}"),
            ),
            Fact::new(
                "Byte hit rate",
                self.show(Objective::Bytes, &advice.at),
                format!("of all bytes; {at}"),
            ),
            Fact::new("Knee", self.size(advice.knee), "less for more memory from here on"),
            Fact::new(
                "At most",
                self.show(advice.objective, &advice.most),
                "with room for everything",
            ),
            memory_fact(self.loaded),
        ];
        if let Some(bytes) = advice.choice.policy.bytes_per_object() {
            let objects = self.objects_at(advice.size);
            facts.push(Fact::new(
                "The policy itself takes",
                Unit::Bytes.format(objects * f64::from(bytes)),
                format!(
                    "{bytes} bytes for each of about {} objects",
                    Unit::Count.format(objects.round())
                ),
            ));
        }
        facts
    }

    /// Objects that are in a memory of this size, if they are as large as on average.
    fn objects_at(&self, size: Size) -> f64 {
        let workload = &self.loaded.workload;
        let share = size.0 as f64 / workload.footprint().max(1) as f64;
        workload.objects_in_all() as f64 * share.min(1.0)
    }

    fn sentences(&self, advice: &Advice) -> Vec<String> {
        let (loaded, summary) = (self.loaded, self.summary);
        let error = spread(&loaded.workload, advice.choice, advice.size, Objective::Requests);
        let mut sentences = vec![format!(
            "{} with {}: a hit rate of {} and a byte hit rate of {}; the knee is at {}",
            self.size(advice.size),
            advice.choice.title(),
            self.show(Objective::Requests, &advice.at),
            self.show(Objective::Bytes, &advice.at),
            self.size(advice.knee),
        )];
        let (name, objective) = match advice.objective {
            Objective::Requests => ("Hit rates", Objective::Requests),
            Objective::Bytes => ("Byte hit rates", Objective::Bytes),
        };
        let mut compared = Vec::new();
        if let Some(lru) = advice.lru.filter(|_| advice.choice != Choice::from(PolicyName::Lru)) {
            compared.push(format!("LRU {}", self.show(objective, &lru)));
        }
        match (advice.belady, advice.bound) {
            (Some(belady), _) if self.shown.has_optimum => {
                let shown = self.show(objective, &belady);
                compared.push(format!("upper bound for any policy {shown} (Belady)"));
            }
            (belady, bound) => {
                if let Some(belady) = belady {
                    let shown = self.show(objective, &belady);
                    compared.push(format!("Belady {shown} (knows the future; not a bound here)"));
                }
                if let Some(bound) = bound {
                    let shown = self.show(objective, &bound);
                    compared.push(format!("upper bound for any policy {shown} (PFOO-L)"));
                }
            }
        }
        compared.push(format!("unlimited memory {}", self.show(objective, &advice.most)));
        sentences.push(format!("{name} with the same memory: {}.", compared.join("; ")));
        if summary.span_s >= 3600.0 {
            let per_day = 86_400.0 / summary.span_s;
            let (requests, bytes) = (
                self.shown.rate(Objective::Requests, &advice.at)
                    * loaded.totals.requests as f64
                    * per_day,
                self.shown.rate(Objective::Bytes, &advice.at)
                    * loaded.totals.bytes as f64
                    * per_day,
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
        if let Some(sampled) = loaded.workload.sampled {
            sentences.push(format!(
                "All this is said from a sample of {} of the objects: the hit rate is right within {:.1} points, 19 times of 20.",
                figures::show_share(sampled.rate),
                100.0 * error
            ));
        }
        sentences
    }

    fn sensitivity(&self, advice: &Advice, sensitivity: &Sensitivity) -> String {
        let other = match &sensitivity.advice {
            Some(other) if (other.choice, other.size) == (advice.choice, advice.size) => {
                "the advice is the same".to_owned()
            }
            Some(other) => format!(
                "the advice would be {} with {}",
                self.size(other.size),
                other.choice.title()
            ),
            None => "nothing would be found twice".to_owned(),
        };
        let rate = sensitivity.hit_rate.map_or_else(String::new, |rate| {
            format!("the hit rate there would be {}, and ", figures::show_share(rate))
        });
        format!(
            "{} are for targets with variants ({} in all), told by coding or by sizes that come back. Were each target one \
             object, {rate}{other}; hit rates at other sizes and with other policies differ by up to {:.1} points, byte hit rates by up to {:.1}.",
            varying_share(self.loaded),
            Unit::Count.format(self.loaded.totals.varying_targets as f64),
            sensitivity.hit_rate_points_max,
            sensitivity.byte_hit_rate_points_max
        )
    }
}
