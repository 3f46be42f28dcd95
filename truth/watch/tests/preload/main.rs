//! The preloaded library and its ring: every call that it takes part in, made by a real program
//! with and without it.

#[path = "../common/mod.rs"]
mod common;

mod calls;
mod group;
mod program;
mod ring;
