//! What databases that speak SQL have in common: connections as `nicache_sql` follows them, and the
//! meaning of texts.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use nicache_sql::{Catalogue, Defaults, Dialect, Event, Parse, Statement, parse};

/// Texts whose meaning is remembered.
const TEXTS_MAX: usize = 8192;
/// Longer ones are not: hardly one of them comes again.
const TEXT_BYTES_MAX: usize = 4096;

/// One connection of a client to a database server: bytes in, events out.
pub trait Session: fmt::Debug + Send {
    /// Takes bytes that the server has received, in order and as one `recv` gave them.
    fn handle_client(
        &mut self,
        bytes: &[u8],
        texts: &mut Texts,
        catalogue: Option<&Catalogue>,
        on_event: &mut dyn FnMut(Event),
    );

    /// Takes the first bytes that the server sent after what it received last.
    fn handle_server(&mut self, bytes: &[u8]);

    /// Some of the bytes that the server received were not seen.
    fn handle_gap(&mut self, on_event: &mut dyn FnMut(Event));
}

impl Session for nicache_sql::Session {
    fn handle_client(
        &mut self,
        bytes: &[u8],
        texts: &mut Texts,
        catalogue: Option<&Catalogue>,
        on_event: &mut dyn FnMut(Event),
    ) {
        Self::handle_client(self, bytes, texts, catalogue, &mut |event| on_event(event));
    }

    fn handle_server(&mut self, bytes: &[u8]) {
        Self::handle_server(self, bytes);
    }

    fn handle_gap(&mut self, on_event: &mut dyn FnMut(Event)) {
        Self::handle_gap(self, &mut |event| on_event(event));
    }
}

/// A connection from its first byte.
pub(crate) fn session(dialect: Dialect, defaults: Option<Defaults>) -> Box<dyn Session> {
    Box::new(nicache_sql::Session::new(dialect, defaults))
}

/// A connection whose beginning nobody saw.
pub(crate) fn session_in_the_middle(dialect: Dialect) -> Box<dyn Session> {
    Box::new(nicache_sql::Session::in_the_middle(dialect))
}

/// What texts mean.
#[derive(Debug, Default)]
pub struct Texts {
    known: HashMap<Text, Arc<[Statement]>>,
}

type Text = (Dialect, Box<[u8]>);

impl Parse for Texts {
    fn parse(&mut self, dialect: Dialect, text: &[u8]) -> Arc<[Statement]> {
        if text.len() > TEXT_BYTES_MAX {
            return parse(dialect, text).into();
        }
        let key = (dialect, Box::from(text));
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let statements: Arc<[Statement]> = parse(dialect, text).into();
        if self.known.len() >= TEXTS_MAX {
            self.known.clear();
        }
        self.known.insert(key, statements.clone());
        statements
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_of_texts_is_bounded() {
        let mut texts = Texts::default();
        for number in 0..20_000 {
            for len in [1, 100_000] {
                // Most of them are long.
                if len == 1 || number % 1000 == 0 {
                    let text = format!("INSERT INTO t VALUES ({number}, '{}')", "x".repeat(len));
                    assert_eq!(texts.parse(Dialect::MySql, text.as_bytes()).len(), 1);
                }
            }
        }
        let bytes: usize = texts.known.keys().map(|(_, text)| text.len()).sum();
        assert!(texts.known.len() <= TEXTS_MAX && bytes <= TEXTS_MAX * TEXT_BYTES_MAX);
    }
}
