//! A prepared application.

use std::path::Path;

use crate::application::Application;
use crate::edit::Edit;
use crate::folder::Folder;
use crate::login::Login;

/// What can be chosen about a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Port on which the web server listens, on all addresses of its network namespace.
    pub port: u16,
    /// Host by which the application knows itself, where it has to know it when it is prepared; its
    /// pages use the host of the request.
    pub url_host: String,
    /// Processes of PHP-FPM, of Apache, of gunicorn.
    pub workers: u32,
    /// `opcache.revalidate_freq` in seconds: how long PHP may go on running the old text of a file
    /// that has changed.
    pub opcache_revalidate_freq: u32,
    /// Whether the site gets a second database where the application has an edit for it: one whose
    /// changes the first applies as its replica.
    pub primary: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            port: 80,
            url_host: "localhost".to_owned(),
            workers: 4,
            opcache_revalidate_freq: 2,
            primary: false,
        }
    }
}

/// A URL that anybody may ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Path and query.
    pub path: String,
    /// What it is, in a few words.
    pub about: &'static str,
    /// Text that is in its body before any edit.
    pub shows: String,
    /// Whether it is the same for everybody, and changes with the content only: not with time,
    /// chance or the number of visits.
    pub stable: bool,
}

impl Page {
    pub(crate) fn stable(path: &str, about: &'static str, shows: &str) -> Self {
        Self { path: path.to_owned(), about, shows: shows.to_owned(), stable: true }
    }

    pub(crate) fn unstable(path: &str, about: &'static str, shows: &str) -> Self {
        Self { stable: false, ..Self::stable(path, about, shows) }
    }
}

/// A kind of client that a page answers in words of its own, without saying so (`Vary`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audience {
    /// Path and query of the page.
    pub path: String,
    /// Request fields that make a client this visitor, without line ends.
    pub fields: Vec<String>,
    /// What the page says to this visitor, and to nobody else.
    pub says: String,
}

impl Audience {
    pub(crate) fn new(path: &str, fields: &[&str], says: &str) -> Self {
        let fields = fields.iter().map(|&field| field.to_owned()).collect();
        Self { path: path.to_owned(), fields, says: says.to_owned() }
    }
}

/// A prepared application: a folder, and the commands that serve it. The folder is removed when
/// this is dropped, so end the programs first.
#[derive(Debug)]
pub struct Site {
    pub(crate) application: Application,
    pub(crate) port: u16,
    pub(crate) with: Vec<Vec<String>>,
    pub(crate) server: Vec<String>,
    pub(crate) pages: Vec<Page>,
    pub(crate) edits: Vec<Edit>,
    pub(crate) audiences: Vec<Audience>,
    pub(crate) configuration: String,
    pub(crate) logins: Vec<Login>,
    pub(crate) folder: Folder,
}

impl Site {
    /// What it is a site of.
    pub fn application(&self) -> Application {
        self.application
    }

    /// The port of its web server.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where everything of it is: `site` has what the web server shows, `log` what the programs
    /// say.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The programs that run beside the server, each with its arguments, in the order in which they
    /// are started. They stay in the foreground.
    pub fn with(&self) -> &[Vec<String>] {
        &self.with
    }

    /// The web server, in the foreground, with its arguments.
    pub fn server(&self) -> &[String] {
        &self.server
    }

    /// Pages that anybody may ask for: the front page first, then an article or the like.
    pub fn pages(&self) -> &[Page] {
        &self.pages
    }

    /// What an operator would write into the configuration file of nicache for it, in TOML; empty
    /// if nothing.
    pub fn configuration(&self) -> &str {
        &self.configuration
    }

    /// Visitors who have accounts.
    pub fn logins(&self) -> &[Login] {
        &self.logins
    }

    /// Kinds of clients that get answers of their own.
    pub fn audiences(&self) -> &[Audience] {
        &self.audiences
    }

    /// Ways to change what the pages show, while it runs.
    pub fn edits(&self) -> &[Edit] {
        &self.edits
    }
}
