//! Which assumptions hold.

use std::fmt;

use crate::assumption::{Assumption, Feature, Way};

/// What [`Kernel::findings`](crate::Kernel::findings) found.
#[derive(Debug, Default)]
pub struct Findings {
    /// What holds, and by which way.
    pub taken: Vec<(&'static Assumption, &'static Way)>,
    /// What does not.
    pub lacks: Vec<Lack>,
}

/// Something that this kernel lacks. Displayed, it is a sentence for operators.
#[derive(Debug)]
pub struct Lack {
    /// What it is.
    pub assumption: &'static Assumption,
    /// What was looked for in vain.
    pub why: String,
}

impl Findings {
    /// Is nothing missing of what the feature itself needs?
    pub fn has(&self, feature: Feature) -> bool {
        self.lacks_of(feature).next().is_none()
    }

    /// What is missing of it.
    pub fn lacks_of(&self, feature: Feature) -> impl Iterator<Item = &Lack> {
        self.lacks.iter().filter(move |lack| lack.assumption.feature == feature)
    }

    /// Is this program to be loaded?
    pub fn takes(&self, program: &str) -> bool {
        self.taken.iter().any(|(_, way)| way.program == Some(program))
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.assumption.name, self.why)
    }
}
