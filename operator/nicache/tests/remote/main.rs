//! Pages of a database on another machine, behind `nicache relay`: never stale, whatever happens to
//! the way between.
//!
//! The other machine is a network namespace at the far end of a cable. Its database has another
//! name than databases have, so the witnesses of this kernel do not see what it receives: all
//! that is known of it comes from the relay.
#![allow(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;

#[allow(dead_code, reason = "the tests of dynamic pages use all of it")]
#[path = "../dynamic/check.rs"]
mod check;
#[allow(dead_code, reason = "the tests of dynamic pages use all of it")]
#[path = "../dynamic/far.rs"]
mod far;
#[allow(dead_code, reason = "mounts alone are made here, and no file systems")]
#[path = "../../../../truth/watch/tests/witness/filesystems/ground.rs"]
mod ground;
#[allow(dead_code, reason = "the tests of dynamic pages use all of it")]
#[path = "../dynamic/stage.rs"]
mod stage;

mod load;
mod mariadb;
mod nats;
mod pair;
mod postgres;
mod slow;
