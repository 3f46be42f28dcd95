//! Who calls: AUTH_SYS credentials (RFC 5531, appendix A), and whom an export takes the caller for.

use arrayvec::ArrayVec;

use crate::limits::{GROUPS_MAX, MACHINE_NAME_BYTES_MAX};
use crate::xdr::{Garbage, Reader};

/// AUTH_NONE.
pub(crate) const AUTH_NONE: u32 = 0;
/// AUTH_SYS, also known as AUTH_UNIX.
pub(crate) const AUTH_SYS: u32 = 1;

/// A user, as the kernel judges one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Identity {
    /// The user.
    pub uid: u32,
    /// The primary group.
    pub gid: u32,
    /// The supplementary groups.
    pub groups: ArrayVec<u32, GROUPS_MAX>,
}

impl Identity {
    /// The superuser, without supplementary groups.
    pub const ROOT: Self = Self { uid: 0, gid: 0, groups: ArrayVec::new_const() };
}

/// What a call says of its caller.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Claim {
    /// Nothing.
    Nobody,
    /// The caller says that it is this user.
    User(Identity),
}

impl Claim {
    /// Reads the body of an AUTH_SYS credential. Nobody proves anything by it: whoever may send
    /// from an allowed address may be any user.
    pub fn from_auth_sys(body: &[u8]) -> Result<Self, Garbage> {
        let mut reader = Reader::new(body);
        reader.u32()?; // The stamp: "an arbitrary ID which the caller machine may generate".
        reader.opaque(MACHINE_NAME_BYTES_MAX)?;
        let uid = reader.u32()?;
        let gid = reader.u32()?;
        let count = reader.u32()? as usize;
        if count > GROUPS_MAX {
            return Err(Garbage);
        }
        let mut groups = ArrayVec::new();
        for _ in 0..count {
            groups.push(reader.u32()?);
        }
        // The kernel takes -1 as "leave it as it is".
        if uid == u32::MAX
            || gid == u32::MAX
            || groups.contains(&u32::MAX)
            || !reader.rest().is_empty()
        {
            return Err(Garbage);
        }
        Ok(Self::User(Identity { uid, gid, groups }))
    }
}

/// Which callers are not taken for who they say they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Squash {
    /// All are who they say.
    None,
    /// User 0 and group 0 become the anonymous ones.
    #[default]
    Root,
    /// All become the anonymous user.
    All,
}

/// The user and group that stand for those whom an export does not believe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Anonymous {
    /// The user; 65534 by default.
    pub uid: u32,
    /// The group; 65534 by default.
    pub gid: u32,
}

impl Default for Anonymous {
    fn default() -> Self {
        Self { uid: 65534, gid: 65534 }
    }
}

/// Whom an export takes a caller for.
#[must_use]
pub(crate) fn squash(claim: &Claim, squash: Squash, anonymous: Anonymous) -> Identity {
    let nobody = Identity { uid: anonymous.uid, gid: anonymous.gid, groups: ArrayVec::new() };
    match (claim, squash) {
        (Claim::Nobody, _) | (_, Squash::All) => nobody,
        (Claim::User(user), Squash::None) => user.clone(),
        (Claim::User(user), Squash::Root) => Identity {
            uid: if user.uid == 0 { anonymous.uid } else { user.uid },
            gid: if user.gid == 0 { anonymous.gid } else { user.gid },
            groups: user
                .groups
                .iter()
                .map(|&group| if group == 0 { anonymous.gid } else { group })
                .collect(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::put;

    fn body(uid: u32, gid: u32, groups: &[u32]) -> Vec<u8> {
        let mut out = Vec::new();
        put::u32(&mut out, 1);
        put::opaque(&mut out, b"client");
        put::u32(&mut out, uid);
        put::u32(&mut out, gid);
        put::u32(&mut out, groups.len() as u32);
        groups.iter().for_each(|&group| put::u32(&mut out, group));
        out
    }

    #[test]
    fn credentials_that_the_kernel_would_misread_are_refused() {
        assert!(Claim::from_auth_sys(&body(1, 2, &[3; 16])).is_ok());
        assert!(Claim::from_auth_sys(&body(1, 2, &[3; 17])).is_err());
        assert!(Claim::from_auth_sys(&body(u32::MAX, 2, &[])).is_err());
        assert!(Claim::from_auth_sys(&body(1, u32::MAX, &[])).is_err());
        assert!(Claim::from_auth_sys(&body(1, 2, &[u32::MAX])).is_err());
        let mut long = body(1, 2, &[3]);
        long.push(0);
        assert!(Claim::from_auth_sys(&long).is_err());
        for len in 0..long.len() - 1 {
            assert!(Claim::from_auth_sys(&long[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn root_is_squashed_in_every_place() {
        let claim = Claim::from_auth_sys(&body(0, 0, &[0, 7])).unwrap();
        let anonymous = Anonymous::default();
        let root = squash(&claim, Squash::Root, anonymous);
        assert_eq!((root.uid, root.gid, root.groups.as_slice()), (65534, 65534, &[65534, 7][..]));
        assert_eq!(squash(&claim, Squash::None, anonymous).uid, 0);
        let user = Claim::from_auth_sys(&body(5, 6, &[7])).unwrap();
        let all = squash(&user, Squash::All, anonymous);
        assert_eq!((all.uid, all.gid, all.groups.len()), (65534, 65534, 0));
        assert_eq!(squash(&Claim::Nobody, Squash::None, anonymous).uid, 65534);
    }
}
