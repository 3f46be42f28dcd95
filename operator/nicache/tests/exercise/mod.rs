//! What the fuzz targets and the replay of their corpus have in common: run arbitrary bytes through
//! what reads an operator's text, and through what a child process is given, and check what must
//! hold for all input.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use nicache_bus::BusModel;
use nicache_http::KeyConfig;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::options::run::{CARDS_MAX, MEMORY_BYTES_MIN, QUEUES_MAX, RunOptions};
use crate::options::{
    AdminAddress, BusAddress, LiveOption, Milliseconds, Network, PathOptions, Publish,
    RemoteDatabase, RunPlan, Size, Subnet,
};
use crate::setup::{CardSetup, CompanionFailure, ServerSetup, WatchReport, WatchSetup};

/// A configuration file of `nicache run` and `nicache attach`.
pub(super) fn configuration(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut options: RunOptions = match toml::from_str(&text) {
        Ok(options) => options,
        Err(error) => return assert!(!error.message().is_empty()),
    };
    let again = toml::to_string(&options).expect("settings can be written");
    assert_eq!(toml::from_str::<RunOptions>(&again).expect("and read again"), options, "{again}");
    // Their keys are files, which are nobody's here.
    options.remote_database.clear();
    match options.clone().resolve() {
        Ok(plan) => check_plan(&plan),
        Err(error) => assert!(!format!("{error:#}").is_empty()),
    }
    if let Ok(plan) = options.resolve_attach() {
        check_plan(&plan.run);
        assert!(
            plan.run.server.is_empty() && plan.run.cards == 1 && !plan.run.rechecks.wants_dynamic()
        );
    }
}

/// Nothing that was accepted is refused by whoever has to work with it.
fn check_plan(plan: &RunPlan) {
    assert!(plan.memory_bytes >= MEMORY_BYTES_MIN);
    assert!((1..=CARDS_MAX).contains(&plan.cards) && (1..=QUEUES_MAX).contains(&plan.queues));
    assert!(
        !plan.http_ports.is_empty() && !plan.http_ports.contains(&0) && !plan.share.contains(&0)
    );
    assert!(plan.rechecks.first.0 <= 3_600_000 && plan.rechecks.most.0 <= 3_600_000);
    assert!(plan.with.iter().all(|command| !command.is_empty()));
    assert!(plan.name.as_ref().is_none_or(|name| !name.contains('/') && !name.starts_with('.')));
    let mut keys = KeyConfig::new([1; 16]);
    for header in &plan.vary {
        keys = keys.separate_by(header).expect("a header that was accepted");
    }
    for path in &plan.paths {
        keys = keys
            .add_path(path.pattern().expect("a pattern"), &path.ignore_cookie)
            .expect("room for it");
        let settings = path.settings(plan.rechecks).expect("settings");
        let first = settings.ages.first.as_millis();
        assert!(
            !settings.keeps_dynamic || first == u128::from(path.rechecks(plan.rechecks).first.0)
        );
    }
    let publish = plan
        .publish
        .iter()
        .all(|publish| publish.address.port() != 0 && publish.server_port != Some(0));
    assert!(publish);
}

/// The value of a flag: a byte that says of which, and its text.
pub(super) fn value(bytes: &[u8]) {
    let Some((&which, text)) = bytes.split_first() else { return };
    let text = &*String::from_utf8_lossy(text);
    match which % 11 {
        0 => both_ways::<Size>(text),
        1 => both_ways::<Milliseconds>(text),
        2 => both_ways::<Publish>(text),
        3 => both_ways::<Subnet>(text),
        4 => both_ways::<Network>(text),
        5 => both_ways::<RemoteDatabase>(text),
        6 => both_ways::<BusAddress>(text),
        7 => both_ways::<AdminAddress>(text),
        8 => bus_model(text),
        9 => match text.parse::<PathOptions>() {
            Ok(path) => {
                let text = serde_json::to_string(&path).expect("it can be written");
                assert_eq!(
                    serde_json::from_str::<PathOptions>(&text).expect("and read again"),
                    path
                );
            }
            Err(error) => assert!(!error.is_empty()),
        },
        _ => match text.parse::<LiveOption>() {
            Ok(live) => assert!(
                live.file.as_os_str() != "" && live.path.is_none_or(|path| path.starts_with('/'))
            ),
            Err(error) => assert!(!error.is_empty()),
        },
    }
}

/// What is understood is written so it is understood the same.
fn both_ways<T: FromStr<Err: Display> + Display + PartialEq + Debug>(text: &str) {
    match text.parse::<T>() {
        Ok(value) => {
            let written = value.to_string();
            match written.parse::<T>() {
                Ok(again) => assert_eq!(again, value, "`{text}` is written `{written}`"),
                Err(error) => panic!("`{text}` is written `{written}`: {error}"),
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn bus_model(text: &str) {
    let Ok(model) = text.parse::<BusModel>() else { return };
    assert!(model.bytes_per_s.is_finite() && model.bytes_per_s > 0.0 && model.burst_bytes > 0);
    let again: BusModel = model.to_string().parse().expect("it can be read again");
    // The unit is another one, so the last digits of a number may be.
    assert!((again.bytes_per_s / model.bytes_per_s - 1.0).abs() < 1e-12);
    assert_eq!(
        (again.burst_bytes, again.overhead_bytes),
        (model.burst_bytes, model.overhead_bytes)
    );
}

/// What a child process is given at its start, or says: a byte that says which message, and its
/// JSON.
pub(super) fn setup(bytes: &[u8]) {
    let Some((&which, json)) = bytes.split_first() else { return };
    match which % 5 {
        0 => message::<CardSetup>(json),
        1 => message::<WatchSetup>(json),
        2 => message::<ServerSetup>(json),
        3 => message::<WatchReport>(json),
        _ => message::<CompanionFailure>(json),
    }
}

fn message<T: DeserializeOwned + Serialize>(json: &[u8]) {
    let Ok(message) = serde_json::from_slice::<T>(json) else { return };
    let written = serde_json::to_vec(&message).expect("it can be written");
    let again: T = serde_json::from_slice(&written).expect("and read again");
    assert_eq!(serde_json::to_vec(&again).expect("and written again"), written);
}
