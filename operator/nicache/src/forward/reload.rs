//! What of `forward.toml` can be changed while it is in use: the rules.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use nicache_router::config::Plan;
use nicache_router::kernel::Link;

/// The key whose tables are the rules.
const RULES: &str = "rule";

/// Reads a file again. The text and the plan that it comes to, with the links that were there at
/// the start: it has other rules than the text before, and else the same.
///
/// # Errors
/// The file is not right, or something else than its rules has changed.
pub(super) fn read_again(
    path: &Path,
    before: &str,
    links: &[Link],
    secret: u64,
) -> Result<(String, Plan)> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read {shown}, and nothing is changed"))?;
    let plan = Plan::make(&text, links, secret)
        .map_err(|error| anyhow!("nothing is changed: {shown}, {error}"))?;
    let changed = changed(before, &text).context("nothing is changed")?;
    if !changed.is_empty() {
        bail!(
            "nothing is changed: {shown} also has another `{}` than at the start; only [[rule]] can \
             be changed while nicache runs, for the rest start it again",
            changed.join("`, `")
        );
    }
    Ok((text, plan))
}

/// The keys that differ, beside the rules.
fn changed(before: &str, after: &str) -> Result<Vec<String>, toml::de::Error> {
    let [before, after] = [before, after].map(str::parse::<toml::Table>);
    let (before, after) = (before?, after?);
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differs = |key: &&String| **key != RULES && before.get(*key) != after.get(*key);
    Ok(keys.into_iter().filter(differs).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_differ_are_named() {
        let before = "mode = \"spill\"\n[[interface]]\nname = \"a\"\n";
        let rule = "[[rule]]\naction = \"drop\"\n";
        let keys = |after: &str| changed(before, after).unwrap();
        assert!(keys(before).is_empty());
        assert!(keys(&format!("# Another remark.\n{before}{rule}")).is_empty());
        assert_eq!(keys("[[interface]]\nname = \"b\"\n"), ["interface", "mode"]);
        assert_eq!(keys(&format!("connections = 100\n{before}{rule}")), ["connections"]);
    }
}
