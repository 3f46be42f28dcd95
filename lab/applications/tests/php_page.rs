//! The small PHP site.

mod common;

use common::check;
use nicache_applications::Application;

#[test]
fn php_page() {
    check(Application::PhpPage);
}

#[test]
fn another_copy_at_the_same_time() {
    check(Application::PhpPage);
}
