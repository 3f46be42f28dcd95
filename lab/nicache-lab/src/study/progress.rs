//! A line that tells how far a long job is, where somebody looks.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A job of so many steps; of an unknown number, if None. Nothing is shown where standard error is
/// not a terminal.
pub(crate) fn bar(what: &str, steps: Option<u64>) -> ProgressBar {
    let bar = match steps {
        Some(steps) => ProgressBar::new(steps),
        None => ProgressBar::no_length(),
    };
    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(8));
    let template = match steps {
        Some(_) => "{msg:<22} {bar:32} {percent:>3} %  {eta} left",
        None => "{msg:<22} {spinner} {human_pos}",
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("━╸─"));
    }
    bar.set_message(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}
