//! Which targets a portal knows (RFC 7143, section 4.3, SendTargets).

use std::time::{Duration, Instant};

use crate::lun::LunError;
use crate::session::{self, Identity};
use crate::url::{Credentials, parse_portals};

/// A target that a portal knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiscoveredTarget {
    /// The target's name.
    pub name: String,
    /// The target's portals, each `ADDRESS:PORT`; the group's tag is left out.
    pub portals: Vec<String>,
}

/// Asks the portals (`HOST[:PORT]`, separated by commas) one after the other, until one answers
/// within `timeout`. With `target_credentials`, it has to prove who it is.
pub fn discover(
    portals: &str,
    credentials: Option<&Credentials>,
    target_credentials: Option<&Credentials>,
    initiator: &str,
    timeout: Duration,
) -> Result<Vec<DiscoveredTarget>, LunError> {
    let refused = |reason: String| LunError::Refused { lun: portals.to_owned(), reason };
    let identity = Identity { initiator: initiator.to_owned(), isid: (0, 0xD15C) };
    let mut last = "no portal".to_owned();
    for portal in parse_portals(portals).map_err(|error| refused(error.to_string()))? {
        let deadline = Instant::now() + timeout;
        match session::discover(&portal, credentials, target_credentials, &identity, deadline) {
            Ok(found) => return Ok(found.into_iter().map(target).collect()),
            Err(reason) => last = format!("{portal}: {reason}"),
        }
    }
    Err(refused(last))
}

fn target((name, portals): (String, Vec<String>)) -> DiscoveredTarget {
    let portals = portals
        .into_iter()
        .map(|portal| portal.split(',').next().unwrap_or_default().to_owned())
        .collect();
    DiscoveredTarget { name, portals }
}
