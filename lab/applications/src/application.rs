//! The applications.

mod dokuwiki;
mod express;
mod flask;
mod mediawiki;
mod php_page;
mod wordpress;

use std::fmt;
use std::str::FromStr;

use anyhow::{Result, bail};

use crate::packages;
use crate::program::{apache, mariadb, nginx, php, postgres};
use crate::site::{Settings, Site};

/// An application that can be prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Application {
    /// Scripts of a few lines, each showing one way in which a page depends on something.
    PhpPage,
    /// WordPress behind nginx and PHP-FPM.
    WordPress,
    /// WordPress behind Apache with PHP in its processes.
    WordPressApache,
    /// DokuWiki, which keeps its pages in files.
    DokuWiki,
    /// MediaWiki.
    MediaWiki,
    /// A Python application on PostgreSQL.
    Flask,
    /// A JavaScript application.
    Express,
}

impl Application {
    /// All of them.
    pub const ALL: [Application; 7] = [
        Application::PhpPage,
        Application::WordPress,
        Application::WordPressApache,
        Application::DokuWiki,
        Application::MediaWiki,
        Application::Flask,
        Application::Express,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Application::PhpPage => "php-page",
            Application::WordPress => "wordpress",
            Application::WordPressApache => "wordpress-apache",
            Application::DokuWiki => "dokuwiki",
            Application::MediaWiki => "mediawiki",
            Application::Flask => "flask",
            Application::Express => "express",
        }
    }

    /// What it is, in one line.
    pub fn description(self) -> &'static str {
        match self {
            Application::PhpPage => "small PHP scripts on a MariaDB table (nginx, PHP-FPM)",
            Application::WordPress => "WordPress with 20 posts (nginx, PHP-FPM, MariaDB)",
            Application::WordPressApache => "WordPress with 20 posts (Apache with mod_php, MariaDB)",
            Application::DokuWiki => "DokuWiki, pages in files (nginx, PHP-FPM)",
            Application::MediaWiki => "MediaWiki (nginx, PHP-FPM, MariaDB)",
            Application::Flask => "a Flask application on PostgreSQL (gunicorn)",
            Application::Express => "an Express application, content in memory and files (Node.js)",
        }
    }

    /// Debian's packages that it needs.
    pub fn packages(self) -> Vec<&'static str> {
        let common = ["util-linux"];
        let own: Vec<&[&str]> = match self {
            Application::PhpPage => {
                vec![
                    &nginx::PACKAGES,
                    &php::PACKAGES,
                    &mariadb::PACKAGES,
                    &["php8.2-mysql", "php8.2-curl", "php8.2-apcu"],
                ]
            }
            Application::WordPress => vec![&nginx::PACKAGES, &php::PACKAGES, &mariadb::PACKAGES, &wordpress::PACKAGES],
            Application::WordPressApache => {
                vec![&apache::PACKAGES, &["php8.2-cli"], &mariadb::PACKAGES, &wordpress::PACKAGES]
            }
            Application::DokuWiki => vec![&nginx::PACKAGES, &php::PACKAGES, &dokuwiki::PACKAGES],
            Application::MediaWiki => vec![&nginx::PACKAGES, &php::PACKAGES, &mariadb::PACKAGES, &mediawiki::PACKAGES],
            Application::Flask => vec![&postgres::PACKAGES, &flask::PACKAGES],
            Application::Express => express::packages(),
        };
        common.into_iter().chain(own.into_iter().flatten().copied()).collect()
    }

    /// Those of its packages that are not installed.
    pub fn missing_packages(self) -> Vec<&'static str> {
        packages::missing(&self.packages())
    }

    /// Installs what is missing, with `apt-get`, without starting any service. Needs root. (Express may come from npm, see
    /// its error if that fails.)
    pub fn install(self) -> Result<()> {
        packages::install(&self.missing_packages())?;
        if self == Application::Express { express::install() } else { Ok(()) }
    }

    /// Prepares a site whose web server listens on `port`, with the default settings.
    pub fn prepare(self, port: u16, url_host: &str) -> Result<Site> {
        self.prepare_with(&Settings { port, url_host: url_host.to_owned(), ..Settings::default() })
    }

    /// Prepares a site. Needs root, since databases and web servers run as users of their own.
    pub fn prepare_with(self, settings: &Settings) -> Result<Site> {
        if !rustix::process::geteuid().is_root() {
            bail!("preparing {self} needs root, for its programs run as users of their own: try sudo");
        }
        let missing = self.missing_packages();
        if !missing.is_empty() {
            bail!(
                "{self} needs packages that are not installed: apt-get install --no-install-recommends {}",
                missing.join(" ")
            );
        }
        match self {
            Application::PhpPage => php_page::prepare(settings),
            Application::WordPress | Application::WordPressApache => wordpress::prepare(self, settings),
            Application::DokuWiki => dokuwiki::prepare(settings),
            Application::MediaWiki => mediawiki::prepare(settings),
            Application::Flask => flask::prepare(settings),
            Application::Express => express::prepare(settings),
        }
    }
}

impl fmt::Display for Application {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Application {
    type Err = String;

    fn from_str(text: &str) -> Result<Application, String> {
        let all = Application::ALL.map(Application::name).join(", ");
        let found = Application::ALL.into_iter().find(|application| application.name() == text);
        found.ok_or_else(|| format!("`{text}` is no application; one of {all}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for application in Application::ALL {
            assert_eq!(application.to_string().parse(), Ok(application));
        }
        assert!("joomla".parse::<Application>().unwrap_err().contains("wordpress-apache"));
    }
}
