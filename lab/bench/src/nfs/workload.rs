//! What clients ask for: the paper's workloads.

use serde::{Deserialize, Serialize};

/// Bytes of the file that is read again and again (the paper: 5 MB).
pub(super) const HOT_BYTES: u64 = 5 << 20;
/// Files of the mix; each has [`MIX_FILE_BYTES`].
pub(super) const MIX_FILES: u32 = 256;
/// Bytes of a file of the mix.
pub(super) const MIX_FILE_BYTES: u64 = 128 << 10;
/// Names in the directory whose metadata are asked for.
pub(super) const NAMES: u32 = 512;

/// What is asked of an NFS server in a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Workload {
    /// A file is read once from its beginning to its end; nothing of it is in memory. Figure 4.
    AllMiss {
        /// Bytes of a READ.
        bytes: u32,
    },
    /// A small file is read at random places. Figure 5.
    AllHit {
        /// Bytes of a READ.
        bytes: u32,
    },
    /// GETATTR.
    GetAttr,
    /// LOOKUP.
    Lookup,
    /// CREATE and REMOVE in turn.
    CreateRemove,
    /// READDIRPLUS of a directory of 512 files.
    ReadDirPlus,
    /// Operations as of SPECsfs: metadata, and READ and WRITE 5 to 1, mostly of 4 to 16 KB. Figure
    /// 7.
    Mix {
        /// How many of a hundred operations are READ or WRITE.
        data_percent: u8,
    },
}

impl Workload {
    /// All that are measured, those first that need cold caches.
    pub fn all(is_quick: bool) -> Vec<Self> {
        let (miss, hit): (&[u32], &[u32]) = if is_quick {
            (&[4 << 10, 32 << 10], &[4 << 10, 32 << 10, 1 << 20])
        } else {
            (&MISS_BYTES, &[4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 1 << 20])
        };
        let mixes: &[u8] = if is_quick { &[30, 75] } else { &[30, 45, 60, 75] };
        let mut all: Vec<Self> = miss.iter().map(|&bytes| Self::AllMiss { bytes }).collect();
        all.extend(hit.iter().map(|&bytes| Self::AllHit { bytes }));
        all.extend([Self::GetAttr, Self::Lookup, Self::CreateRemove, Self::ReadDirPlus]);
        all.extend(mixes.iter().map(|&data_percent| Self::Mix { data_percent }));
        all
    }

    /// The workload's name for people.
    pub fn name(self) -> String {
        let size = |bytes: u32| {
            if bytes >= 1 << 20 {
                format!("{} MB", bytes >> 20)
            } else {
                format!("{} KB", bytes >> 10)
            }
        };
        match self {
            Self::AllMiss { bytes } => format!("all-miss, READ {}", size(bytes)),
            Self::AllHit { bytes } => format!("all-hit, READ {}", size(bytes)),
            Self::GetAttr => "GETATTR".to_owned(),
            Self::Lookup => "LOOKUP".to_owned(),
            Self::CreateRemove => "CREATE, REMOVE".to_owned(),
            Self::ReadDirPlus => "READDIRPLUS, 512 files".to_owned(),
            Self::Mix { data_percent } => format!("SPECsfs-like, {data_percent} % data"),
        }
    }

    /// What the paper has for *NCache* and *baseline* against *original*, as percent more
    /// throughput.
    pub fn paper(self) -> Option<&'static str> {
        match self {
            Self::AllMiss { bytes: 16_384.. } => {
                Some("NCache +29 to +36 %, baseline about the same (Fig. 4)")
            }
            Self::AllHit { bytes: 32_768 } => Some("NCache +92 %, baseline up to +143 % (Fig. 5)"),
            Self::Mix { data_percent: 30 } => Some("NCache +16.3 % (Fig. 7)"),
            Self::Mix { data_percent: 75 } => Some("NCache +18.6 % (Fig. 7)"),
            _ => None,
        }
    }
}

/// Sizes of READ of the all-miss workload; each has a file of its own, because a file that was read
/// is in memory.
pub(super) const MISS_BYTES: [u32; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];

/// The file of an all-miss workload.
pub(super) fn cold_file(bytes: u32) -> String {
    format!("cold-{bytes}")
}
