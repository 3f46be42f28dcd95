//! WordPress, behind nginx with PHP-FPM or behind Apache.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::application::Application;
use crate::client::{Client, Reply};
use crate::edit::{Edit, FIRST, MarkedFile};
use crate::folder::{Folder, copy_tree, give_all};
use crate::program::{apache, mariadb::MariaDb, nginx, php};
use crate::site::{Page, Settings, Site};

/// Debian's packages, without web server, PHP and database.
pub(super) const PACKAGES: [&str; 6] = [
    "wordpress",
    "wordpress-theme-twentytwentythree",
    "php8.2-mysql",
    "php8.2-curl",
    "php8.2-xml",
    "php8.2-mbstring",
];

const ORIGINAL: &str = "/usr/share/wordpress";
const THEME: &str = "site/wp-content/themes/twentytwentythree";

pub(super) fn prepare(application: Application, settings: &Settings) -> Result<Site> {
    let folder = Folder::create(application.name())?;
    copy_tree(Path::new(ORIGINAL), &folder.join("site"))?;
    let (database, server) = MariaDb::create(&folder)?;
    let configuration = include_str!("../../scripts/wordpress/wp-config.php")
        .replace("@HOST@", &settings.url_host)
        .replace("@SOCKET@", &database.socket().display().to_string())
        .replace("@KEYS@", &keys()?);
    folder.write("site/wp-config.php", &configuration)?;
    // Uploads and the like are written by WordPress itself.
    give_all(&folder.join("site/wp-content"), "www-data")?;
    folder.write("install.php", include_str!("../../scripts/wordpress/install.php"))?;
    folder.write("edit.php", include_str!("../../scripts/wordpress/edit.php"))?;
    php::Script::new(folder.path(), &folder.join("install.php"))
        .args([folder.text("site").as_str()])
        .run("")
        .context("cannot install WordPress")?;
    MariaDb::finish(server)?;

    let mut with = vec![database.command()];
    let server = if application == Application::WordPressApache {
        apache::serve(&folder, settings)?
    } else {
        with.push(php::fpm(&folder, settings)?);
        let location = "index index.php;
        client_max_body_size 16m;
        location / {
            try_files $uri $uri/ /index.php?$args;
        }
        location ~ \\.php$ {
            try_files $uri =404;@PHP@
        }";
        nginx::serve(&folder, settings, "", location)?
    };
    let edits = edits(&folder, &database, settings)?;
    Ok(Site {
        application,
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

fn pages() -> Vec<Page> {
    vec![
        Page::stable("/", "the front page, the latest posts", "Post 20"),
        Page::stable("/post-1/", "a post with a comment", FIRST),
        Page::stable("/post-2/", "another post", FIRST),
        Page::stable("/post-3/", "a third post", "What I think of post 3."),
        Page::stable("/page/2/", "older posts", "Post 5"),
        Page::stable("/sample-page/", "a page", "Sample Page"),
        Page::stable("/feed/", "the posts for feed readers", "<rss"),
        Page::stable("/wp-json/wp/v2/posts/?per_page=2", "posts for programs", "Post 20"),
        Page::stable(
            "/wp-includes/css/dist/block-library/style.min.css",
            "a style sheet",
            ".wp-block",
        ),
    ]
}

fn edits(folder: &Folder, database: &MariaDb, settings: &Settings) -> Result<Vec<Edit>> {
    let sql = database.clone();
    let mut edits = vec![Edit::new("sql-update", "/post-1/", "This is post 1, ", move |marker| {
        let content = format!("<p>This is post 1, {marker}</p>");
        let statement =
            format!("UPDATE wp_posts SET post_content = '{content}' WHERE post_name = 'post-1';");
        sql.execute(&statement).map(drop)
    })];
    for (name, page, words) in [
        ("update-post", "/post-2/", "This is post 2, "),
        ("new-post", "/", "News of "),
        ("approve-comment", "/post-3/", "I say "),
        ("site-title", "/sample-page/", "A site of WordPress "),
    ] {
        let folder = folder.path().to_owned();
        edits.push(Edit::new(name, page, words, move |marker| {
            let site = folder.join("site").display().to_string();
            php::Script::new(&folder, &folder.join("edit.php"))
                .args([site.as_str(), name, marker])
                .run("")
                .map(drop)
        }));
    }
    edits.push(Edit::by_http("editor-form", "/post-4/", "This is post 4, ", edit_as_admin));
    // A template part is a file that WordPress reads for every page, a pattern is PHP.
    let path = folder.join(&format!("{THEME}/parts/footer.html"));
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("the theme has no {}", path.display()))?;
    let footer = MarkedFile::create(
        path,
        format!("{text}\n<!-- wp:paragraph -->\n<p>Footer @VERSION@</p>\n<!-- /wp:paragraph -->\n"),
    )?;
    edits.extend(footer.edits(["theme-part-renamed", "theme-part-overwritten"], "/post-5/"));
    let path = folder.join(&format!("{THEME}/patterns/footer-default.php"));
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("the theme has no {}", path.display()))?;
    let pattern = MarkedFile::create(
        path,
        format!(
            "{text}\n<!-- wp:paragraph -->\n<p>Pattern @VERSION@</p>\n<!-- /wp:paragraph -->\n"
        ),
    )?;
    // For each page WordPress reads the heads of all patterns, so one that has changed does
    // not look as if PHP still went on with what it has compiled: T more.
    let ways = php::script_edits(
        &pattern,
        settings,
        ["theme-php-renamed", "theme-php-overwritten"],
        "/post-6/",
    );
    edits.extend(ways.map(|way| way.later(1)));
    Ok(edits)
}

/// Logs in, and saves a post as the editor in the browser does it.
fn edit_as_admin(server: SocketAddr, marker: &str) -> Result<()> {
    let mut admin = Client::with_cookies(server);
    // The form sets a cookie by which the reply to it knows that there are cookies.
    admin.get("/wp-login.php")?;
    let fields =
        [("log", "admin"), ("pwd", "password"), ("testcookie", "1"), ("wp-submit", "Log In")];
    expect(&admin.post_form("/wp-login.php", &fields)?, 302)?;
    let nonce = admin.get("/wp-admin/admin-ajax.php?action=rest-nonce")?;
    expect(&nonce, 200)?;
    let posts = admin.get("/wp-json/wp/v2/posts?slug=post-4")?;
    expect(&posts, 200)?;
    let posts: serde_json::Value = serde_json::from_slice(&posts.body)?;
    let id = posts[0]["id"].as_u64().context("there is no post 4")?;
    let body =
        serde_json::json!({ "content": format!("<p>This is post 4, {marker}</p>") }).to_string();
    let nonce = nonce.text();
    let headers = [("Content-Type", "application/json"), ("X-WP-Nonce", nonce.as_str())];
    expect(
        &admin.request("POST", &format!("/wp-json/wp/v2/posts/{id}"), &headers, body.as_bytes())?,
        200,
    )
}

fn expect(reply: &Reply, status: u16) -> Result<()> {
    if reply.status != status {
        bail!(
            "WordPress answered with status {} instead of {status}: {}",
            reply.status,
            reply.text()
        );
    }
    Ok(())
}

/// The secrets of cookies and forms.
fn keys() -> Result<String> {
    let random = || -> Result<String> {
        Ok(nicache_secret::random_bytes::<32>()?.iter().map(|byte| format!("{byte:02x}")).collect())
    };
    let names = ["AUTH", "SECURE_AUTH", "LOGGED_IN", "NONCE"];
    let mut text = String::new();
    for name in names {
        text += &format!(
            "define('{name}_KEY', '{}');\ndefine('{name}_SALT', '{}');\n",
            random()?,
            random()?
        );
    }
    Ok(text)
}
