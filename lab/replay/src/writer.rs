//! A writer: changes its files in every way, and looks right after each step whether the change is
//! there.
//!
//! A writer owns whole directories, so every file has one writer and a history in order.
//! Before most writes it fetches the file until a kept reply comes, so there is something to
//! purge.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nicache_clock::monotonic_ns;
use nicache_random::SplitMix64 as Random;
use rustix::fs::{CWD, OFlags, RenameFlags};

use crate::content::{LINE_BYTES, render};
use crate::fetcher::Fetcher;
use crate::method::Method;
use crate::oracle::State;
use crate::report::Report;
use crate::shared::{ReplayError, Shared, random_for};
use crate::site::{make_directory, write_new};

/// O_DIRECT wants buffers, offsets and lengths that are multiples of the logical block size.
const DIRECT_ALIGNMENT: usize = 4096;
/// Fetches in a row in the hope of a kept reply.
const WARM_FETCHES_MAX: u32 = 4;
/// Time for a fill to be judged.
const WARM_PAUSE: Duration = Duration::from_millis(1);
/// How long a file or directory stays away.
const AWAY_PAUSE: Duration = Duration::from_micros(500);

/// What the writer knows of a file of its own.
#[derive(Clone, Debug)]
struct Current {
    version: u32,
    len: u64,
    /// What the file's name is a symlink to, if it is one.
    target: Option<PathBuf>,
}

impl Current {
    fn state(&self) -> State {
        State::Content { version: self.version, len: self.len }
    }
}

/// Changes its files in every way, and looks right after each step whether the change is there. No
/// other writer changes its directories.
pub(crate) struct Writer<'a> {
    shared: &'a Shared<'a>,
    random: Random,
    fetcher: Fetcher<'a>,
    new_folder: PathBuf,
    /// Own files, each as often as it is asked for.
    files: Vec<usize>,
    current: HashMap<usize, Current>,
    /// Distinguishes names in the side folder.
    serial: u64,
    number: usize,
    read_after: u64,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(shared: &'a Shared<'a>, number: usize) -> Self {
        let writers = shared.config.writers;
        // Directories are switched or not by turns, and a writer shall have some of both.
        let is_own = |file: usize| (shared.site.directory(file) / 2) as usize % writers == number;
        let asked = shared.trace.requests.iter().map(|request| request.object as usize);
        let files: Vec<usize> = asked.filter(|&file| is_own(file)).collect();
        let initial = |file: usize| match shared.site.initial(file) {
            State::Content { version, len } => (file, Current { version, len, target: None }),
            _ => (file, Current { version: 0, len: 0, target: None }),
        };
        Writer {
            shared,
            random: random_for(shared.config, number),
            fetcher: Fetcher::new(shared),
            new_folder: shared.site.new_folder(),
            files,
            current: (0..shared.site.len()).filter(|&file| is_own(file)).map(initial).collect(),
            serial: 0,
            number,
            read_after: 0,
        }
    }

    /// Writes until the replay is over.
    pub(crate) fn run(mut self) -> Result<Report, ReplayError> {
        let mut methods = Method::ALL.to_vec();
        while !self.shared.is_over() && !self.files.is_empty() {
            for at in (1..methods.len()).rev() {
                methods.swap(at, self.random.below(at as u64 + 1) as usize);
            }
            for &method in &methods {
                if self.shared.is_over() {
                    break;
                }
                self.write(method)?;
                let pause = self.shared.config.write_pause.as_nanos() as u64;
                std::thread::sleep(Duration::from_nanos(self.random.below(2 * pause + 1)));
            }
        }
        Ok(self.fetcher.finish())
    }

    fn write(&mut self, method: Method) -> Result<(), ReplayError> {
        let file = self.files[self.random.below(self.files.len() as u64) as usize];
        let is_cached = self.random.below(4) > 0 && self.warm(file);
        self.read_after = 0;
        let done = self.change(method, file).map_err(|source| {
            self.shared.stop.store(true, std::sync::atomic::Ordering::Relaxed);
            ReplayError::Write { method, path: self.shared.site.path(file), source }
        })?;
        if done {
            self.shared.count_write();
            let counted = self.fetcher.report.writes.entry(method).or_default();
            counted.writes += 1;
            counted.cached_before += u64::from(is_cached);
            counted.read_after += self.read_after;
        }
        Ok(())
    }

    fn warm(&mut self, file: usize) -> bool {
        for _ in 0..WARM_FETCHES_MAX {
            if self.fetcher.fetch(&[(file, false, 0)]) {
                return true;
            }
            std::thread::sleep(WARM_PAUSE);
        }
        false
    }

    /// Looks whether the step that has just returned is in the reply.
    fn look(&mut self, file: usize) {
        self.fetcher.fetch(&[(file, false, 0)]);
        self.read_after += 1;
    }

    /// Changes the file; false if the method does not suit it.
    fn change(&mut self, method: Method, file: usize) -> io::Result<bool> {
        let path = self.shared.site.path(file);
        let Some(old) = self.current.get(&file).cloned() else { return Ok(false) };
        let next = Current { version: old.version + 1, ..old.clone() };
        match method {
            Method::WriteInPlace => {
                let handle = OpenOptions::new().write(true).open(&path)?;
                self.rewrite(file, next, handle, |handle, bytes| handle.write_all_at(bytes, 0))?;
            }
            Method::WriteKeepTime => {
                let handle = OpenOptions::new().write(true).open(&path)?;
                let modified = handle.metadata()?.modified()?;
                self.rewrite(file, next, handle, |handle, bytes| {
                    handle.write_all_at(bytes, 0)?;
                    handle.set_modified(modified)
                })?;
            }
            Method::WriteDirect => return self.write_direct(file, next, &path),
            Method::WriteHardLink => {
                let other = self.new_name();
                fs::hard_link(&path, &other)?;
                let handle = OpenOptions::new().write(true).open(&other)?;
                self.rewrite(file, next, handle, |handle, bytes| handle.write_all_at(bytes, 0))?;
                fs::remove_file(other)?;
            }
            Method::MapShared => {
                let options = OpenOptions::new().read(true).write(true).open(&path)?;
                let mut map = vmap::MapMut::with_options()
                    .len(old.len as usize)
                    .map(&options)
                    .map_err(io::Error::other)?;
                self.rewrite(file, next, options, move |_, bytes| {
                    map.copy_from_slice(bytes);
                    drop(map);
                    Ok(())
                })?;
            }
            Method::CopyRange => {
                let source = self.new_file(file, &next)?;
                let from = File::open(&source)?;
                let handle = OpenOptions::new().write(true).open(&path)?;
                self.rewrite(file, next, handle, |to, bytes| copy_range(&from, to, bytes.len()))?;
                fs::remove_file(source)?;
            }
            Method::Append => {
                let State::Content { len: base, .. } = self.shared.site.initial(file) else {
                    return Ok(false);
                };
                if old.len > 2 * base + 4096 {
                    return Ok(false);
                }
                let next = Current { len: old.len + 1 + self.random.below(200), ..old.clone() };
                let mut bytes = vec![0; (next.len - old.len) as usize];
                render(self.shared.site.id(file), next.version, old.len, &mut bytes);
                let mut handle = OpenOptions::new().append(true).open(&path)?;
                self.step(file, next, true, || io::Write::write_all(&mut handle, &bytes))?;
            }
            Method::Truncate => {
                if old.len <= LINE_BYTES as u64 {
                    return Ok(false);
                }
                let len = LINE_BYTES as u64 + self.random.below(old.len - LINE_BYTES as u64);
                let handle = OpenOptions::new().write(true).open(&path)?;
                self.step(file, Current { len, ..old }, true, || handle.set_len(len))?;
            }
            Method::TruncateRewrite => {
                let next = Current { len: self.new_len(file), ..next };
                let bytes = self.bytes(file, &next);
                let mut opened = None;
                self.gap(file, State::Empty, true, || {
                    opened = Some(OpenOptions::new().write(true).truncate(true).open(&path)?);
                    Ok(())
                })?;
                if let Some(handle) = opened {
                    self.step(file, next, true, || handle.write_all_at(&bytes, 0))?;
                }
            }
            Method::RenameOver | Method::RenameExchange => {
                let next = Current { len: self.new_len(file), target: None, ..next };
                let source = self.new_file(file, &next)?;
                if method == Method::RenameOver {
                    self.step(file, next, false, || fs::rename(&source, &path))?;
                } else {
                    let exchange = || {
                        rustix::fs::renameat_with(CWD, &source, CWD, &path, RenameFlags::EXCHANGE)
                    };
                    self.step(file, next, false, || Ok(exchange()?))?;
                    fs::remove_file(source)?;
                }
                remove_target(old.target)?;
            }
            Method::UnlinkCreate => {
                let next = Current { len: self.new_len(file), target: None, ..next };
                let bytes = self.bytes(file, &next);
                self.gap(file, State::Missing, false, || fs::remove_file(&path))?;
                let mut created = None;
                self.gap(file, State::Empty, false, || {
                    created = Some(
                        OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path)?,
                    );
                    Ok(())
                })?;
                if let Some(handle) = created {
                    self.step(file, next, true, || handle.write_all_at(&bytes, 0))?;
                }
                remove_target(old.target)?;
            }
            Method::SymlinkSwitch => {
                let next = Current { len: self.new_len(file), ..next };
                let target = self.new_target(self.shared.site.directory(file));
                write_new(&target, self.shared.site.id(file), next.version, next.len)?;
                let link = self.new_name();
                symlink(&target, &link)?;
                let next = Current { target: Some(target), ..next };
                self.step(file, next, false, || fs::rename(&link, &path))?;
                remove_target(old.target)?;
            }
            Method::Chmod => {
                let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode));
                self.gap(file, State::Forbidden, false, || mode(0o000))?;
                self.step(file, old, false, || mode(0o644))?;
            }
            Method::DirectoryRename => self.rename_directory(file)?,
            Method::DirectorySwitch => return self.switch_directory(file),
        }
        Ok(true)
    }

    /// Changes all bytes by `change` as one step.
    fn rewrite(
        &mut self,
        file: usize,
        next: Current,
        handle: File,
        change: impl FnOnce(&File, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let bytes = self.bytes(file, &next);
        self.step(file, next, true, || {
            change(&handle, &bytes)?;
            drop(handle);
            Ok(())
        })
    }

    fn write_direct(&mut self, file: usize, next: Current, path: &Path) -> io::Result<bool> {
        let len = (next.len as usize).next_multiple_of(DIRECT_ALIGNMENT);
        let flags = OFlags::DIRECT.bits() as i32;
        let handle = match OpenOptions::new().write(true).custom_flags(flags).open(path) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(false),
            opened => opened?,
        };
        let mut room = vec![0; len + DIRECT_ALIGNMENT];
        let start = room.as_ptr().align_offset(DIRECT_ALIGNMENT);
        let bytes = &mut room[start..start + len];
        render(self.shared.site.id(file), next.version, 0, bytes);
        let bytes = &*bytes;
        self.step(file, Current { len: len as u64, ..next }, true, || {
            handle.write_all_at(bytes, 0)
        })?;
        Ok(true)
    }

    fn rename_directory(&mut self, file: usize) -> io::Result<()> {
        let directory = self.shared.site.directory(file);
        let path = self.shared.site.directory_path(directory);
        let away = self.new_name();
        let inside = self.inside(directory);
        let missing: Vec<_> = inside.iter().map(|&file| (file, State::Missing)).collect();
        let back: Vec<_> = inside.iter().map(|file| (*file, self.current[file].state())).collect();
        self.note(&missing, false, || fs::rename(&path, &away))?;
        self.look(file);
        std::thread::sleep(AWAY_PAUSE);
        self.note(&back, false, || fs::rename(&away, &path))?;
        self.look(file);
        Ok(())
    }

    fn switch_directory(&mut self, file: usize) -> io::Result<bool> {
        let directory = self.shared.site.directory(file);
        if !self.shared.site.is_switched(directory) {
            return Ok(false);
        }
        let path = self.shared.site.directory_path(directory);
        let old = fs::read_link(&path)?;
        let new = self.new_target(directory);
        make_directory(&new)?;
        let inside = self.inside(directory);
        let mut states = Vec::new();
        let mut targets = Vec::new();
        for &file in &inside {
            let Some(current) = self.current.get_mut(&file) else { continue };
            current.version += 1;
            targets.push(current.target.take());
            states.push((file, current.state()));
            write_new(
                &new.join(self.shared.site.name(file)),
                self.shared.site.id(file),
                current.version,
                current.len,
            )?;
        }
        let link = self.new_name();
        symlink(&new, &link)?;
        self.note(&states, false, || fs::rename(&link, &path))?;
        self.look(file);
        targets.into_iter().try_for_each(remove_target)?;
        fs::remove_dir_all(old)?;
        Ok(true)
    }

    /// Own files in a directory.
    fn inside(&self, directory: u32) -> BTreeSet<usize> {
        self.current
            .keys()
            .copied()
            .filter(|&file| self.shared.site.directory(file) == directory)
            .collect()
    }

    /// Makes the change that turns the file into `next`, and looks at it.
    fn step(
        &mut self,
        file: usize,
        next: Current,
        in_place: bool,
        change: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let state = next.state();
        self.current.insert(file, next);
        self.gap(file, state, in_place, change)
    }

    /// Makes a change and looks at it.
    fn gap(
        &mut self,
        file: usize,
        state: State,
        in_place: bool,
        change: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        self.note(&[(file, state)], in_place, change)?;
        self.look(file);
        Ok(())
    }

    /// Makes a change and notes its times in the histories.
    fn note(
        &self,
        states: &[(usize, State)],
        in_place: bool,
        change: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let call_ns = monotonic_ns();
        for &(file, state) in states {
            self.shared.history(file).begin(call_ns, state, in_place);
        }
        change()?;
        let return_ns = monotonic_ns();
        for &(file, _) in states {
            self.shared.history(file).end(return_ns);
        }
        Ok(())
    }

    fn bytes(&self, file: usize, next: &Current) -> Vec<u8> {
        let mut bytes = vec![0; next.len as usize];
        render(self.shared.site.id(file), next.version, 0, &mut bytes);
        bytes
    }

    /// A length near the original one.
    fn new_len(&mut self, file: usize) -> u64 {
        let State::Content { len, .. } = self.shared.site.initial(file) else {
            return LINE_BYTES as u64;
        };
        len + self.random.below(130)
    }

    fn new_name(&mut self) -> PathBuf {
        self.serial += 1;
        self.new_folder.join(self.serial_name())
    }

    fn new_target(&mut self, directory: u32) -> PathBuf {
        self.serial += 1;
        self.shared.site.target_folder(directory).join(self.serial_name())
    }

    fn serial_name(&self) -> String {
        format!("{}-{}", self.number, self.serial)
    }

    fn new_file(&mut self, file: usize, content: &Current) -> io::Result<PathBuf> {
        let path = self.new_name();
        write_new(&path, self.shared.site.id(file), content.version, content.len)?;
        Ok(path)
    }
}

fn copy_range(from: &File, to: &File, len: usize) -> io::Result<()> {
    let (mut from_offset, mut to_offset) = (0, 0);
    while from_offset < len as u64 {
        let left = len - from_offset as usize;
        if rustix::fs::copy_file_range(
            from,
            Some(&mut from_offset),
            to,
            Some(&mut to_offset),
            left,
        )? == 0
        {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

fn remove_target(target: Option<PathBuf>) -> io::Result<()> {
    target.map_or(Ok(()), fs::remove_file)
}
