//! The pages, and what changes each.

use std::path::Path;

use nicache_applications::Application;
use serde::{Deserialize, Serialize};

/// A dynamic page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Page {
    /// A script of a few lines that reads one row of a MariaDB table.
    PhpItem,
    /// The front page of WordPress with ten posts.
    WordPressFront,
    /// A post of WordPress.
    WordPressPost,
    /// An article of DokuWiki, which keeps its text in a file.
    DokuWikiArticle,
}

/// How a page is changed.
#[derive(Debug, Clone, Copy)]
pub enum Change {
    /// By a statement that changes one row of the site's database.
    Statement(fn(u64) -> String),
    /// By a new file in the place of one of the site's.
    File(&'static str),
}

impl Page {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::PhpItem, Self::WordPressFront, Self::WordPressPost, Self::DokuWikiArticle];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::PhpItem => "php",
            Self::WordPressFront => "wordpress-front",
            Self::WordPressPost => "wordpress-post",
            Self::DokuWikiArticle => "dokuwiki",
        }
    }

    /// The page's name in tables and figures.
    pub fn label(self) -> &'static str {
        match self {
            Self::PhpItem => "PHP + MariaDB page",
            Self::WordPressFront => "WordPress front page",
            Self::WordPressPost => "WordPress post",
            Self::DokuWikiArticle => "DokuWiki article",
        }
    }

    /// What serves it.
    pub fn application(self) -> Application {
        match self {
            Self::PhpItem => Application::PhpPage,
            Self::WordPressFront | Self::WordPressPost => Application::WordPress,
            Self::DokuWikiArticle => Application::DokuWiki,
        }
    }

    /// The page's request target.
    pub fn path(self) -> &'static str {
        match self {
            Self::PhpItem => "/item.php?id=1",
            Self::WordPressFront => "/",
            Self::WordPressPost => "/post-1/",
            Self::DokuWikiArticle => "/doku.php?id=articles:article_1",
        }
    }

    /// Connections of the load. WordPress makes some ten pages per second; more connections
    /// would only wait longer.
    pub fn connections(self) -> u32 {
        match self {
            Self::PhpItem | Self::DokuWikiArticle => 64,
            Self::WordPressFront | Self::WordPressPost => 16,
        }
    }

    /// What makes it show another version.
    pub fn change(self) -> Change {
        match self {
            Self::PhpItem => Change::Statement(|version| {
                format!("UPDATE items SET version = {version} WHERE id = 1")
            }),
            Self::WordPressFront => Change::Statement(|version| {
                format!(
                    "UPDATE wp_posts SET post_title = 'Post 20, version={version}.' WHERE post_name = 'post-20'"
                )
            }),
            Self::WordPressPost => Change::Statement(|version| {
                let content = format!("<p>This is post 1, version={version}.</p>");
                format!("UPDATE wp_posts SET post_content = '{content}' WHERE post_name = 'post-1'")
            }),
            Self::DokuWikiArticle => Change::File("data/pages/articles/article_1.txt"),
        }
    }

    /// Socket of the site's database, which is in the site's folder.
    pub fn database(folder: &Path) -> std::path::PathBuf {
        folder.join("run/mariadb.sock")
    }
}

impl std::str::FromStr for Page {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|page| page.name() == text)
            .ok_or_else(|| format!("unknown page `{text}`: use one of {all}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dynamic::oracle::version_in;

    #[test]
    fn names() {
        for page in Page::ALL {
            assert_eq!(page.name().parse(), Ok(page));
        }
        assert!("x".parse::<Page>().unwrap_err().contains("dokuwiki"));
    }

    #[test]
    fn statements_write_what_the_oracle_reads() {
        for page in [Page::WordPressFront, Page::WordPressPost] {
            let Change::Statement(statement) = page.change() else {
                panic!("WordPress has a database")
            };
            assert_eq!(version_in(statement(23).as_bytes()), Some(23));
        }
    }
}
