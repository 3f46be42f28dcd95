//! Settings that are written in a file as they are in a flag.

use serde::{Deserialize, Serialize};

use super::span::Span;
use super::{AdminAddress, Milliseconds, Network, Publish, RemoteDatabase, Subnet};

/// Serde by way of `FromStr` and `Display`, so the file's spelling is the flag's.
macro_rules! serde_as_text {
    ($($kind:ty),*) => {$(
        impl Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$kind,
            D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}
serde_as_text!(AdminAddress, Milliseconds, Network, Publish, RemoteDatabase, Span, Subnet);
