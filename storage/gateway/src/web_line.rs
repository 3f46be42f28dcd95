//! What is served by HTTP, and where, in one word: `[ADDR:]PORT[=FOLDER]`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

/// A folder that is served by HTTP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WebLine {
    /// Where. Without an address: everywhere on this machine.
    pub listen: SocketAddr,
    /// The folder below the root of the file system; empty: all of it.
    pub folder: PathBuf,
}

/// A word is not one.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum WebLineError {
    /// No port.
    #[error(
        "'{0}' is not an address: write PORT or ADDR:PORT, such as 80 or 127.0.0.1:8080, and perhaps =/FOLDER"
    )]
    Address(String),
    /// The folder leads elsewhere.
    #[error("'{0}' is not a folder of the unit's file system: write it without . and ..")]
    Folder(String),
}

impl FromStr for WebLine {
    type Err = WebLineError;

    fn from_str(text: &str) -> Result<Self, WebLineError> {
        let (address, folder) = text.split_once('=').unwrap_or((text, ""));
        let port = address.parse().map(|port: u16| SocketAddr::from(([0, 0, 0, 0], port)));
        let listen = port
            .or_else(|_| address.parse())
            .map_err(|_| WebLineError::Address(address.to_owned()))?;
        let folder = folder.trim_matches('/');
        if !folder.is_empty() && folder.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(WebLineError::Folder(folder.to_owned()));
        }
        Ok(Self { listen, folder: folder.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_or_an_address_and_perhaps_a_folder() {
        let line =
            |text: &str| text.parse::<WebLine>().map(|line| (line.listen.to_string(), line.folder));
        assert_eq!(line("80"), Ok(("0.0.0.0:80".to_owned(), PathBuf::new())));
        assert_eq!(line("127.0.0.1:0=/www/a/"), Ok(("127.0.0.1:0".to_owned(), "www/a".into())));
        assert_eq!(line("[::1]:80=www"), Ok(("[::1]:80".to_owned(), "www".into())));
        assert!(matches!(line("www"), Err(WebLineError::Address(_))));
        assert!(matches!(line("80=../x"), Err(WebLineError::Folder(_))));
    }
}
