//! A site in a network namespace of the test's own, looked at through its web server without a
//! card.
#![allow(dead_code, reason = "each test file uses a part of this")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use nicache_applications::{Application, Client, Page, Running, Settings, Site};
pub(crate) use nicache_namespaces::enter_private as private_network;

/// Prepares the application with a PHP that looks at its files for every request, so every
/// edit shows at once.
pub(crate) fn prepare(application: Application) -> Site {
    let settings = Settings { workers: 2, opcache_revalidate_freq: 0, ..Settings::default() };
    application.prepare_with(&settings).unwrap_or_else(|error| panic!("{application}: {error:#}"))
}

/// Every page is there, shows what it shall, and is the same again if it says so.
pub(crate) fn check_pages(site: &Site, running: &Running) {
    let mut client = Client::new(running.server());
    for page in site.pages() {
        let (first, second) = (fetch(&mut client, page), fetch(&mut client, page));
        assert!(!page.stable || first == second, "{} is not stable:\n{first}\n{second}", page.path);
    }
}

/// No link of the first page leads to a page of the web server's own that says that there is
/// nothing. An application's own is as it wants it.
fn check_links(site: &Site, running: &Running) {
    let mut client = Client::new(running.server());
    let text = fetch(&mut client, &site.pages()[0]);
    let links = text
        .split("<a ")
        .skip(1)
        .filter_map(|rest| rest.split_once("href=\"")?.1.split('"').next());
    let links: BTreeSet<String> = links.map(|link| link.replace("&amp;", "&")).collect();
    for link in links.iter().filter(|link| link.starts_with('/') && !link.starts_with("//")) {
        let reply = client.get(link).unwrap();
        let is_servers =
            ["<center>nginx", "<address>Apache"].iter().any(|sign| reply.text().contains(sign));
        assert!(reply.status < 400 || !is_servers, "{link}: {} {}", reply.status, reply.text());
    }
}

fn fetch(client: &mut Client, page: &Page) -> String {
    let reply = client.get(&page.path).unwrap();
    assert_eq!(reply.status, 200, "{}: {}", page.path, reply.text());
    let text = reply.text();
    assert!(text.contains(&page.shows), "{} does not show `{}`:\n{text}", page.path, page.shows);
    text
}

/// Every edit shows in the next reply, twice in a row.
pub(crate) fn check_edits(site: &Site, running: &Running) {
    let mut client = Client::new(running.server());
    for edit in site.edits().iter().chain(site.edits()) {
        assert_eq!(edit.delay(), Duration::ZERO, "{edit:?}");
        let marker = edit.make(running.server()).unwrap_or_else(|error| panic!("{error:#}"));
        let reply = client.get(edit.path()).unwrap();
        let text = reply.text();
        let shown = format!("{}{marker}", edit.words());
        assert!(
            reply.status == 200 && text.contains(&shown),
            "{edit:?}: no {shown} in {} {text}",
            reply.status
        );
    }
}

/// All that a site is, and that nothing of it is left.
pub(crate) fn check(application: Application) {
    let begun = Instant::now();
    // Preparing may ask a package registry, which is not in the private network.
    let site = prepare(application);
    private_network();
    let folder = site.folder().to_owned();
    let prepared = begun.elapsed();
    let running = Running::start(&site).unwrap_or_else(|error| panic!("{application}: {error:#}"));
    check_pages(&site, &running);
    check_links(&site, &running);
    check_edits(&site, &running);
    drop(running);
    drop(site);
    assert!(!folder.exists());
    println!("{application}: prepared in {prepared:.1?}, {:.1?} in all", begun.elapsed());
}
