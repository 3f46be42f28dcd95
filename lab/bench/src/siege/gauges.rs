//! What the card says of itself, and what the kernel says of its memory.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a card holds at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Gauges {
    /// Bytes of the card process that are in memory.
    pub resident_bytes: u64,
    /// Bytes that it has mapped: what it can have in memory at most, unless it maps more.
    pub mapped_bytes: u64,
    /// All that the card counts, by name.
    pub counters: BTreeMap<String, u64>,
}

impl Gauges {
    /// By the card's status and the process.
    ///
    /// # Errors
    /// The process is gone, or the status has no counters.
    pub fn new(status: &Value, pid: u32) -> Result<Self> {
        let counters = status["counters"].as_object().context("no counters in the status")?;
        let counters = counters
            .iter()
            .filter_map(|(name, value)| Some((name.clone(), value.as_u64()?)))
            .collect();
        let text = std::fs::read_to_string(format!("/proc/{pid}/status"))
            .context("the card's process is gone")?;
        let resident = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident =
            resident.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
        let resident = resident.with_context(|| format!("no VmRSS in /proc/{pid}/status"))? << 10;
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))
            .context("the card's process is gone")?;
        Ok(Self { resident_bytes: resident, mapped_bytes: mapped(&maps), counters })
    }

    /// Makes each number at least as large as in `other`.
    pub fn raise(&mut self, other: &Self) {
        self.resident_bytes = self.resident_bytes.max(other.resident_bytes);
        self.mapped_bytes = self.mapped_bytes.max(other.mapped_bytes);
        for (name, value) in &other.counters {
            let most = self.counters.entry(name.clone()).or_default();
            *most = (*most).max(*value);
        }
    }

    /// A counter; zero if there is none of that name.
    pub fn of(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }
}

/// Bytes of all mappings that can be read or written (proc_pid_maps(5)); what is only reserved
/// takes no memory.
fn mapped(maps: &str) -> u64 {
    let size = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let is_used = !rest.starts_with("---");
        let number = |text| u64::from_str_radix(text, 16).ok();
        is_used.then_some(number(to)?.saturating_sub(number(from)?))
    };
    maps.lines().filter_map(size).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_is_not_mapped() {
        let maps = "1000-3000 rw-p 00000000 00:00 0 [heap]\n5000-9000 ---p 00000000 00:00 0\na000-b000 r-xp 00000000 08:01 7 /bin/x\n";
        assert_eq!(mapped(maps), 0x3000);
        let now = Gauges::new(
            &serde_json::json!({"counters": {"hits": 3, "not_caching": null}}),
            std::process::id(),
        )
        .unwrap();
        assert!(now.resident_bytes > 0 && now.resident_bytes <= now.mapped_bytes);
        assert_eq!((now.of("hits"), now.of("not_caching")), (3, 0));
    }
}
