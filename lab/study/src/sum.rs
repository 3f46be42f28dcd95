//! Sums of bytes that may pass 2^64: a trace may say anything of its sizes.

use serde::Serializer;

/// A sum as a number of JSON: whole as long as it fits 64 bits, else as near as a double is.
///
/// # Errors
/// What the serializer says.
pub(crate) fn serialize<S: Serializer>(sum: &u128, serializer: S) -> Result<S::Ok, S::Error> {
    match u64::try_from(*sum) {
        Ok(sum) => serializer.serialize_u64(sum),
        Err(_) => serializer.serialize_f64(*sum as f64),
    }
}
