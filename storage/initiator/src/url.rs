//! How operators name a unit: `iscsi://[USER%PASSWORD@]HOST[:PORT][,HOST[:PORT]...]/IQN/LUN`.
//!
//! That is libiscsi's form (its README, "iSCSI URL format") with more portals. Secrets are better
//! given apart, because a command line is public ([`TargetUrl::credentials`]).

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The port of iSCSI (RFC 7143, section 13.1).
const PORT: u16 = 3260;
/// The longest name of a target (RFC 7143, section 4.2.7.1).
const NAME_BYTES_MAX: usize = 223;
/// Portals of one target; more are a mistake.
const PORTALS_MAX: usize = 16;

/// A name and a secret for CHAP (RFC 7143, section 12.1.3).
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// CHAP's name.
    pub user: String,
    /// CHAP's secret.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({}, ...)", self.user)
    }
}

/// A unit of a target, and where the target is reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TargetUrl {
    /// `HOST:PORT` of each portal, in order of preference. An IPv6 address stands in brackets.
    pub portals: Vec<String>,
    /// The target's name: `iqn.`, `eui.` or `naa.` and so on.
    pub target: String,
    /// The number of the unit.
    pub lun: u16,
    /// With what the initiator proves who it is.
    pub credentials: Option<Credentials>,
    /// With what the target proves who it is (mutual CHAP).
    pub target_credentials: Option<Credentials>,
}

/// Why a text does not name a unit.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum UrlError {
    /// The text does not begin with `iscsi://`.
    #[error("the address of a unit begins with iscsi://")]
    Scheme,
    /// Part of it is missing.
    #[error("the address of a unit is iscsi://HOST[:PORT]/IQN/LUN")]
    Form,
    /// A portal is malformed.
    #[error("{0:?} is not HOST or HOST:PORT")]
    Portal(String),
    /// There are too many portals.
    #[error("a target has at most {PORTALS_MAX} portals here")]
    Portals,
    /// The target's name is malformed.
    #[error(
        "{0:?} is not the name of a target (iqn., eui. or naa., at most {NAME_BYTES_MAX} letters, digits, '.', '-' and ':')"
    )]
    Target(String),
    /// The unit's number is malformed.
    #[error("{0:?} is not the number of a unit (0 to 255)")]
    Lun(String),
    /// A user without a password or the other way round.
    #[error("credentials in an address are USER%PASSWORD@")]
    Credentials,
}

impl FromStr for TargetUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let rest = text.strip_prefix("iscsi://").ok_or(UrlError::Scheme)?;
        let (authority, path) = rest.split_once('/').ok_or(UrlError::Form)?;
        let (target, lun) = path.split_once('/').ok_or(UrlError::Form)?;
        let (credentials, hosts) = match authority.rsplit_once('@') {
            Some((credentials, hosts)) => {
                let (user, password) = credentials.split_once('%').ok_or(UrlError::Credentials)?;
                if user.is_empty() || password.is_empty() || credentials.contains('\0') {
                    return Err(UrlError::Credentials);
                }
                (Some(Credentials { user: user.to_owned(), password: password.to_owned() }), hosts)
            }
            None => (None, authority),
        };
        let portals = parse_portals(hosts)?;
        let prefixed = ["iqn.", "eui.", "naa."].iter().any(|prefix| target.starts_with(prefix));
        let spelled =
            target.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '_'));
        if !prefixed || !spelled || target.len() > NAME_BYTES_MAX {
            return Err(UrlError::Target(target.to_owned()));
        }
        let lun = lun.parse::<u8>().map_err(|_| UrlError::Lun(lun.to_owned()))?;
        Ok(Self {
            portals,
            target: target.to_owned(),
            lun: u16::from(lun),
            credentials,
            target_credentials: None,
        })
    }
}

/// Portals separated by commas, each completed with the port of iSCSI.
pub(crate) fn parse_portals(hosts: &str) -> Result<Vec<String>, UrlError> {
    let portals = hosts.split(',').map(parse_portal).collect::<Result<Vec<_>, _>>()?;
    if portals.len() > PORTALS_MAX {
        return Err(UrlError::Portals);
    }
    Ok(portals)
}

fn parse_portal(text: &str) -> Result<String, UrlError> {
    let wrong = || UrlError::Portal(text.to_owned());
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (address, after) = rest.split_once(']').ok_or_else(wrong)?;
        address.parse::<std::net::Ipv6Addr>().map_err(|_| wrong())?;
        let port = match after {
            "" => None,
            after => Some(after.strip_prefix(':').ok_or_else(wrong)?),
        };
        (format!("[{address}]"), port)
    } else {
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        };
        if host.is_empty()
            || host.len() > 253
            || !host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))
        {
            return Err(wrong());
        }
        (host.to_owned(), port)
    };
    let port = match port {
        Some(port) => port.parse::<u16>().ok().filter(|port| *port != 0).ok_or_else(wrong)?,
        None => PORT,
    };
    Ok(format!("{host}:{port}"))
}

impl fmt::Display for TargetUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "iscsi://{}/{}/{}", self.portals.join(","), self.target, self.lun)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_addresses() {
        let url: TargetUrl =
            "iscsi://joe%a:b@one,two:3261,[::1]:99/iqn.2001-04.com.example:disk/7".parse().unwrap();
        assert_eq!(url.portals, ["one:3260", "two:3261", "[::1]:99"]);
        assert_eq!((url.target.as_str(), url.lun), ("iqn.2001-04.com.example:disk", 7));
        assert_eq!(
            url.credentials,
            Some(Credentials { user: "joe".into(), password: "a:b".into() })
        );
        // What is printed carries no secret.
        assert_eq!(
            url.to_string(),
            "iscsi://one:3260,two:3261,[::1]:99/iqn.2001-04.com.example:disk/7"
        );
        assert!(!format!("{url:?}").contains("a:b"));
    }

    #[test]
    fn each_mistake_has_its_message() {
        for (text, error) in [
            ("http://x/iqn.a/1", UrlError::Scheme),
            ("iscsi://x/iqn.a", UrlError::Form),
            ("iscsi://x:0/iqn.a/1", UrlError::Portal("x:0".into())),
            ("iscsi://[::g]/iqn.a/1", UrlError::Portal("[::g]".into())),
            ("iscsi:///iqn.a/1", UrlError::Portal(String::new())),
            ("iscsi://x/disk/1", UrlError::Target("disk".into())),
            ("iscsi://x/iqn.a/256", UrlError::Lun("256".into())),
            ("iscsi://x/iqn.a/1/2", UrlError::Lun("1/2".into())),
            ("iscsi://joe@x/iqn.a/1", UrlError::Credentials),
        ] {
            assert_eq!(text.parse::<TargetUrl>(), Err(error), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_parses_prints_and_parses_again(
            text in "iscsi://[a-z0-9.,:@%\\[\\]]{0,30}/(iqn|naa)\\.[a-z0-9:.-]{0,20}/[0-9]{1,3}",
        ) {
            if let Ok(url) = text.parse::<TargetUrl>() {
                let again: TargetUrl = url.to_string().parse().unwrap();
                proptest::prop_assert_eq!(again, TargetUrl { credentials: None, ..url });
            }
        }
    }
}
