//! A thread acts as the caller, so the kernel decides what the caller may do.
//!
//! File-system user, group and supplementary groups belong to a thread (setfsuid(2),
//! credentials(7)). With a file-system user other than 0 the kernel takes from the thread the
//! capabilities that concern files, and gives them back with user 0. It does not take
//! `CAP_SYS_RESOURCE`, which goes beyond quotas and into reserved blocks, so a worker gives that up
//! for good.

use std::io;
use std::marker::PhantomData;

use nix::unistd::{setfsgid, setfsuid};
use rustix::fs::Mode;
use rustix::process::umask;
use rustix::thread::{CapabilitySet, Gid, Uid, capabilities, set_capabilities};

use crate::credential::Identity;
use crate::kernel::set_thread_groups;

/// The identity of the present thread, remembered so it is changed only when the next caller
/// is another one.
#[derive(Debug)]
pub struct Impersonation {
    present: Identity,
    /// The last change worked: the thread is `present`.
    is_known: bool,
    /// It speaks of the thread that made it.
    thread: PhantomData<*const ()>,
}

impl Impersonation {
    /// Takes the present thread, which must be root's. Its umask becomes 0 and is no longer shared
    /// with other threads.
    pub fn new() -> io::Result<Self> {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS)?;
        umask(Mode::empty());
        let mut sets = capabilities(None)?;
        sets.effective.remove(CapabilitySet::SYS_RESOURCE);
        set_capabilities(None, sets)?;
        let mut this = Self { present: Identity::ROOT, is_known: false, thread: PhantomData };
        this.act_as(&Identity::ROOT)?;
        Ok(this)
    }

    /// The thread acts as `identity` from here on.
    pub fn act_as(&mut self, identity: &Identity) -> io::Result<()> {
        if self.is_known && self.present == *identity {
            return Ok(());
        }
        // Whatever fails below, the thread is nobody in particular until a change has worked.
        self.is_known = false;
        // The kernel takes -1 as "leave it as it is".
        let ids = [identity.uid, identity.gid];
        if ids.iter().chain(&identity.groups).any(|&id| id == u32::MAX) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let groups: arrayvec::ArrayVec<Gid, { crate::limits::GROUPS_MAX }> =
            identity.groups.iter().map(|&group| Gid::from_raw(group)).collect();
        set_thread_groups(&groups)?;
        set_fs_ids(Uid::from_raw(identity.uid), Gid::from_raw(identity.gid))?;
        self.present.clone_from(identity);
        self.is_known = true;
        Ok(())
    }

    /// The thread acts as root from here on.
    pub fn act_as_root(&mut self) -> io::Result<()> {
        self.act_as(&Identity::ROOT)
    }
}

/// Sets both. The calls tell of no failure but by what a second one returns (setfsuid(2), BUGS).
fn set_fs_ids(uid: Uid, gid: Gid) -> io::Result<()> {
    let (uid, gid) =
        (nix::unistd::Uid::from_raw(uid.as_raw()), nix::unistd::Gid::from_raw(gid.as_raw()));
    setfsgid(gid);
    setfsuid(uid);
    if setfsgid(gid) != gid || setfsuid(uid) != uid {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    /// Needs root, as the server does.
    #[test]
    fn a_thread_never_acts_as_minus_one() {
        std::thread::spawn(|| {
            let mut thread = Impersonation::new().unwrap();
            let nobody = Identity { uid: u32::MAX, ..Identity::ROOT };
            thread.act_as(&nobody).unwrap_err();
            thread.act_as(&nobody).unwrap_err();
            thread.act_as(&Identity { gid: u32::MAX, ..Identity::ROOT }).unwrap_err();
            thread.act_as_root().unwrap();
        })
        .join()
        .unwrap();
    }

    /// Needs root, as the server does.
    #[test]
    fn the_kernel_judges_the_thread_by_whom_it_acts_as() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let secret = folder.path().join("secret");
        fs::write(&secret, "x").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::chown(&secret, Some(0), Some(4242)).unwrap();
        let path = folder.path().to_owned();
        std::thread::spawn(move || {
            let mut thread = Impersonation::new().unwrap();
            let stranger = Identity { uid: 4001, gid: 4001, ..Identity::ROOT };
            thread.act_as(&stranger).unwrap();
            assert_eq!(
                fs::read(path.join("secret")).unwrap_err().kind(),
                io::ErrorKind::PermissionDenied
            );
            fs::write(path.join("own"), "y").unwrap();
            let own = fs::metadata(path.join("own")).unwrap();
            assert_eq!((own.uid(), own.gid(), own.mode() & 0o777), (4001, 4001, 0o666));
            let member = Identity { groups: [4242].into_iter().collect(), ..stranger.clone() };
            thread.act_as(&member).unwrap();
            fs::read(path.join("secret")).unwrap();
            thread.act_as(&stranger).unwrap();
            fs::read(path.join("secret")).unwrap_err();
            thread.act_as_root().unwrap();
            fs::read(path.join("secret")).unwrap();
        })
        .join()
        .unwrap();
        // Other threads are who they were.
        fs::read(&secret).unwrap();
    }
}
