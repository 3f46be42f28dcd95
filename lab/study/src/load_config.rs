//! How records become accesses: what a study may choose.

use serde::Serialize;

use crate::Room;

/// What is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Whole objects.
    Objects,
    /// Blocks of [`crate::BLOCK_BYTES`].
    Blocks,
}

/// What a log's replies say of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Replies {
    /// Replies are what was sent.
    AsLogged,
    /// Each stands for the whole object at its largest.
    Whole,
}

/// When an object that has another size has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Changes {
    /// Never; nor if its revision differs, or it was written.
    Never,
    /// If it grew, or shrank by less than 5 %: otherwise the reply was cut off.
    Small,
    /// Always.
    Any,
}

/// What a write does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Writes {
    /// What is cached of its target is out of date.
    Invalidate,
    /// It counts as a read: caches of disks.
    AsReads,
}

/// What tells the variants of a target apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variants {
    /// The coding where the log has it, else sizes that come back.
    Auto,
    /// The coding only.
    Coding,
    /// Sizes that come back only.
    Sizes,
    /// Nothing: a target is one object.
    None,
}

/// How records become accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LoadConfig {
    /// What is cached.
    pub unit: Unit,
    /// What an object is charged; a block always has room for all its bytes.
    pub room: Room,
    /// What replies say.
    pub replies: Replies,
    /// What changes.
    pub changes: Changes,
    /// What writes do.
    pub writes: Writes,
    /// Whether what programs made can be cached.
    pub dynamic: bool,
    /// What tells the variants of a target apart.
    pub variants: Variants,
    /// Most targets that are followed: a sample, if there are more.
    pub sample: Option<u32>,
}

impl Default for LoadConfig {
    /// Whole objects of a web server on a card.
    fn default() -> Self {
        Self {
            unit: Unit::Objects,
            room: Room::Bytes,
            replies: Replies::AsLogged,
            changes: Changes::Small,
            writes: Writes::Invalidate,
            dynamic: true,
            variants: Variants::Auto,
            sample: None,
        }
    }
}
