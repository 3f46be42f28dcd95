//! Loads the steering programs.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::{ErrorKind, MapCore, ObjectBuilder};

use crate::error::SteeringError;
use crate::log::with_log;

/// libelf wants its memory aligned.
#[repr(align(16))]
pub(crate) struct Aligned<T: ?Sized>(pub(crate) T);

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/steer.bpf.o")));

/// Connections whose queues are known; about 13 MB. Of more, those that were idle longest are
/// forgotten, until their next frame.
const FLOWS: u32 = 1 << 17;

/// Programs of one side.
pub(crate) struct SidePrograms {
    pub(crate) driver: OwnedFd,
    pub(crate) filter: OwnedFd,
    pub(crate) ingress: OwnedFd,
    /// Has a frame come in.
    pub(crate) inject: OwnedFd,
    /// The map of AF_XDP sockets by queue.
    pub(crate) sockets: OwnedFd,
}

/// Everything that is in the object.
pub(crate) struct Loaded {
    pub(crate) heartbeat: OwnedFd,
    pub(crate) services: OwnedFd,
    pub(crate) ways: OwnedFd,
    pub(crate) counts: OwnedFd,
    pub(crate) term: OwnedFd,
    pub(crate) lost: OwnedFd,
    pub(crate) begun: OwnedFd,
    /// Says which of several packet sockets toward the host gets a frame.
    pub(crate) host_queue: OwnedFd,
    /// What is asked before steering at the wire's driver, and steering without that.
    pub(crate) first: OwnedFd,
    pub(crate) wire_rest: OwnedFd,
    /// What tells probe frames from others, and who has some seen that leave.
    pub(crate) probe: OwnedFd,
    pub(crate) probe_filter: OwnedFd,
    pub(crate) wire: SidePrograms,
    pub(crate) host: SidePrograms,
}

/// Loads programs and maps, with room for `queues` AF_XDP sockets on each side and `connections`
/// that are lost.
pub(crate) fn load(queues: u32, connections: u32) -> Result<Loaded, SteeringError> {
    check_capabilities()?;
    let (result, log) = with_log(|| load_object(queues, connections));
    result.map_err(|failure| failure.explain(&log))
}

/// Why an object could not be loaded.
pub(crate) enum Failure {
    Libbpf(libbpf_rs::Error),
    Io(io::Error),
    Absent(String),
}

impl Failure {
    /// The error with what libbpf has said meanwhile.
    pub(crate) fn explain(self, log: &str) -> SteeringError {
        match self {
            Self::Io(error) => SteeringError::Io { step: "keeping a steering program", error },
            Self::Absent(name) => SteeringError::Refused(format!("{name} is not in the object")),
            // The verifier's own refusals are EACCES and come with a log, too; EPERM is about the
            // process.
            Self::Libbpf(error)
                if error.kind() == ErrorKind::PermissionDenied && !log.contains("processed") =>
            {
                SteeringError::NotPermitted(error.to_string())
            }
            Self::Libbpf(error) => SteeringError::Refused(format!("{error:#}\n{log}")),
        }
    }
}

impl From<libbpf_rs::Error> for Failure {
    fn from(error: libbpf_rs::Error) -> Self {
        Self::Libbpf(error)
    }
}

fn load_object(queues: u32, connections: u32) -> Result<Loaded, Failure> {
    let mut open = ObjectBuilder::default().open_memory(&OBJECT.0)?;
    for mut map in open.maps_mut() {
        if map.name().to_string_lossy().ends_with("_sockets") {
            map.set_max_entries(queues.max(1))?;
        }
        if map.name() == "flows" && queues > 1 {
            map.set_max_entries(FLOWS)?;
        }
        if map.name() == "lost" {
            map.set_max_entries(connections.max(1))?;
        }
    }
    let object = open.load()?;
    let map = |name: &str| {
        let map = object.maps().find(|map| map.name() == OsStr::new(name));
        let map = map.ok_or_else(|| Failure::Absent(name.to_owned()))?;
        map.as_fd().try_clone_to_owned().map_err(Failure::Io)
    };
    let program = |name: &str| {
        let program = object.progs().find(|program| program.name() == OsStr::new(name));
        let program = program.ok_or_else(|| Failure::Absent(name.to_owned()))?;
        program.as_fd().try_clone_to_owned().map_err(Failure::Io)
    };
    let side = |side: &str| {
        Ok::<_, Failure>(SidePrograms {
            driver: program(&format!("{side}_driver"))?,
            filter: program(&format!("{side}_filter"))?,
            ingress: program(&format!("{side}_ingress"))?,
            inject: program(&format!("{side}_inject"))?,
            sockets: map(&format!("{side}_sockets"))?,
        })
    };
    Ok(Loaded {
        heartbeat: map("heartbeat")?,
        services: map("services")?,
        ways: map("ways")?,
        counts: map("counts")?,
        term: map("term")?,
        lost: map("lost")?,
        begun: map("begun")?,
        host_queue: program("host_queue")?,
        first: map("first")?,
        wire_rest: program("wire_rest")?,
        probe: map("probe")?,
        probe_filter: program("probe_filter")?,
        wire: side("wire")?,
        host: side("host")?,
    })
}

/// Asked beforehand, because the kernel's EPERM would come with no word about which capability it
/// missed.
pub(crate) fn check_capabilities() -> Result<(), SteeringError> {
    use rustix::thread::CapabilitySet;
    let effective = rustix::thread::capabilities(None)
        .map_err(|errno| SteeringError::Io {
            step: "asking for capabilities",
            error: errno.into(),
        })?
        .effective;
    let loads = effective.intersects(CapabilitySet::SYS_ADMIN.union(CapabilitySet::BPF));
    if loads && effective.contains(CapabilitySet::NET_ADMIN) {
        return Ok(());
    }
    Err(SteeringError::NotPermitted("these capabilities are not effective".into()))
}
