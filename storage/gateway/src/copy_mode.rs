//! How payload travels between the network and the logical unit.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The three configurations of one program that the paper compares (section 5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CopyMode {
    /// By the kernel's page cache, with a copy on each side.
    Original,
    /// By reference, with keys in the file system.
    #[default]
    Nicache,
    /// No copies, and zeroes in the place of payload: what everything else costs. It serves junk.
    Baseline,
}

impl CopyMode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Original, Self::Nicache, Self::Baseline];

    /// The mode's name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Original => "original",
            Self::Nicache => "nicache",
            Self::Baseline => "baseline",
        }
    }
}

impl fmt::Display for CopyMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CopyMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|mode| mode.name() == text);
        found.ok_or_else(|| {
            format!("`{text}` is not a way for payload: original, nicache or baseline")
        })
    }
}
