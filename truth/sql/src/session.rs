//! One connection: bytes in, events out.

use std::sync::Arc;

use crate::catalogue::{Catalogue, ChangedTables, Defaults, expand};
use crate::command::Command;
use crate::dialects::Dialect;
use crate::dialects::server::Connection;
use crate::footprint::{Context, Footprint};
use crate::key::{Access, Literal};
use crate::parse::{is_plain, keeps_session, keeps_structure, parse};
use crate::reason::Reason;
use crate::statement::{Class, Setting, Statement, TableChange};
use crate::target::Target;
use crate::transaction::Transaction;

/// What a connection does. The crate's head says what a caller must make of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A statement is executed.
    Statement(Execution),
    /// A transaction that may be open changes this. It may be visible already, and will be
    /// announced once more when the transaction may end.
    InProgress {
        /// What is written.
        writes: Vec<Access>,
    },
    /// This becomes visible to others before the request is over.
    BecomesVisible {
        /// What was written.
        writes: Vec<Access>,
    },
    /// Anything may be read, changed and become visible before the request is over.
    Everything {
        /// Why nothing better is known.
        reason: Reason,
    },
    /// The structure of the database may be another when the request is over: the catalogue is out
    /// of date.
    SchemaChanged,
    /// The structure of the connection's database may be another when the request is over, and that
    /// of no other database: its catalogue is out of date.
    DatabaseChanged,
    /// These tables may be others when the request is over; the catalogue at hand is to be changed
    /// accordingly ([`Catalogue::change`]), and one that is fetched before the request is over,
    /// too.
    TablesChanged(ChangedTables),
    /// A text that begins like a query, a change of rows or of its own session was not understood.
    /// The catalogue at hand stays good, but a later one may help to understand more.
    SchemaDoubted,
    /// All events since the last one of these belong to one request, which ends with the server's
    /// next reply.
    RequestEnd,
}

/// One execution of a statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Execution {
    /// What it reads and writes.
    pub footprint: Footprint,
    /// How many statements of the connection before this one may have fixed the snapshot that it
    /// reads. With 0 it reads what is committed now; otherwise it may read as of the first of
    /// those.
    pub snapshot_age: u32,
    /// The execution may read what others have not committed.
    pub reads_uncommitted: bool,
}

/// Turns texts into statements; an implementation may keep the results.
pub trait Parse {
    /// The statements of a text, as [`crate::parse()`] gives them.
    fn parse(&mut self, dialect: Dialect, text: &[u8]) -> Arc<[Statement]>;
}

/// Parses every text anew.
#[derive(Clone, Copy, Debug, Default)]
pub struct Uncached;

impl Parse for Uncached {
    fn parse(&mut self, dialect: Dialect, text: &[u8]) -> Arc<[Statement]> {
        parse(dialect, text).into()
    }
}

/// Temporary tables that are remembered; with more, statements touch everything.
const TEMPORARY_MAX: usize = 64;

/// One connection of a client to a database server.
#[derive(Debug)]
pub struct Session {
    dialect: Dialect,
    connection: Box<dyn Connection>,
    state: State,
    /// Commands of the bytes at hand.
    commands: Vec<Command>,
}

#[derive(Clone, Debug)]
struct State {
    dialect: Dialect,
    defaults: Option<Defaults>,
    transaction: Transaction,
    database: Option<Box<str>>,
    temporary: Vec<Box<str>>,
    usual_lexing: bool,
    /// Whether the connection began with usual lexing, which RESET goes back to.
    began_with_usual_lexing: bool,
    /// The session has another language.
    foreign: bool,
    reads_uncommitted: bool,
    /// PostgreSQL: what was written since the last Sync.
    batch: Vec<Access>,
    /// What the transaction makes visible may be a change of the structure.
    may_define: bool,
    /// The same, of the connection's database alone.
    may_define_here: bool,
}

impl Session {
    /// A connection from its first byte. `defaults` are those of the [`Catalogue`]; without them
    /// nothing is assumed.
    pub fn new(dialect: Dialect, defaults: Option<Defaults>) -> Self {
        let state = State::new(dialect, defaults);
        Self { dialect, connection: dialect.server().connection(), state, commands: Vec::new() }
    }

    /// A connection whose beginning was not seen. It is followed once that is safe (MySQL: at the
    /// first command after a reply; PostgreSQL: never), with nothing assumed of its settings.
    pub fn in_the_middle(dialect: Dialect) -> Self {
        let mut session = Self::new(dialect, None);
        session.connection = dialect.server().connection_in_the_middle();
        session.state.lose();
        session.state.may_define = true;
        session
    }

    /// The dialect of the server.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Takes bytes that the server has received, in order and as one `recv` gave them.
    pub fn handle_client(
        &mut self,
        bytes: &[u8],
        parser: &mut impl Parse,
        catalogue: Option<&Catalogue>,
        on_event: &mut impl FnMut(Event),
    ) {
        let mut commands = core::mem::take(&mut self.commands);
        self.connection.handle_client(bytes, &mut |command| commands.push(command));
        for command in commands.drain(..) {
            self.state.command(command, parser, catalogue, on_event);
        }
        self.commands = commands;
    }

    /// Takes the first bytes that the server sent after what it received last (more of them do no
    /// harm). Calls may be left out altogether: then prepared statements of MySQL touch everything.
    pub fn handle_server(&mut self, bytes: &[u8]) {
        self.connection.handle_server(bytes);
    }

    /// Some of the bytes that the server received were not seen. What they did is the caller's to
    /// assume.
    pub fn handle_gap(&mut self, on_event: &mut impl FnMut(Event)) {
        self.connection.lose();
        self.state.everything(Reason::Gap, on_event);
        self.state.lose();
    }
}

impl State {
    fn new(dialect: Dialect, defaults: Option<Defaults>) -> Self {
        // PostgreSQL has no session without autocommit.
        let autocommit =
            dialect == Dialect::Postgres || defaults.is_some_and(|defaults| defaults.autocommit);
        let usual_language = defaults.is_none_or(|defaults| defaults.usual_language);
        let usual_lexing = defaults.is_some_and(|defaults| defaults.usual_lexing);
        Self {
            dialect,
            defaults,
            transaction: Transaction::new(dialect, autocommit && usual_language, !usual_language),
            database: None,
            temporary: Vec::new(),
            usual_lexing,
            began_with_usual_lexing: usual_lexing,
            foreign: !usual_language,
            reads_uncommitted: dialect == Dialect::MySql
                && defaults.is_none_or(|defaults| defaults.read_uncommitted),
            batch: Vec::new(),
            may_define: false,
            may_define_here: false,
        }
    }

    /// Nothing is known of the session's settings any longer.
    fn lose(&mut self) {
        self.transaction.lose();
        self.usual_lexing = false;
        self.began_with_usual_lexing = false;
        self.reads_uncommitted = self.dialect == Dialect::MySql;
        if self.dialect == Dialect::MySql {
            self.database = None;
        }
    }

    fn everything(&mut self, reason: Reason, on_event: &mut impl FnMut(Event)) {
        on_event(Event::Everything { reason });
        on_event(Event::SchemaChanged);
        self.may_define = true;
        self.batch = vec![Access::EVERYTHING];
    }

    /// A text that changes no structure. On a busy server, were each of these a change of the
    /// structure, the structure would never be known, and with it the settings by which texts are
    /// understood.
    fn everything_but_structure(&mut self, reason: Reason, on_event: &mut impl FnMut(Event)) {
        on_event(Event::Everything { reason });
        on_event(Event::SchemaDoubted);
        self.batch = vec![Access::EVERYTHING];
    }

    fn command(
        &mut self,
        command: Command,
        parser: &mut impl Parse,
        catalogue: Option<&Catalogue>,
        on_event: &mut impl FnMut(Event),
    ) {
        match command {
            Command::Query(text) => {
                self.batch.clear();
                self.text(&text, &[], true, parser, catalogue, on_event);
            }
            Command::Execute { text, parameters, surely } => {
                self.text(&text, &parameters, surely, parser, catalogue, on_event);
            }
            Command::Database(name) => self.database = name,
            Command::Reset => {
                let database = self.database.take();
                *self = Self { database, ..Self::new(self.dialect, self.defaults) };
            }
            Command::Everything(reason) => {
                self.everything(reason, on_event);
                self.lose();
            }
            Command::Sync => {
                if !self.batch.is_empty() {
                    on_event(Event::BecomesVisible { writes: core::mem::take(&mut self.batch) });
                }
            }
            Command::RequestEnd => on_event(Event::RequestEnd),
            Command::UnusualLexing => {
                self.usual_lexing = false;
                self.began_with_usual_lexing = false;
            }
        }
    }

    fn text(
        &mut self,
        text: &[u8],
        parameters: &[Literal],
        surely: bool,
        parser: &mut impl Parse,
        catalogue: Option<&Catalogue>,
        on_event: &mut impl FnMut(Event),
    ) {
        let refused = if self.foreign {
            Some(Reason::Setting)
        } else if !self.usual_lexing && !is_plain(text) {
            Some(Reason::Lexing)
        } else if self.temporary.len() > TEMPORARY_MAX {
            Some(Reason::UnknownTable)
        } else {
            None
        };
        if let Some(reason) = refused {
            if reason == Reason::Lexing && (keeps_session(text) || keeps_structure(text)) {
                self.everything_but_structure(reason, on_event);
            } else {
                self.everything(reason, on_event);
            }
            if self.foreign || !keeps_session(text) {
                self.lose();
            } else {
                self.transaction.wrote(&[Access::EVERYTHING]);
            }
            return;
        }
        let statements = parser.parse(self.dialect, text);
        for (at, statement) in statements.iter().enumerate() {
            self.statement(statement, parameters, surely && at == 0, catalogue, on_event);
        }
    }

    fn statement(
        &mut self,
        statement: &Statement,
        parameters: &[Literal],
        surely: bool,
        catalogue: Option<&Catalogue>,
        on_event: &mut impl FnMut(Event),
    ) {
        if let Class::Everything(reason) = statement.class {
            // It may have set anything, or begun or ended a transaction.
            self.everything(reason, on_event);
            return self.lose();
        }
        if statement.class == Class::Definition {
            return self.definition(on_event);
        }
        if statement.class == Class::DefinitionHere {
            return self.definition_here(on_event);
        }
        let changed = ChangedTables::of(statement, &self.context(), catalogue);
        if matches!(statement.class, Class::Tables(_)) && changed.is_none() {
            return self.definition(on_event);
        }
        let visible = self.transaction.steer(&statement.class, surely);
        if !visible.is_empty() {
            let all = visible.contains(&Access::EVERYTHING);
            on_event(Event::BecomesVisible { writes: visible });
            if all {
                let defines = core::mem::take(&mut self.may_define);
                on_event(if defines { Event::SchemaChanged } else { Event::SchemaDoubted });
            }
            if self.may_define_here {
                self.may_define_here = self.transaction.holds();
                on_event(Event::DatabaseChanged);
            }
        }
        match &statement.class {
            Class::Set(settings) => settings.iter().for_each(|setting| self.set(*setting)),
            // It may have failed; the protocol says when it is certain.
            Class::Use(_) => self.database = None,
            Class::Temporary(name) if !self.temporary.contains(name) => {
                self.temporary.push(name.clone());
            }
            _ => {}
        }
        if let Some(changed) = changed {
            let writes = changed.writes();
            self.transaction.wrote(&writes);
            on_event(Event::BecomesVisible { writes });
            if changed.change != TableChange::Emptied {
                on_event(Event::TablesChanged(changed));
            }
            return;
        }
        if !matches!(statement.class, Class::Read | Class::Write) {
            return;
        }
        let footprint = expand(statement, self.dialect, &self.context(), parameters, catalogue);
        let writes = footprint.writes.clone();
        let at_once = footprint.at_once;
        let everything = footprint.everything;
        on_event(Event::Statement(Execution {
            footprint,
            snapshot_age: self.transaction.count(),
            reads_uncommitted: self.reads_uncommitted,
        }));
        if let Some(reason) = everything {
            self.everything(reason, on_event);
            self.transaction.wrote(&[Access::EVERYTHING]);
        } else if !writes.is_empty() {
            self.batch.extend(
                writes
                    .iter()
                    .filter(|write| !self.batch.contains(write))
                    .cloned()
                    .collect::<Vec<_>>(),
            );
            self.transaction.wrote(&writes);
            on_event(if self.transaction.holds() && !at_once {
                Event::InProgress { writes }
            } else {
                Event::BecomesVisible { writes }
            });
        }
    }

    /// Where the next statement is executed.
    fn context(&self) -> Context<'_> {
        let (catalog, schema) = match self.dialect {
            Dialect::MySql => (None, self.database.as_deref()),
            Dialect::Postgres => (self.database.as_deref(), None),
        };
        Context { catalog, schema, temporary: &self.temporary }
    }

    /// A change of the structure that may concern anything.
    fn definition(&mut self, on_event: &mut impl FnMut(Event)) {
        self.everything(Reason::Definition, on_event);
        self.transaction.wrote(&[Access::EVERYTHING]);
    }

    /// A change of the structure that may concern anything in the connection's database.
    fn definition_here(&mut self, on_event: &mut impl FnMut(Event)) {
        let Some(database) = self.database.as_deref() else { return self.definition(on_event) };
        let writes = vec![Access::whole(Target::catalog(database))];
        on_event(Event::BecomesVisible { writes: writes.clone() });
        on_event(Event::DatabaseChanged);
        self.transaction.wrote(&writes);
        self.may_define_here |= self.transaction.holds();
        self.batch.extend(writes);
    }

    fn set(&mut self, setting: Setting) {
        match setting {
            Setting::UsualLexing(usual) => self.usual_lexing &= usual,
            Setting::Reset => self.usual_lexing = self.began_with_usual_lexing,
            Setting::OtherLanguage => self.foreign = true,
            Setting::ReadUncommitted(dirty) => {
                self.reads_uncommitted = dirty && self.dialect == Dialect::MySql;
            }
            Setting::Autocommit(_) | Setting::CompletionType | Setting::Other => {}
        }
    }
}
