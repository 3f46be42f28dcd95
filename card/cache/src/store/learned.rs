//! What was learned from the server's own replies about an entry in other forms than the whole. A
//! form that was not learned is not served: nothing is made up.

use nicache_http::{Conditional, HeadTemplate, PartFormat, PartialTemplate};

/// The server's other replies for an entry.
#[derive(Default)]
pub struct Learned {
    /// Head of its 304.
    pub not_modified: Option<HeadTemplate>,
    /// What it has said that to.
    pub not_modified_by: Known,
    /// Head of its 206 with one range.
    pub range: Option<PartialTemplate>,
    /// The server's 206 with several ranges.
    pub parts: Option<Box<LearnedParts>>,
}

/// By what a client asks whether its copy is good. A server may know one of these alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validators {
    /// If-None-Match.
    Tag,
    /// If-Modified-Since.
    Date,
    /// Both ETag and Last-Modified, as browsers do.
    Both,
}

impl Validators {
    /// Which validators a conditional request has. It must have at least one.
    pub fn of(conditional: &Conditional<'_>) -> Self {
        match (conditional.if_none_match, conditional.if_modified_since) {
            (Some(_), Some(_)) => Self::Both,
            (Some(_), None) => Self::Tag,
            _ => Self::Date,
        }
    }
}

/// Requests to which the server has said 304, by their validators.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known([bool; 3]);

impl Known {
    /// The server has said 304 to these validators.
    pub fn note(&mut self, validators: Validators) {
        self.0[validators as usize] = true;
    }

    /// Will the server say 304? With both validators, whichever it knows says the same.
    pub fn has(self, validators: Validators) -> bool {
        self.0[validators as usize] || validators == Validators::Both && self.0.contains(&true)
    }
}

/// A 206 with several ranges.
pub struct LearnedParts {
    /// The head of the 206.
    pub template: PartialTemplate,
    /// What stands around the parts.
    pub format: PartFormat,
    /// So many parts the server has been seen to send; it may have a limit.
    pub count_max: u8,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_validator_says_nothing_of_the_other() {
        use Validators::{Both, Date, Tag};
        for (noted, known) in
            [(Tag, [Tag, Both].as_slice()), (Date, &[Date, Both]), (Both, &[Both])]
        {
            let mut all = Known::default();
            all.note(noted);
            assert!(
                [Tag, Date, Both].iter().all(|one| all.has(*one) == known.contains(one)),
                "{noted:?}"
            );
        }
    }
}
