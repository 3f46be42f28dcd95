//! Which applications there are, and what they are called.

use std::fmt;
use std::str::FromStr;

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
    pub const ALL: [Self; 7] = [
        Self::PhpPage,
        Self::WordPress,
        Self::WordPressApache,
        Self::DokuWiki,
        Self::MediaWiki,
        Self::Flask,
        Self::Express,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::PhpPage => "php-page",
            Self::WordPress => "wordpress",
            Self::WordPressApache => "wordpress-apache",
            Self::DokuWiki => "dokuwiki",
            Self::MediaWiki => "mediawiki",
            Self::Flask => "flask",
            Self::Express => "express",
        }
    }

    /// What it is, in one line.
    pub fn description(self) -> &'static str {
        match self {
            Self::PhpPage => "small PHP scripts on a MariaDB table (nginx, PHP-FPM)",
            Self::WordPress => "WordPress with 20 posts (nginx, PHP-FPM, MariaDB)",
            Self::WordPressApache => "WordPress with 20 posts (Apache with mod_php, MariaDB)",
            Self::DokuWiki => "DokuWiki, pages in files (nginx, PHP-FPM)",
            Self::MediaWiki => "MediaWiki (nginx, PHP-FPM, MariaDB)",
            Self::Flask => "a Flask application on PostgreSQL (gunicorn)",
            Self::Express => "an Express application, content in memory and files (Node.js)",
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

    fn from_str(text: &str) -> Result<Self, String> {
        let all = Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|application| application.name() == text);
        found.ok_or_else(|| format!("unknown application `{text}`: use one of {all}"))
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
