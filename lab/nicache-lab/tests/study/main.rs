//! `nicache sim` and `nicache trace` as their users run them, on the real traces.

mod caches;
mod errors;
mod output;
mod papers;
mod run;
mod traces;
