//! What the operator has set for some paths: looked up once for each miss, and kept with its fill.

use std::sync::Arc;

use nicache_http::{CookieNames, KeyConfig, Masks, PathMatch, ReplyConfig};

use crate::earned::AgeBounds;

/// Settings of the replies below some path.
#[derive(Clone, Debug, Default)]
pub struct PathSettings {
    /// Nothing is kept.
    pub is_excluded: bool,
    /// Are dynamic replies kept, or files alone?
    pub keeps_dynamic: bool,
    /// How old what nobody can see may be.
    pub ages: AgeBounds,
    /// What may differ between two replies that are taken for the same.
    pub masks: Masks,
    /// Headers of which the value may differ, too.
    pub masked_headers: Vec<Box<[u8]>>,
    /// Which replies may be shared.
    pub replies: ReplyConfig,
    /// Cookies that the stored reply goes without.
    pub dropped_cookies: CookieNames,
}

impl PathSettings {
    /// May dynamic replies be kept?
    pub fn wants_dynamic(&self) -> bool {
        self.keeps_dynamic
    }

    /// May anything differ?
    pub fn masks_anything(&self) -> bool {
        !self.masks.is_empty() || !self.masked_headers.is_empty()
    }

    /// May the value of that header differ?
    pub fn is_masked_header(&self, name: &[u8]) -> bool {
        self.masked_headers.iter().any(|masked| masked.eq_ignore_ascii_case(name))
    }
}

/// Default settings and those of the patterns that [`KeyConfig::path_of`] numbers.
#[derive(Clone, Debug, Default)]
pub struct Paths {
    default: Arc<PathSettings>,
    excluded: Arc<PathSettings>,
    patterns: Vec<Arc<PathSettings>>,
}

impl Paths {
    /// `patterns` in the order in which they were added to the [`KeyConfig`].
    pub fn new(default: PathSettings, patterns: Vec<PathSettings>) -> Self {
        let excluded = PathSettings { is_excluded: true, ..PathSettings::default() };
        Self {
            default: Arc::new(default),
            excluded: Arc::new(excluded),
            patterns: patterns.into_iter().map(Arc::new).collect(),
        }
    }

    /// The settings for a target. One that cannot be told apart from others is excluded.
    pub fn of(&self, keys: &KeyConfig, host: &[u8], target: &[u8]) -> &Arc<PathSettings> {
        if self.patterns.is_empty() {
            return &self.default;
        }
        match keys.path_of(host, target) {
            PathMatch::None => &self.default,
            PathMatch::Pattern(number) => self.patterns.get(number).unwrap_or(&self.excluded),
            PathMatch::Odd => &self.excluded,
        }
    }
}
