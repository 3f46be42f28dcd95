//! Samples from the control socket, by a thread of its own, so keys are answered while a card
//! is slow.

use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use anyhow::Result;
use nicache_admin::Sample;

use crate::control::{Request, Response, ask, unexpected};

/// One sample of the nicache of that name; `None`: the only one.
///
/// # Errors
/// None runs, several do, or it does not answer.
pub(super) fn take(name: Option<&str>) -> Result<Sample> {
    match ask(name, &Request::Sample)? {
        Response::Sample(sample) => Ok(*sample),
        _ => Err(unexpected()),
    }
}

/// A sample, or why there is none, every `interval` until nobody listens. The first comes at once.
pub(super) fn start(
    name: Option<&str>,
    interval: Duration,
) -> Result<Receiver<Result<Box<Sample>, String>>> {
    // One that is not looked at is not followed by others.
    let (sender, samples) = mpsc::sync_channel(1);
    let name = name.map(str::to_owned);
    let body = move || {
        let mut due = Instant::now();
        loop {
            let sample = take(name.as_deref()).map(Box::new).map_err(|error| format!("{error:#}"));
            if sender.send(sample).is_err() {
                return;
            }
            due = (due + interval).max(Instant::now());
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    };
    std::thread::Builder::new().name("samples".into()).spawn(body)?;
    Ok(samples)
}
