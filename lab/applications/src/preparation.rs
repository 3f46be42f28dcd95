//! What the applications need, and how each is prepared: a file for each.

mod dokuwiki;
mod express;
mod flask;
mod mediawiki;
mod php_page;
mod wordpress;

use anyhow::{Result, bail};

use crate::application::Application;
use crate::packages;
use crate::program::{apache, mariadb, nginx, php, postgres};
use crate::site::{Settings, Site};

impl Application {
    /// Debian's packages that it needs.
    pub fn packages(self) -> Vec<&'static str> {
        let common = ["util-linux"];
        let own: Vec<&[&str]> = match self {
            Self::PhpPage => {
                vec![
                    &nginx::PACKAGES,
                    &php::PACKAGES,
                    &mariadb::PACKAGES,
                    &["php8.2-mysql", "php8.2-curl", "php8.2-apcu"],
                ]
            }
            Self::WordPress => {
                vec![&nginx::PACKAGES, &php::PACKAGES, &mariadb::PACKAGES, &wordpress::PACKAGES]
            }
            Self::WordPressApache => {
                vec![&apache::PACKAGES, &["php8.2-cli"], &mariadb::PACKAGES, &wordpress::PACKAGES]
            }
            Self::DokuWiki => vec![&nginx::PACKAGES, &php::PACKAGES, &dokuwiki::PACKAGES],
            Self::MediaWiki => {
                vec![&nginx::PACKAGES, &php::PACKAGES, &mariadb::PACKAGES, &mediawiki::PACKAGES]
            }
            Self::Flask => vec![&postgres::PACKAGES, &flask::PACKAGES],
            Self::Express => express::packages(),
        };
        common.into_iter().chain(own.into_iter().flatten().copied()).collect()
    }

    /// The application's packages that are not installed.
    pub fn missing_packages(self) -> Vec<&'static str> {
        packages::missing(&self.packages())
    }

    /// Installs what is missing, with `apt-get`, without starting any service. Needs root. (Express
    /// may come from npm, see its error if that fails.)
    pub fn install(self) -> Result<()> {
        packages::install(&self.missing_packages())?;
        if self == Self::Express { express::install() } else { Ok(()) }
    }

    /// Prepares a site whose web server listens on `port`, with the default settings.
    pub fn prepare(self, port: u16, url_host: &str) -> Result<Site> {
        self.prepare_with(&Settings { port, url_host: url_host.to_owned(), ..Settings::default() })
    }

    /// Prepares a site. Needs root, because databases and web servers run as users of their own.
    pub fn prepare_with(self, settings: &Settings) -> Result<Site> {
        if !rustix::process::geteuid().is_root() {
            bail!(
                "preparing {self} needs root, for its programs run as users of their own: try sudo"
            );
        }
        let missing = self.missing_packages();
        if !missing.is_empty() {
            bail!(
                "{self} needs packages that are not installed: apt-get install --no-install-recommends {}",
                missing.join(" ")
            );
        }
        match self {
            Self::PhpPage => php_page::prepare(settings),
            Self::WordPress | Self::WordPressApache => wordpress::prepare(self, settings),
            Self::DokuWiki => dokuwiki::prepare(settings),
            Self::MediaWiki => mediawiki::prepare(settings),
            Self::Flask => flask::prepare(settings),
            Self::Express => express::prepare(settings),
        }
    }
}
