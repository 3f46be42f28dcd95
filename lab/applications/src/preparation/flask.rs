//! A Python application on PostgreSQL, served by gunicorn.

use std::net::SocketAddr;

use anyhow::{Result, bail};

use crate::application::Application;
use crate::client::Client;
use crate::edit::{Edit, FIRST, MarkedFile};
use crate::folder::Folder;
use crate::program::{postgres::Postgres, words};
use crate::site::{Page, Settings, Site};
use crate::template::Template;

/// Debian's packages, without the database.
pub(super) const PACKAGES: [&str; 4] =
    ["python3-flask", "python3-psycopg2", "python3-gunicorn", "gunicorn"];

const ITEMS: u32 = 20;

pub(super) fn prepare(settings: &Settings) -> Result<Site> {
    static TEMPLATE: Template = Template::new();
    let folder = Folder::create("flask")?;
    let database = Postgres::create_filled(&folder, &TEMPLATE, fill)?;

    folder.write("site/app.py", include_str!("../../scripts/flask/app.py"))?;
    folder.subfolder("site/templates", "root")?;
    folder.write("site/templates/items.html", include_str!("../../scripts/flask/items.html"))?;
    folder.write("site/templates/file.html", include_str!("../../scripts/flask/file.html"))?;
    let template = MarkedFile::create(
        folder.join("site/templates/item.html"),
        include_str!("../../scripts/flask/item.html"),
    )?;
    let content = MarkedFile::create(
        folder.join("site/content.txt"),
        "This is the content of a file, @VERSION@",
    )?;

    let database_variable = format!("SITE_DATABASE={}", database.sockets().display());
    let server = words(&[
        "gunicorn",
        "--bind",
        &format!("0.0.0.0:{}", settings.port),
        "--workers",
        &settings.workers.to_string(),
        "--user",
        "www-data",
        "--group",
        "www-data",
        "--chdir",
        &folder.text("site"),
        "--worker-tmp-dir",
        &folder.text("tmp"),
        "--error-logfile",
        &folder.text("log/gunicorn.log"),
        "--env",
        &database_variable,
        "--env",
        "PYTHONDONTWRITEBYTECODE=1",
        "app:app",
    ]);
    let with = vec![database.command()];
    let sql = database.clone();
    let mut edits = vec![
        Edit::new("sql-update", "/item/1", "<p>", move |marker| {
            sql.execute(&format!(
                "UPDATE items SET version = {} WHERE id = 1;",
                Edit::number(marker)
            ))
            .map(drop)
        }),
        Edit::by_http("web-form", "/item/2", "<p>", edit_by_form),
    ];
    edits.extend(template.edits(["template-renamed", "template-overwritten"], "/item/3"));
    edits.extend(content.edits(["file-renamed", "file-overwritten"], "/file"));
    Ok(Site {
        application: Application::Flask,
        port: settings.port,
        with,
        server,
        pages: pages(),
        edits,
        audiences: Vec::new(),
        configuration: String::new(),
        logins: Vec::new(),
        folder,
    })
}

fn fill(database: &Postgres) -> Result<()> {
    let rows: Vec<String> =
        (1..=ITEMS).map(|id| format!("({id}, 0, 'This is item {id}.')")).collect();
    let sql = format!(
        "CREATE ROLE site LOGIN;
         CREATE TABLE items (id INT PRIMARY KEY, version INT NOT NULL, body TEXT NOT NULL);
         INSERT INTO items VALUES {};
         GRANT SELECT, UPDATE ON items TO site;",
        rows.join(", ")
    );
    database.execute(&sql).map(drop)
}

fn pages() -> Vec<Page> {
    vec![
        Page::stable("/", "all rows of a table", "This is item 20."),
        Page::stable("/item/1", "a row of it", FIRST),
        Page::stable("/item/2", "another row of it", FIRST),
        Page::stable("/file", "a file", FIRST),
        Page::unstable("/time", "the time of the request", "It is"),
        Page::unstable("/database-time", "the database's time", "The database says"),
    ]
}

fn edit_by_form(server: SocketAddr, marker: &str) -> Result<()> {
    let reply = Client::new(server).post_form("/item/2", &[("version", Edit::number(marker))])?;
    if reply.status != 303 {
        bail!("the application answered with status {}: {}", reply.status, reply.text());
    }
    Ok(())
}
