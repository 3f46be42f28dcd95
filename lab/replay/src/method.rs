//! The ways to change a file.

use serde::Serialize;

/// A way to change a file or a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// pwrite over the old bytes.
    WriteInPlace,
    /// The same, and the modification time is set back to what it was.
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
    pub const ALL: [Method; 16] = [
        Method::WriteInPlace,
        Method::WriteKeepTime,
        Method::WriteDirect,
        Method::WriteHardLink,
        Method::MapShared,
        Method::CopyRange,
        Method::Append,
        Method::Truncate,
        Method::TruncateRewrite,
        Method::RenameOver,
        Method::RenameExchange,
        Method::UnlinkCreate,
        Method::SymlinkSwitch,
        Method::Chmod,
        Method::DirectoryRename,
        Method::DirectorySwitch,
    ];

    /// For people.
    pub const fn name(self) -> &'static str {
        match self {
            Method::WriteInPlace => "write in place",
            Method::WriteKeepTime => "write keep time",
            Method::WriteDirect => "write direct",
            Method::WriteHardLink => "write hard link",
            Method::MapShared => "map shared",
            Method::CopyRange => "copy range",
            Method::Append => "append",
            Method::Truncate => "truncate",
            Method::TruncateRewrite => "truncate rewrite",
            Method::RenameOver => "rename over",
            Method::RenameExchange => "rename exchange",
            Method::UnlinkCreate => "unlink create",
            Method::SymlinkSwitch => "symlink switch",
            Method::Chmod => "chmod",
            Method::DirectoryRename => "directory rename",
            Method::DirectorySwitch => "directory switch",
        }
    }
}

impl std::fmt::Display for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}
