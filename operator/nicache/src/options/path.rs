//! Settings for some paths: `[[path]]` in the configuration file, `--path` on the command line.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use nicache_cache::PathSettings;
use nicache_http::{CookieNames, Masks, PATTERNS_MAX, PathPattern, ReplyConfig};
use serde::{Deserialize, Serialize};

use super::{Milliseconds, Rechecks};

/// All settings of all paths together, in bytes as JSON.
const TEXT_BYTES_MAX: usize = 32 * 1024;

/// Headers of a reply that may not be masked: the card or the client acts on their values.
const NEVER_MASKED: [&str; 15] = [
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expires",
    "last-modified",
    "location",
    "set-cookie",
    "trailer",
    "transfer-encoding",
    "vary",
];

/// One `[[path]]`: for which requests, and what is different there.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct PathOptions {
    /// The path, `*` standing for anything; path and query if it contains a `?`. The first of all
    /// patterns that matches counts.
    pub pattern: String,
    /// Only for requests to this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// `false`: nothing is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<bool>,
    /// In place of the general `recheck`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recheck: Option<Milliseconds>,
    /// In place of the general `recheck-max`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recheck_max: Option<Milliseconds>,
    /// `PREFIX*SUFFIX`: tokens in bodies that are different each time and mean nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub masks: Vec<String>,
    /// Headers of replies whose values are such tokens.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mask_headers: Vec<String>,
    /// `Cache-Control: private` does not mean what it says.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub share_private: bool,
    /// Nor does `no-store`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub share_no_store: bool,
    /// Cookies that the stored reply goes without.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drop_set_cookie: Vec<String>,
    /// Cookies of requests that no reply depends on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignore_cookie: Vec<String>,
}

impl PathOptions {
    /// The paths that are meant, for the parser of requests.
    pub(crate) fn pattern(&self) -> Result<PathPattern> {
        let pattern = PathPattern::new(&self.pattern, self.host.as_deref());
        pattern.with_context(|| format!("path: `{}`", self.pattern))
    }

    /// What holds for these paths, for the card. `general` is what is said for all paths.
    pub(crate) fn settings(&self, general: Rechecks) -> Result<PathSettings> {
        let own = self.rechecks(general);
        let masks =
            Masks::new(&self.masks).with_context(|| format!("path `{}`: masks", self.pattern))?;
        Ok(PathSettings {
            is_excluded: self.cache == Some(false),
            keeps_dynamic: own.wants_dynamic(),
            ages: own.bounds(),
            masks,
            masked_headers: self.mask_headers.iter().map(|name| name.as_bytes().into()).collect(),
            replies: ReplyConfig::new().lift(self.share_private, self.share_no_store),
            dropped_cookies: CookieNames::new(&self.drop_set_cookie),
        })
    }

    /// How old what nobody can see may be here.
    pub(crate) fn rechecks(&self, general: Rechecks) -> Rechecks {
        Rechecks {
            first: self.recheck.unwrap_or(general.first),
            most: self.recheck_max.unwrap_or(general.most),
        }
    }

    fn check(&self, general: Rechecks) -> Result<()> {
        let name = &self.pattern;
        if name.is_empty() {
            bail!("path: `pattern` is missing");
        }
        self.pattern()?;
        self.settings(general)?;
        let dynamic_only = [
            ("masks", !self.masks.is_empty()),
            ("mask-headers", !self.mask_headers.is_empty()),
            ("share-private", self.share_private),
            ("share-no-store", self.share_no_store),
            ("drop-set-cookie", !self.drop_set_cookie.is_empty()),
        ];
        let first = dynamic_only.iter().find(|(_, is_set)| *is_set).map(|(key, _)| *key);
        let other = first
            .or_else(|| self.recheck.map(|_| "recheck"))
            .or_else(|| self.recheck_max.map(|_| "recheck-max"));
        let other = other.or_else(|| (!self.ignore_cookie.is_empty()).then_some("ignore-cookie"));
        if let (Some(false), Some(key)) = (self.cache, other) {
            bail!("path `{name}`: `{key}` means nothing beside `cache = false`");
        }
        let own = self.rechecks(general);
        if let Some(most) = self.recheck_max.filter(|most| *most < own.first) {
            bail!("path `{name}`: `recheck-max` ({most}) is less than `recheck` ({})", own.first);
        }
        if let (false, Some(key)) = (own.wants_dynamic(), first) {
            bail!(
                "path `{name}`: `{key}` is for dynamic pages, and with `recheck` 0 none of them is kept"
            );
        }
        for header in &self.mask_headers {
            if !is_token(header) || header.contains('*') {
                bail!("path `{name}`: mask-headers: `{header}` is not a name of a header");
            }
            if NEVER_MASKED.iter().any(|never| header.eq_ignore_ascii_case(never)) {
                bail!(
                    "path `{name}`: mask-headers: `{header}` means something to clients and to the card; it cannot be masked"
                );
            }
        }
        for cookie in &self.drop_set_cookie {
            if cookie.starts_with('@') {
                bail!("path `{name}`: drop-set-cookie: `{cookie}` is not a name of a cookie");
            }
        }
        for (key, names) in
            [("drop-set-cookie", &self.drop_set_cookie), ("ignore-cookie", &self.ignore_cookie)]
        {
            for cookie in names {
                check_cookie(cookie)
                    .map_err(|reason| anyhow::anyhow!("path `{name}`: {key}: {reason}"))?;
            }
        }
        Ok(())
    }
}

/// Checks all of them, each by itself and beside the others.
pub(super) fn check(paths: &[PathOptions], general: Rechecks) -> Result<()> {
    for (number, path) in paths.iter().enumerate() {
        path.check(general)?;
        if paths[..number]
            .iter()
            .any(|earlier| (&earlier.pattern, &earlier.host) == (&path.pattern, &path.host))
        {
            bail!("path `{}` is given twice: the second would never count", path.pattern);
        }
    }
    if paths.len() > PATTERNS_MAX || serde_json::to_vec(paths)?.len() > TEXT_BYTES_MAX {
        bail!(
            "path: at most {PATTERNS_MAX} of them, with at most {} KiB of text",
            TEXT_BYTES_MAX / 1024
        );
    }
    Ok(())
}

impl FromStr for PathOptions {
    type Err = String;

    /// An inline table of TOML, without its braces.
    fn from_str(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Wrapped {
            path: PathOptions,
        }
        let wrapped: Wrapped = toml::from_str(&format!("path = {{ {text} }}"))
            .map_err(|error| error.message().to_owned())?;
        Ok(wrapped.path)
    }
}

impl fmt::Display for PathOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.pattern)
    }
}

/// A name of a header or a cookie (RFC 9110 section 5.6.2), or such with a `*`.
pub(super) fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// What is wrong with an entry of a list of cookies.
pub(super) fn check_cookie(cookie: &str) -> std::result::Result<(), String> {
    if let Some(list) = cookie.strip_prefix('@') {
        let is_known = cookie == nicache_http::ANALYTICS;
        return if is_known {
            Ok(())
        } else {
            Err(format!("there is no list `@{list}`; there is `@analytics`"))
        };
    }
    let stem = cookie.strip_suffix('*').unwrap_or(cookie);
    if is_token(stem) && !stem.contains('*') {
        return Ok(());
    }
    Err(format!("`{cookie}` is not a name of a cookie, nor the beginning of one with a final `*`"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nicache_cache::AgeBounds;

    use super::*;

    const GENERAL: Rechecks = Rechecks { first: Milliseconds(1000), most: Milliseconds(60_000) };

    fn check_one(text: &str) -> Result<(), String> {
        let path: PathOptions = text.parse()?;
        check(&[path], GENERAL).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn on_the_command_line_it_is_a_table() {
        let path: PathOptions =
            r#"pattern = "/a*", recheck = "10s", masks = ['"id":"*"'], share-private = true"#
                .parse()
                .unwrap();
        assert_eq!(
            (path.pattern.as_str(), path.recheck, path.share_private),
            ("/a*", Some(Milliseconds(10_000)), true)
        );
        let bounds =
            |text: &str| text.parse::<PathOptions>().unwrap().settings(GENERAL).unwrap().ages;
        let seconds = |first, most| AgeBounds {
            first: Duration::from_secs(first),
            most: Duration::from_secs(most),
        };
        assert_eq!(path.settings(GENERAL).unwrap().ages, seconds(10, 60));
        assert_eq!(bounds("pattern = '/', recheck = '5m'"), seconds(300, 300));
        assert_eq!(bounds("pattern = '/', recheck-max = '60m'"), seconds(1, 3600));
        assert_eq!(bounds("pattern = '/', recheck = '0', recheck-max = '60m'"), seconds(1, 3600));
        assert!("pattern = '/', recheck = 5".parse::<PathOptions>().is_err());
        assert!("/a*".parse::<PathOptions>().is_err());
    }

    #[test]
    fn sense_and_nonsense() {
        for good in [
            "pattern = '/a'",
            "pattern = '/a', cache = false",
            "pattern = '*', recheck = '0'",
            "pattern = '/', ignore-cookie = ['a*']",
        ] {
            assert_eq!(check_one(good), Ok(()), "{good}");
        }
        for (bad, said) in [
            ("cache = false", "`pattern` is missing"),
            ("pattern = 'a'", "begins with `/`"),
            ("pattern = '/', mask = ['abcd*']", "unknown field `mask`"),
            ("pattern = '/', cache = false, recheck = '1s'", "`recheck` means nothing"),
            ("pattern = '/', cache = false, recheck-max = '1s'", "`recheck-max` means nothing"),
            ("pattern = '/', recheck-max = '0'", "is less than `recheck`"),
            (
                "pattern = '/', recheck = '2s', recheck-max = '1s'",
                "`recheck-max` (1s) is less than `recheck` (2s)",
            ),
            ("pattern = '/', cache = false, masks = ['abcd*']", "`masks` means nothing"),
            (
                "pattern = '/', recheck = '0', share-private = true",
                "`share-private` is for dynamic pages",
            ),
            ("pattern = '/', masks = ['abcd']", "exactly one `*`"),
            ("pattern = '/', masks = ['a*']", "at least 4 bytes"),
            ("pattern = '/', mask-headers = ['Content-Length']", "cannot be masked"),
            ("pattern = '/', mask-headers = ['a b']", "not a name of a header"),
            ("pattern = '/', drop-set-cookie = ['']", "not a name of a cookie"),
            ("pattern = '/', ignore-cookie = ['a*b']", "not a name of a cookie"),
            ("pattern = '/', host = 'a/b'", "a host is"),
        ] {
            let error = check_one(bad).unwrap_err();
            assert!(error.contains(said), "{bad}: {error}");
        }
        let twice: Vec<PathOptions> =
            ["pattern = '/a'"; 2].iter().map(|text| text.parse().unwrap()).collect();
        assert!(check(&twice, GENERAL).unwrap_err().to_string().contains("given twice"));
        let files_only = Rechecks { first: Milliseconds(0), ..GENERAL };
        assert!(
            check(&["pattern = '/a', masks = ['abcd*']".parse().unwrap()], files_only).is_err()
        );
    }
}
