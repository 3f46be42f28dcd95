//! A small site of PHP scripts, each of which depends on one kind of thing.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::application::Application;
use crate::edit::{Edit, FIRST, MarkedFile};
use crate::folder::Folder;
use crate::program::{mariadb::MariaDb, nginx, php};
use crate::site::{Audience, Page, Settings, Site};
use crate::template::Template;

const ITEMS: u32 = 20;
/// In the network of the site, whose own database has no port.
const PRIMARY_PORT: u16 = 3306;

macro_rules! scripts {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../scripts/php-page/", $name)))),*]
    };
}

const SCRIPTS: &[(&str, &str)] = scripts![
    "index.php",
    "item.php",
    "list.php",
    "file.php",
    "time.php",
    "random.php",
    "now.php",
    "session.php",
    "write.php",
    "upstream.php",
    "told.php",
    "decided.php",
    "exec.php",
    "apcu.php",
];

pub(super) fn prepare(settings: &Settings) -> Result<Site> {
    static TEMPLATE: Template = Template::new();
    let folder = Folder::create("php-page")?;
    let database = MariaDb::create_filled(&folder, &TEMPLATE, fill)?;
    let primary = if settings.primary { Some(make_primary(&folder, &database)?) } else { None };

    for (name, text) in SCRIPTS {
        folder.write(&format!("site/{name}"), text)?;
    }
    // What is included is not below the document root, as in real applications.
    folder.subfolder("include", "root")?;
    let upstream_port = settings.port.checked_add(1).unwrap_or(1024);
    let settings_php = format!(
        "<?php\nconst SOCKET = '{}';\nconst UPSTREAM = 'http://127.0.0.1:{upstream_port}/answer.txt';\n",
        database.socket().display()
    );
    folder.write("include/settings.php", &settings_php)?;
    folder.write(
        "include/database.php",
        include_str!("../../scripts/php-page/include/database.php"),
    )?;
    let template = MarkedFile::create(
        folder.join("include/template.php"),
        include_str!("../../scripts/php-page/include/template.php"),
    )?;
    let content = MarkedFile::create(
        folder.join("include/content.php"),
        include_str!("../../scripts/php-page/include/content.php"),
    )?;
    folder.subfolder("decided", "root")?;
    folder.write("decided/0.html", &decided(FIRST))?;
    folder.subfolder("upstream", "root")?;
    let answer = MarkedFile::create(
        folder.join("upstream/answer.txt"),
        "The other server says @VERSION@\n",
    )?;

    let mut with = vec![database.command(), php::fpm(&folder, settings)?];
    with.extend(primary.iter().map(MariaDb::command));
    let other = format!(
        "server {{
        listen 127.0.0.1:{upstream_port};
        root @FOLDER@/upstream;
    }}"
    );
    let location = "index index.php;
        location /decided/ {
            internal;
            alias @FOLDER@/decided/;
        }
        location ~ \\.php$ {
            try_files $uri =404;@PHP@
        }";
    let server = nginx::serve(&folder, settings, &other, location)?;
    let mut edits = vec![
        by_sql("sql-update", "/item.php?id=1", "<p>", &database, 1),
        by_sql("sql-update-list", "/list.php", "This is item 7.</td><td>", &database, 7),
    ];
    edits.push(by_event("/item.php?id=1", "<p>", &database, 1));
    edits.extend(
        primary.as_ref().map(|primary| by_replica("/item.php?id=1", "<p>", &database, primary, 1)),
    );
    edits.push(by_sql("sql-update-told", "/told.php", "<p>", &database, 3));
    edits.push(by_decision(&folder, &database));
    edits.extend(php::script_edits(
        &template,
        settings,
        ["template-renamed", "template-overwritten"],
        "/item.php?id=2",
    ));
    edits.extend(php::script_edits(
        &content,
        settings,
        ["include-renamed", "include-overwritten"],
        "/file.php",
    ));
    edits.extend(answer.edits(["upstream-renamed", "upstream-overwritten"], "/upstream.php"));
    Ok(Site {
        application: Application::PhpPage,
        port: settings.port,
        with,
        server,
        pages: pages(),
        edits,
        audiences: audiences(),
        configuration: String::new(),
        logins: Vec::new(),
        folder,
    })
}

fn fill(database: &MariaDb) -> Result<()> {
    let rows: Vec<String> =
        (1..=ITEMS).map(|id| format!("({id}, 0, 'This is item {id}.')")).collect();
    let sql = format!(
        "CREATE TABLE items (id INT PRIMARY KEY, version INT NOT NULL, body TEXT NOT NULL) ENGINE=InnoDB;
         CREATE TABLE decisions (id INT PRIMARY KEY, file VARCHAR(40) NOT NULL) ENGINE=InnoDB;
         INSERT INTO decisions VALUES (1, '0.html');
         CREATE TABLE visits (id INT PRIMARY KEY AUTO_INCREMENT, at TIMESTAMP NOT NULL) ENGINE=InnoDB;
         INSERT INTO items VALUES {};",
        rows.join(", ")
    );
    database.execute(&sql).map(drop)
}

fn pages() -> Vec<Page> {
    vec![
        Page::stable("/", "links to the rows of a table", "item 20"),
        Page::stable("/item.php?id=1", "a row of a table", FIRST),
        Page::stable("/item.php?id=2", "another row of it", FIRST),
        Page::stable("/list.php", "all rows", "This is item 20."),
        Page::stable("/file.php", "an included file", FIRST),
        Page::stable("/told.php", "a row, and who it is for", FIRST),
        Page::stable("/decided.php", "a file that a row of a table has chosen", FIRST),
        Page::unstable("/time.php", "the time of the request", "It is"),
        Page::unstable("/random.php", "a random number", "A number:"),
        Page::unstable("/now.php", "the database's time", "The database says"),
        Page::unstable("/session.php", "visits in this session", "Visits in this session: 1"),
        Page::unstable("/write.php", "writes a row", "Visits:"),
        Page::stable("/upstream.php", "what another server says", FIRST),
        Page::unstable("/exec.php", "what another program says", "The program says"),
        Page::unstable("/apcu.php", "a counter in PHP's memory", "Counted:"),
    ]
}

/// The body says what the version column is, so one column is enough.
fn by_sql(name: &'static str, page: &str, words: &str, database: &MariaDb, id: u32) -> Edit {
    let database = database.clone();
    Edit::new(name, page, words, move |marker| {
        database
            .execute(&format!(
                "UPDATE items SET version = {} WHERE id = {id};",
                Edit::number(marker)
            ))
            .map(drop)
    })
}

/// Another database, with as much of the table as is changed there.
fn make_primary(folder: &Folder, replica: &MariaDb) -> Result<MariaDb> {
    let (primary, server) = MariaDb::create_primary(folder, PRIMARY_PORT)?;
    primary.execute(
        "CREATE TABLE items (id INT PRIMARY KEY, version INT NOT NULL) ENGINE=InnoDB; INSERT INTO items VALUES (1, 0);",
    )?;
    let replicating = replica.start()?;
    replica.apply(&primary)?;
    MariaDb::finish(replicating)?;
    MariaDb::finish(server)?;
    Ok(primary)
}

/// The table is changed by the database itself, which applies what another one did; it is not a
/// replica afterwards.
fn by_replica(page: &str, words: &str, database: &MariaDb, primary: &MariaDb, id: u32) -> Edit {
    let (database, primary) = (database.clone(), primary.clone());
    Edit::new("sql-replica", page, words, move |marker| {
        let version = Edit::number(marker);
        database.execute_as_administrator("START SLAVE;")?;
        primary.execute(&format!("UPDATE items SET version = {version} WHERE id = {id};"))?;
        wait_for_version(&database, id, version)?;
        database.execute_as_administrator("STOP SLAVE;").map(drop)
    })
}

/// The table is changed by the database itself, whose scheduler an event waits for; it is gone
/// afterwards.
fn by_event(page: &str, words: &str, database: &MariaDb, id: u32) -> Edit {
    let database = database.clone();
    Edit::new("sql-event", page, words, move |marker| {
        let version = Edit::number(marker);
        database.execute_as_administrator(&format!(
            "SET GLOBAL event_scheduler = ON; CREATE EVENT change_{version} ON SCHEDULE AT CURRENT_TIMESTAMP \
             DO UPDATE items SET version = {version} WHERE id = {id};"
        ))?;
        wait_for_version(&database, id, version)
    })
}

fn wait_for_version(database: &MariaDb, id: u32, version: &str) -> Result<()> {
    const LONG_ENOUGH: Duration = Duration::from_secs(10);
    let begun = Instant::now();
    while database.execute(&format!("SELECT version FROM items WHERE id = {id};"))?.trim()
        != version
    {
        ensure!(begun.elapsed() < LONG_ENOUGH, "row {id} does not become version {version}");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn decided(marker: &str) -> String {
    format!("<!DOCTYPE html>\n<title>A choice</title>\n<p>Chosen: {marker}</p>\n")
}

/// Another file, and a row that says so. The one before stays, because a server may be reading it.
fn by_decision(folder: &Folder, database: &MariaDb) -> Edit {
    let (files, database) = (folder.join("decided"), database.clone());
    Edit::new("sql-decision", "/decided.php", "Chosen: ", move |marker| {
        let name = format!("{}.html", Edit::number(marker));
        std::fs::write(files.join(&name), decided(marker))?;
        database.execute(&format!("UPDATE decisions SET file = '{name}' WHERE id = 1;")).map(drop)
    })
}

/// Told apart by language, by kind of program and by where they come from, and none of it said by
/// `Vary`.
fn audiences() -> Vec<Audience> {
    const PHONE: &str = "User-Agent: Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 Chrome/126.0 Mobile Safari/537.36";
    const PC: &str =
        "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0";
    let told = |fields: &[&str], says: &str| Audience::new("/told.php", fields, says);
    vec![
        told(&[PC, "Accept-Language: de-DE,de;q=0.9"], "for de on a pc from here."),
        told(&[PC, "Accept-Language: fr"], "for fr on a pc from here."),
        told(&[PHONE, "Accept-Language: de-DE,de;q=0.9"], "for de on a phone from here."),
        told(
            &[PC, "Accept-Language: en", "Referer: http://elsewhere.example/page"],
            "for en on a pc from elsewhere.example.",
        ),
        told(
            &[PC, "Accept-Language: en", "Sec-Fetch-Site: cross-site"],
            "for en on a pc from another site.",
        ),
    ]
}
