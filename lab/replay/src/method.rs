//! The ways to change a file.

use serde::Serialize;

/// A way to change a file or a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// pwrite over the old bytes.
    WriteInPlace,
    /// pwrite over the old bytes, and the modification time is set back to what it was.
    WriteKeepTime,
    /// pwrite with O_DIRECT.
    WriteDirect,
    /// pwrite through another name of the file.
    WriteHardLink,
    /// Stores through a shared mapping, then munmap and close.
    MapShared,
    /// copy_file_range over the old bytes.
    CopyRange,
    /// write with O_APPEND.
    Append,
    /// ftruncate to fewer bytes.
    Truncate,
    /// open with O_TRUNC, then write.
    TruncateRewrite,
    /// A new file is renamed over it.
    RenameOver,
    /// A new file changes names with it.
    RenameExchange,
    /// unlink, then a new file of the same name.
    UnlinkCreate,
    /// A symlink to a new file is renamed over it.
    SymlinkSwitch,
    /// Mode 000, then 644 again.
    Chmod,
    /// Its directory is renamed away and back.
    DirectoryRename,
    /// Its directory is a symlink, which is switched to a new directory with new files.
    DirectorySwitch,
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::WriteInPlace,
        Self::WriteKeepTime,
        Self::WriteDirect,
        Self::WriteHardLink,
        Self::MapShared,
        Self::CopyRange,
        Self::Append,
        Self::Truncate,
        Self::TruncateRewrite,
        Self::RenameOver,
        Self::RenameExchange,
        Self::UnlinkCreate,
        Self::SymlinkSwitch,
        Self::Chmod,
        Self::DirectoryRename,
        Self::DirectorySwitch,
    ];

    /// The method's name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::WriteInPlace => "write in place",
            Self::WriteKeepTime => "write keep time",
            Self::WriteDirect => "write direct",
            Self::WriteHardLink => "write hard link",
            Self::MapShared => "map shared",
            Self::CopyRange => "copy range",
            Self::Append => "append",
            Self::Truncate => "truncate",
            Self::TruncateRewrite => "truncate rewrite",
            Self::RenameOver => "rename over",
            Self::RenameExchange => "rename exchange",
            Self::UnlinkCreate => "unlink create",
            Self::SymlinkSwitch => "symlink switch",
            Self::Chmod => "chmod",
            Self::DirectoryRename => "directory rename",
            Self::DirectorySwitch => "directory switch",
        }
    }
}

impl std::fmt::Display for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}
