//! Finds restrictions to constants in a statement's tree.
//!
//! Only what is ANDed at the top of a WHERE counts, and only if everything around it is made of
//! operators that the parser and every server bind alike (MySQL's `||` and XOR are not among them).

use sqlparser::ast::{
    Assignment, AssignmentTarget, BinaryOperator, Expr, Ident, Insert, ObjectName, Query, Select,
    SetExpr, TableFactor, UnaryOperator, Value,
};

use crate::functions::BARE;
use crate::key::{Constant, Literal, Restriction, VALUES_MAX};

type Rows = Vec<Restriction<Constant>>;

/// The restrictions of the tables of the outermost SELECTs, each table known by its place.
pub(crate) fn query(query: &Query) -> Vec<(*const TableFactor, Rows)> {
    let mut found = Vec::new();
    body(&query.body, &mut found);
    found
}

fn body(expr: &SetExpr, found: &mut Vec<(*const TableFactor, Rows)>) {
    match expr {
        SetExpr::Select(select) => self::select(select, found),
        SetExpr::SetOperation { left, right, .. } => {
            body(left, found);
            body(right, found);
        }
        SetExpr::Query(query) => body(&query.body, found),
        _ => {}
    }
}

fn select(select: &Select, found: &mut Vec<(*const TableFactor, Rows)>) {
    let Some(selection) = &select.selection else { return };
    let terms = terms(selection);
    if terms.is_empty() {
        return;
    }
    let mut factors = Vec::new();
    for table in &select.from {
        factors.push(&table.relation);
        factors.extend(table.joins.iter().map(|join| &join.relation));
    }
    let alone = factors.len() == 1;
    for factor in &factors {
        let Some(name) = called(factor) else { continue };
        // The same name twice is one table by schema and another by alias.
        if factors
            .iter()
            .filter(|other| called(other).is_none_or(|n| n.eq_ignore_ascii_case(name)))
            .count()
            > 1
        {
            continue;
        }
        let rows = restrictions(&terms, name, alone);
        if !rows.is_empty() {
            found.push((&raw const **factor, rows));
        }
    }
}

/// The restrictions of the one table of an UPDATE or DELETE.
pub(crate) fn single(factor: &TableFactor, selection: Option<&Expr>) -> Rows {
    match (selection, called(factor)) {
        (Some(selection), Some(name)) => restrictions(&terms(selection), name, true),
        _ => Vec::new(),
    }
}

/// How the statement's columns call a table.
fn called(factor: &TableFactor) -> Option<&str> {
    match factor {
        TableFactor::Table { alias: Some(alias), args: None, .. } => {
            alias.columns.is_empty().then_some(alias.name.value.as_str())
        }
        TableFactor::Table { name, args: None, .. } => {
            Some(name.0.last()?.as_ident()?.value.as_str())
        }
        _ => None,
    }
}

/// A column that equals one of some constants.
struct Term<'a> {
    qualifier: Option<&'a Ident>,
    column: &'a Ident,
    values: Vec<Constant>,
}

fn restrictions(terms: &[Term], table: &str, alone: bool) -> Rows {
    terms
        .iter()
        .filter(|term| match term.qualifier {
            Some(qualifier) => qualifier.value.eq_ignore_ascii_case(table),
            None => alone,
        })
        .map(|term| Restriction { column: folded(term.column), values: term.values.clone() })
        .collect()
}

/// A column's name as it is compared: only PostgreSQL's quoted names have case.
pub(crate) fn folded(name: &Ident) -> Box<str> {
    match name.quote_style {
        Some('"') => name.value.as_str().into(),
        _ => name.value.to_ascii_lowercase().into(),
    }
}

fn terms(selection: &Expr) -> Vec<Term<'_>> {
    let mut found = Vec::new();
    if !binds_alike(selection) {
        return found;
    }
    let mut open = vec![selection];
    while let Some(expr) = open.pop() {
        match expr {
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
                open.extend([&**left, &**right]);
            }
            Expr::Nested(inner) if binds_alike(inner) => open.push(inner),
            Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
                for (column, constant) in [(left, right), (right, left)] {
                    if let (Some((qualifier, column)), Some(literal)) =
                        (column_of(column), literal(constant))
                    {
                        let values = vec![Constant { literal, stored: false }];
                        found.push(Term { qualifier, column, values });
                    }
                }
            }
            Expr::InList { expr, list, negated: false } if list.len() <= VALUES_MAX => {
                let values: Option<Vec<Constant>> = list
                    .iter()
                    .map(|item| Some(Constant { literal: literal(item)?, stored: false }))
                    .collect();
                if let (Some((qualifier, column)), Some(values)) = (column_of(expr), values) {
                    found.push(Term { qualifier, column, values });
                }
            }
            _ => {}
        }
    }
    found
}

/// Are the operators that are not inside parentheses among those that all bind alike?
fn binds_alike(expr: &Expr) -> bool {
    let mut open = vec![expr];
    while let Some(expr) = open.pop() {
        match expr {
            Expr::BinaryOp { left, op, right } => {
                use BinaryOperator::*;
                if !matches!(
                    op,
                    And | Or
                        | Eq
                        | NotEq
                        | Lt
                        | Gt
                        | LtEq
                        | GtEq
                        | Plus
                        | Minus
                        | Multiply
                        | Divide
                ) {
                    return false;
                }
                open.extend([&**left, &**right]);
            }
            Expr::UnaryOp { op: UnaryOperator::Not | UnaryOperator::Minus, expr } => {
                open.push(expr);
            }
            Expr::IsNull(expr) | Expr::IsNotNull(expr) => open.push(expr),
            Expr::Between { expr, low, high, .. } => open.extend([&**expr, &**low, &**high]),
            Expr::Like { expr, pattern, .. } | Expr::ILike { expr, pattern, .. } => {
                open.extend([&**expr, &**pattern]);
            }
            Expr::InList { expr, .. } | Expr::InSubquery { expr, .. } => open.push(expr),
            Expr::Cast { expr, .. } => open.push(expr),
            Expr::Identifier(_)
            | Expr::CompoundIdentifier(_)
            | Expr::Value(_)
            | Expr::TypedString(_)
            | Expr::Function(_)
            | Expr::Nested(_)
            | Expr::Subquery(_)
            | Expr::Exists { .. }
            | Expr::Tuple(_)
            | Expr::Case { .. } => {}
            _ => return false,
        }
    }
    true
}

fn column_of(expr: &Expr) -> Option<(Option<&Ident>, &Ident)> {
    match expr {
        Expr::Identifier(name) => {
            let bare = name.quote_style.is_none()
                && BARE.iter().any(|bare| name.value.eq_ignore_ascii_case(bare));
            (!bare && name.value.is_ascii() && !name.value.starts_with('@')).then_some((None, name))
        }
        Expr::CompoundIdentifier(parts) => match parts.as_slice() {
            [table, column] if column.value.is_ascii() => Some((Some(table), column)),
            _ => None,
        },
        Expr::Nested(inner) => column_of(inner),
        _ => None,
    }
}

/// A constant whose value is plain to see.
fn literal(expr: &Expr) -> Option<Literal> {
    match expr {
        Expr::Nested(inner) => literal(inner),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match literal(expr)? {
            Literal::Integer(number) => Some(Literal::Integer(-number)),
            _ => None,
        },
        Expr::Value(value) => match &value.value {
            Value::Number(digits, false)
                if digits.len() <= 20 && digits.bytes().all(|b| b.is_ascii_digit()) =>
            {
                digits.parse().ok().map(Literal::Integer)
            }
            // PostgreSQL's double quotes are names, and never get here.
            Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => {
                Some(Literal::Text(text.as_str().into()))
            }
            Value::Placeholder(name) => match name.as_bytes() {
                [b'?', ..] => name[1..].parse().ok().map(Literal::Parameter),
                [b'$', ..] => name[1..]
                    .parse()
                    .ok()
                    .filter(|n| *n > 0)
                    .map(|n: usize| Literal::Parameter(n - 1)),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

/// What an INSERT gives: the columns whose values are all literal, and all columns that it names.
pub(crate) fn inserted(insert: &Insert) -> (Rows, Vec<Box<str>>) {
    if !insert.assignments.is_empty() {
        let mut rows = Vec::new();
        let mut given = Vec::new();
        for assignment in &insert.assignments {
            let AssignmentTarget::ColumnName(name) = &assignment.target else {
                return (Vec::new(), Vec::new());
            };
            let Some(column) = last(name) else { return (Vec::new(), Vec::new()) };
            if let Some(literal) = literal(&assignment.value) {
                rows.push(Restriction {
                    column: column.clone(),
                    values: vec![Constant { literal, stored: true }],
                });
            }
            given.push(column);
        }
        return (rows, given);
    }
    let columns: Option<Vec<Box<str>>> = insert.columns.iter().map(last).collect();
    let columns = columns.unwrap_or_default();
    let Some(source) = &insert.source else { return (Vec::new(), columns) };
    let SetExpr::Values(values) = &*source.body else { return (Vec::new(), columns) };
    let mut rows = Vec::new();
    if values.rows.len() <= VALUES_MAX {
        'columns: for (at, column) in columns.iter().enumerate() {
            let mut constants = Vec::new();
            for row in &values.rows {
                match row.content.get(at).and_then(literal) {
                    Some(literal) if row.content.len() == columns.len() => {
                        constants.push(Constant { literal, stored: true });
                    }
                    _ => continue 'columns,
                }
            }
            rows.push(Restriction { column: column.clone(), values: constants });
        }
    }
    (rows, columns)
}

/// The rows of an UPDATE before and after: an assigned column has its old or its new value.
pub(crate) fn assign(rows: &mut Rows, assignments: &[Assignment]) {
    for assignment in assignments {
        let AssignmentTarget::ColumnName(name) = &assignment.target else {
            rows.clear();
            return;
        };
        let Some(column) = last(name) else {
            rows.clear();
            return;
        };
        if is_same_column(&assignment.value, &column) {
            continue;
        }
        match literal(&assignment.value) {
            Some(literal) => {
                for row in rows.iter_mut().filter(|row| row.column == column) {
                    row.values.push(Constant { literal: literal.clone(), stored: true });
                }
            }
            None => rows.retain(|row| row.column != column),
        }
    }
}

/// `VALUES(c)`, `EXCLUDED.c`: the inserted value, which is among the restriction's; `c` itself: no
/// change.
fn is_same_column(value: &Expr, column: &str) -> bool {
    use sqlparser::ast::{FunctionArg, FunctionArgExpr, FunctionArguments};
    let is_it = |name: &Ident| *folded(name) == *column;
    match value {
        Expr::Identifier(name) => is_it(name),
        Expr::CompoundIdentifier(parts) => {
            matches!(parts.as_slice(),
                [table, name] if is_it(name) && table.value.eq_ignore_ascii_case("excluded"))
        }
        Expr::Function(function) => match (function.name.0.as_slice(), &function.args) {
            ([name], FunctionArguments::List(list)) => {
                name.as_ident().is_some_and(|name| name.value.eq_ignore_ascii_case("values"))
                    && matches!(list.args.as_slice(),
                        [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Identifier(name)))]
                        if is_it(name))
            }
            _ => false,
        },
        _ => false,
    }
}

fn last(name: &ObjectName) -> Option<Box<str>> {
    name.0.last()?.as_ident().map(folded)
}
