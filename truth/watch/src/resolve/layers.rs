//! Overlay file systems: what a path on one is made of.
//!
//! Read first: Documentation/filesystems/overlayfs.rst, proc_pid_mountinfo(5).
//!
//! An overlay has no bytes and no names of its own. What it shows is in its layers, and whatever
//! changes it changes a directory or a file of the upper layer, which that file system's own
//! witnesses tell. So a path depends on what it is in each layer: on all directories by its name,
//! as the copy of a lower file, a whiteout or a new name comes into one of the upper layer's, and
//! on the first file by its name.
//!
//! Why that is enough to wait for. An operation on the overlay holds the lock of the overlay's
//! directory from before the change in the layer until the overlay shows it, and the resolver takes
//! both locks. The copy of a lower file is made without the first: until the overlay shows it, its
//! times are not those of the file that the layers have, and nothing is vouched for. Stores to a
//! mapping go to the layer's file, and so it is that file's lease that says whether there is one.
//!
//! Not vouched for, as other names than the path's may be meant, or other files changed with this
//! one: layers whose paths are relative, cannot be reached or are on a file system that is not
//! watched, another overlay included; `redirect_dir=on`, `metacopy=on`, `index=on`, layers of data
//! alone. Where such an overlay has left marks in the layers before, a file of a lower layer by the
//! path's name is another one than the overlay shows, and has another inode number. In the upper
//! layer everything has the path's name.
//!
//! Deliberately absent: changes that somebody makes in a lower layer itself where a mark leads
//! elsewhere. Overlays do not allow any there.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Options by which more than the path's own names matter, and the module's parameters that say
/// what holds without them.
const FOLLOWING: [&str; 3] = ["redirect_dir", "metacopy", "index"];
/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Of its file system, as the kernel has it (`s_dev`).
    pub(crate) device: u32,
    /// Of an overlay where each layer has what is mounted, the upper one first; none: it is not an
    /// overlay, or not one to vouch for.
    pub(crate) layers: Vec<PathBuf>,
    /// The first of them is the upper one, which changes.
    pub(crate) has_upper: bool,
}

/// Mounts by number, as far as they were asked for.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    mounts: HashMap<u64, Mount>,
    /// Processes in whose mount namespaces mounts may be that this one does not have, and which
    /// were looked at.
    processes: Vec<(u32, bool)>,
    is_own_read: bool,
}

impl Mounts {
    /// The mounts of that process may be asked for, too.
    pub(crate) fn add_process(&mut self, process: u32) {
        if !self.processes.iter().any(|&(known, _)| known == process) {
            self.processes.push((process, false));
        }
    }

    /// What is known of a mount.
    pub(crate) fn get(&mut self, mount: u64) -> Option<&Mount> {
        if !self.mounts.contains_key(&mount) && !std::mem::replace(&mut self.is_own_read, true) {
            self.read("/proc/thread-self/mountinfo");
        }
        while !self.mounts.contains_key(&mount) {
            let (process, is_read) = self.processes.iter_mut().find(|(_, is_read)| !is_read)?;
            *is_read = true;
            let path = format!("/proc/{process}/mountinfo");
            self.read(&path);
        }
        self.mounts.get(&mount)
    }

    fn read(&mut self, path: &str) {
        let mounts = std::fs::read(path).unwrap_or_default();
        self.mounts
            .extend(mounts.split(|&byte| byte == b'\n').filter_map(|line| parse(line, &parameter)));
    }
}

/// What the module does where an option is not given.
fn parameter(option: &str) -> bool {
    let path = format!("/sys/module/overlay/parameters/{option}");
    std::fs::read(path).is_ok_and(|value| value.starts_with(b"N"))
}

/// Number of a mount, and the mount. `is_off`: is an option off where it is not given?
fn parse(line: &[u8], is_off: &dyn Fn(&str) -> bool) -> Option<(u64, Mount)> {
    let mut fields = line.split(|&byte| byte == b' ');
    let mut number = || std::str::from_utf8(fields.next()?).ok();
    let mount = number()?.parse().ok()?;
    let (major, minor) = {
        number()?;
        number()
    }?
    .split_once(':')?;
    let device = major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?;
    let root = unescape(fields.next()?);
    let mut fields = fields.skip_while(|field| *field != b"-");
    let kind = fields.nth(1)?;
    let options = fields.nth(1)?;
    let (layers, has_upper) = if kind == b"overlay" {
        layers(options, is_off).unwrap_or_default()
    } else {
        Default::default()
    };
    let below = |layer: PathBuf| layer.join(path_of(root.strip_prefix(b"/").unwrap_or(&root)));
    Some((mount, Mount { device, layers: layers.into_iter().map(below).collect(), has_upper }))
}

/// The layers that an overlay's options name, the upper one first, and whether there is an upper
/// one; `None` if it is not one to vouch for.
fn layers(options: &[u8], is_off: &dyn Fn(&str) -> bool) -> Option<(Vec<PathBuf>, bool)> {
    let (mut upper, mut lower) = (Vec::new(), Vec::new());
    let mut given = Vec::new();
    for option in options.split(|&byte| byte == b',') {
        let end = option.iter().position(|&byte| byte == b'=').unwrap_or(option.len());
        let (name, value) = (
            std::str::from_utf8(&option[..end]).ok()?,
            unescape(option.get(end + 1..).unwrap_or(&[])),
        );
        match name {
            "upperdir" => upper.push(value),
            "lowerdir" => lower.extend(split_layers(&value)?),
            "lowerdir+" => lower.push(value),
            // Layers of data alone.
            "datadir+" => return None,
            _ if FOLLOWING.contains(&name) => {
                if !matches!(value.as_slice(), b"off" | b"nofollow" | b"follow") {
                    return None;
                }
                given.push(name.to_owned());
            }
            _ => {}
        }
    }
    if !FOLLOWING.iter().all(|option| given.iter().any(|name| name == option) || is_off(option)) {
        return None;
    }
    let has_upper = !upper.is_empty();
    let layers: Vec<PathBuf> =
        upper.into_iter().chain(lower).map(|path| path_of(&path).clone()).collect();
    (!layers.is_empty() && layers.iter().all(|layer| layer.is_absolute()))
        .then_some((layers, has_upper))
}

/// `lowerdir` as it was given: colons between, and a backslash before one that is part of a name.
fn split_layers(value: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut layers = vec![Vec::new()];
    let mut bytes = value.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'\\' => layers.last_mut()?.push(*bytes.next()?),
            b':' => layers.push(Vec::new()),
            byte => layers.last_mut()?.push(byte),
        }
    }
    // Two colons are before layers of data alone.
    layers.iter().all(|layer| !layer.is_empty()).then_some(layers)
}

/// Octal numbers that stand for blanks and the like.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let octal = after
            .get(..3)
            .filter(|_| byte == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(value) => {
                plain.push(value);
                rest = &after[3..];
            }
            None => {
                plain.push(byte);
                rest = after;
            }
        }
    }
    plain
}

fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}

/// Number of the inode that the kernel has for an open file (`i_ino`): on an overlay programs may
/// be told another.
pub(crate) fn inode_number(file: &impl AsFd) -> Option<u64> {
    let info =
        std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_fd().as_raw_fd())).ok()?;
    info.lines().find_map(|line| line.strip_prefix("ino:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers_of(line: &str) -> Vec<PathBuf> {
        parse(line.as_bytes(), &|_| true).unwrap().1.layers
    }

    #[test]
    fn lines_of_mountinfo() {
        let line =
            b"36 35 98:1000 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue";
        assert_eq!(
            parse(line, &|_| true),
            Some((36, Mount { device: 98 << 20 | 1000, layers: Vec::new(), has_upper: false }))
        );
        assert_eq!(parse(b"36 35 no /mnt1", &|_| true), None);
        assert_eq!(parse(b"", &|_| true), None);
    }

    #[test]
    fn layers_of_an_overlay() {
        let of =
            |options: &str| layers_of(&format!("5 1 0:45 / /m rw - overlay overlay rw,{options}"));
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(of("lowerdir=/a:/b,upperdir=/u,workdir=/w"), paths(&["/u", "/a", "/b"]));
        assert_eq!(of("lowerdir+=/a,lowerdir+=/b"), paths(&["/a", "/b"]));
        // A colon and a comma in names: the overlay's own escape, and then mountinfo's.
        assert_eq!(
            of(r"lowerdir=/a\134:b:/c\054d,upperdir=/u\040v"),
            paths(&["/u v", "/a:b", "/c,d"])
        );
        for none in [
            "lowerdir=a:/b",
            "lowerdir=/a::/b",
            "lowerdir+=/a,datadir+=/b",
            "lowerdir=/a,metacopy=on",
            "lowerdir=/a,redirect_dir=on",
            "lowerdir=/a,index=on",
            "",
        ] {
            assert_eq!(of(none), paths(&[]), "{none}");
        }
        assert_eq!(of("lowerdir=/a,redirect_dir=nofollow,metacopy=off"), paths(&["/a"]));
        let bound =
            layers_of("5 1 0:45 /etc/site /m rw - overlay overlay rw,lowerdir=/a,upperdir=/u");
        assert_eq!(bound, paths(&["/u/etc/site", "/a/etc/site"]));
    }

    #[test]
    fn what_the_module_does_by_itself_counts() {
        let line =
            b"5 1 0:45 / /m rw - overlay overlay rw,lowerdir=/a,metacopy=off,redirect_dir=off";
        assert_eq!(parse(line, &|option| option != "metacopy").unwrap().1.layers.len(), 1);
        assert_eq!(parse(line, &|option| option != "index").unwrap().1.layers.len(), 0);
    }

    #[test]
    fn the_device_of_the_root() {
        use rustix::fs::{AtFlags, CWD, StatxFlags};
        let stat = rustix::fs::statx(
            CWD,
            c"/proc",
            AtFlags::empty(),
            StatxFlags::BASIC_STATS | StatxFlags::MNT_ID,
        )
        .unwrap();
        let device = stat.stx_dev_major << 20 | stat.stx_dev_minor;
        assert_eq!(Mounts::default().get(stat.stx_mnt_id).unwrap().device, device);
        assert_eq!(Mounts::default().get(u64::MAX), None);
        let mut of_others = Mounts { is_own_read: true, ..Mounts::default() };
        of_others.add_process(std::process::id());
        assert_eq!(of_others.get(stat.stx_mnt_id).unwrap().device, device);
    }

    #[test]
    fn the_number_of_an_inode() {
        use std::os::unix::fs::MetadataExt;
        let file = tempfile::tempfile().unwrap();
        assert_eq!(inode_number(&file), Some(file.metadata().unwrap().ino()));
    }
}
