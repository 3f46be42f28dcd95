//! MediaWiki on MariaDB.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::application::Application;
use crate::client::Client;
use crate::edit::{Edit, FIRST, MarkedFile};
use crate::folder::{Folder, copy_tree};
use crate::login::{Login, PASSWORD};
use crate::program::{
    mariadb::{self, MariaDb},
    nginx, php,
};
use crate::site::{Page, Settings, Site};

/// Debian's packages, without web server, PHP and database.
pub(super) const PACKAGES: [&str; 6] =
    ["mediawiki", "php8.2-mysql", "php8.2-intl", "php8.2-mbstring", "php8.2-xml", "php8.2-curl"];

const ORIGINAL: &str = "/usr/share/mediawiki";
/// Where MediaWiki looks for everything, if this is set.
const INSTALL_PATH: &str = "MW_INSTALL_PATH";
const ARTICLES: u32 = 5;
const ADMINISTRATOR: &str = "Admin";
const VISITORS: [&str; 2] = ["Annabel", "Bertrand"];

/// MediaWiki calls each page private, for it does not know of a cache that hears of edits, and
/// numbers and times each request.
const CONFIGURATION: &str = r#"[[path]]
pattern = "/index.php"
masks = ['"wgRequestId":"*"', '"wgBackendResponseTime":*}']
mask-headers = ["X-Request-Id"]
share-private = true
"#;

/// Follows what the installation writes.
const LOCAL_SETTINGS: &str = r#"

// The site is whatever host it is asked as, so it can be reached at any address and port.
$wgServer = 'http://' . ($_SERVER['HTTP_HOST'] ?? '@HOST@');
$wgSitename = 'A wiki @VERSION@';
// Caches in PHP's memory would not hear of edits by the command line.
$wgMainCacheType = CACHE_NONE;
$wgMessageCacheType = CACHE_NONE;
$wgParserCacheType = CACHE_DB;
$wgSessionCacheType = CACHE_DB;
$wgCacheDirectory = '@FOLDER@/cache';
$wgTmpDirectory = '@FOLDER@/tmp';
// The command line, which writes the articles, takes the server for one whose scripts have paths
// behind their names.
$wgUsePathInfo = false;
$wgRateLimits['edit'] = [];
"#;

pub(super) fn prepare(settings: &Settings) -> Result<Site> {
    let folder = Folder::create("mediawiki")?;
    link_tree(&folder)?;
    folder.subfolder("cache", "www-data")?;
    folder.subfolder("site/images", "www-data")?;
    let configuration = folder.subfolder("install", "www-data")?;
    let (database, server) = MariaDb::create(&folder)?;
    maintenance(folder.path(), "install.php")
        .args([
            "--dbtype=mysql",
            &format!("--dbserver=localhost:{}", database.socket().display()),
            &format!("--dbname={}", mariadb::NAME),
            &format!("--dbuser={}", mariadb::NAME),
            &format!("--dbpass={}", mariadb::NAME),
            &format!("--confpath={}", configuration.display()),
            &format!("--server=http://{}", settings.url_host),
            "--scriptpath=",
            &format!("--pass={PASSWORD}"),
            "--skins=Vector",
            "A wiki",
            ADMINISTRATOR,
        ])
        .run("")
        .context("cannot install MediaWiki")?;
    let written = std::fs::read_to_string(configuration.join("LocalSettings.php"))?;
    let local = LOCAL_SETTINGS
        .replace("@HOST@", &settings.url_host)
        .replace("@FOLDER@", &folder.path().display().to_string());
    let local = MarkedFile::create(folder.join("site/LocalSettings.php"), written + &local)?;
    for name in VISITORS {
        let created =
            maintenance(folder.path(), "createAndPromote.php").args([name, PASSWORD]).run("");
        created.with_context(|| format!("cannot create the account of {name}"))?;
    }
    let mut links = String::from("= Articles =\n");
    for number in 1..=ARTICLES {
        write_page(folder.path(), &format!("Article {number}"), &article(number, FIRST))?;
        links += &format!("* [[Article {number}]]\n");
    }
    write_page(folder.path(), "Main Page", &links)?;
    // Else each of the first visitors would do one, and write therefore.
    maintenance(folder.path(), "runJobs.php").run("").context("cannot run MediaWiki's jobs")?;
    MariaDb::finish(server)?;

    let location = format!(
        "index index.php;
        location ~ ^/(cache|includes|languages|maintenance|vendor)/ {{
            deny all;
        }}
        location ~ \\.php$ {{
            try_files $uri =404;@PHP@
            fastcgi_param {INSTALL_PATH} @FOLDER@/site;
        }}"
    );
    let with = vec![database.command(), php::fpm(&folder, settings)?];
    let server = nginx::serve(&folder, settings, "", &location)?;
    let path = folder.path().to_owned();
    let mut edits = vec![
        Edit::new(
            "command-line",
            "/index.php?title=Article_1",
            "This is article 1, ",
            move |marker| write_page(&path, "Article 1", &article(1, marker)),
        ),
        Edit::by_http("web-api", "/index.php?title=Article_2", "This is article 2, ", edit_by_api),
    ];
    edits.extend(php::script_edits(
        &local,
        settings,
        ["settings-renamed", "settings-overwritten"],
        "/index.php?title=Article_3",
    ));
    let configuration = CONFIGURATION.to_owned();
    let logins = VISITORS.map(|name| Login::new(name, log_in)).to_vec();
    let application = Application::MediaWiki;
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

/// The package is large, so only the look is copied; the rest are links.
fn link_tree(folder: &Folder) -> Result<()> {
    for entry in std::fs::read_dir(ORIGINAL)? {
        let entry = entry?;
        let name = entry.file_name();
        match name.to_str() {
            Some("LocalSettings.php" | "config" | "images" | "mw-config") => {}
            Some("skins") => copy_tree(&entry.path(), &folder.join("site/skins"))?,
            _ => std::os::unix::fs::symlink(entry.path(), folder.join("site").join(&name))?,
        }
    }
    Ok(())
}

fn maintenance(folder: &Path, script: &str) -> php::Script {
    let site = folder.join("site");
    php::Script::new(folder, &site.join("maintenance").join(script)).env(INSTALL_PATH, &site)
}

fn write_page(folder: &Path, title: &str, text: &str) -> Result<()> {
    maintenance(folder, "edit.php")
        .args(["--user=Admin", "--summary=An edit", title])
        .run(text)
        .map(drop)
}

fn article(number: u32, marker: &str) -> String {
    let text = "A ''page'' of a wiki has '''text''' and [[Main Page|links]]. ".repeat(20);
    format!("This is article {number}, {marker}\n\n== More of it ==\n{text}\n")
}

/// Not stable: each page has the number of the request and how long it took in it.
fn pages() -> Vec<Page> {
    vec![
        Page::unstable("/index.php?title=Main_Page", "the front page", "Articles"),
        Page::unstable("/index.php?title=Article_1", "an article", FIRST),
        Page::unstable("/index.php?title=Article_2", "another article", FIRST),
        Page::unstable(
            "/index.php?title=Article_1&action=history",
            "the history of an article",
            "Revision history",
        ),
        Page::stable("/index.php?title=Article_4&action=raw", "the text of an article", FIRST),
        Page::stable(
            "/index.php?title=Article_4&action=render",
            "an article without navigation",
            FIRST,
        ),
        Page::stable(
            "/api.php?action=query&prop=info&titles=Article_5&format=json",
            "an article for programs",
            "Article 5",
        ),
        Page::stable(
            "/load.php?lang=en&modules=site.styles&only=styles&skin=vector",
            "a style sheet",
            "",
        ),
    ]
}

fn log_in(server: SocketAddr, name: &str) -> Result<Client> {
    let mut client = Client::with_cookies(server);
    let tokens = client.get("/api.php?action=query&meta=tokens&type=login&format=json")?.text();
    let token = tokens.split_once("\"logintoken\":\"").and_then(|(_, rest)| rest.split_once('"'));
    let (token, _) = token.with_context(|| format!("MediaWiki gave no token: {tokens}"))?;
    let token = token.replace("\\\\", "\\");
    let fields = [
        ("action", "login"),
        ("lgname", name),
        ("lgpassword", PASSWORD),
        ("lgtoken", &token),
        ("format", "json"),
    ];
    let reply = client.post_form("/api.php", &fields)?.text();
    if !reply.contains("\"Success\"") {
        bail!("MediaWiki answered: {reply}");
    }
    Ok(client)
}

fn edit_by_api(server: SocketAddr, marker: &str) -> Result<()> {
    let text = article(2, marker);
    // The token of those who have not logged in is the same for all.
    let fields = [
        ("action", "edit"),
        ("title", "Article 2"),
        ("text", &text),
        ("format", "json"),
        ("token", "+\\"),
    ];
    let reply = Client::with_cookies(server).post_form("/api.php", &fields)?;
    if reply.status != 200 || !reply.text().contains("\"Success\"") {
        bail!("MediaWiki answered with status {}: {}", reply.status, reply.text());
    }
    Ok(())
}
