//! Where a server's files are, as far as its command line and its configuration say: to warn at the
//! start of file systems that nobody watches.
//!
//! What the server reads later tells the truth; this is only to say it before anybody has to look
//! for it. A file or a line that cannot be read is left out.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use nicache_watch::never_watched;

/// A folder that a server gives files from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DocumentRoot {
    /// Absolute path of the document root.
    pub path: PathBuf,
    /// The kind of its file system, if nobody sees every change there.
    pub unwatched: Option<String>,
}

/// Files of configuration that are read at most.
const FILES_MAX: usize = 200;
/// Bytes of one of them.
const BYTES_MAX: u64 = 1 << 20;

/// The folders of a server and the programs beside it, each once. Those that are not there are left
/// out.
pub(crate) fn document_roots(server: &[String], with: &[Vec<String>]) -> Vec<DocumentRoot> {
    let mut paths = BTreeSet::new();
    for argv in [server].into_iter().chain(with.iter().map(Vec::as_slice)) {
        paths.extend(of_command(argv));
    }
    let mut roots = Vec::new();
    for path in paths.into_iter().filter(|path| path.is_dir()) {
        if let Ok(unwatched) = never_watched(&path) {
            roots.push(DocumentRoot { path, unwatched });
        }
    }
    roots
}

/// The word behind an option, also where both are one word (`-t/srv`, `--root=/srv`).
fn option<'a>(argv: &'a [String], names: &[&str]) -> Option<&'a str> {
    argv.iter().enumerate().find_map(|(at, word)| {
        let name = names.iter().find(|name| word.starts_with(**name))?;
        match word.strip_prefix(name)? {
            "" => argv.get(at + 1).map(String::as_str),
            rest if name.starts_with("--") => rest.strip_prefix('='),
            rest => Some(rest),
        }
    })
}

fn of_command(argv: &[String]) -> Vec<PathBuf> {
    let Some(program) = argv.first() else { return Vec::new() };
    let name = program.rsplit('/').next().unwrap_or_default();
    let here = || std::env::current_dir().into_iter().collect::<Vec<_>>();
    match name {
        "nginx" => {
            let prefix = PathBuf::from(option(argv, &["-p"]).unwrap_or("/usr/share/nginx"));
            let file = option(argv, &["-c"])
                .map_or_else(|| "/etc/nginx/nginx.conf".into(), |file| prefix.join(file));
            let folder = file.parent().unwrap_or_else(|| Path::new("/")).to_owned();
            from_files(vec![file], &folder, &prefix, &["root", "alias"], &["include"])
        }
        "apache2" | "httpd" | "apachectl" | "apache2ctl" => {
            let default =
                if Path::new("/etc/apache2").is_dir() { "/etc/apache2" } else { "/etc/httpd" };
            let folder = PathBuf::from(option(argv, &["-d"]).unwrap_or(default));
            let file = option(argv, &["-f"]).map_or_else(
                || {
                    if default.ends_with("apache2") {
                        folder.join("apache2.conf")
                    } else {
                        folder.join("conf/httpd.conf")
                    }
                },
                |file| folder.join(file),
            );
            from_files(
                vec![file],
                &folder,
                &folder,
                &["documentroot"],
                &["include", "includeoptional"],
            )
        }
        "lighttpd" => {
            let file =
                PathBuf::from(option(argv, &["-f"]).unwrap_or("/etc/lighttpd/lighttpd.conf"));
            let folder = file.parent().unwrap_or_else(|| Path::new("/")).to_owned();
            from_files(vec![file], &folder, &folder, &["server.document-root"], &["include"])
        }
        "caddy" => option(argv, &["--root", "-r"]).map(PathBuf::from).into_iter().collect(),
        _ if name.starts_with("php") && argv.iter().any(|word| word == "-S") => {
            option(argv, &["-t"]).map_or_else(here, |folder| vec![folder.into()])
        }
        _ if name.starts_with("python") && argv.iter().any(|word| word == "http.server") => {
            option(argv, &["--directory", "-d"]).map_or_else(here, |folder| vec![folder.into()])
        }
        _ => Vec::new(),
    }
}

/// The paths that these directives name in files and in what they include. Names of directives are
/// in lower case.
fn from_files(
    mut files: Vec<PathBuf>,
    folder: &Path,
    prefix: &Path,
    directives: &[&str],
    includes: &[&str],
) -> Vec<PathBuf> {
    let (mut found, mut read) = (Vec::new(), BTreeSet::new());
    while let Some(file) = files.pop() {
        if read.len() == FILES_MAX || !read.insert(file.clone()) {
            continue;
        }
        let is_small =
            std::fs::metadata(&file).is_ok_and(|file| file.is_file() && file.len() <= BYTES_MAX);
        let Some(text) = is_small.then(|| std::fs::read_to_string(&file).ok()).flatten() else {
            continue;
        };
        for statement in text
            .lines()
            .flat_map(|line| line.split('#').next().unwrap_or_default().split([';', '{', '}']))
        {
            let Some((name, value)) = statement.trim().split_once([' ', '\t', '=']) else {
                continue;
            };
            let value = value.trim_start_matches([' ', '\t', '=']).trim().trim_matches(['"', '\'']);
            let name = name.to_ascii_lowercase();
            if value.is_empty() || value.contains('$') {
                continue;
            }
            if directives.contains(&name.as_str()) {
                found.push(prefix.join(value));
            } else if includes.contains(&name.as_str()) {
                files.extend(matching(&folder.join(value)));
            }
        }
    }
    found
}

/// The files that a path means whose last part may have a `*`; of a folder, all files in it.
fn matching(path: &Path) -> Vec<PathBuf> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let (folder, start, end) = match name.split_once('*') {
        Some((start, end)) => (path.parent().unwrap_or_else(|| Path::new("/")), start, end),
        None if path.is_dir() => (path, "", ""),
        None => return vec![path.to_owned()],
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.retain(|file| {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
    });
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn roots_of_nginx_and_apache() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("sites")).unwrap();
        std::fs::create_dir_all(at("one")).unwrap();
        std::fs::create_dir_all(at("two")).unwrap();
        let (one, two) = (at("one"), at("two"));
        std::fs::write(
            at("main.conf"),
            "http { # root /no;\n include sites/*.conf; include sites/*.conf; }",
        )
        .unwrap();
        std::fs::write(
            at("sites/a.conf"),
            format!(
                "server {{ root {}; location /x {{ alias '{}'; }} }}",
                one.display(),
                two.display()
            ),
        )
        .unwrap();
        std::fs::write(
            at("sites/b.conf"),
            "server { root $documents; root /no/such; include b.conf; }",
        )
        .unwrap();
        std::fs::write(
            at("apache.conf"),
            format!("IncludeOptional sites/*.ap\nDocumentRoot {}\n", two.display()),
        )
        .unwrap();
        let found = |argv: String, with: &[Vec<String>]| -> Vec<PathBuf> {
            document_roots(&words(&argv), with).into_iter().map(|root| root.path).collect()
        };
        let nginx = format!("/usr/sbin/nginx -c {}", at("main.conf").display());
        assert_eq!(found(nginx, &[]), [one.clone(), two.clone()]);
        let php = words(&format!("php -S 0.0.0.0:80 -t{}", one.display()));
        let apache = format!("apache2 -d {} -f apache.conf", folder.path().display());
        assert_eq!(found(apache, &[php]), [one, two]);
        assert!(found("sleep 5".into(), &[]).is_empty());
    }

    #[test]
    fn where_nobody_watches() {
        let roots = document_roots(&words("python3 -m http.server --directory=/proc/sys"), &[]);
        assert_eq!(roots[0].unwatched.as_deref(), Some("proc"), "{roots:?}");
        let own = tempfile::tempdir().unwrap();
        let roots = document_roots(&words(&format!("php -S x -t {}", own.path().display())), &[]);
        assert_eq!(roots[0].unwatched, None);
    }
}
