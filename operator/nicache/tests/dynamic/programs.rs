//! Programs that a server runs for a request: by its scripts, and as CGI. What they look at belongs
//! to the page; that they start and end means nothing.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nicache_applications::Client;
use tempfile::TempDir;

use crate::check::{Cases, eventually};
use crate::common::{self, Nicache, private_network, within};
use crate::living::{LONG, stays};
use crate::machine::process;
use crate::stage::{Setup, Stage};

fn write_program(path: &Path, text: &str) {
    // In the place of the old one, which may be running.
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(new, path).unwrap();
}

const CGI: &[&str] = &[
    "--path=pattern = '*', recheck = '1m'",
    "--with=sh -c 'umask 0; exec fcgiwrap -c 2 -s unix:@FOLDER@/run/cgi.sock'",
];

#[test]
fn of_scripts() {
    let nginx = "location /cgi/ { fastcgi_pass unix:@FOLDER@/run/cgi.sock; include /etc/nginx/fastcgi_params;
        fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; fastcgi_param DOCUMENT_ROOT $document_root; }";
    let setup = Setup {
        options: CGI,
        nginx,
        php: &["sendmail_path=@FOLDER@/include/mail.sh"],
        ..Setup::default()
    };
    let mut stage = Stage::start(&setup, |_| {});
    let mut cases = Cases::default();
    let folder = stage.folder.display().to_string();
    stage.write("data/text", "first");
    stage.write("data/shown", "first");
    stage.write("site/file.html", "a file");
    stage.script("kept.php", "<?php echo file_get_contents('@FOLDER@/data/text');");
    write_program(
        &stage.path("include/tool.sh"),
        &format!("#!/bin/sh\ncd {folder}\ncat data/shown | tr a-z A-Z\n"),
    );
    write_program(
        &stage.path("include/mail.sh"),
        &format!("#!/bin/sh\ncat >>{folder}/data/mails\n"),
    );
    stage.script("run.php", "<?php passthru('@FOLDER@/include/tool.sh');");
    stage.script("away.php", "<?php echo exec('@FOLDER@/include/tool.sh'), getmypid();");
    stage.script("changes.php", "<?php exec('echo more >>@FOLDER@/data/more'); echo 'changed';");
    stage.script("mail.php", "<?php var_dump(mail('a@example.org', 'a', 'b'));");
    stage.make_folder("site/cgi");
    write_program(
        &stage.path("site/cgi/page.sh"),
        &format!(
            "#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\n'\nexec cat {folder}/data/shown\n"
        ),
    );
    let perl = "#!/usr/bin/perl\nuse strict; use POSIX;\nopen(my $file, '<', '@FOLDER@/data/shown') or die;\n\
        print \"Content-Type: text/plain\\r\\n\\r\\n\", \"perl \", <$file>;\n";
    write_program(&stage.path("site/cgi/page.pl"), &perl.replace("@FOLDER@", &folder));
    let run = [("/run.php", "SECOND"), ("/cgi/page.sh", "second"), ("/cgi/page.pl", "perl second")];
    for (page, counter) in [("/kept.php", "hits_dynamic"), ("/file.html", "hits")] {
        for other in ["/away.php", "/changes.php", "/mail.php", "/cgi/page.pl"] {
            cases.run(&format!("{page} stays while {other} runs programs"), || {
                stays(&stage, page, counter, || drop(stage.direct(other)));
            });
        }
        cases.run(
            &format!("{page} stays while somebody else runs programs in its network"),
            || {
                let pid = process(&stage, "nginx: master").to_string();
                let enter = || {
                    let script = "/bin/true; /bin/echo $(ls /) >/dev/null";
                    let status = Command::new("nsenter")
                        .args(["-t", &pid, "-n", "sh", "-c", script])
                        .status();
                    assert!(status.unwrap().success());
                };
                stays(&stage, page, counter, enter);
            },
        );
    }
    for (page, new) in run {
        cases.run(&format!("{page}: what its program reads"), || {
            stage.write("data/shown", "first");
            stage.change(page, new, || stage.write("data/shown", "second"));
        });
    }
    cases.run("the program itself", || {
        let old = std::fs::read_to_string(stage.path("include/tool.sh")).unwrap();
        stage.change("/run.php", "another", || {
            write_program(&stage.path("include/tool.sh"), "#!/bin/sh\necho another\n");
        });
        write_program(&stage.path("include/tool.sh"), &old);
    });
    cases.run("a program that is machine code", || {
        let tool = stage.path("include/tool");
        std::fs::copy("/usr/bin/basename", &tool).unwrap();
        stage.script("binary.php", "<?php echo exec('@FOLDER@/include/tool 1/2');");
        // By another file in its place, and through a link on the way.
        stage.change("/binary.php", "1", || {
            std::fs::copy("/usr/bin/dirname", tool.with_extension("new")).unwrap();
            std::fs::rename(tool.with_extension("new"), &tool).unwrap();
        });
    });
    cases.run("a CGI program itself", || {
        stage.change("/cgi/page.sh", "another", || {
            write_program(
                &stage.path("site/cgi/page.sh"),
                "#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\nanother'\n",
            );
        });
    });
    cases.run("what changes something is not kept", || {
        assert_eq!(stage.try_warm("/changes.php", Duration::from_secs(1)), None);
        assert_eq!(stage.try_warm("/mail.php", Duration::from_secs(1)), None);
    });
    cases.run("what says something else each time is not kept", || {
        stage.script("random.php", "<?php passthru('od -An -N8 -tx8 /dev/urandom');");
        assert_eq!(stage.try_warm("/random.php", Duration::from_secs(1)), None);
    });
    cases.end(&mut stage);
}

/// A server that runs CGI programs by itself.
struct Server {
    nicache: Nicache,
    folder: TempDir,
}

impl Server {
    fn start(configuration: &str, words: &[&str]) -> Self {
        private_network();
        let folder =
            tempfile::Builder::new().prefix("nicache-dynamic-").tempdir_in("/var/lib").unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let root = folder.path().display().to_string();
        for name in ["site", "cgi", "run"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        std::fs::write(folder.path().join("site/file.html"), "a file").unwrap();
        std::fs::write(folder.path().join("text"), "first").unwrap();
        let page = format!(
            "#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\n'\nexec cat {root}/text\n"
        );
        write_program(&folder.path().join("cgi/page.sh"), &page);
        write_program(
            &folder.path().join("cgi/away.sh"),
            "#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\n'\necho $$\n",
        );
        let file = folder.path().join("server.conf");
        std::fs::write(&file, configuration.replace("@FOLDER@", &root)).unwrap();
        let words: Vec<String> =
            words.iter().map(|word| word.replace("@FILE@", file.to_str().unwrap())).collect();
        let mut server = Self { nicache: Nicache::start(LONG, &words), folder };
        let is_ready = || {
            Client::new(server.address()).get("/file.html").ok().filter(|reply| reply.status == 200)
        };
        let is_there = within(Duration::from_secs(60), is_ready).is_some();
        assert!(is_there, "{}", server.nicache.log_text());
        server
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from((self.nicache.server(), 80))
    }

    fn get(&self, path: &str) -> String {
        Client::new(self.address()).get(path).unwrap().text()
    }

    fn direct(&self, path: &str) -> String {
        Client::new(self.address()).request("GET", path, &[("X-Direct", "1")], b"").unwrap().text()
    }

    fn counter(&self, name: &str) -> u64 {
        common::status(self.nicache.name())["counters"][name].as_u64().unwrap()
    }

    fn warm(&mut self, path: &str, counter: &str) {
        let is_hit = || {
            let before = self.counter(counter);
            (0..3).for_each(|_| drop(self.get(path)));
            (self.counter(counter) >= before + 3).then_some(())
        };
        let is_kept = within(Duration::from_secs(60), is_hit).is_some();
        assert!(is_kept, "{path} is never kept\n{}", self.nicache.log_text());
    }

    fn check(&mut self) {
        for (page, counter) in [("/file.html", "hits"), ("/cgi/page.sh", "hits_dynamic")] {
            let stays = || {
                self.warm(page, counter);
                let before = self.counter(counter);
                for _ in 0..8 {
                    self.direct("/cgi/away.sh");
                    self.get(page);
                }
                self.counter(counter) - before >= 6
            };
            assert!(eventually(stays), "{page}: less than 6 hits of 8 requests");
        }
        std::fs::write(self.folder.path().join("text"), "second").unwrap();
        assert_eq!(self.get("/cgi/page.sh"), "second");
        self.warm("/cgi/page.sh", "hits_dynamic");
        let program = self.folder.path().join("cgi/page.sh");
        write_program(
            &program,
            "#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\nanother'\n",
        );
        assert_eq!(self.get("/cgi/page.sh"), "another");
    }
}

#[test]
fn of_lighttpd() {
    let configuration = r#"server.document-root = "@FOLDER@/site"
        server.port = 80
        server.username = "www-data"
        server.groupname = "www-data"
        server.modules = ( "mod_alias", "mod_cgi" )
        alias.url = ( "/cgi/" => "@FOLDER@/cgi/" )
        cgi.assign = ( ".sh" => "" )
        mimetype.assign = ( ".html" => "text/html" )
    "#;
    Server::start(configuration, &["lighttpd", "-D", "-f", "@FILE@"]).check();
}

fn apache(model: &str, cgi: &str) -> String {
    let modules = ["authz_core", "alias", "dir", "mime", &format!("mpm_{model}"), cgi];
    let load =
        |name: &&str| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n");
    let modules: String = modules.iter().map(load).collect();
    format!(
        "{modules}
        ServerRoot @FOLDER@
        DefaultRuntimeDir @FOLDER@/run
        PidFile @FOLDER@/run/apache.pid
        ErrorLog @FOLDER@/run/error.log
        {}
        Listen 80
        ServerName programs
        User www-data
        Group www-data
        TypesConfig /etc/mime.types
        DocumentRoot @FOLDER@/site
        ScriptAlias /cgi/ @FOLDER@/cgi/
        <Directory @FOLDER@>
          Require all granted
          AllowOverride None
        </Directory>
        ",
        if cgi == "cgid" { "ScriptSock @FOLDER@/run/cgid.sock" } else { "" }
    )
}

#[test]
fn of_apache_with_processes() {
    Server::start(&apache("prefork", "cgi"), &["apache2", "-f", "@FILE@", "-DFOREGROUND"]).check();
}

#[test]
fn of_apache_with_threads() {
    Server::start(&apache("event", "cgid"), &["apache2", "-f", "@FILE@", "-DFOREGROUND"]).check();
}
