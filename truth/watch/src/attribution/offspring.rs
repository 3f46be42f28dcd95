//! Programs that a process of the server runs for the request that it works on: CGI, `exec`,
//! `mail`.
//!
//! What they do, the server does. They are gone when a reply is judged, and so cannot be asked any
//! longer where their paths start: that is where those of the process start that takes the
//! requests, because one that goes elsewhere (chroot, another namespace) ends all that is kept.
//! Their working directories [`History`](crate::witnesses::history::History) knows; the folders
//! that they open are remembered here ([`Folders`]).
//!
//! What such a program has read is in its memory, but nobody asks it for anything later, as a rule.
//! It counts only for requests that came after the program was started, and while it is there: a
//! pool of processes that a script keeps.

use std::collections::HashMap;

use crate::witnesses::event::LookupEvent;
use crate::witnesses::folders::Folders;

/// Processes that are followed. What others do cannot be looked up again once they are gone, and
/// pages that depend on it are not kept.
const OFFSPRING_MAX: usize = 4096;
/// Files that all of them have read, as far as they are put by.
const READINGS_MAX: usize = 16_384;

#[derive(Debug, Default)]
struct Program {
    starter: u32,
    started_ns: u64,
    readings: Vec<LookupEvent>,
    folders: Folders,
}

/// Programs that a process of the server runs for the request that it works on (CGI, `exec`,
/// `mail`), and the folders and files that they have opened.
#[derive(Debug, Default)]
pub(crate) struct Offspring {
    programs: HashMap<u32, Program>,
    readings: usize,
}

impl Offspring {
    /// A process was started at the behest of another, which takes requests.
    pub(crate) fn add(&mut self, child: u32, starter: u32, started_ns: u64) {
        self.forget(child);
        if self.programs.len() < OFFSPRING_MAX {
            self.programs.insert(child, Program { starter, started_ns, ..Program::default() });
        }
    }

    /// It has ended. Was it known?
    pub(crate) fn forget(&mut self, process: u32) -> bool {
        let program = self.programs.remove(&process);
        self.readings -= program.as_ref().map_or(0, |program| program.readings.len());
        program.is_some()
    }

    /// Puts by that a program has read a file. False: there is no room, or it is none of these.
    pub(crate) fn put_by(&mut self, event: &LookupEvent) -> bool {
        let Some(program) =
            self.programs.get_mut(&event.tgid).filter(|_| self.readings < READINGS_MAX)
        else {
            return false;
        };
        if event.opens_to_read() {
            self.readings += 1;
            program.readings.push(event.clone());
        }
        true
    }

    /// What was put by of programs that were started before this moment and may still be there.
    pub(crate) fn take_readings_of(&mut self, started_before_ns: u64) -> Vec<LookupEvent> {
        if self.readings == 0 {
            return Vec::new();
        }
        let older =
            self.programs.values_mut().filter(|program| program.started_ns < started_before_ns);
        let readings: Vec<LookupEvent> =
            older.flat_map(|program| std::mem::take(&mut program.readings)).collect();
        self.readings -= readings.len();
        readings
    }

    /// The program takes requests itself from now on. What was put by of it.
    pub(crate) fn promote(&mut self, process: u32) -> Vec<LookupEvent> {
        let Some(program) = self.programs.remove(&process) else { return Vec::new() };
        self.readings -= program.readings.len();
        program.readings
    }

    /// Events have been lost: what a folder's descriptor stands for may be another.
    pub(crate) fn forget_folders(&mut self) {
        self.programs.values_mut().for_each(|program| program.folders.clear());
    }

    /// Says for whom it was done. A path below a folder that the program has opened is noted as one
    /// below the folder's own.
    pub(crate) fn mark(&mut self, event: &mut LookupEvent) {
        let Some(program) = self.programs.get_mut(&event.tgid) else { return };
        event.starter = program.starter;
        program.folders.follow(event);
        if event.folder.is_some()
            && let Some(path) = event.path_from_folder()
        {
            event.path = path;
            event.dirfd = libc::AT_FDCWD;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::witnesses::event::{EventKind, Identity};

    const PROGRAM: u32 = 70;
    const STARTER: u32 = 7;
    const FOLDER: Identity = Identity { dev: 8 << 20, ino: 5 };

    fn lookup(path: &[u8]) -> LookupEvent {
        LookupEvent { tgid: PROGRAM, tid: PROGRAM, path: path.into(), ..LookupEvent::blank(1) }
    }

    fn opened(path: &[u8]) -> LookupEvent {
        LookupEvent { inode: Some(FOLDER), mode: 0o040_755, ..lookup(path) }
    }

    fn below(path: &[u8]) -> LookupEvent {
        LookupEvent { dirfd: 4, directory: Some(FOLDER), ..lookup(path) }
    }

    fn marked(offspring: &mut Offspring, mut event: LookupEvent) -> LookupEvent {
        offspring.mark(&mut event);
        event
    }

    #[test]
    fn what_a_program_does_is_done_for_its_starter() {
        let mut offspring = Offspring::default();
        assert_eq!(marked(&mut offspring, lookup(b"/a")).worker(), PROGRAM);
        offspring.add(PROGRAM, STARTER, 0);
        let event = marked(&mut offspring, lookup(b"/a"));
        assert_eq!((event.worker(), event.owner(), event.tgid), (STARTER, STARTER, PROGRAM));
        assert!(offspring.forget(PROGRAM) && !offspring.forget(PROGRAM));
        assert_eq!(marked(&mut offspring, lookup(b"/a")).worker(), PROGRAM);
    }

    #[test]
    fn folders_that_it_has_opened_are_known() {
        let mut offspring = Offspring::default();
        offspring.add(PROGRAM, STARTER, 0);
        let unknown = marked(&mut offspring, below(b"x"));
        assert_eq!((&*unknown.path, unknown.directory), (&b"x"[..], Some(FOLDER)));
        marked(&mut offspring, opened(b"/srv/lib"));
        let known = marked(&mut offspring, below(b"x"));
        assert_eq!(
            (&*known.path, known.dirfd, known.folder.as_deref()),
            (&b"/srv/lib/x"[..], libc::AT_FDCWD, Some(&b"/srv/lib"[..]))
        );
        // A relative one is good until the program goes elsewhere.
        marked(&mut offspring, opened(b"lib"));
        assert_eq!(&*marked(&mut offspring, below(b"x")).path, b"lib/x");
        marked(&mut offspring, LookupEvent { kind: EventKind::Moved, ..lookup(b"/") });
        assert_eq!(&*marked(&mut offspring, below(b"x")).path, b"x");
        marked(&mut offspring, opened(b"/srv/lib"));
        offspring.forget_folders();
        assert_eq!(&*marked(&mut offspring, below(b"x")).path, b"x");
    }

    #[test]
    fn what_it_has_read_counts_for_those_who_come_later() {
        let read = |process| LookupEvent {
            tgid: process,
            inode: Some(FOLDER),
            mode: 0o100_644,
            ..lookup(b"/a")
        };
        let mut offspring = Offspring::default();
        assert!(!offspring.put_by(&read(PROGRAM)));
        offspring.add(PROGRAM, STARTER, 10);
        offspring.add(PROGRAM + 1, STARTER, 20);
        offspring.add(PROGRAM + 2, STARTER, 30);
        assert!(
            (0..3).all(|number| offspring.put_by(&read(PROGRAM + number))
                && offspring.put_by(&lookup(b"/b")))
        );
        assert_eq!(
            offspring.take_readings_of(20).iter().map(|event| event.tgid).collect::<Vec<_>>(),
            [PROGRAM]
        );
        assert!(offspring.forget(PROGRAM + 1) && offspring.take_readings_of(30).is_empty());
        assert_eq!(offspring.promote(PROGRAM + 2).len(), 1);
        assert_eq!((offspring.readings, offspring.promote(PROGRAM + 2).len()), (0, 0));
    }

    #[test]
    fn there_are_not_too_many() {
        let mut offspring = Offspring::default();
        for child in 1..=OFFSPRING_MAX as u32 + 1 {
            offspring.add(child, STARTER, 0);
        }
        assert!(offspring.forget(1) && !offspring.forget(OFFSPRING_MAX as u32 + 1));
    }
}
