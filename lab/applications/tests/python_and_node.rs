//! Applications in other languages than PHP.

mod common;

use common::check;
use nicache_applications::Application;

#[test]
fn flask() {
    check(Application::Flask);
}

#[test]
fn express() {
    if std::process::Command::new("node").arg("--version").output().is_err() {
        println!("skipped: there is no `node` on this machine");
        return;
    }
    check(Application::Express);
}
