//! When a connection's changes become visible.
//!
//! A statement may fail, and be skipped, and a transaction may end without a word (a deadlock in
//! MySQL), and none of that is seen here. So a change is announced with its statement *and* at
//! every moment at which it may become visible later, until it is certain that no transaction holds
//! it any longer. Being wrong about BEGIN then costs an announcement, never a missed change.

use crate::dialects::Dialect;
use crate::key::Access;
use crate::statement::{Class, Setting};
use crate::target::Target;

/// More than this is everything.
const PENDING_MAX: usize = 256;

/// The transaction of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Transaction {
    dialect: Dialect,
    /// It is certain that each statement is a transaction of its own, unless one was begun.
    autocommit: bool,
    /// COMMIT and ROLLBACK may begin the next one.
    chains: bool,
    /// A transaction may be open.
    may_be_open: bool,
    /// What was written and may become visible yet.
    pending: Vec<Access>,
    /// Statements since the transaction may have begun.
    age: u32,
}

impl Transaction {
    pub(crate) fn new(dialect: Dialect, autocommit: bool, chains: bool) -> Self {
        Self { dialect, autocommit, chains, may_be_open: false, pending: Vec::new(), age: 0 }
    }

    /// May what a statement writes now become visible later, too?
    pub(crate) fn holds(&self) -> bool {
        self.may_be_open || !self.autocommit
    }

    /// Counts a statement; the number of those before it that may have fixed its snapshot.
    pub(crate) fn count(&mut self) -> u32 {
        let age = self.age;
        self.age = if self.holds() { age.saturating_add(1) } else { 0 };
        age
    }

    pub(crate) fn wrote(&mut self, writes: &[Access]) {
        if !self.holds() {
            return;
        }
        for write in writes {
            if !self.pending.contains(write) {
                self.pending.push(write.clone());
            }
        }
        if self.pending.len() > PENDING_MAX || self.pending.contains(&Access::EVERYTHING) {
            self.pending = vec![Access::whole(Target::EVERYTHING)];
        }
    }

    /// Anything may have happened, also to the transaction.
    pub(crate) fn lose(&mut self) {
        self.may_be_open = true;
        self.autocommit = false;
        self.chains = true;
        self.pending = vec![Access::EVERYTHING];
    }

    /// The effect of a statement on the transaction: what may become visible by it. `surely` if it
    /// is certain that the server gets to it (nothing before it in the request may have failed).
    pub(crate) fn steer(&mut self, class: &Class, surely: bool) -> Vec<Access> {
        match class {
            Class::Begin if self.dialect == Dialect::Postgres => {
                self.may_be_open = true;
                Vec::new()
            }
            Class::Begin => {
                let visible = self.end(surely, true);
                self.may_be_open = true;
                visible
            }
            Class::Commit { chain } => self.end(surely, *chain),
            Class::Rollback { chain } => {
                if surely {
                    self.end(surely, *chain);
                }
                Vec::new()
            }
            // Each of these ends a transaction in some cases only.
            Class::Lock | Class::Definition | Class::Tables(_)
                if self.dialect == Dialect::MySql =>
            {
                self.pending.clone()
            }
            Class::Set(settings) => {
                let mut visible = Vec::new();
                for setting in settings {
                    match setting {
                        Setting::Autocommit(Some(true)) => {
                            visible = self.pending.clone();
                            // Within BEGIN it ends nothing.
                            if surely && !self.may_be_open {
                                self.pending.clear();
                            }
                            self.autocommit |= surely;
                        }
                        Setting::Autocommit(_) => self.autocommit = false,
                        Setting::CompletionType => self.chains = true,
                        _ => {}
                    }
                }
                visible
            }
            _ => Vec::new(),
        }
    }

    fn end(&mut self, surely: bool, chain: bool) -> Vec<Access> {
        if !surely {
            self.may_be_open = true;
            return self.pending.clone();
        }
        self.may_be_open = chain || self.chains;
        self.age = 0;
        core::mem::take(&mut self.pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writes(name: &str) -> Vec<Access> {
        vec![Access::whole(Target::table("db", name))]
    }

    #[test]
    fn a_commit_announces_what_was_written() {
        let mut t = Transaction::new(Dialect::MySql, true, false);
        t.wrote(&writes("a"));
        assert!(t.steer(&Class::Commit { chain: false }, true).is_empty());
        t.steer(&Class::Begin, true);
        t.wrote(&writes("a"));
        t.steer(&Class::Savepoint, true);
        assert_eq!(t.steer(&Class::Commit { chain: false }, true), writes("a"));
        assert!(!t.holds());
        t.steer(&Class::Begin, true);
        t.wrote(&writes("a"));
        assert!(t.steer(&Class::Rollback { chain: false }, true).is_empty());
        assert!(t.steer(&Class::Commit { chain: false }, true).is_empty());
    }

    #[test]
    fn what_may_have_been_skipped_ends_nothing() {
        let mut t = Transaction::new(Dialect::MySql, true, false);
        t.steer(&Class::Begin, true);
        t.wrote(&writes("a"));
        assert_eq!(t.steer(&Class::Commit { chain: false }, false), writes("a"));
        assert!(t.steer(&Class::Rollback { chain: false }, false).is_empty());
        assert_eq!(t.steer(&Class::Commit { chain: false }, true), writes("a"));
        assert!(t.steer(&Class::Commit { chain: false }, true).is_empty());
    }

    #[test]
    fn autocommit_off_holds_until_commit() {
        let mut t = Transaction::new(Dialect::MySql, true, false);
        t.steer(&Class::Set(vec![Setting::Autocommit(Some(false))]), true);
        t.wrote(&writes("a"));
        assert_eq!(t.steer(&Class::Commit { chain: false }, true), writes("a"));
        t.wrote(&writes("b"));
        assert_eq!(t.steer(&Class::Definition, true), writes("b"));
        assert_eq!(t.steer(&Class::Set(vec![Setting::Autocommit(Some(true))]), true), writes("b"));
        assert!(!t.holds());
    }
}
