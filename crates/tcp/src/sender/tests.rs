//! Unit tests of the sender.
