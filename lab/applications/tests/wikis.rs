//! Two wikis: one of files, one on a database.

mod common;

use common::check;
use nicache_applications::Application;

#[test]
fn dokuwiki() {
    check(Application::DokuWiki);
}

#[test]
fn mediawiki() {
    check(Application::MediaWiki);
}
