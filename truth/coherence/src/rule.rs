//! The rules of coherence as switches, so a test can turn one off and see that its oracle
//! notices.
//!
//! In a build without debug assertions every rule is in force, and the switch does not exist.

/// Environment variable that names the rule to turn off.
pub const RULE_OFF: &str = "NICACHE_RULE_OFF";

/// A rule. The numbers in brackets are those of docs/coherence.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Rule {
    /// What the server's programs have read since their start counts for every dynamic reply (1,
    /// 2).
    Retained,
    /// A changed file that the server has not looked at again lets nothing be kept (3).
    Dirty,
    /// Processes that start, end or are replaced void what their group produced (4).
    Processes,
    /// A path that is not there is a source (5).
    MissingPaths,
    /// A path that was looked at and not opened is a source (5).
    Attributes,
    /// After a change of a directory or a link, a path must lead where it led (6).
    Paths,
    /// A file that somebody has mapped or open for writing is not kept (7, 8).
    OpenForWriting,
    /// A reply is a file's only if the server opened it, or could have (21).
    Opened,
    /// A reply is also what the server may have kept of a file with the same bytes (28).
    Copies,
    /// A change counts from before the request was forwarded (11).
    Forwarded,
    /// What a database receives voids what was read from it, unless it only asks (10, 12).
    Databases,
    /// A change of a database is in doubt until its client goes on (10).
    Doubt,
    /// A reply is shared only if two executions agree (14, 15).
    Agreement,
    /// What cannot be seen is never older than T (15, 18).
    Age,
    /// T is what the time has earned for which the answer was the same (15, 18).
    Earned,
    /// A reply is a file's only if no other program and no database can have decided that it be
    /// sent (22).
    Decisions,
    /// An entry answers a class of clients that the server has answered (24).
    Classes,
    /// Two executions agree only if nothing that says whose request it is was the same in both
    /// (14).
    Marks,
    /// What the server has answered to who sends the fields of proxies, it has answered to nobody
    /// else (24).
    Proxies,
    /// A reply that may be out of date is only for those who had asked before it was made (19).
    Shared,
}

impl Rule {
    /// All rules.
    pub const ALL: [Self; 20] = [
        Self::Retained,
        Self::Dirty,
        Self::Processes,
        Self::MissingPaths,
        Self::Attributes,
        Self::Paths,
        Self::OpenForWriting,
        Self::Opened,
        Self::Copies,
        Self::Forwarded,
        Self::Databases,
        Self::Doubt,
        Self::Agreement,
        Self::Age,
        Self::Earned,
        Self::Decisions,
        Self::Classes,
        Self::Marks,
        Self::Proxies,
        Self::Shared,
    ];

    /// The name in [`RULE_OFF`].
    pub const fn label(self) -> &'static str {
        match self {
            Self::Retained => "retained",
            Self::Dirty => "dirty",
            Self::Processes => "processes",
            Self::MissingPaths => "missing_paths",
            Self::Attributes => "attributes",
            Self::Paths => "paths",
            Self::OpenForWriting => "open_for_writing",
            Self::Opened => "opened",
            Self::Copies => "copies",
            Self::Forwarded => "forwarded",
            Self::Databases => "databases",
            Self::Doubt => "doubt",
            Self::Agreement => "agreement",
            Self::Age => "age",
            Self::Earned => "earned",
            Self::Decisions => "decisions",
            Self::Classes => "classes",
            Self::Marks => "marks",
            Self::Proxies => "proxies",
            Self::Shared => "shared",
        }
    }

    /// Is the rule in force?
    #[inline]
    pub fn holds(self) -> bool {
        switch::off() != Some(self)
    }
}

#[cfg(debug_assertions)]
mod switch {
    use std::sync::OnceLock;

    use super::{RULE_OFF, Rule};

    static OFF: OnceLock<Option<Rule>> = OnceLock::new();

    #[inline]
    pub(super) fn off() -> Option<Rule> {
        *OFF.get_or_init(|| {
            let name = std::env::var(RULE_OFF).ok()?;
            let rule = Rule::ALL.into_iter().find(|rule| rule.label() == name);
            // A test that turns nothing off would pass for the wrong reason.
            Some(rule.unwrap_or_else(|| panic!("{RULE_OFF}: there is no rule `{name}`")))
        })
    }
}

#[cfg(not(debug_assertions))]
mod switch {
    use super::Rule;

    #[inline(always)]
    pub(super) fn off() -> Option<Rule> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_rules_hold_unless_one_is_turned_off() {
        assert!(Rule::ALL.iter().all(|rule| rule.holds()));
        for (at, rule) in Rule::ALL.iter().enumerate() {
            assert_eq!(*rule as usize, at);
            assert_eq!(Rule::ALL.iter().filter(|other| other.label() == rule.label()).count(), 1);
        }
    }
}
