//! Numbers of ONC RPC (RFC 5531), NFS version 3, MOUNT version 3 (RFC 1813) and the port mapper
//! version 2 (RFC 1833).

/// A program and its version that is served.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Program {
    /// The program's number.
    pub number: u32,
    /// The program's version.
    pub version: u32,
}

/// NFS version 3.
pub const NFS: Program = Program { number: 100_003, version: 3 };
/// MOUNT version 3.
pub const MOUNT: Program = Program { number: 100_005, version: 3 };
/// The port mapper, version 2.
pub const PORTMAP: Program = Program { number: 100_000, version: 2 };

/// What a procedure of NFS answers (`nfsstat3`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
#[expect(missing_docs, reason = "the names are RFC 1813's")]
pub enum Status {
    Ok = 0,
    Perm = 1,
    NoEnt = 2,
    Io = 5,
    Nxio = 6,
    Acces = 13,
    Exist = 17,
    Xdev = 18,
    NoDev = 19,
    NotDir = 20,
    IsDir = 21,
    Inval = 22,
    Fbig = 27,
    NoSpc = 28,
    Rofs = 30,
    Mlink = 31,
    NameTooLong = 63,
    NotEmpty = 66,
    Dquot = 69,
    Stale = 70,
    BadHandle = 10001,
    NotSync = 10002,
    BadCookie = 10003,
    NotSupp = 10004,
    TooSmall = 10005,
    ServerFault = 10006,
    BadType = 10007,
    Jukebox = 10008,
}

macro_rules! procedures {
    ($($name:ident = $number:literal $text:literal),* $(,)?) => {
        /// The procedures of NFS version 3.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        #[expect(missing_docs, reason = "the names are RFC 1813's")]
        pub enum Procedure { $($name = $number),* }

        impl Procedure {
            /// All of them, in order of their numbers.
            pub const ALL: [Self; 22] = [$(Self::$name),*];

            /// RFC 1813's name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }
        }
    };
}

procedures! {
    Null = 0 "NULL", GetAttr = 1 "GETATTR", SetAttr = 2 "SETATTR", Lookup = 3 "LOOKUP",
    Access = 4 "ACCESS", ReadLink = 5 "READLINK", Read = 6 "READ", Write = 7 "WRITE",
    Create = 8 "CREATE", MkDir = 9 "MKDIR", SymLink = 10 "SYMLINK", MkNod = 11 "MKNOD",
    Remove = 12 "REMOVE", RmDir = 13 "RMDIR", Rename = 14 "RENAME", Link = 15 "LINK",
    ReadDir = 16 "READDIR", ReadDirPlus = 17 "READDIRPLUS", FsStat = 18 "FSSTAT",
    FsInfo = 19 "FSINFO", PathConf = 20 "PATHCONF", Commit = 21 "COMMIT",
}

impl Procedure {
    /// The procedure with this number, if there is one.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    /// Whether to run it twice is not the same as to run it once, so a retransmission must get
    /// the first reply. WRITE is among them: a late second one would undo what was written in
    /// between.
    #[must_use]
    pub const fn runs_once(self) -> bool {
        matches!(
            self,
            Self::SetAttr
                | Self::Write
                | Self::Create
                | Self::MkDir
                | Self::SymLink
                | Self::MkNod
                | Self::Remove
                | Self::RmDir
                | Self::Rename
                | Self::Link
        )
    }

    /// Whether it changes the file system.
    #[must_use]
    pub const fn changes(self) -> bool {
        self.runs_once() || matches!(self, Self::Commit)
    }
}

/// Kinds of files (`ftype3`).
pub mod file_type {
    #![expect(missing_docs, reason = "the names are RFC 1813's")]
    pub const REG: u32 = 1;
    pub const DIR: u32 = 2;
    pub const BLK: u32 = 3;
    pub const CHR: u32 = 4;
    pub const LNK: u32 = 5;
    pub const SOCK: u32 = 6;
    pub const FIFO: u32 = 7;
}

/// Rights that ACCESS asks for.
pub mod access {
    #![expect(missing_docs, reason = "the names are RFC 1813's")]
    pub const READ: u32 = 0x01;
    pub const LOOKUP: u32 = 0x02;
    pub const MODIFY: u32 = 0x04;
    pub const EXTEND: u32 = 0x08;
    pub const DELETE: u32 = 0x10;
    pub const EXECUTE: u32 = 0x20;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn procedures_are_where_their_numbers_say() {
        for (number, procedure) in Procedure::ALL.into_iter().enumerate() {
            assert_eq!(procedure as usize, number);
            assert_eq!(Procedure::from_number(number as u32), Some(procedure));
        }
        assert_eq!(Procedure::from_number(22), None);
    }
}
