//! DokuWiki, which keeps its pages in files and needs no database.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Result, bail};

use crate::application::Application;
use crate::client::Client;
use crate::edit::{Edit, FIRST, MarkedFile};
use crate::folder::{Folder, copy_tree, give_all};
use crate::login::{Login, PASSWORD};
use crate::program::{nginx, php};
use crate::site::{Page, Settings, Site};

/// Debian's packages, without web server and PHP.
pub(super) const PACKAGES: [&str; 3] = ["dokuwiki", "php8.2-xml", "php8.2-gd"];

const ARTICLES: u32 = 10;

const LOCAL: &str = "<?php
$conf['title'] = 'A wiki of files';
$conf['savedir'] = '@FOLDER@/data';
$conf['useacl'] = 1;
$conf['authtype'] = 'authplain';
$conf['updatecheck'] = 0;
";

/// Everybody may read and edit.
const PERMISSIONS: &str = "*\t@ALL\t8\n";
const VISITORS: [&str; 2] = ["annabel", "bertrand"];
/// Of [`PASSWORD`].
const PASSWORD_HASH: &str = "$1$wikiwiki$ss4/t/5pUfKiQg3ep4niL/";

/// DokuWiki gives each visitor a session, and says `no-store` therefore. Pages are the same for all
/// who have none.
const CONFIGURATION: &str = r#"# What belongs to one session: to write it changes nothing for others.
session-files = ["@FOLDER@/run/sessions/sess_*"]
# Articles, and what is made of them: read anew for each request.
data-folder = ["@FOLDER@/data"]

# Forms, logging in, administration.
[[path]]
pattern = "/doku.php?*do=*"
cache = false

[[path]]
pattern = "/doku.php"
# The address that browsers start housekeeping by has the time in it.
masks = ['/lib/exe/taskrunner.php?*"']
share-no-store = true
# The session, and the end of one's login that each visitor without a login is told.
drop-set-cookie = ["DokuWiki", "DW*"]

[[path]]
pattern = "/"
masks = ['/lib/exe/taskrunner.php?*"']
share-no-store = true
drop-set-cookie = ["DokuWiki", "DW*"]
"#;

pub(super) fn prepare(settings: &Settings) -> Result<Site> {
    let folder = Folder::create("dokuwiki")?;
    let site = folder.join("site");
    copy_tree(Path::new("/usr/share/dokuwiki"), &site)?;
    // Debian's preload.php leads to /etc/dokuwiki; without it the configuration is where DokuWiki's
    // own sources expect it.
    std::fs::remove_file(site.join("inc/preload.php"))?;
    for entry in std::fs::read_dir("/etc/dokuwiki")? {
        let entry = entry?;
        // Passwords and permissions of the machine's own wiki stay where they are.
        if entry.file_type()?.is_file() && entry.file_name() != "local.php" {
            folder.subfolder("site/conf", "root")?;
            std::fs::copy(entry.path(), site.join("conf").join(entry.file_name()))?;
        }
    }
    folder.write(
        "site/conf/local.php",
        &LOCAL.replace("@FOLDER@", &folder.path().display().to_string()),
    )?;
    folder.write("site/conf/acl.auth.php", PERMISSIONS)?;
    let user = |name: &&str| format!("{name}:{PASSWORD_HASH}:{name}:{name}@example.org:user\n");
    folder.write("site/conf/users.auth.php", &VISITORS.iter().map(user).collect::<String>())?;
    for name in [
        "attic",
        "cache",
        "index",
        "locks",
        "log",
        "media",
        "media_attic",
        "media_meta",
        "meta",
        "tmp",
    ] {
        std::fs::create_dir_all(folder.join("data").join(name))?;
    }
    copy_tree(Path::new("/var/lib/dokuwiki/data/pages"), &folder.join("data/pages"))?;
    let files = pages_of_the_wiki(&folder)?;
    give_all(&folder.join("data"), "www-data")?;
    give_all(&site.join("conf"), "www-data")?;

    let location = "index doku.php;
        location ~ ^/(bin|conf|inc|vendor)/ {
            deny all;
        }
        location ~ \\.php$ {
            try_files $uri =404;@PHP@
        }";
    let with = vec![php::fpm(&folder, settings)?];
    let server = nginx::serve(&folder, settings, "", location)?;
    let mut edits = Vec::from(
        files.edits(["file-renamed", "file-overwritten"], "/doku.php?id=articles:article_1"),
    );
    edits.push(Edit::by_http(
        "web-form",
        "/doku.php?id=articles:article_2",
        "This is article 2, ",
        edit_by_form,
    ));
    // It compares modification times in seconds, and reads what it has rendered while it is being
    // written.
    let edits = edits.into_iter().map(Edit::hasty).collect();
    let configuration = CONFIGURATION.replace("@FOLDER@", &folder.path().display().to_string());
    let logins = VISITORS.map(|name| Login::new(name, log_in)).to_vec();
    let application = Application::DokuWiki;
    Ok(Site {
        application,
        port: settings.port,
        with,
        server,
        pages: pages(),
        edits,
        audiences: Vec::new(),
        configuration,
        logins,
        folder,
    })
}

/// The front page and some articles; the first of them is returned.
fn pages_of_the_wiki(folder: &Folder) -> Result<MarkedFile> {
    let mut links = String::new();
    std::fs::create_dir_all(folder.join("data/pages/articles"))?;
    for number in 2..=ARTICLES {
        links += &format!("  * [[articles:article_{number}]]\n");
        folder
            .write(&format!("data/pages/articles/article_{number}.txt"), &article(number, FIRST))?;
    }
    folder.write(
        "data/pages/start.txt",
        &format!("====== A wiki ======\n\n  * [[articles:article_1]]\n{links}"),
    )?;
    MarkedFile::create(folder.join("data/pages/articles/article_1.txt"), article(1, "@VERSION@"))
}

fn article(number: u32, marker: &str) -> String {
    let text = "A //page// of a wiki has **text** and [[start|links]]. ".repeat(20);
    format!(
        "====== Article {number} ======\n\nThis is article {number}, {marker}\n\n===== More of it =====\n\n{text}\n"
    )
}

/// Not stable: each page has a link with the time in it, by which browsers start housekeeping.
fn pages() -> Vec<Page> {
    vec![
        Page::unstable("/", "the front page", "A wiki"),
        Page::unstable("/doku.php?id=articles:article_1", "an article", FIRST),
        Page::unstable("/doku.php?id=articles:article_2", "another article", FIRST),
        Page::unstable("/doku.php?id=wiki:syntax", "a long page", "Formatting Syntax"),
        Page::stable(
            "/doku.php?id=articles:article_3&do=export_xhtmlbody",
            "an article without navigation",
            FIRST,
        ),
        Page::stable(
            "/doku.php?id=articles:article_3&do=export_raw",
            "the text of an article",
            FIRST,
        ),
        Page::stable("/lib/tpl/dokuwiki/images/favicon.ico", "a file", ""),
    ]
}

fn log_in(server: SocketAddr, name: &str) -> Result<Client> {
    let mut client = Client::with_cookies(server);
    let fields = [("id", "start"), ("do", "login"), ("u", name), ("p", PASSWORD), ("sectok", "")];
    let reply = client.post_form("/doku.php", &fields)?;
    if !client.get("/doku.php?id=start")?.text().contains(name) {
        bail!("DokuWiki answered with status {}: {}", reply.status, reply.text());
    }
    Ok(client)
}

fn edit_by_form(server: SocketAddr, marker: &str) -> Result<()> {
    let text = article(2, marker);
    let fields = [
        ("id", "articles:article_2"),
        ("do[save]", "Save"),
        ("wikitext", &text),
        ("summary", "An edit"),
        ("sectok", ""),
    ];
    let reply =
        Client::with_cookies(server).post_form("/doku.php?id=articles:article_2", &fields)?;
    if !matches!(reply.status, 302 | 303) {
        bail!("DokuWiki answered with status {}: {}", reply.status, reply.text());
    }
    Ok(())
}
