//! Each call must return what it does without the library, and tell what it looked at and what it
//! changed.

use nicache_coherence::SourceSlot;
use nicache_watch::{EventKind, LookupEvent, Peer};

use crate::common::slot;
use crate::program::{Folder, Memory, cases};

/// What a call must leave behind.
#[derive(Clone, Copy, Debug)]
enum Left {
    /// A look-up of this path that succeeded.
    Found(&'static str),
    /// One that failed with this error.
    Failed(&'static str, i32),
    /// One that opened this file, whatever its path.
    Opened(&'static str),
    /// A stamp of what was there by this name before.
    Changed(&'static str),
    /// A stamp of everything.
    Everything,
    /// An event of this kind.
    Event(EventKind),
    /// No event that says that something was changed, and no stamp of the file.
    NoChange,
}

use Left::{Changed, Event, Everything, Failed, Found, NoChange, Opened};

const WROTE: Left = Event(EventKind::Wrote);
const UNSEEN: Left = Event(EventKind::Unseen);
const HIDDEN: Left = Event(EventKind::Hidden);
const LISTED: Left = Event(EventKind::Readdir);

fn left_by(case: &str) -> &'static [Left] {
    match case {
        "open" | "open64" | "openat" | "open_2" | "open64_2" | "openat_2" | "syscall_open"
        | "syscall_openat2" => &[Found("file"), Opened("file"), NoChange],
        "open_missing" | "stat_missing" | "access_missing" | "fopen_missing" => {
            &[Failed("missing", libc::ENOENT)]
        }
        "open_fault" | "stat_fault" | "fstatat_worse" | "access_worse" | "rename_fault"
        | "openat_bad" | "rename_missing" | "write_bad" => &[NoChange],
        "openat64_nofollow" => &[Failed("link", libc::ELOOP)],
        "open_exists" => &[Failed("file", libc::EEXIST)],
        "open_write" | "open_truncate" | "creat" => &[Opened("file"), Changed("file")],
        "open_create" => &[Found("new"), Changed(".")],
        "mkstemp" => &[Changed(".")],
        "mkdtemp" => &[Changed("."), WROTE],
        "stat" | "fstatat" | "statx" | "xstat" | "fxstatat" | "access" | "eaccess"
        | "faccessat" | "statfs" | "statvfs" | "syscall_statx" => &[Found("file"), NoChange],
        "stat_below_file" => &[Failed("file/x", libc::ENOTDIR)],
        "lstat" | "lxstat" | "readlink" | "readlinkat" | "realpath" => &[Found("link"), NoChange],
        "readlink_file" => &[Failed("file", libc::EINVAL)],
        "getxattr" => &[Failed("file", libc::ENODATA)],
        "opendir" => &[Found("directory"), Opened("directory")],
        "opendir_missing" => &[Failed("missing", libc::ENOENT)],
        "readdir" | "scandir" | "glob" => &[Opened("directory"), LISTED],
        "nftw" | "fts" | "getaddrinfo_name" => &[UNSEEN],
        "chdir" | "fchdir" => &[Event(EventKind::Moved)],
        "rename" => &[Changed("file"), Changed("."), WROTE],
        "renameat" => &[Changed("file"), Changed("."), Changed("directory"), WROTE],
        "renameat2" => &[Changed("file"), Changed("other"), Changed("."), WROTE],
        "unlink" | "unlinkat" | "remove" => {
            &[Changed("file"), Changed("."), Event(EventKind::Removed)]
        }
        "link" | "linkat" => &[Changed("file"), Changed("."), WROTE],
        "symlink" | "mkdir" | "mkdirat" | "mkfifo" => &[Changed("."), WROTE],
        "symlinkat" | "mkdir_slash" => &[Changed("directory"), WROTE],
        "rmdir" => &[Changed("."), Changed("empty"), WROTE],
        "chmod" | "fchmod" | "fchmodat" | "chown" | "utime" | "utimes" | "utimensat"
        | "futimens" | "truncate" | "ftruncate" | "fallocate" | "posix_fallocate" => {
            &[Changed("file"), WROTE]
        }
        "lchown" => &[Changed("link"), WROTE],
        "write" | "pwrite" | "pwrite64" | "writev" | "pwritev2" | "copy_file_range" | "splice"
        | "sendfile_file" | "syscall_write" => &[Changed("file"), WROTE],
        "sendfile" => &[Event(EventKind::Sendfile), Opened("file"), NoChange],
        "mmap" => &[Changed("file"), WROTE],
        "munmap" => &[Changed("file")],
        "fopen" => &[Found("file"), Opened("file"), NoChange],
        "fopen_write" | "freopen" => &[Opened("file"), Changed("file")],
        "fwrite" | "fprintf" | "fputs" | "fputc_fflush" | "fclose" => &[Changed("file"), WROTE],
        "fputc_exit" => &[Changed("file")],
        "dlopen_deep" => &[Found("./deep.so"), Opened("file")],
        "fork" | "vfork" | "posix_spawn" | "posix_spawnp" | "system" | "popen" | "execl"
        | "execlp" | "execle" | "execve_script" => &[Everything],
        "execve_static" => &[Everything, UNSEEN],
        "syscall_chmod" => &[Everything, HIDDEN],
        "getpwnam" => &[Found("/etc/passwd")],
        "in_a_signal" => &[Opened("file")],
        // Only that nothing escapes.
        _ => &[],
    }
}

#[test]
fn every_call_returns_what_it_does_without_the_library() {
    let (memory, mut count) = (Memory::new(), 0);
    for case in cases() {
        let plain = Folder::new().run(&case, None).0;
        for part in ["server", "writer"] {
            assert_eq!(
                Folder::new().run(&case, Some((&memory, part))).0,
                plain,
                "{case} as {part}"
            );
        }
        count += 1;
    }
    assert!(count > 120, "only {count} cases");
}

#[test]
fn every_call_tells_what_it_did() {
    let mut failed = Vec::new();
    let mut memory = Memory::new();
    for case in cases() {
        let folder = Folder::new();
        let slots: Vec<(&str, SourceSlot)> = [".", "file", "other", "link", "directory", "empty"]
            .map(|name| (name, slot(&folder.path(name))))
            .to_vec();
        memory.events();
        let identity = |name: &str| slot(&folder.path(name));
        let before: Vec<SourceSlot> = ["file", "directory"].map(identity).to_vec();
        let (_, stamp) = folder.run(&case, Some((&memory, "server")));
        let events = memory.events();
        let changed = |slot| memory.table.stamp_of(slot) >= stamp;
        let named = |path: &str, event: &LookupEvent| {
            event.kind == EventKind::Lookup && *event.path == *path.as_bytes() && !event.incomplete
        };
        for left in left_by(&case) {
            let is_there = match *left {
                Found(path) => events.iter().any(|event| named(path, event) && event.ret >= 0),
                Failed(path, error) => {
                    events.iter().any(|event| named(path, event) && event.ret == -i64::from(error))
                }
                Opened(name) => {
                    let slot = if name == "file" { before[0] } else { before[1] };
                    events.iter().any(|event| event.inode.is_some_and(|inode| inode.slot() == slot))
                }
                Changed(name) => slots.iter().any(|(known, slot)| *known == name && changed(*slot)),
                Everything => changed(SourceSlot::EVERYTHING),
                Event(kind) => events.iter().any(|event| event.kind == kind),
                NoChange => {
                    !events.iter().any(|event| event.kind == EventKind::Wrote)
                        && !changed(before[0])
                }
            };
            if !is_there {
                failed.push(format!("{case}: {left:?} is not among {:?}", brief(&events)));
            }
        }
        let may_be_unseen = left_by(&case)
            .iter()
            .any(|left| matches!(left, Event(EventKind::Unseen | EventKind::Hidden)));
        if !may_be_unseen && let Some(event) = events.iter().find(|event| is_blind(event)) {
            failed.push(format!("{case}: {:?} by call {}", event.kind, event.nr));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

fn is_blind(event: &LookupEvent) -> bool {
    matches!(event.kind, EventKind::Unseen | EventKind::Hidden)
}

fn brief(events: &[LookupEvent]) -> Vec<String> {
    let brief = |event: &LookupEvent| {
        format!("{:?} {} {}", event.kind, event.path.escape_ascii(), event.ret)
    };
    events.iter().map(brief).collect()
}

#[test]
fn who_was_talked_to() {
    let mut memory = Memory::new();
    let mut peers = |case: &str| -> Vec<Peer> {
        Folder::new().run(case, Some((&memory, "server")));
        let peer = |event: LookupEvent| match event.kind {
            EventKind::Sent(sent) => Some(sent.to),
            _ => None,
        };
        memory.events().into_iter().filter_map(peer).collect()
    };
    for case in ["send_unix", "write_unix", "sendmsg_unix"] {
        // To itself, by a pair of sockets; it has ended by now.
        assert!(matches!(peers(case)[..], [Peer::Local(_)]), "{case}");
    }
    // Not connected: to nobody that could be watched.
    assert_eq!(peers("sendto_udp"), [Peer::Ipv4(std::net::Ipv4Addr::UNSPECIFIED, 0)]);
    assert_eq!(peers("connect_refused"), []);
}

/// What a program changes that is none of the server's is seen, and not what it looks at.
#[test]
fn a_writer_tells_only_what_it_changes() {
    let mut memory = Memory::new();
    for case in
        ["stat", "open", "write", "rename", "fclose", "fputc_exit", "munmap", "execve_static"]
    {
        let folder = Folder::new();
        let file = slot(&folder.path("file"));
        let (_, stamp) = folder.run(case, Some((&memory, "writer")));
        assert_eq!(memory.events(), [], "{case}");
        let is_changed = memory.table.stamp_of(file) >= stamp;
        assert_eq!(is_changed, !matches!(case, "stat" | "open" | "execve_static"), "{case}");
        assert!(memory.table.stamp_of(SourceSlot::EVERYTHING) < stamp, "{case}");
    }
}
