//! Apache: processes with threads and without, `.htaccess` files, negotiation, compression.

use super::cases;
use super::edits;
use super::site::Folder;
use super::stage::{Stage, Traits, get, is_there};

/// Debian links `unixd` in.
const MODULES: [&str; 10] = [
    "authz_core",
    "alias",
    "autoindex",
    "deflate",
    "dir",
    "filter",
    "headers",
    "mime",
    "negotiation",
    "rewrite",
];

/// A configuration for the site with these modules, to which more is added.
pub(super) fn base<'a>(modules: impl IntoIterator<Item = &'a str>) -> String {
    let load = |name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n");
    let modules: String = modules.into_iter().map(load).collect();
    format!(
        "{modules}
         ServerRoot @FOLDER@
         DefaultRuntimeDir @FOLDER@
         PidFile @FOLDER@/apache.pid
         ErrorLog @FOLDER@/error.log
         Listen 80
         ServerName files
         User www-data
         Group www-data
         TypesConfig /etc/mime.types
         DocumentRoot @FOLDER@/site
        "
    )
}

fn command(folder: &Folder, model: &str) -> Vec<String> {
    let model = format!("mpm_{model}");
    let base = base(MODULES.into_iter().chain([model.as_str()]));
    let file = folder.write(
        "apache.conf",
        &format!(
            "{base}
             StartServers 2
             AddHandler type-map var
             AddLanguage en .en
             AddLanguage de .de
             AddLanguage fr .fr
             AddOutputFilterByType DEFLATE text/plain
             <Directory @FOLDER@/site>
               Require all granted
               AllowOverride All
               Options +Indexes +FollowSymLinks +MultiViews
               DirectoryIndex index.html
             </Directory>
             "
        ),
    );
    ["apache2", "-f", &file, "-DFOREGROUND"].map(str::to_owned).to_vec()
}

fn stage(name: &'static str, options: &[&str], model: &str) -> Option<Stage> {
    is_there("apache2")
        .then(|| Stage::new(name, Traits::default(), options, |folder| command(folder, model)))
}

#[test]
fn with_threads() {
    let Some(stage) = stage("Apache, event", &[], "event") else { return };
    cases::check(&stage);
    edits::check(&stage);
}

#[test]
fn with_threads_and_the_card_s_handshake() {
    let Some(stage) = stage("Apache, event", &["--handshake", "card"], "event") else { return };
    cases::check(&stage);
    edits::check(&stage);
}

#[test]
fn with_processes() {
    let Some(stage) = stage("Apache, prefork", &[], "prefork") else { return };
    cases::check(&stage);
    edits::check(&stage);
}

#[test]
fn reloaded() {
    let Some(stage) = stage("Apache, event", &[], "event") else { return };
    let configuration = command(&stage.folder, "event")[2].clone();
    edits::reload(&stage, || {
        let text = std::fs::read_to_string(&configuration).unwrap();
        std::fs::write(&configuration, text + "\nHeader always set X-Frame-Options DENY\n")
            .unwrap();
    });
}

#[test]
fn htaccess_is_heeded_at_once() {
    let Some(stage) = stage("Apache, event", &[], "event") else { return };
    stage.folder.put("edits/page.txt", b"a page\n");
    stage.folder.put("edits/other.txt", b"another page\n");
    let file = stage.folder.path("edits/.htaccess");
    let request = get("/edits/page.txt", "");
    // What is written to the file, and the status and the part of the reply that it makes. `None`:
    // it is deleted.
    let steps = [
        (Some("Header set X-Step one\n"), 200, "X-Step: one"),
        (Some("Header set X-Step two\n"), 200, "X-Step: two"),
        (Some("Require all denied\n"), 403, "403"),
        (None, 200, "Content-Length: 7\n"),
        (Some("RewriteEngine on\nRewriteRule ^page.txt$ other.txt\n"), 200, "Content-Length: 13\n"),
        (
            Some("Redirect 302 /edits/page.txt /small.txt\n"),
            302,
            "Location: http://files/small.txt",
        ),
        (Some("no directive\n"), 500, "500"),
        (None, 200, "Content-Length: 7\n"),
    ];
    let mut kept = 0;
    for (content, status, phrase) in steps {
        kept += u32::from(edits::warm(&stage, &request));
        match content {
            Some(content) => std::fs::write(&file, content).unwrap(),
            None => std::fs::remove_file(&file).unwrap(),
        }
        let reply = stage.ask(&request);
        assert_eq!(reply.status(), status, "{content:?}: {reply:?}");
        assert!(reply.head.contains(phrase), "{content:?}: {reply:?}");
        assert_eq!(reply, stage.ask_beside(&request), "{content:?}");
    }
    assert!(kept >= 3, "only {kept} edits met a kept reply");
}

#[test]
fn languages_are_negotiated() {
    let Some(stage) = stage("Apache, event", &[], "event") else { return };
    for (language, text) in [("en", "good morning\n"), ("de", "guten Morgen\n")] {
        stage.folder.put(&format!("views.txt.{language}"), text.as_bytes());
        stage.folder.put(&format!("mapped.{language}.txt"), text.as_bytes());
    }
    let map = "URI: mapped\n\nURI: mapped.en.txt\nContent-Type: text/plain\nContent-Language: en\n\n\
               URI: mapped.de.txt\nContent-Type: text/plain\nContent-Language: de\n";
    stage.folder.put("mapped.var", map.as_bytes());
    for path in ["/views.txt", "/mapped.var"] {
        for (wish, text) in [
            ("en", "good morning\n"),
            ("de", "guten Morgen\n"),
            ("de;q=0.3, en;q=0.9", "good morning\n"),
        ] {
            let request = get(path, &format!("Accept-Language: {wish}\r\n"));
            let direct = stage.ask_beside(&request);
            assert_eq!(String::from_utf8_lossy(&direct.body), text, "{path} {wish}");
            for _ in 0..6 {
                assert_eq!(stage.ask(&request), direct, "{path} {wish}");
                stage.settle();
            }
        }
    }
    // A variant that was not there, and one that goes.
    let request = get("/views.txt", "Accept-Language: fr\r\n");
    edits::warm(&stage, &request);
    stage.folder.put("views.txt.fr", b"bonjour\n");
    assert_eq!(stage.ask(&request).body, b"bonjour\n");
    edits::warm(&stage, &request);
    std::fs::remove_file(stage.folder.path("views.txt.fr")).unwrap();
    assert_ne!(stage.ask(&request).body, b"bonjour\n");
}
