//! What is exported, and to whom, in one line: as in exports(5), so nobody has to learn
//! another form.
//!
//! `NAME[=FOLDER] [CLIENT[(OPTION,...)] ...]`: clients mount NAME. FOLDER is a folder of the unit's
//! file system, by default all of it. CLIENT is an address, a network, or `*` for everybody;
//! without one, only this machine is let in.

use std::path::PathBuf;
use std::str::FromStr;

use nicache_nfs::{ClientRule, Network, Squash};
use thiserror::Error;

/// A folder that clients can mount, and who may, as `--export` says it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportLine {
    /// What clients mount.
    pub name: String,
    /// The folder below the root of the file system; empty: all of it.
    pub folder: PathBuf,
    /// Who may use it; the first rule that has a client's address decides.
    pub clients: Vec<ClientRule>,
    /// Whether changes of names and attributes are durable before they are answered.
    pub is_sync: bool,
}

/// Why a line is not an export.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ExportLineError {
    /// The export has no name.
    #[error("an export begins with the path that clients mount: '/data 10.0.0.0/8(rw)'")]
    NoName,
    /// The folder leads elsewhere.
    #[error("'{0}' is not a folder of the unit's file system: write it without . and ..")]
    Folder(String),
    /// Not a network.
    #[error("'{0}' is not a client: an address, a network such as 10.0.0.0/8, or *")]
    Client(String),
    /// Not an option.
    #[error(
        "'{0}' is not an option of an export: ro, rw, sync, async, root_squash, no_root_squash, all_squash, anonuid=N, anongid=N (N below 4294967295), secure, insecure"
    )]
    Option(String),
}

impl FromStr for ExportLine {
    type Err = ExportLineError;

    fn from_str(text: &str) -> Result<Self, ExportLineError> {
        let mut words = text.split_whitespace();
        let first = words.next().ok_or(ExportLineError::NoName)?;
        let (name, folder) = first.split_once('=').unwrap_or((first, ""));
        if !name.starts_with('/') {
            return Err(ExportLineError::NoName);
        }
        let folder = folder.trim_matches('/');
        if !folder.is_empty() && folder.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(ExportLineError::Folder(folder.to_owned()));
        }
        let (mut clients, mut is_sync) = (Vec::new(), false);
        for word in words {
            let (client, options) = match word.split_once('(') {
                Some((client, rest)) => {
                    let options = rest
                        .strip_suffix(')')
                        .ok_or_else(|| ExportLineError::Client(word.to_owned()))?;
                    (client, options)
                }
                None => (word, ""),
            };
            for network in networks(client)? {
                let mut rule = ClientRule::new(network);
                for option in options.split(',').filter(|option| !option.is_empty()) {
                    apply(&mut rule, &mut is_sync, option)?;
                }
                clients.push(rule);
            }
        }
        if clients.is_empty() {
            for network in ["127.0.0.0/8", "::1"] {
                let network =
                    network.parse().map_err(|_| ExportLineError::Client(network.to_owned()))?;
                clients.push(ClientRule::new(network));
            }
        }
        Ok(Self { name: name.to_owned(), folder: folder.into(), clients, is_sync })
    }
}

impl ExportLine {
    /// Whether others than this machine's own programs are let in.
    pub fn is_for_others(&self) -> bool {
        let is_loopback = |rule: &ClientRule| {
            ["127.0.0.0/8", "::1/128"].contains(&rule.network.to_string().as_str())
        };
        !self.clients.iter().all(is_loopback)
    }
}

fn networks(client: &str) -> Result<Vec<Network>, ExportLineError> {
    match client {
        "*" => Ok(Network::ALL.to_vec()),
        client => client
            .parse()
            .map(|network| vec![network])
            .map_err(|_| ExportLineError::Client(client.to_owned())),
    }
}

fn apply(rule: &mut ClientRule, is_sync: &mut bool, option: &str) -> Result<(), ExportLineError> {
    let unknown = || ExportLineError::Option(option.to_owned());
    match option {
        "ro" => rule.is_read_only = true,
        "rw" => rule.is_read_only = false,
        "sync" => *is_sync = true,
        "async" => {}
        "root_squash" => rule.squash = Squash::Root,
        "no_root_squash" => rule.squash = Squash::None,
        "all_squash" => rule.squash = Squash::All,
        "secure" => rule.needs_reserved_port = true,
        "insecure" => rule.needs_reserved_port = false,
        other => {
            let (name, value) = other.split_once('=').ok_or_else(unknown)?;
            let id: u32 = value.parse().map_err(|_| unknown())?;
            // The kernel takes -1 as "leave it as it is".
            if id == u32::MAX {
                return Err(unknown());
            }
            match name {
                "anonuid" => rule.anonymous.uid = id,
                "anongid" => rule.anonymous.gid = id,
                _ => return Err(unknown()),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_in_exports() {
        let line: ExportLine =
            "/data=/projects/a 10.0.0.7(ro) 10.0.0.0/8(rw,all_squash,anonuid=1000,anongid=100) *(insecure,no_root_squash,sync)"
                .parse()
                .unwrap();
        assert_eq!(
            (line.name.as_str(), line.folder.to_str(), line.is_sync),
            ("/data", Some("projects/a"), true)
        );
        let [first, second, all, all6] = &line.clients[..] else { panic!("{line:?}") };
        assert!(first.is_read_only && first.squash == Squash::Root && first.needs_reserved_port);
        assert_eq!(
            (second.squash, second.anonymous.uid, second.anonymous.gid),
            (Squash::All, 1000, 100)
        );
        assert!(!all.needs_reserved_port && all6.squash == Squash::None);
        assert!(line.is_for_others());
    }

    #[test]
    fn without_clients_it_is_for_this_machine() {
        let line: ExportLine = "/data".parse().unwrap();
        assert!(
            line.folder.as_os_str().is_empty() && !line.is_for_others() && line.clients.len() == 2,
            "{line:?}"
        );
    }

    #[test]
    fn mistakes_are_named() {
        for (text, error) in [
            ("", ExportLineError::NoName),
            ("data", ExportLineError::NoName),
            ("/a=../b", ExportLineError::Folder("../b".into())),
            ("/a host", ExportLineError::Client("host".into())),
            ("/a *(ro", ExportLineError::Client("*(ro".into())),
            ("/a *(fast)", ExportLineError::Option("fast".into())),
            ("/a *(anonuid=x)", ExportLineError::Option("anonuid=x".into())),
            ("/a *(anonuid=4294967295)", ExportLineError::Option("anonuid=4294967295".into())),
            ("/a *(anongid=4294967295)", ExportLineError::Option("anongid=4294967295".into())),
        ] {
            assert_eq!(text.parse::<ExportLine>(), Err(error), "{text}");
        }
    }
}
