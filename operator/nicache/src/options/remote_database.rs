//! Databases on other machines, and where their relays tell of them.

use std::fmt;
use std::net::{SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use nicache_sql::Dialect;

/// A database on another machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RemoteDatabase {
    /// What is spoken there.
    pub protocol: Protocol,
    /// Where the server finds it.
    pub address: SocketAddrV4,
    /// Where its relay tells of it.
    pub relay: Relay,
    /// File of the key.
    pub key: PathBuf,
}

/// How a relay is followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Relay {
    /// At its own address.
    Direct(SocketAddr),
    /// On a bus.
    Bus(BusAddress),
}

/// Servers of NATS and a relay's name there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BusAddress(pub nicache_relay::Bus);

impl FromStr for BusAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.rsplit_once('/').filter(|(servers, name)| {
            let is_url = servers.starts_with("nats://") || servers.starts_with("tls://");
            is_url && servers.len() > "nats://".len() && nicache_relay::Bus::is_name(name)
        });
        let (servers, name) =
            parsed.ok_or_else(|| format!("`{text}` is not nats://HOST:PORT/NAME"))?;
        Ok(Self(nicache_relay::Bus { servers: servers.to_owned(), name: name.to_owned() }))
    }
}

impl fmt::Display for BusAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0.servers, self.0.name)
    }
}

/// What a database speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Protocol(pub Dialect);

impl Protocol {
    /// What an operator calls it.
    fn name(self) -> &'static str {
        self.0.schemes()[0]
    }
}

impl ValueEnum for Protocol {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: [Protocol; Dialect::ALL.len()] = {
            let mut all = [Protocol(Dialect::ALL[0]); Dialect::ALL.len()];
            let mut at = 0;
            while at < all.len() {
                all[at] = Protocol(Dialect::ALL[at]);
                at += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()).help(self.0.products()))
    }
}

impl FromStr for RemoteDatabase {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| {
            format!(
                "`{text}`: {what}; write for example mysql://10.0.0.5:3306,relay=10.0.0.5:7400,key=/etc/nicache/key"
            )
        };
        let mut parts = text.split(',');
        let url = parts.next().unwrap_or_default();
        let found = url.split_once("://").and_then(|(scheme, address)| {
            let dialect = Dialect::ALL.into_iter().find(|it| it.schemes().contains(&scheme))?;
            Some((Protocol(dialect), address))
        });
        let (protocol, address) = found.ok_or_else(|| {
            let begin = Dialect::ALL.map(|dialect| format!("{}://", Protocol(dialect).name()));
            wrong(&format!("the database begins with {}", begin.join(" or ")))
        })?;
        let address = address
            .trim_end_matches('/')
            .parse()
            .map_err(|_| wrong("no IPv4 address with a port"))?;
        let (mut relay, mut key) = (None, None);
        for part in parts {
            match part.split_once('=') {
                Some(("relay", value)) => {
                    let address =
                        value.parse().map_err(|_| wrong("the relay's address has a port"))?;
                    relay = Some(Relay::Direct(address));
                }
                Some(("nats", value)) => {
                    relay = Some(Relay::Bus(value.parse().map_err(|error: String| wrong(&error))?));
                }
                Some(("key", value)) if !value.is_empty() => key = Some(PathBuf::from(value)),
                _ => return Err(wrong("only relay=, nats= and key= follow")),
            }
        }
        let relay = relay.ok_or_else(|| wrong("relay= (or nats=) is missing"))?;
        let key = key.ok_or_else(|| wrong("key= is missing"))?;
        Ok(Self { protocol, address, relay, key })
    }
}

impl fmt::Display for RemoteDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.protocol.name();
        let (address, key) = (self.address, self.key.display());
        match &self.relay {
            Relay::Direct(relay) => write!(f, "{scheme}://{address},relay={relay},key={key}"),
            Relay::Bus(bus) => write!(f, "{scheme}://{address},nats={bus},key={key}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_databases() {
        let text = "postgres://10.0.0.5:5432,relay=[fd00::1]:7400,key=/k";
        let remote: RemoteDatabase = text.parse().unwrap();
        assert_eq!((remote.protocol, remote.address.port()), (Protocol(Dialect::Postgres), 5432));
        assert_eq!(remote.to_string(), text);
        let on_bus = "mysql://10.0.0.5:3306,nats=nats://10.0.0.9:4222/shop,key=/k";
        assert_eq!(on_bus.parse::<RemoteDatabase>().unwrap().to_string(), on_bus);
        for text in [
            "10.0.0.5:3306,relay=10.0.0.5:1,key=k",
            "mysql://db:3306,relay=10.0.0.5:1,key=k",
            "mysql://10.0.0.5:3306,key=k",
            "mysql://10.0.0.5:3306,nats=nats://10.0.0.9:4222,key=k",
            "mysql://10.0.0.5:3306,nats=http://10.0.0.9:4222/shop,key=k",
            "mysql://10.0.0.5:3306,relay=10.0.0.5:1",
            "mysql://10.0.0.5:3306,relay=10.0.0.5:1,key=k,x=1",
        ] {
            assert!(text.parse::<RemoteDatabase>().is_err(), "{text}");
        }
        let error = "oracle://10.0.0.5:1,relay=10.0.0.5:1,key=k".parse::<RemoteDatabase>();
        assert!(error.unwrap_err().contains("begins with mysql:// or postgres://"));
    }
}
