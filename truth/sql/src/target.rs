//! Names of tables, and what may be the same table.

use crate::dialects::Dialect;

/// Stands for what is said of the structure of a schema: its tables and their columns. No table is
/// called that.
pub(crate) const STRUCTURE: &str = "\u{1}";

/// A table, or all tables of a schema, of a database, or of the server: a part that is `None`
/// stands for any.
///
/// MySQL's databases are schemas here and have no catalogue part; PostgreSQL's database is the
/// catalogue part. Names are folded to lower case, whatever the server's settings: two tables that
/// are one here are purged together, and one table is never taken for two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// PostgreSQL: the database.
    pub catalog: Option<Box<str>>,
    /// The schema; in MySQL the database.
    pub schema: Option<Box<str>>,
    /// The table, view or sequence.
    pub name: Option<Box<str>>,
}

impl Target {
    /// Every table of the server.
    pub const EVERYTHING: Self = Self { catalog: None, schema: None, name: None };

    /// All tables of a schema.
    pub fn schema(schema: &str) -> Self {
        Self { catalog: None, schema: Some(fold(schema)), name: None }
    }

    /// All tables of a database of PostgreSQL.
    pub fn catalog(name: &str) -> Self {
        Self { catalog: Some(fold(name)), ..Self::EVERYTHING }
    }

    /// A table of a schema.
    pub fn table(schema: &str, name: &str) -> Self {
        Self { catalog: None, schema: Some(fold(schema)), name: Some(fold(name)) }
    }

    /// May the two have a table in common?
    pub fn overlaps(&self, other: &Self) -> bool {
        fn same(a: &Option<Box<str>>, b: &Option<Box<str>>) -> bool {
            match (a, b) {
                (Some(a), Some(b)) => a == b,
                _ => true,
            }
        }
        same(&self.name, &other.name)
            && same(&self.schema, &other.schema)
            && same(&self.catalog, &other.catalog)
    }

    /// Is this the whole server?
    pub fn is_everything(&self) -> bool {
        *self == Self::EVERYTHING
    }
}

impl core::fmt::Display for Target {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if let Some(catalog) = &self.catalog {
            write!(f, "{catalog}:")?;
        }
        let part = |part: &Option<Box<str>>| part.as_deref().unwrap_or("*").to_owned();
        write!(f, "{}.{}", part(&self.schema), part(&self.name))
    }
}

/// A name as it is compared.
pub(crate) fn fold(name: &str) -> Box<str> {
    name.to_ascii_lowercase().into()
}

/// A name of a statement as it is compared, or none if it may stand for other names, too.
///
/// Outside ASCII neither case nor the character set of the connection is certain. PostgreSQL cuts
/// names after 63 bytes.
pub(crate) fn fold_certain(dialect: Dialect, name: &str) -> Option<Box<str>> {
    if !name.is_ascii() || name.is_empty() {
        return None;
    }
    Some(match dialect {
        Dialect::Postgres => fold(&name[..name.len().min(63)]),
        Dialect::MySql => fold(name),
    })
}

/// A table as a statement names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TableName {
    /// The schema, if the statement says it.
    pub schema: Option<Box<str>>,
    /// The table; none if the name may stand for several.
    pub name: Option<Box<str>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_part_stands_for_any() {
        let a = Target::table("wp", "Posts");
        assert!(a.overlaps(&Target::table("WP", "posts")));
        assert!(!a.overlaps(&Target::table("wp", "options")));
        assert!(!a.overlaps(&Target::table("other", "posts")));
        assert!(a.overlaps(&Target::schema("wp")));
        assert!(!a.overlaps(&Target::schema("other")));
        assert!(a.overlaps(&Target::EVERYTHING));
        assert!(a.overlaps(&Target { schema: None, ..a.clone() }));
        assert!(a.overlaps(&Target { catalog: Some("db".into()), ..a.clone() }));
        assert_eq!(fold_certain(Dialect::MySql, "Ä"), None);
        assert_eq!(fold_certain(Dialect::Postgres, &"X".repeat(70)).unwrap().len(), 63);
    }
}
