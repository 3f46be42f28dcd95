//! What is kept beside a connection, of all the parts that it has to do with.

use nicache_tcp::Time;

use crate::fast_path::Passed;
use crate::nat::MappingId;
use crate::rules::Ruled;
use crate::services::Chosen;
use crate::switch::Switched;

/// What is kept beside a connection.
#[derive(Clone, Copy, Debug)]
pub struct Note {
    /// The mapping of its source.
    pub(crate) source: Option<MappingId>,
    /// The mapping that its destination was found by.
    pub(crate) destination: Option<MappingId>,
    /// Its back end.
    pub(crate) chosen: Option<Chosen>,
    pub(crate) ruled: Ruled,
    /// Where its first packet came in.
    pub(crate) interface: usize,
    /// When that was.
    pub begun: Time,
    /// Packets in the original direction, and back.
    pub packets: [u64; 2],
    /// Bytes of IP.
    pub bytes: [u64; 2],
    /// Its packets are forwarded elsewhere.
    pub(crate) entered: Option<Entered>,
    /// Its back end was chosen by name.
    pub(crate) switched: Option<Switched>,
}

impl Note {
    /// The back end that it was given to.
    pub fn back_end(&self) -> Option<Chosen> {
        self.chosen
    }

    /// The rule that it came under last, by its place in the list.
    pub fn rule(&self) -> Option<u16> {
        self.ruled.number()
    }

    /// The interface by which its first packet came in.
    pub fn interface(&self) -> usize {
        self.interface
    }

    /// Its back end was chosen by name.
    pub fn is_switched(&self) -> bool {
        self.switched.is_some()
    }
}

/// What is kept beside a connection that is entered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entered {
    pub(crate) place: u32,
    /// By direction: by which interface, and of which edition.
    pub(crate) ways: [Option<(usize, u32)>; 2],
    /// What of it is counted here already.
    pub(crate) counted: [Passed; 2],
}
