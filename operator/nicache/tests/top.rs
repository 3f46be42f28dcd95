//! `nicache top` beside a real `nicache run`: for programs, and in a pseudo-terminal.
#![allow(unsafe_code)]

mod common;

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use common::{NICACHE, Nicache, SOON, Site, command, curl, private_network, within};
use serde_json::Value;

#[test]
fn programs_read_a_line_for_each_interval() {
    private_network();
    let site = Site::with("", "root @ROOT@/site;");
    let nicache = Nicache::start(&["--name", "lines"], &site.command());
    let url = format!("http://{}/page.html", nicache.server());
    let mut top = Command::new(NICACHE);
    top.args(["top", "--name", "lines", "--json", "--interval", "600ms"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut top = top.spawn().unwrap();
    let (sender, lines) = mpsc::channel();
    let out = std::io::BufReader::new(top.stdout.take().unwrap());
    std::thread::spawn(move || {
        use std::io::BufRead;
        out.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
    });
    let found = within(SOON, || {
        (0..20).for_each(|_| drop(curl(&url)));
        let line: Value = serde_json::from_str(&lines.recv_timeout(SOON).unwrap()).unwrap();
        (line["change"]["hits_per_s"].as_f64() > Some(1.0)).then_some(line)
    });
    let line = found.expect("hits");
    assert_eq!(line["sample"]["name"], "lines");
    assert_eq!(line["sample"]["hottest"][0]["target"], "/page.html");
    let once = command(&["top", "--once", "--interval", "500ms", "--name", "lines"]);
    let text = String::from_utf8(once.stdout).unwrap();
    assert!(
        once.status.success() && text.contains("state      caching") && text.contains("/page.html"),
        "{text}"
    );
    // It ends with the nicache, and says so.
    drop(nicache);
    let status = within(SOON, || top.try_wait().unwrap()).expect("an end");
    let mut said = String::new();
    top.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(!status.success() && said.contains("nicache"), "{said}");
    let none = command(&["top", "--once", "--name", "lines"]);
    assert!(!none.status.success());
    let no_terminal = command(&["top"]);
    assert!(String::from_utf8_lossy(&no_terminal.stderr).contains("--once or --json"));
}

/// `nicache top` in a pseudo-terminal that `script` (util-linux) makes.
struct Terminal {
    process: Child,
    keys: ChildStdin,
    written: mpsc::Receiver<Vec<u8>>,
    text: String,
}

impl Terminal {
    /// Runs shell commands there.
    fn start(commands: &str) -> Self {
        let mut command = Command::new("script");
        command
            .args(["-q", "-e", "-f", "-c", commands, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = command.env("TERM", "xterm").spawn().expect("script is installed");
        let (sender, written) = mpsc::channel();
        let mut out = process.stdout.take().unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while let Ok(length @ 1..) = out.read(&mut buffer) {
                if sender.send(buffer[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        let keys = process.stdin.take().unwrap();
        Self { process, keys, written, text: String::new() }
    }

    /// Everything that has been written so far, with its escape sequences.
    fn read(&mut self) -> &str {
        while let Ok(bytes) = self.written.recv_timeout(Duration::from_millis(100)) {
            self.text.push_str(&String::from_utf8_lossy(&bytes));
        }
        &self.text
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    fn await_text(&mut self, text: &str) {
        assert!(
            within(SOON, || self.read().contains(text).then_some(())).is_some(),
            "no {text:?} in {:?}",
            self.read()
        );
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Its terminal goes with it, and what runs there hears so.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_terminal_is_drawn_on_and_left_as_it_was() {
    private_network();
    let site = Site::with("", "root @ROOT@/site;");
    let nicache = Nicache::start(&["--name", "drawn"], &site.command());
    let url = format!("http://{}/page.html", nicache.server());
    (0..5).for_each(|_| drop(curl(&url)));
    // While it runs, the window shrinks to nothing and grows again.
    let sizes = "sleep 3; for size in '20 5' '1 1' '200 60' '80 24'; do set -- $size; stty cols $1 rows $2 <$tty; sleep 0.3; done";
    // It takes signals when it draws, which the test sees.
    let go = site.folder.path().join("go").display().to_string();
    let commands = format!(
        "stty cols 80 rows 24; tty=$(tty); before=$(stty -g); ({sizes}; echo >$tty resized) & \
         {NICACHE} top --name drawn --interval 200ms; echo status=$?; wait; [ \"$(stty -g)\" = \"$before\" ] && echo as-it-was; \
         {NICACHE} top --name drawn --interval 200ms <$tty & until [ -e {go} ]; do sleep 0.1; done; kill $!; wait $!; echo second=$?; \
         [ \"$(stty -g)\" = \"$before\" ] && echo again-as-it-was; exit 0"
    );
    let mut terminal = Terminal::start(&commands);
    terminal.await_text("Hottest objects");
    terminal.await_text("caching");
    assert!(terminal.read().contains("\u{1b}[?1049h"), "no screen of its own");
    terminal.press("?");
    terminal.await_text("Keys");
    // The first q closes the help.
    terminal.press("q");
    terminal.press("p");
    terminal.await_text("PAUSED");
    terminal.await_text("resized");
    terminal.press("q");
    terminal.await_text("status=0");
    terminal.await_text("\u{1b}[?1049l");
    terminal.await_text("as-it-was");
    // A signal leaves it as it was, too.
    let draws_again = within(Duration::from_secs(60), || {
        (terminal.read().matches("\u{1b}[?1049h").count() > 1).then_some(())
    });
    std::fs::write(&go, "").unwrap();
    assert!(draws_again.is_some(), "{:?}", terminal.read());
    terminal.await_text("second=0");
    terminal.await_text("again-as-it-was");
    assert_eq!(
        terminal.read().matches("\u{1b}[?1049h").count(),
        terminal.read().matches("\u{1b}[?1049l").count()
    );
}
