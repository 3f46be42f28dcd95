//! WordPress behind either web server.

mod common;

use common::check;
use nicache_applications::Application;

#[test]
fn wordpress_behind_nginx() {
    check(Application::WordPress);
}

#[test]
fn wordpress_behind_apache() {
    check(Application::WordPressApache);
}
