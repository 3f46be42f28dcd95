//! Names and secrets for CHAP, from a file or the environment: a command line is public.
//!
//! The form is `USER:PASSWORD`; a second line is the target's own name and secret, with which it
//! proves who it is (mutual CHAP, RFC 7143, section 12.1.3).

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nicache_initiator::Credentials;
use thiserror::Error;

/// More is not a file of credentials.
const FILE_BYTES_MAX: u64 = 4096;

/// What both sides prove themselves with.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UnitCredentials {
    /// The initiator's.
    pub own: Option<Credentials>,
    /// The target's.
    pub target: Option<Credentials>,
}

/// Credentials cannot be had.
#[derive(Debug, Error)]
pub enum CredentialsError {
    /// The file cannot be read.
    #[error("cannot read the credentials in {path}: {error}")]
    Read {
        /// Which file cannot be read.
        path: PathBuf,
        /// Why the file cannot be read.
        error: io::Error,
    },
    /// Others can read it.
    #[error("{path} can be read by others: run `chmod 600 {path}`")]
    Open {
        /// Which file can be read by others.
        path: PathBuf,
    },
    /// It has another form.
    #[error(
        "{0}: write USER:PASSWORD, and on a second line the target's USER:PASSWORD if it has to prove itself"
    )]
    Form(String),
    /// One secret for both directions lets somebody else answer for the target.
    #[error(
        "{0}: the target's password is the initiator's, too; CHAP in both directions needs two, because otherwise whoever is answered by one side can answer for the other"
    )]
    Same(String),
}

impl UnitCredentials {
    /// Reads `USER:PASSWORD`, and the target's own name and secret from a second line if there is
    /// one. `name` is for messages.
    pub fn parse(name: &str, text: &str) -> Result<Self, CredentialsError> {
        let mut found =
            text.lines().map(str::trim_end).filter(|line| !line.is_empty()).map(|line| {
                let (user, password) = line
                    .split_once(':')
                    .filter(|(user, password)| !user.is_empty() && !password.is_empty())?;
                let is_clean = !line.contains('\0');
                is_clean
                    .then(|| Credentials { user: user.to_owned(), password: password.to_owned() })
            });
        let form = || CredentialsError::Form(name.to_owned());
        let own = found.next().ok_or_else(form)?.ok_or_else(form)?;
        let target = found.next().map(|line| line.ok_or_else(form)).transpose()?;
        if found.next().is_some() {
            return Err(form());
        }
        // RFC 7143, section 9.2.1.
        if target.as_ref().is_some_and(|target| target.password == own.password) {
            return Err(CredentialsError::Same(name.to_owned()));
        }
        Ok(Self { own: Some(own), target })
    }
}

/// Reads a file of credentials, which nobody else may be able to read.
pub fn read_credentials(path: &Path) -> Result<UnitCredentials, CredentialsError> {
    let read = |error| CredentialsError::Read { path: path.to_owned(), error };
    let file = File::open(path).map_err(read)?;
    if file.metadata().map_err(read)?.mode() & 0o077 != 0 {
        return Err(CredentialsError::Open { path: path.to_owned() });
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(read)?;
    UnitCredentials::parse(&path.display().to_string(), &text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn one_line_or_two() {
        let found = UnitCredentials::parse("x", "joe:se:cret\n").unwrap();
        assert_eq!(found.own, Some(Credentials { user: "joe".into(), password: "se:cret".into() }));
        assert_eq!(found.target, None);
        let found = UnitCredentials::parse("x", "joe:a\n\ntarget:b").unwrap();
        assert_eq!(found.target, Some(Credentials { user: "target".into(), password: "b".into() }));
        for text in ["", "joe", "joe:", ":x", "a:b\nc", "a:b\nc:d\ne:f"] {
            assert!(
                matches!(UnitCredentials::parse("x", text), Err(CredentialsError::Form(_))),
                "{text:?}"
            );
        }
        assert!(matches!(
            UnitCredentials::parse("x", "a:secret\nb:secret"),
            Err(CredentialsError::Same(_))
        ));
    }

    #[test]
    fn nobody_else_may_read_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chap");
        std::fs::write(&path, "joe:secret\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(read_credentials(&path), Err(CredentialsError::Open { .. })));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(read_credentials(&path).unwrap().own.is_some());
    }
}
