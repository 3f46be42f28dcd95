//! A cache without a card: requests, replies, verdicts and times are the test's own, and whoever
//! waits is a number.

mod fixture;
mod recheck;
mod verdict;
mod wait;
