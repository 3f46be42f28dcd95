//! What a forwarder has done, and why it has not passed something on.

/// Why a packet is not passed on. One list for counters, metrics and messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Drop {
    /// It came by an interface or a VLAN that is not set up.
    Interface,
    /// It is neither IP nor a question for an address, or not for our MAC address.
    NotOurs,
    /// Its headers are cut off, contradict themselves, or have a wrong checksum.
    Malformed,
    /// It has a source route.
    SourceRoute,
    /// Its source is an address that nobody can have.
    Martian,
    /// A rule says so.
    Rule,
    /// No route leads to its destination.
    NoRoute,
    /// It has passed too many routers.
    Hops,
    /// It is longer than the next link takes.
    TooBig,
    /// The MAC address of the next hop is not known.
    Neighbour,
    /// It belongs to no connection, and begins none.
    NoConnection,
    /// It would have left with an inside address, or without a translation (invariant F5).
    Untranslated,
    /// The table of connections is full.
    TableFull,
    /// All external ports are in use.
    PortsUsed,
    /// No back end is up.
    NoBackEnd,
    /// A later fragment whose first one is not known, or was dropped.
    Fragment,
    /// An error about a packet of which nothing is known.
    StrayError,
    /// It does not fit a connection whose back end is not chosen yet.
    Switch,
    /// It would be answered with a reset, and there have been too many of those.
    ResetLimit,
    /// Another connection has the same ends at each back end that was tried: a client uses one port
    /// for two services that have the same back ends.
    EndsUsed,
}

impl Drop {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 20] = [
        Self::Interface,
        Self::NotOurs,
        Self::Malformed,
        Self::SourceRoute,
        Self::Martian,
        Self::Rule,
        Self::NoRoute,
        Self::Hops,
        Self::TooBig,
        Self::Neighbour,
        Self::NoConnection,
        Self::Untranslated,
        Self::TableFull,
        Self::PortsUsed,
        Self::NoBackEnd,
        Self::Fragment,
        Self::StrayError,
        Self::Switch,
        Self::ResetLimit,
        Self::EndsUsed,
    ];

    /// The reason's name in tables and metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Interface => "interface",
            Self::NotOurs => "not_ours",
            Self::Malformed => "malformed",
            Self::SourceRoute => "source_route",
            Self::Martian => "martian",
            Self::Rule => "rule",
            Self::NoRoute => "no_route",
            Self::Hops => "hops",
            Self::TooBig => "too_big",
            Self::Neighbour => "neighbour",
            Self::NoConnection => "no_connection",
            Self::Untranslated => "untranslated",
            Self::TableFull => "table_full",
            Self::PortsUsed => "ports_used",
            Self::NoBackEnd => "no_back_end",
            Self::Fragment => "fragment",
            Self::StrayError => "stray_error",
            Self::Switch => "switch",
            Self::ResetLimit => "reset_limit",
            Self::EndsUsed => "ends_used",
        }
    }
}

nicache_counters::counters! {
    /// What a forwarder has done, and why it has not passed something on.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Counters {
        packets: "Packets processed. A super-frame counts once.",
        forwarded: "Packets passed on; one that goes to several counts for each.",
        answered: "Packets answered: questions for addresses, echoes, errors of ours.",
        begun: "Connections begun.",
        pushed_out: "Connections that made room for others before their time.",
        outside: "Segments outside of their connection's windows, which were passed on.",
        errors: "ICMP errors of others that were translated.",
        errors_held_back: "ICMP errors of ours that were not sent, because there were too many.",
        taken: "Segments taken of connections whose back end is not chosen yet.",
        switch_accepted: "Connections of services by name whose clients completed the handshake.",
        switch_cookies_sent: "SYNs for services by name that were answered with a cookie, because there were many.",
        switch_cookies_answered: "Connections that began with the answer to a cookie.",
        switch_chosen: "Connections for which a back end was chosen by name.",
        switch_spliced: "Connections whose back end has acknowledged the first bytes; from then on no byte of theirs is looked at.",
        switch_malformed: "Connections reset because their first bytes were neither TLS nor HTTP/1 as the service speaks it.",
        switch_too_long: "Connections reset because there was no name in the first 16 KiB.",
        switch_late: "Connections reset because no name came within 10 seconds.",
        switch_unknown_name: "Connections reset because no back end has their name.",
        switch_no_back_end: "Connections reset because no back end with their name is up, or none can be reached.",
        switch_refused: "Connections reset because their back end refused them.",
        switch_silent: "Connections reset because their back end did not answer.",
        switch_unstamped: "Connections whose client uses timestamps and whose back end does not; later ones of the service do without.",
        switch_cut: "Packets of connections by name that were cut into shorter segments, because the end that they go to takes no longer ones. A super-frame counts once.",
        switch_pushed_out: "Connections reset while they waited for their name, because there were too many.",
        switch_stray: "Segments of unknown connections for services by name that were answered with a reset.",
        resets_held_back: "Resets of ours that were not sent, because there were too many.",
    }
    beside {
        /// Packets not passed on, in the order of [`Drop::ALL`].
        pub dropped: [u64; Drop::ALL.len()],
    }
}

impl Counters {
    /// Packets dropped for a reason.
    pub fn dropped_for(&self, why: Drop) -> u64 {
        self.dropped[why as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_places() {
        for (number, why) in Drop::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, number);
        }
    }
}
