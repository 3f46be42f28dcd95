//! What a gateway has of a file, block by block, and why not the rest: `nicache why
//! /export/path`.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nicache_filemap::{cached_pages, generation, not_plain};
use nicache_initiator::BLOCK_BYTES;
use nicache_ncache::{BlockRange, BlockState, Cache, FileLook};
use nicache_payload::FileId;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, openat2};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::copy_mode::CopyMode;

/// Most ranges in a report.
pub(crate) const RANGES_MAX: usize = 2000;
/// Ranges that people are shown, unless they ask for all.
const LINES: usize = 20;

/// Each state: its name for programs, and what it means.
const STATES: [(BlockState, &str, &str); 11] = [
    (
        BlockState::ByFile,
        "by_file",
        "cached by file (FHO), dirty: written by a client and not on the unit yet; COMMIT or write-back takes it there",
    ),
    (
        BlockState::ByFileShort,
        "by_file_short",
        "cached by file (FHO), perhaps dirty: too short for a key, so the kernel's page has its bytes, too",
    ),
    (
        BlockState::ByBlock,
        "by_block",
        "cached by block of the unit (LBN); the unit has been given it, too",
    ),
    (BlockState::Coming, "coming", "being read from the unit at the moment"),
    (
        BlockState::Evicted,
        "evicted",
        "not cached: it was, and gave way to others; with more --memory more stays",
    ),
    (
        BlockState::Overwritten,
        "overwritten",
        "not cached: the kernel wrote this block itself the last time (metadata, or a short end of a file)",
    ),
    (
        BlockState::Contested,
        "contested",
        "not cached: reads or writes of it overlapped, so what came was not kept; the next READ reads the unit",
    ),
    (
        BlockState::Declined,
        "declined",
        "not cached: it came, and --policy held what was cached for worth more; the next READ reads the unit",
    ),
    (
        BlockState::Unread,
        "unread",
        "not cached: nobody has read or written it since the start, or it went long ago",
    ),
    (
        BlockState::Reserved,
        "reserved",
        "has a place and no bytes on the unit: reads as zeroes, and the unit is not asked",
    ),
    (BlockState::Hole, "hole", "a hole: reads as zeroes, and the unit is not asked"),
];

/// A path that cannot be told about.
#[derive(Debug, Error)]
pub enum FileReportError {
    /// Not below an export.
    #[error("{path} is not below an export; this gateway's are {}", exports.join(", "))]
    NoExport {
        /// What was asked for.
        path: String,
        /// What there is.
        exports: Vec<String>,
    },
    /// It cannot be opened.
    #[error(
        "cannot look at {path}: {error}; symbolic links are not followed, because clients follow them on their own machines"
    )]
    Open {
        /// What was asked for.
        path: String,
        /// Why it cannot be opened.
        error: io::Error,
    },
    /// The path has no blocks, because it is not a file.
    #[error("{path} is a {kind}: blocks are cached of files only")]
    NotAFile {
        /// What was asked for.
        path: String,
        /// What it is.
        kind: &'static str,
    },
    /// The file system does not say.
    #[error("cannot look at {path}: {0}", path = .1)]
    Look(io::Error, String),
}

/// Blocks in the same state.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StateReport {
    /// `by_file`, `by_file_short`, `by_block`, `coming`, `evicted`, `overwritten`, `contested`,
    /// `declined`, `unread`, `reserved` or `hole`.
    pub state: String,
    /// How many blocks are in the state.
    pub blocks: u64,
    /// Bytes of these blocks.
    pub bytes: u64,
    /// What that means, and why.
    pub why: String,
}

/// Neighbouring blocks in the same state.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RangeReport {
    /// State of the blocks, by the names that [`StateReport::state`] lists.
    pub state: String,
    /// The first block of the file.
    pub first: u64,
    /// How many blocks are in the range.
    pub blocks: u64,
    /// The first one's block on the unit, if it has one with bytes; the others are behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lbn: Option<u64>,
}

/// What a gateway has of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FileReport {
    /// The path that was asked for.
    pub path: String,
    /// How payload travels.
    pub copy: CopyMode,
    /// The unit that it is on.
    pub unit: String,
    /// The file's inode on the unit's file system.
    pub inode: u64,
    /// Which of the files that had this inode.
    pub generation: u32,
    /// The file's size in bytes.
    pub size_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks by state, those that there are.
    pub states: Vec<StateReport>,
    /// In order; at most [`RANGES_MAX`].
    pub ranges: Vec<RangeReport>,
    /// Ranges that are not in `ranges`.
    pub ranges_left: u64,
    /// Blocks at the end of a large file that were not looked at.
    pub blocks_left: u64,
    /// A write of the file failed at the unit; the next COMMIT says so to a client.
    pub has_failed: bool,
    /// Why the file cannot be written to, if that is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The file's pages in the kernel's page cache, if the kernel can say (Linux 6.5): payload with
    /// `--copy original`, else keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_pages: Option<u64>,
    /// The file's pages in the kernel's page cache that are not written to the unit yet, if the
    /// kernel can say (Linux 6.5).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_dirty_pages: Option<u64>,
}

/// Tells of the files of a gateway. As long as it is there, the file system stays mounted.
pub struct FileReporter {
    pub(crate) root: OwnedFd,
    pub(crate) exports: Vec<(String, PathBuf)>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) copy: CopyMode,
}

impl FileReporter {
    /// What the gateway has of a file, by the path that clients know: an export's name, and what is
    /// below it.
    pub fn report(&self, path: &str) -> Result<FileReport, FileReportError> {
        report(self.root.as_fd(), &self.exports, &self.cache, self.copy, path)
    }
}

/// A file below an export, found by the name that clients have for it.
fn report(
    root: BorrowedFd<'_>,
    exports: &[(String, PathBuf)],
    cache: &Cache,
    copy: CopyMode,
    path: &str,
) -> Result<FileReport, FileReportError> {
    let (file, inode) = open(root, exports, path)?;
    let failed = |error| FileReportError::Look(error, path.to_owned());
    let generation = generation(&file).map_err(failed)?;
    let size_bytes = file.metadata().map_err(failed)?.len();
    let mut found = FileReport {
        path: path.to_owned(),
        copy,
        unit: cache.lun().name().to_owned(),
        inode,
        generation,
        size_bytes,
        block_bytes: BLOCK_BYTES as u64,
        ..FileReport::default()
    };
    // Older kernels cannot say.
    if let Ok(pages) = cached_pages(&file) {
        (found.kernel_pages, found.kernel_dirty_pages) = (Some(pages.cached), Some(pages.dirty));
    }
    if copy == CopyMode::Nicache {
        found.refused = not_plain(&file).map_err(failed)?.map(str::to_owned);
        found.take(cache.look(&file, FileId { inode, generation }, size_bytes).map_err(failed)?);
    }
    Ok(found)
}

fn open(
    root: BorrowedFd<'_>,
    exports: &[(String, PathBuf)],
    path: &str,
) -> Result<(File, u64), FileReportError> {
    let below = exports.iter().filter_map(|(name, folder)| {
        Some((name, folder, Path::new(path).strip_prefix(name).ok()?))
    });
    let Some((_, folder, rest)) = below.max_by_key(|(name, ..)| name.len()) else {
        let exports = exports.iter().map(|(name, _)| name.clone()).collect();
        return Err(FileReportError::NoExport { path: path.to_owned(), exports });
    };
    let failed = |error: io::Error| FileReportError::Open { path: path.to_owned(), error };
    let errno = |error: rustix::io::Errno| failed(error.into());
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // An export is a root of its own: nothing leads out of it.
    let folder = match folder.as_os_str().is_empty() {
        true => None,
        false => Some(
            openat2(root, folder, flags | OFlags::DIRECTORY, Mode::empty(), resolve)
                .map_err(errno)?,
        ),
    };
    let start = folder.as_ref().map_or(root, OwnedFd::as_fd);
    let rest = if rest.as_os_str().is_empty() { Path::new(".") } else { rest };
    let found = openat2(start, rest, flags, Mode::empty(), resolve).map_err(errno)?;
    let stat = rustix::fs::fstat(&found).map_err(errno)?;
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => None,
        FileType::Directory => Some("folder"),
        FileType::Symlink => Some("symbolic link"),
        _ => Some("special file"),
    };
    if let Some(kind) = kind {
        return Err(FileReportError::NotAFile { path: path.to_owned(), kind });
    }
    let file = File::open(format!("/proc/self/fd/{}", found.as_raw_fd())).map_err(failed)?;
    let inode = file.metadata().map_err(failed)?.ino();
    Ok((file, inode))
}

fn words(state: BlockState) -> (&'static str, &'static str) {
    STATES
        .into_iter()
        .find(|(one, ..)| *one == state)
        .map_or(("unread", ""), |(_, name, why)| (name, why))
}

impl FileReport {
    fn take(&mut self, look: FileLook) {
        (self.blocks_left, self.has_failed) = (look.blocks_left, look.has_failed);
        for (state, name, why) in STATES {
            let blocks = look
                .ranges
                .iter()
                .filter(|range| range.state == state)
                .map(|range| range.blocks)
                .sum();
            if blocks > 0 {
                let bytes = blocks * self.block_bytes;
                self.states.push(StateReport {
                    state: name.to_owned(),
                    blocks,
                    bytes,
                    why: why.to_owned(),
                });
            }
        }
        self.ranges_left = look.ranges.len().saturating_sub(RANGES_MAX) as u64;
        let range = |range: BlockRange| {
            let BlockRange { first, blocks, lbn, state } = range;
            RangeReport { state: words(state).0.to_owned(), first, blocks, lbn }
        };
        self.ranges = look.ranges.into_iter().take(RANGES_MAX).map(range).collect();
    }

    /// Blocks in a state.
    pub fn blocks_of(&self, state: &str) -> u64 {
        self.states.iter().find(|one| one.state == state).map_or(0, |one| one.blocks)
    }

    /// The report as text for people; with `is_all` every range instead of the first ones.
    pub fn text(&self, is_all: bool) -> String {
        Shown { report: self, lines: if is_all { usize::MAX } else { LINES } }.to_string()
    }
}

struct Shown<'r> {
    report: &'r FileReport,
    lines: usize,
}

/// A run of numbers.
fn run(first: u64, count: u64) -> String {
    if count == 1 { first.to_string() } else { format!("{first}-{}", first + count - 1) }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FileReport { path, unit, inode, size_bytes, block_bytes, .. } = self.report;
        let blocks = size_bytes.div_ceil((*block_bytes).max(1));
        writeln!(f, "{}", path.escape_debug())?;
        writeln!(
            f,
            "  inode {inode} on {unit}, {size_bytes} bytes in {blocks} blocks of {block_bytes}"
        )?;
        if self.report.copy != CopyMode::Nicache {
            writeln!(
                f,
                "  payload goes by --copy {}: nicache caches no block, the kernel does",
                self.report.copy
            )?;
        }
        if let Some(reason) = &self.report.refused {
            writeln!(f, "  it cannot be written to through nicache: {reason}")?;
        }
        if self.report.has_failed {
            writeln!(
                f,
                "  a write of it failed at the unit; the next COMMIT says so to its client, which sends it again"
            )?;
        }
        for one in &self.report.states {
            writeln!(f, "  {:>9} blocks  {:<13} {}", one.blocks, one.state, one.why)?;
        }
        if let (Some(pages), Some(dirty)) =
            (self.report.kernel_pages, self.report.kernel_dirty_pages)
        {
            let what =
                if self.report.copy == CopyMode::Nicache { "with keys" } else { "with payload" };
            writeln!(
                f,
                "  {pages:>9} pages of it are in the kernel's page cache ({what}), {dirty} of them dirty"
            )?;
        }
        if !self.report.ranges.is_empty() {
            writeln!(f, "  {:<23} {:<23} state", "blocks of the file", "blocks of the unit")?;
        }
        for range in self.report.ranges.iter().take(self.lines) {
            let lbns = range.lbn.map_or_else(|| "-".to_owned(), |lbn| run(lbn, range.blocks));
            writeln!(f, "  {:<23} {lbns:<23} {}", run(range.first, range.blocks), range.state)?;
        }
        let more = self.report.ranges.len().saturating_sub(self.lines) as u64;
        if more > 0 {
            writeln!(f, "  and {} more ranges (--all shows them)", more + self.report.ranges_left)?;
        } else if self.report.ranges_left > 0 {
            writeln!(f, "  and {} more ranges", self.report.ranges_left)?;
        }
        if self.report.blocks_left > 0 {
            writeln!(f, "  the last {} blocks were not looked at", self.report.blocks_left)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(ranges: Vec<BlockRange>) -> FileReport {
        let mut report = FileReport {
            path: "/a".into(),
            block_bytes: 4096,
            size_bytes: 10,
            ..FileReport::default()
        };
        report.take(FileLook { ranges, ..FileLook::default() });
        report
    }

    #[test]
    fn every_state_is_named_once_and_says_why() {
        for (at, (state, name, why)) in STATES.into_iter().enumerate() {
            assert!(
                STATES[at + 1..]
                    .iter()
                    .all(|(other, other_name, _)| *other != state && *other_name != name)
            );
            let text =
                report(vec![BlockRange { first: 3, blocks: 2, state, lbn: Some(70) }]).text(false);
            assert!(text.contains(why) && text.contains("3-4") && text.contains("70-71"), "{text}");
        }
    }

    #[test]
    fn long_files_are_cut_and_say_so() {
        let range = |first| BlockRange {
            first,
            blocks: 1,
            state: BlockState::ByBlock,
            lbn: Some(first * 2),
        };
        let found = report((0..RANGES_MAX as u64 + 7).map(range).collect());
        assert_eq!(
            (found.ranges.len(), found.ranges_left, found.blocks_of("by_block")),
            (RANGES_MAX, 7, 2007)
        );
        assert!(found.text(false).contains("and 1987 more ranges (--all"), "{}", found.text(false));
        assert!(found.text(true).contains("and 7 more ranges\n"));
        let json = serde_json::to_string(&found).unwrap();
        assert!(
            json.len() < 1 << 19 && serde_json::from_str::<FileReport>(&json).unwrap() == found
        );
    }
}
