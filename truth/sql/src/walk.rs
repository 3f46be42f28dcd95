//! Walks the tree of one statement: every table in it, every function, whatever makes the result
//! uncertain.
//!
//! The generic visitor finds all queries, table factors and expressions, however deep. What it
//! finds is checked against what is known here; anything else makes the statement one that may do
//! everything.

use core::ops::ControlFlow;

use sqlparser::ast::{
    AssignmentTarget, ConflictTarget, CopySource, CopyTarget, Delete, Expr, FromTable,
    FunctionArguments, Ident, Insert, MysqlInsertPriority, ObjectName, OnConflictAction, OnInsert,
    Query, Select, SetExpr, Statement as Tree, TableFactor, TableObject, TableWithJoins, Update,
    Value as TreeValue, Visit, Visitor,
};

use crate::dialects::Dialect;
use crate::functions::{BARE, Kind, is_foreign, kind};
use crate::key::{Constant, Restriction};
use crate::narrow;
use crate::reason::Reason;
use crate::statement::{Class, Statement, TableUse, Upsert};
use crate::target::{TableName, fold_certain};

/// What the statement does.
pub(crate) fn statement(dialect: Dialect, tree: &Tree) -> Statement {
    let mut walk = Walk {
        dialect,
        found: Statement::of(Class::Read),
        scopes: Vec::new(),
        narrowed: Vec::new(),
    };
    let broken = match tree {
        Tree::Explain { analyze, statement, options, .. } => {
            // What is estimated moves without a statement.
            (walk.found.volatile, walk.found.foreign) = (true, true);
            match **statement {
                // Without ANALYZE nothing is run, but then nothing is lost either by taking it for
                // the statement.
                Tree::Query(_) | Tree::Insert(_) | Tree::Update(_) | Tree::Delete(_) => {
                    statement.visit(&mut walk)
                }
                _ if *analyze || options.is_some() => ControlFlow::Break(Reason::Indirect),
                _ => ControlFlow::Break(Reason::Indirect),
            }
        }
        Tree::ExplainTable { .. } => {
            walk.found.structure = true;
            ControlFlow::Continue(())
        }
        Tree::Copy { source, to, target, .. } => walk.copy(source, *to, target),
        _ => tree.visit(&mut walk),
    };
    match broken {
        ControlFlow::Break(reason) => Statement::everything(reason),
        ControlFlow::Continue(()) => walk.found,
    }
}

/// The common table expressions of one query, in order.
struct Scope {
    recursive: bool,
    definitions: Vec<(Box<str>, *const Query)>,
    /// The definition that is being walked, if it is not the query's body.
    inside: Option<usize>,
}

impl Scope {
    /// A definition sees those before it, and itself if it is recursive.
    fn sees(&self, name: &str) -> bool {
        let seen = match self.inside {
            None => self.definitions.len(),
            Some(at) => at + usize::from(self.recursive),
        };
        self.definitions[..seen].iter().any(|(defined, _)| **defined == *name)
    }
}

struct Walk {
    dialect: Dialect,
    found: Statement,
    scopes: Vec<Scope>,
    /// Tables of the outermost query, known by their place in the tree, whose rows are restricted.
    narrowed: Vec<(*const TableFactor, Vec<Restriction<Constant>>)>,
}

/// Words that stand before a table's name in some statement of some server.
const MODIFIERS: &[&str] = &[
    "only",
    "lateral",
    "low_priority",
    "high_priority",
    "delayed",
    "ignore",
    "quick",
    "rows",
    "table",
    "value",
    "values",
    "into",
    "from",
    "select",
    "set",
    "partition",
    "oj",
    "portion",
    "concurrently",
    "if",
    "exists",
    "not",
    "temporary",
    "unlogged",
    "local",
    "global",
    "outer",
    "inner",
    "cross",
    "natural",
    "left",
    "right",
    "full",
    "join",
    "on",
    "using",
    "where",
    "straight_join",
    "for",
    "next",
    "previous",
    "current",
    "update",
    "delete",
    "insert",
    "replace",
    "with",
];

type Flow = ControlFlow<Reason>;

impl Walk {
    fn table_name(&self, name: &ObjectName) -> Result<TableName, Reason> {
        let parts: Option<Vec<&Ident>> = name.0.iter().map(|part| part.as_ident()).collect();
        let parts = parts.ok_or(Reason::Unparsable)?;
        let (schema, name) = match parts.as_slice() {
            [name] => (None, name),
            [schema, name] => (Some(schema), name),
            // PostgreSQL: the database, which must be the connection's own.
            [_, schema, name] if self.dialect == Dialect::Postgres => (Some(schema), name),
            _ => return Err(Reason::Unparsable),
        };
        // A modifier that the parser does not know and takes for the table, with the table for its
        // alias.
        if name.quote_style.is_none()
            && MODIFIERS.iter().any(|word| name.value.eq_ignore_ascii_case(word))
        {
            return Err(Reason::Unparsable);
        }
        let schema = match schema {
            None => None,
            Some(schema) => {
                Some(fold_certain(self.dialect, &schema.value).ok_or(Reason::UnknownTable)?)
            }
        };
        Ok(TableName { schema, name: fold_certain(self.dialect, &name.value) })
    }

    fn is_cte(&self, table: &TableName) -> bool {
        table.schema.is_none()
            && table
                .name
                .as_ref()
                .is_some_and(|name| self.scopes.iter().any(|scope| scope.sees(name)))
    }

    fn reads(&mut self, name: &ObjectName, rows: Vec<Restriction<Constant>>) -> Flow {
        let table = match self.table_name(name) {
            Ok(table) => table,
            Err(reason) => return ControlFlow::Break(reason),
        };
        if name.0.len() == 1 && self.is_cte(&table) {
            return ControlFlow::Continue(());
        }
        let system = |name: &str| {
            matches!(
                name,
                "information_schema" | "performance_schema" | "mysql" | "sys" | "pg_catalog"
            )
        };
        if table.schema.as_deref().is_some_and(system)
            || (self.dialect == Dialect::Postgres
                && table.name.as_deref().is_some_and(|n| n.starts_with("pg_")))
        {
            // Counters and statistics move by themselves.
            self.found.volatile = true;
        }
        if self.dialect == Dialect::MySql
            && table.schema.is_none()
            && table.name.as_deref() == Some("dual")
        {
            return ControlFlow::Continue(());
        }
        let read = TableUse { table, rows, upsert: Upsert::No };
        if !self.found.reads.contains(&read) {
            self.found.reads.push(read);
        }
        ControlFlow::Continue(())
    }

    fn writes(
        &mut self,
        name: &ObjectName,
        rows: Vec<Restriction<Constant>>,
        upsert: Upsert,
    ) -> Flow {
        self.found.class = Class::Write;
        match self.table_name(name) {
            Ok(table) => {
                self.found.writes.push(TableUse { table, rows, upsert });
                ControlFlow::Continue(())
            }
            Err(reason) => ControlFlow::Break(reason),
        }
    }

    fn function(&mut self, name: &ObjectName, arguments: Option<&FunctionArguments>) -> Flow {
        let parts: Option<Vec<&Ident>> = name.0.iter().map(|part| part.as_ident()).collect();
        let plain = match parts.as_deref() {
            Some([name]) => Some(name.value.to_ascii_lowercase()),
            Some([schema, name])
                if self.dialect == Dialect::Postgres
                    && schema.value.eq_ignore_ascii_case("pg_catalog") =>
            {
                Some(name.value.to_ascii_lowercase())
            }
            _ => None,
        };
        let Some(plain) = plain else {
            // A function of a schema is somebody's own.
            self.found.functions.push(name.to_string().to_lowercase().into());
            return ControlFlow::Continue(());
        };
        if self.dialect == Dialect::Postgres && plain == "set_config" {
            return ControlFlow::Break(Reason::Setting);
        }
        self.found.foreign |= is_foreign(self.dialect, &plain);
        match kind(self.dialect, &plain) {
            Kind::Pure => {}
            Kind::Volatile => self.found.volatile = true,
            Kind::Session => self.found.session = true,
            Kind::Sequence => return self.sequence(arguments),
            Kind::Unknown => {}
        }
        // The caller may know that somebody has defined one of this name.
        let plain = plain.into_boxed_str();
        if !self.found.functions.contains(&plain) {
            self.found.functions.push(plain);
        }
        ControlFlow::Continue(())
    }

    /// `nextval('schema.sequence')`.
    fn sequence(&mut self, arguments: Option<&FunctionArguments>) -> Flow {
        use sqlparser::ast::{FunctionArg, FunctionArgExpr};
        self.found.volatile = true;
        self.found.at_once = true;
        self.found.class = Class::Write;
        let mut table = TableName { schema: None, name: None };
        if let Some(FunctionArguments::List(list)) = arguments
            && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))) = list.args.first()
        {
            let mut argument = argument;
            while let Expr::Cast { expr, .. } | Expr::Nested(expr) = argument {
                argument = expr;
            }
            if let Expr::Value(value) = argument
                && let TreeValue::SingleQuotedString(text) = &value.value
            {
                let name = text.rsplit('.').next().unwrap_or(text).trim_matches('"');
                table.name = fold_certain(self.dialect, name);
            } else if self.dialect == Dialect::MySql
                && let Expr::Identifier(name) = argument
            {
                table.name = fold_certain(self.dialect, &name.value);
            }
        }
        self.found.writes.push(TableUse { table, rows: Vec::new(), upsert: Upsert::No });
        ControlFlow::Continue(())
    }

    fn copy(&mut self, source: &CopySource, to: bool, target: &CopyTarget) -> Flow {
        match (source, to, target) {
            (CopySource::Table { table_name, .. }, false, CopyTarget::Stdin) => {
                self.writes(table_name, Vec::new(), Upsert::No)
            }
            (CopySource::Table { table_name, .. }, true, CopyTarget::Stdout) => {
                self.reads(table_name, Vec::new())
            }
            (CopySource::Query(query), true, CopyTarget::Stdout) => query.visit(self),
            _ => ControlFlow::Break(Reason::Indirect),
        }
    }

    /// The parts of a query that have no hook of their own.
    fn body(&mut self, body: &SetExpr) -> Flow {
        match body {
            SetExpr::Select(select) => self.select(select),
            SetExpr::SetOperation { left, right, .. } => {
                self.body(left)?;
                self.body(right)
            }
            // These are visited by themselves.
            SetExpr::Query(_) | SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) => {
                ControlFlow::Continue(())
            }
            SetExpr::Values(_) => ControlFlow::Continue(()),
            SetExpr::Merge(_) | SetExpr::Table(_) => ControlFlow::Break(Reason::Indirect),
        }
    }

    fn select(&mut self, select: &Select) -> Flow {
        if select.into.is_some() || select.prewhere.is_some() || !select.lateral_views.is_empty() {
            return ControlFlow::Break(Reason::Indirect);
        }
        ControlFlow::Continue(())
    }

    fn insert(&mut self, insert: &Insert) -> Flow {
        if insert.priority == Some(MysqlInsertPriority::Delayed) {
            return ControlFlow::Break(Reason::Delayed);
        }
        let TableObject::TableName(name) = &insert.table else {
            return ControlFlow::Break(Reason::Indirect);
        };
        if insert.overwrite
            || insert.partitioned.is_some()
            || !insert.multi_table_into_clauses.is_empty()
        {
            return ControlFlow::Break(Reason::Indirect);
        }
        let (mut rows, given) = narrow::inserted(insert);
        let mut upsert = Upsert::No;
        if insert.replace_into {
            upsert = Upsert::AnyKey(given.clone());
        }
        match &insert.on {
            None => {}
            Some(OnInsert::DuplicateKeyUpdate(assignments)) => {
                upsert = Upsert::AnyKey(given);
                narrow::assign(&mut rows, assignments);
            }
            Some(OnInsert::OnConflict(conflict)) => match &conflict.action {
                OnConflictAction::DoNothing => {}
                OnConflictAction::DoUpdate(update) => {
                    match &conflict.conflict_target {
                        Some(ConflictTarget::Columns(columns)) => {
                            rows.retain(|row| {
                                columns.iter().any(|column| narrow::folded(column) == row.column)
                            });
                        }
                        _ => rows.clear(),
                    }
                    narrow::assign(&mut rows, &update.assignments);
                }
            },
            #[allow(unreachable_patterns, reason = "the enum may grow")]
            Some(_) => return ControlFlow::Break(Reason::Indirect),
        }
        if insert.insert_alias.is_some() {
            // `AS new(a, b)` gives the columns other names.
            rows.clear();
        }
        self.writes(name, rows, upsert)
    }

    fn update(&mut self, update: &Update) -> Flow {
        let alone = update.table.joins.is_empty() && update.from.is_none();
        if let (true, TableFactor::Table { name, .. }) = (alone, &update.table.relation) {
            let mut rows = narrow::single(&update.table.relation, update.selection.as_ref());
            self.narrowed.push((&raw const update.table.relation, rows.clone()));
            narrow::assign(&mut rows, &update.assignments);
            if update.assignments.iter().any(|a| matches!(a.target, AssignmentTarget::Tuple(_))) {
                rows.clear();
            }
            return self.writes(name, rows, Upsert::No);
        }
        self.writes_all(core::slice::from_ref(&update.table))
    }

    fn delete(&mut self, delete: &Delete) -> Flow {
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
        if let ([table], true, None) = (from.as_slice(), delete.tables.is_empty(), &delete.using)
            && table.joins.is_empty()
            && let TableFactor::Table { name, .. } = &table.relation
        {
            let rows = narrow::single(&table.relation, delete.selection.as_ref());
            self.narrowed.push((&raw const table.relation, rows.clone()));
            return self.writes(name, rows, Upsert::No);
        }
        // Which of the tables are meant may be said by alias: all of them.
        self.writes_all(from)?;
        match &delete.using {
            Some(using) => self.writes_all(using),
            None => ControlFlow::Continue(()),
        }
    }

    fn writes_all(&mut self, tables: &[TableWithJoins]) -> Flow {
        for table in tables {
            self.writes_factor(&table.relation)?;
            for join in &table.joins {
                self.writes_factor(&join.relation)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn writes_factor(&mut self, factor: &TableFactor) -> Flow {
        match factor {
            TableFactor::Table { name, .. } => self.writes(name, Vec::new(), Upsert::No),
            TableFactor::Derived { .. } => ControlFlow::Continue(()),
            TableFactor::NestedJoin { table_with_joins, .. } => {
                self.writes_all(core::slice::from_ref(table_with_joins))
            }
            _ => ControlFlow::Break(Reason::Indirect),
        }
    }

    fn literal(&mut self, value: &TreeValue) {
        // 'now' is a constant of PostgreSQL's time types that moves.
        if self.dialect == Dialect::Postgres
            && let TreeValue::SingleQuotedString(text) = value
            && text.len() <= 40
        {
            let text = text.to_ascii_lowercase();
            self.found.volatile |=
                ["now", "today", "tomorrow", "yesterday"].iter().any(|word| text.contains(word));
        }
    }
}

impl Visitor for Walk {
    type Break = Reason;

    fn pre_visit_statement(&mut self, tree: &Tree) -> Flow {
        match tree {
            Tree::Query(query) => {
                self.narrowed.extend(narrow::query(query));
                ControlFlow::Continue(())
            }
            Tree::Insert(insert) => self.insert(insert),
            Tree::Update(update) => self.update(update),
            Tree::Delete(delete) => self.delete(delete),
            _ => ControlFlow::Break(Reason::Indirect),
        }
    }

    fn pre_visit_query(&mut self, query: &Query) -> Flow {
        if query.for_clause.is_some() || query.settings.is_some() || query.format_clause.is_some() {
            return ControlFlow::Break(Reason::Unparsable);
        }
        if !query.pipe_operators.is_empty() {
            return ControlFlow::Break(Reason::Unparsable);
        }
        self.found.locking |= !query.locks.is_empty();
        let this: *const Query = query;
        if let Some(scope) = self.scopes.last_mut() {
            scope.inside = scope
                .definitions
                .iter()
                .position(|(_, definition)| *definition == this)
                .or(scope.inside);
        }
        let mut scope = Scope { recursive: false, definitions: Vec::new(), inside: None };
        if let Some(with) = &query.with {
            scope.recursive = with.recursive;
            for cte in &with.cte_tables {
                match fold_certain(self.dialect, &cte.alias.name.value) {
                    Some(name) => scope.definitions.push((name, &raw const *cte.query)),
                    None => return ControlFlow::Break(Reason::Unparsable),
                }
            }
        }
        self.scopes.push(scope);
        self.body(&query.body)
    }

    fn post_visit_query(&mut self, query: &Query) -> Flow {
        self.scopes.pop();
        let this: *const Query = query;
        if let Some(scope) = self.scopes.last_mut()
            && scope.definitions.iter().any(|(_, definition)| *definition == this)
        {
            scope.inside = None;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> Flow {
        match factor {
            TableFactor::Table {
                name, args: None, json_path: None, version: None, sample, ..
            } => {
                self.found.volatile |= sample.is_some();
                let this: *const TableFactor = factor;
                let rows = match self.narrowed.iter().position(|(place, _)| *place == this) {
                    Some(at) => self.narrowed.swap_remove(at).1,
                    None => Vec::new(),
                };
                self.reads(name, rows)
            }
            TableFactor::Table { name, args: Some(_), .. } | TableFactor::Function { name, .. } => {
                // ONLY (t) is not a function.
                self.table_name(name).map_or_else(ControlFlow::Break, |_| self.function(name, None))
            }
            TableFactor::Derived { .. }
            | TableFactor::NestedJoin { .. }
            | TableFactor::UNNEST { .. }
            | TableFactor::JsonTable { .. } => ControlFlow::Continue(()),
            _ => ControlFlow::Break(Reason::Unparsable),
        }
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> Flow {
        match expr {
            Expr::Function(function) => return self.function(&function.name, Some(&function.args)),
            Expr::Identifier(name) if name.quote_style.is_none() => {
                if name.value.starts_with('@') {
                    self.found.session = true;
                } else if BARE.iter().any(|bare| name.value.eq_ignore_ascii_case(bare)) {
                    self.found.volatile = true;
                }
            }
            Expr::CompoundIdentifier(parts)
                if parts.first().is_some_and(|part| part.value.starts_with('@')) =>
            {
                self.found.session = true;
            }
            Expr::BinaryOp {
                op: sqlparser::ast::BinaryOperator::PGCustomBinaryOperator(_),
                ..
            } => {
                self.found.functions.push("operator()".into());
            }
            Expr::Value(value) => self.literal(&value.value),
            Expr::TypedString(typed) => self.literal(&typed.value.value),
            Expr::Lambda(_) | Expr::Dictionary(_) | Expr::Map(_) => {
                return ControlFlow::Break(Reason::Unparsable);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
