//! The configurations that come with the program: the default, and those of Table 1 of koch2002.

/// Names and texts, in the table's order; the default first.
pub const CONFIGURATIONS: &[(&str, &str)] = &[
    ("Default", include_str!("../configurations/Default.toml")),
    ("LongBaseline", include_str!("../configurations/LongBaseline.toml")),
    ("Long1MB", include_str!("../configurations/Long1MB.toml")),
    ("Long8MB", include_str!("../configurations/Long8MB.toml")),
    ("Long32MB", include_str!("../configurations/Long32MB.toml")),
    ("ShortBaseline", include_str!("../configurations/ShortBaseline.toml")),
    ("Short512KB", include_str!("../configurations/Short512KB.toml")),
    ("Short1MB", include_str!("../configurations/Short1MB.toml")),
    ("Short8MB", include_str!("../configurations/Short8MB.toml")),
    ("Short16MB", include_str!("../configurations/Short16MB.toml")),
    ("Short32MB", include_str!("../configurations/Short32MB.toml")),
    ("ShortLowLatBase", include_str!("../configurations/ShortLowLatBase.toml")),
    ("Short500MHzNP", include_str!("../configurations/Short500MHzNP.toml")),
    ("Short5000DiffReqs", include_str!("../configurations/Short5000DiffReqs.toml")),
    ("Short10000DiffReqs", include_str!("../configurations/Short10000DiffReqs.toml")),
    ("ShortLongNPLat", include_str!("../configurations/ShortLongNPLat.toml")),
    ("ShortSmallResp", include_str!("../configurations/ShortSmallResp.toml")),
    ("ShortBigResp", include_str!("../configurations/ShortBigResp.toml")),
    ("ShortBigLineSize", include_str!("../configurations/ShortBigLineSize.toml")),
    ("ShortBest", include_str!("../configurations/ShortBest.toml")),
    ("ShortFastBus", include_str!("../configurations/ShortFastBus.toml")),
    ("ShortSlowBus", include_str!("../configurations/ShortSlowBus.toml")),
    ("Short8MBFastBus", include_str!("../configurations/Short8MBFastBus.toml")),
    ("Short8MBSlowBus", include_str!("../configurations/Short8MBSlowBus.toml")),
];

/// The text of the configuration of that name.
pub(crate) fn text(name: &str) -> Option<&'static str> {
    CONFIGURATIONS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
