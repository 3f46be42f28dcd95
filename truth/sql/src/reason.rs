//! Why something must be taken to touch everything. Each reason has a label for metrics.

use nicache_reasons::reasons;

reasons! {
    /// Why a statement, or a whole connection, touches everything.
    Reason {
        /// The text is not SQL that the parser understands.
        Unparsable => "unparsable",
        /// The text is longer than [`crate::STATEMENT_BYTES_MAX`], or more deeply nested than is
        /// safe to walk.
        TooLarge => "too_large",
        /// The text has quotes or escapes whose meaning depends on a setting that is not known.
        Lexing => "lexing",
        /// The text has a comment that some versions of the server execute (`/*! … */`).
        VersionComment => "version_comment",
        /// A statement that runs others, or whose effect is not worked out (CALL, DO, EXECUTE,
        /// HANDLER, LOAD DATA …).
        Indirect => "indirect",
        /// A change of the structure or of rights: CREATE, ALTER, DROP, TRUNCATE, GRANT …
        Definition => "definition",
        /// A function or an operator that may do anything.
        Function => "function",
        /// INSERT DELAYED: the change comes some time after the reply.
        Delayed => "delayed",
        /// SET GLOBAL and its kin: other connections are affected.
        Global => "global",
        /// A prepared statement that was not seen to be prepared.
        UnknownStatement => "unknown_statement",
        /// A command of the protocol that is not followed.
        Command => "command",
        /// A table that is not in the catalogue, or one whose contents come from elsewhere.
        UnknownTable => "unknown_table",
        /// The connection is encrypted.
        Encrypted => "encrypted",
        /// The connection is compressed.
        Compressed => "compressed",
        /// The bytes do not follow the protocol.
        Malformed => "malformed",
        /// Bytes of the connection were not seen.
        Gap => "gap",
        /// The session's settings give statements another meaning.
        Setting => "setting",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_unique_and_indices_match() {
        let mut labels: Vec<_> = Reason::ALL.iter().map(Reason::label).collect();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), Reason::ALL.len());
        assert!(Reason::ALL.iter().enumerate().all(|(i, r)| r.index() == i));
        assert_eq!(Reason::TooLarge.to_string(), "too_large");
    }
}
