//! What keeps requests from being answered although it may not matter, and what an operator can say
//! to it.

use serde::{Deserialize, Serialize};

/// A header or a cookie that is not known to be harmless.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StrangerReport {
    /// A cookie, not a header.
    pub is_cookie: bool,
    /// Name of the header or cookie. Values are not kept.
    pub name: String,
    /// Requests that had it; may be too many by a few.
    pub requests: u64,
}

impl StrangerReport {
    /// What an operator can write.
    pub fn advice(&self) -> String {
        let name = &self.name;
        if !self.is_cookie {
            return format!(
                "write --ignore-header {name} if no reply depends on it, --vary {name} if one does"
            );
        }
        if nicache_http::is_analytics_cookie(name.as_bytes()) {
            return format!(
                "write --ignore-cookie {}: no server reads it",
                nicache_http::ANALYTICS
            );
        }
        format!("write --ignore-cookie {name} if no reply depends on it")
    }
}

impl std::fmt::Display for StrangerReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", if self.is_cookie { "cookie" } else { "header" }, self.name)
    }
}
