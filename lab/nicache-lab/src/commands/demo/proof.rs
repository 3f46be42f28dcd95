//! The oracle over an application: its pages are read while all that they show is changed in every
//! way that the application has.

use std::fs::File;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result};
use nicache_applications::{Edit, Site};
use nicache_prove::{Direct, EditError, Editor, Marker, Page, Plan, Subject};

/// Between two edits where the application itself does not tell them apart otherwise.
const HASTE: Duration = Duration::from_secs(2);

/// Connections to the server itself, where it may be behind: few, because it works for the card's
/// visitors, too.
const DIRECT_READERS: usize = 2;

/// What is to be read and changed, for so long; so many edits per second in all. Each edit is made
/// once before, so every page has its marker. `namespace` is the server's: there it is reached
/// without the card.
#[expect(clippy::cast_precision_loss, reason = "a handful of subjects")]
pub(super) fn plan(
    site: &Site,
    server: SocketAddr,
    duration: Duration,
    edits_per_second: f64,
    stop: &Arc<AtomicBool>,
    namespace: Arc<File>,
) -> Result<Plan> {
    let mut pages: Vec<Page> = Vec::new();
    let mut subjects: Vec<Subject> = Vec::new();
    for edit in site.edits() {
        edit.make(server)?;
        let way =
            Way { subject: format!("{}{}", edit.path(), edit.words()), edit: edit.clone(), server };
        match subjects.iter_mut().find(|subject| subject.name == way.subject) {
            Some(subject) => subject.editors.push(Box::new(way)),
            None => {
                // The server puts some pages together while a change is under way.
                let steady = !edit.is_hasty();
                let page = Page {
                    shows: Some(Vec::new()),
                    atomic: false,
                    steady,
                    ..Page::new(edit.path())
                };
                let at =
                    pages.iter().position(|page| page.target == edit.path()).unwrap_or_else(|| {
                        pages.push(page);
                        pages.len() - 1
                    });
                pages[at].shows.get_or_insert_default().push(way.subject.clone());
                let marker = Marker::after(&format!("{}version=", edit.words()));
                // How far it is behind then is as long as its own executions take, or for ever.
                let as_server = edit.is_hasty() && edit.delay().is_zero();
                subjects.push(Subject {
                    marker,
                    lag: edit.delay(),
                    as_server,
                    ..Subject::new(Box::new(way))
                });
            }
        }
    }
    for audience in site.audiences() {
        let page = pages
            .iter()
            .find(|page| page.target == audience.path && page.fields.is_empty())
            .cloned();
        let page = page.with_context(|| format!("no edit changes {}", audience.path))?;
        pages.push(Page {
            fields: audience.fields.clone(),
            says: Some(audience.says.clone()),
            ..page
        });
    }
    let least_gap = if site.edits().iter().any(Edit::is_hasty) { HASTE } else { Duration::ZERO };
    // Until then the application itself may not show an edit.
    std::thread::sleep(site.edits().iter().map(Edit::delay).fold(least_gap, Duration::max));
    let edits_per_second = edits_per_second / subjects.len().max(1) as f64;
    let mut plan = Plan::new(server, pages, subjects);
    if plan.subjects.iter().any(|subject| subject.as_server) {
        plan.direct = Some(Direct { address: server, namespace: Some(namespace) });
        plan.readers.direct_connections = DIRECT_READERS;
    }
    plan.edits_per_second = edits_per_second;
    plan.least_gap = least_gap;
    plan.duration = Some(duration);
    plan.stop = Arc::clone(stop);
    Ok(plan)
}

struct Way {
    subject: String,
    edit: Edit,
    server: SocketAddr,
}

impl Editor for Way {
    fn name(&self) -> &str {
        &self.subject
    }

    fn kind(&self) -> &str {
        self.edit.name()
    }

    fn edit(&mut self, version: u64) -> Result<(), EditError> {
        self.edit
            .make_version(self.server, version)
            .map(drop)
            .map_err(|error| format!("{error:#}").into())
    }
}
