//! Which assumptions hold.

use std::fmt;

use crate::assumption::{Assumption, Feature, Test, Way};

/// What [`Kernel::findings`](crate::Kernel::findings) found.
#[derive(Debug, Default)]
pub struct Findings {
    /// What holds, and by which way.
    pub taken: Vec<(&'static Assumption, &'static Way)>,
    /// What does not.
    pub lacks: Vec<Lack>,
    /// The programs that are to be attached.
    pub programs: Vec<&'static str>,
    /// Which of the programs rest on [`Test::Unpreempted`]: one that was passed over
    /// ([`missed_runs`](crate::missed_runs)) has seen not everything.
    pub unpreempted: Vec<&'static str>,
    /// May a task be stopped in the middle of a program at a tracepoint
    /// ([`Test::WholeTracepoints`])?
    pub stops_at_tracepoints: bool,
    /// No, but it is expected all the same ([`Kernel::expect_stops`](crate::Kernel::expect_stops)).
    pub is_rehearsal: bool,
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

    /// Takes that way.
    pub(crate) fn take(
        &mut self,
        assumption: &'static Assumption,
        way: &'static Way,
        is_there: impl Fn(&Test) -> bool,
    ) {
        let programs =
            way.programs.iter().filter(|program| program.if_there.as_ref().is_none_or(&is_there));
        let names: Vec<&str> = programs.map(|program| program.name).collect();
        if way.tests.iter().any(|test| matches!(test, Test::Unpreempted)) {
            self.unpreempted.extend(&names);
        }
        self.programs.extend(names);
        self.taken.push((assumption, way));
    }

    /// Is this program to be loaded?
    pub fn takes(&self, program: &str) -> bool {
        self.programs.contains(&program)
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.assumption.name, self.why)
    }
}
