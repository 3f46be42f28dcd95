//! Which rows of a table a statement touches: restrictions to constants, and when two of them are
//! disjoint.
//!
//! A restriction is not a lookup: it says that *all* rows that matter (read: those on which the
//! result depends; written: before and after the change) have one of some values in a column. Two
//! accesses of one table cannot meet if they are restricted in the same column to values that are
//! certainly different, whether the column is unique or not.
//!
//! What is certainly different depends on the column: `'05'` and `5` are one number, `'a '` and
//! `'A'` one string in most collations. So constants stay as they were written until the column's
//! kind is known from the catalogue, and then become a [`Value`], or else the restriction is
//! dropped.

use crate::target::Target;

/// A constant as the statement has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Literal {
    /// A whole number.
    Integer(i128),
    /// A string.
    Text(Box<str>),
    /// The parameter with this position, counted from 0.
    Parameter(usize),
    /// Something else, such as a parameter that could not be decoded.
    Unknown,
}

/// A constant and how it meets the column.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Constant {
    /// The constant.
    pub literal: Literal,
    /// The constant becomes the column's value, so the server may convert or cut it; otherwise it
    /// is compared.
    pub stored: bool,
}

/// All rows that matter have one of the values in the column.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Restriction<V> {
    /// The column's name: in lower case, unless it is a quoted one of PostgreSQL.
    pub column: Box<str>,
    /// The values.
    pub values: Vec<V>,
}

/// A value in a normal form: two that differ are different under every collation that the catalogue
/// lets through.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    /// Of a column of whole numbers.
    Integer(i128),
    /// Of a column of strings.
    Text(Box<str>),
}

/// What a column holds, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Whole numbers from the first to the second.
    Integer(i128, i128),
    /// Strings of at most so many characters.
    Text(u64),
}

/// Beyond this a server may compare a string with a number as floating point.
const EXACT_IN_DOUBLE: i128 = 1 << 53;

/// More values than this are as good as none.
pub(crate) const VALUES_MAX: usize = 256;

impl Constant {
    /// The normal form in a column of this kind, if it is certain.
    pub fn normalise(&self, kind: ColumnKind, parameters: &[Literal]) -> Option<Value> {
        let literal = match &self.literal {
            Literal::Parameter(position) => parameters.get(*position)?,
            other => other,
        };
        match (kind, literal) {
            (ColumnKind::Integer(min, max), Literal::Integer(number)) => {
                self.integer(*number, min, max).map(Value::Integer)
            }
            (ColumnKind::Integer(min, max), Literal::Text(text)) => {
                let number = plain_integer(text)?;
                if number.abs() >= EXACT_IN_DOUBLE {
                    return None;
                }
                self.integer(number, min, max).map(Value::Integer)
            }
            (ColumnKind::Text(max), Literal::Text(text)) => {
                if self.stored && text.chars().count() as u64 > max {
                    return None; // May be cut.
                }
                plain_text(text).map(Value::Text)
            }
            // A string column is compared with a number by number ('5abc' = 5), but stores the
            // number's digits.
            (ColumnKind::Text(max), Literal::Integer(number)) if self.stored => {
                let digits = number.to_string();
                if digits.len() as u64 > max { None } else { plain_text(&digits).map(Value::Text) }
            }
            _ => None,
        }
    }

    fn integer(&self, number: i128, min: i128, max: i128) -> Option<i128> {
        // What does not fit may be clipped; 0 may be replaced by the next number of an
        // AUTO_INCREMENT column.
        (!self.stored || (number != 0 && (min..=max).contains(&number))).then_some(number)
    }
}

/// `-?[0-9]+` with blanks around it, as every server reads it.
fn plain_integer(text: &str) -> Option<i128> {
    let text = text.trim_matches(' ');
    let digits = text.strip_prefix('-').unwrap_or(text);
    (!digits.is_empty() && digits.len() <= 20 && digits.bytes().all(|b| b.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

/// Folds what some collation holds for equal: case, blanks at the ends, and the letters that some
/// languages do not tell apart. Outside printable ASCII nothing is certain.
fn plain_text(text: &str) -> Option<Box<str>> {
    if !text.bytes().all(|b| matches!(b, b' '..=b'~')) {
        return None;
    }
    let folded = text.trim_matches(' ').bytes().map(|b| match b.to_ascii_lowercase() {
        b'j' | b'y' => 'i',
        b'u' | b'w' => 'v',
        other => other as char,
    });
    Some(folded.collect::<String>().into())
}

/// A part of the database that is read or written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// The table or tables.
    pub target: Target,
    /// All of these hold for the rows that matter. None: all rows.
    pub rows: Vec<Restriction<Value>>,
}

impl Access {
    /// Everything there is.
    pub const EVERYTHING: Self = Self { target: Target::EVERYTHING, rows: Vec::new() };

    /// All rows of a target.
    pub fn whole(target: Target) -> Self {
        Self { target, rows: Vec::new() }
    }

    /// May a row of one be a row of the other? True unless it is certain that not.
    pub fn meets(&self, other: &Self) -> bool {
        self.target.overlaps(&other.target)
            && !self
                .rows
                .iter()
                .any(|mine| other.rows.iter().any(|theirs| mine.is_disjoint(theirs)))
    }
}

impl Restriction<Value> {
    fn is_disjoint(&self, other: &Self) -> bool {
        use core::mem::discriminant;
        self.column == other.column
            && self.values.iter().all(|a| {
                // Values of different kinds cannot be of one column: its kind has changed in
                // between.
                other.values.iter().all(|b| a != b && discriminant(a) == discriminant(b))
            })
    }
}

/// May something that was read change by what is written? True unless it is certain that not.
pub fn conflicts(reads: &[Access], writes: &[Access]) -> bool {
    reads.iter().any(|read| writes.iter().any(|write| read.meets(write)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(literal: Literal) -> Constant {
        Constant { literal, stored: false }
    }

    fn text(text: &str) -> Literal {
        Literal::Text(text.into())
    }

    #[test]
    fn constants_become_values_only_where_that_is_certain() {
        let int = ColumnKind::Integer(-128, 127);
        let string = ColumnKind::Text(3);
        let stored = |literal| Constant { literal, stored: true };
        let table = [
            (compared(Literal::Integer(5)), int, Some(Value::Integer(5))),
            (compared(text("05")), int, Some(Value::Integer(5))),
            (compared(text(" -5 ")), int, Some(Value::Integer(-5))),
            (compared(text("5abc")), int, None),
            (compared(text("5.0")), int, None),
            (compared(text("")), int, None),
            (compared(text("9007199254740993")), int, None),
            (compared(Literal::Integer(300)), int, Some(Value::Integer(300))),
            (stored(Literal::Integer(300)), int, None),
            (stored(Literal::Integer(0)), int, None),
            (compared(text("Ab ")), string, Some(Value::Text("ab".into()))),
            (compared(text("abcd")), string, Some(Value::Text("abcd".into()))),
            (stored(text("abcd")), string, None),
            (stored(Literal::Integer(5)), string, Some(Value::Text("5".into()))),
            (compared(Literal::Integer(5)), string, None),
            (compared(text("é")), string, None),
            (compared(text("a\0")), string, None),
            (compared(Literal::Unknown), int, None),
            (compared(Literal::Parameter(1)), int, Some(Value::Integer(7))),
            (compared(Literal::Parameter(2)), int, None),
        ];
        for (constant, kind, value) in table {
            assert_eq!(
                constant.normalise(kind, &[Literal::Unknown, text("7")]),
                value,
                "{constant:?} {kind:?}"
            );
        }
    }

    #[test]
    fn accesses_meet_unless_a_column_tells_them_apart() {
        let access = |column: &str, values: &[i128]| Access {
            target: Target::table("wp", "t"),
            rows: vec![Restriction {
                column: column.into(),
                values: values.iter().map(|v| Value::Integer(*v)).collect(),
            }],
        };
        assert!(access("a", &[1, 2]).meets(&access("a", &[2, 3])));
        assert!(!access("a", &[1]).meets(&access("a", &[2, 3])));
        assert!(access("a", &[1]).meets(&access("b", &[2])));
        assert!(access("a", &[1]).meets(&Access::EVERYTHING));
        assert!(access("a", &[1]).meets(&Access::whole(Target::table("wp", "t"))));
        assert!(!access("a", &[1]).meets(&Access::whole(Target::table("wp", "u"))));
        assert!(conflicts(&[Access::EVERYTHING], &[access("a", &[1])]));
        assert!(!conflicts(&[Access::EVERYTHING], &[]));
    }
}
