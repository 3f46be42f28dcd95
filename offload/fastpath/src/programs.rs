//! The programs, loaded and attached.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use libbpf_rs::{MapCore, MapFlags, ObjectBuilder, PrintLevel};
use nicache_kernel::verified_instructions;

use crate::error::FastPathError;
use crate::link::Ingress;
use crate::maps::Handles;

/// libelf wants its memory aligned.
#[repr(align(16))]
struct Aligned<T: ?Sized>(T);

static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/forward.bpf.o")));

/// The programs, until this is dropped.
#[derive(Debug)]
pub struct Programs {
    choose: OwnedFd,
    take: OwnedFd,
    forward: OwnedFd,
    handles: Handles,
    attached: Vec<(u32, Ingress)>,
}

impl Programs {
    /// Loads them, with room for so many connections: 100 bytes of the kernel's memory each, and
    /// 400 more as they come.
    ///
    /// # Errors
    /// See [`FastPathError`].
    pub fn load(connections: u32) -> Result<Self, FastPathError> {
        let (result, log) = with_log(|| load(connections.max(1)));
        result
            .map_err(|error| FastPathError::Refused(format!("{error:#}\n{log}").trim().to_owned()))
    }

    /// Attaches them to an interface of the calling thread's network namespace, by its number
    /// there.
    ///
    /// # Errors
    /// See [`FastPathError`].
    pub fn attach(&mut self, interface: u32) -> Result<(), FastPathError> {
        let (result, _) = with_log(|| Ingress::attach(self.forward.as_fd(), interface));
        let attached = result.map_err(|error| FastPathError::Attach { interface, error })?;
        self.attached.push((interface, attached));
        Ok(())
    }

    /// Detaches them from an interface, which may be gone.
    pub fn detach(&mut self, interface: u32) {
        self.attached.retain(|(attached, _)| *attached != interface);
    }

    /// The filter for the card's packet sockets.
    pub fn filter(&self) -> BorrowedFd<'_> {
        self.choose.as_fd()
    }

    /// Instructions that the verifier went through for the one that took it longest (at most a
    /// million); 0: the kernel does not say.
    pub fn verified(&self) -> u32 {
        let programs = [&self.choose, &self.take, &self.forward];
        programs
            .into_iter()
            .filter_map(|program| verified_instructions(program.as_fd()))
            .max()
            .unwrap_or(0)
    }

    /// What [`Maps::open`](crate::Maps::open) takes.
    pub fn handles(&self) -> (Handles, BorrowedFd<'_>) {
        (self.handles, self.take.as_fd())
    }
}

fn load(connections: u32) -> libbpf_rs::Result<Programs> {
    let mut open = ObjectBuilder::default().open_memory(&OBJECT.0)?;
    for mut map in open.maps_mut() {
        match map.name().to_str() {
            Some("ways") => map.set_max_entries(2 * connections)?,
            Some("numbers" | "told" | "passed") => map.set_max_entries(connections)?,
            _ => {}
        }
    }
    let object = open.load()?;
    let absent = |name: &str| {
        libbpf_rs::Error::from(io::Error::other(format!("{name} is not in the object")))
    };
    let id = |name: &str| {
        let map =
            object.maps().find(|map| map.name() == OsStr::new(name)).ok_or_else(|| absent(name))?;
        Ok::<u32, libbpf_rs::Error>(map.info()?.info.id)
    };
    let program = |name: &str| {
        let found = object
            .progs()
            .find(|program| program.name() == OsStr::new(name))
            .ok_or_else(|| absent(name))?;
        found.as_fd().try_clone_to_owned().map_err(libbpf_rs::Error::from)
    };
    let handles = Handles {
        layout: crate::layout::LAYOUT,
        connections,
        ways: id("ways")?,
        numbers: id("numbers")?,
        told: id("told")?,
        passed: id("passed")?,
        control: id("control")?,
        unsent: id("unsent")?,
        owner: id("owner")?,
    };
    let take = program("take")?;
    // The maps stay as long as the programs, but no descriptor of them does: the one of `owner` is
    // the forwarder's alone. The kernel empties `owner` when its last descriptor is gone, but in
    // its own time: who opens it sees by what is there whether that is still to come.
    let owner = object
        .maps()
        .find(|map| map.name() == OsStr::new("owner"))
        .ok_or_else(|| absent("owner"))?;
    owner.update(&0u32.to_ne_bytes(), &take.as_raw_fd().to_ne_bytes(), MapFlags::ANY)?;
    Ok(Programs {
        choose: program("choose")?,
        take,
        forward: program("forward")?,
        handles,
        attached: Vec::new(),
    })
}

/// Runs something, with what libbpf explains meanwhile: it does that by a callback of the whole
/// process alone.
fn with_log<T>(run: impl FnOnce() -> T) -> (T, String) {
    static LOG: Mutex<String> = Mutex::new(String::new());
    static IN_USE: Mutex<()> = Mutex::new(());
    fn keep(_: PrintLevel, line: String) {
        LOG.lock().unwrap_or_else(PoisonError::into_inner).push_str(&line);
    }
    let _alone = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = libbpf_rs::set_print(Some((PrintLevel::Warn, keep)));
    let result = run();
    libbpf_rs::set_print(before);
    (result, std::mem::take(&mut *LOG.lock().unwrap_or_else(PoisonError::into_inner)))
}
