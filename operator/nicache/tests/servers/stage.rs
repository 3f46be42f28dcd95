//! A server behind a card, and ways to ask it through the card and beside it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nicache_coherence::{RULE_OFF, Rule};

use super::common::{Nicache, SMALL_PAGES, inside, private_network, status};
use super::site::Folder;
use super::wire::{Connection, Reply};

pub(crate) type Counters = BTreeMap<String, u64>;

/// What a server does by itself that a test must know.
#[derive(Clone, Copy, Default)]
pub(crate) struct Traits {
    /// It may itself give a file's old state for a while.
    pub keeps_files: bool,
    /// It may read files of everybody, whatever their mode.
    pub is_root: bool,
}

pub(crate) struct Stage {
    pub folder: Folder,
    pub nicache: Nicache,
    /// Its column in docs/servers.md.
    pub name: &'static str,
    pub traits: Traits,
}

impl Stage {
    /// `command` writes the server's configuration into the folder.
    pub(crate) fn new(
        name: &'static str,
        traits: Traits,
        options: &[&str],
        command: impl FnOnce(&Folder) -> Vec<String>,
    ) -> Self {
        Self::without(None, name, traits, options, command)
    }

    /// With a rule of coherence turned off.
    pub(crate) fn without(
        rule: Option<Rule>,
        name: &'static str,
        traits: Traits,
        options: &[&str],
        command: impl FnOnce(&Folder) -> Vec<String>,
    ) -> Self {
        Self::made(name, traits, options, command, |nicache| {
            if let Some(rule) = rule {
                nicache.env(RULE_OFF, rule.label());
            }
        })
    }

    /// With another way to start nicache.
    pub(crate) fn adjusted(
        name: &'static str,
        command: impl FnOnce(&Folder) -> Vec<String>,
        adjust: impl FnOnce(&mut Command),
    ) -> Self {
        Self::made(name, Traits::default(), &[], command, adjust)
    }

    fn made(
        name: &'static str,
        traits: Traits,
        options: &[&str],
        command: impl FnOnce(&Folder) -> Vec<String>,
        adjust: impl FnOnce(&mut Command),
    ) -> Self {
        private_network();
        let folder = Folder::new();
        let command = command(&folder);
        let options = [options, &SMALL_PAGES].concat();
        let nicache = Nicache::start_with(&options, &command, adjust);
        Self { folder, nicache, name, traits }
    }

    /// A connection through the card.
    pub(crate) fn through(&self) -> Connection {
        Connection::new(TcpStream::connect((self.nicache.server(), 80)).unwrap())
    }

    /// A connection inside the server's namespace. No frame of it passes the card.
    pub(crate) fn beside(&self) -> Connection {
        Connection::new(inside(self.nicache.pid("server_pid"), || {
            TcpStream::connect("127.0.0.1:80").unwrap()
        }))
    }

    /// One request on a connection of its own.
    pub(crate) fn ask(&self, request: &[u8]) -> Reply {
        exchange(self.through(), request)
    }

    pub(crate) fn ask_beside(&self, request: &[u8]) -> Reply {
        exchange(self.beside(), request)
    }

    /// The head of the reply to a request that asks for the connection's end, beside the card;
    /// empty if the server gives none, as while it starts anew.
    pub(crate) fn head_beside(&self, request: &[u8]) -> String {
        let mut reply = Vec::new();
        let asked = inside(self.nicache.pid("server_pid"), || TcpStream::connect("127.0.0.1:80"))
            .and_then(|mut stream| {
                stream.set_read_timeout(Some(Duration::from_secs(20)))?;
                stream.write_all(request)?;
                stream.read_to_end(&mut reply)
            });
        drop(asked);
        String::from_utf8_lossy(&reply).split("\r\n\r\n").next().unwrap_or_default().to_owned()
    }

    pub(crate) fn counters(&self) -> Counters {
        let status = status(self.nicache.name());
        let counters = status["counters"].as_object().unwrap();
        counters.iter().filter_map(|(name, value)| Some((name.clone(), value.as_u64()?))).collect()
    }

    pub(crate) fn hits(&self) -> u64 {
        self.counters()["hits"]
    }

    /// Time for the last reply to be judged, so the next request may be a hit.
    pub(crate) fn settle(&self) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn exchange(mut connection: Connection, request: &[u8]) -> Reply {
    connection.send(request);
    connection.reply(request.starts_with(b"HEAD ")).plain()
}

/// A GET of the present HTTP with these fields, each with its line break.
pub(crate) fn get(path: &str, fields: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: files\r\n{fields}\r\n").into_bytes()
}

/// Is the program there? If not, says so; tools/setup installs all of them.
pub(crate) fn is_there(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin";
    let there = path.split(':').any(|folder| Path::new(folder).join(program).exists());
    if !there {
        println!("skipped: {program} is not installed (tools/setup test)");
    }
    there
}
