//! A headless Chromium of our own, steered over the DevTools protocol
//! (<https://chromedevtools.github.io/devtools-protocol/>).

use std::io::{BufRead, BufReader, ErrorKind};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Message, WebSocket, connect};

/// A browser with one page. It ends, and its profile is removed, with the value.
pub(crate) struct Browser {
    child: Child,
    socket: WebSocket<MaybeTlsStream<TcpStream>>,
    session: Option<String>,
    sent: u64,
    /// What the page reported since the last [`Browser::open`]: method and parameters.
    pub events: Vec<(String, Value)>,
    /// Where the page comes from.
    origin: String,
    profile: TempDir,
}

/// An answer that takes longer is a failure: the browser hangs.
const PATIENCE: Duration = Duration::from_secs(60);

impl Browser {
    pub(crate) fn start() -> Self {
        let profile = tempfile::tempdir().expect("a folder for the browser's profile");
        let child = Command::new("chromium")
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
            ])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ])
            .args([
                "--hide-scrollbars",
                "--remote-debugging-port=0",
                "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.unwrap_or_else(|error| {
            panic!(
                "chromium cannot be started ({error}); `tools/setup test` installs what tests need"
            )
        });
        let mut lines = BufReader::new(child.stderr.take().expect("stderr is a pipe")).lines();
        let address = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("DevTools listening on ").map(str::to_owned));
        // Whatever it says later is read, so it never waits for room in the pipe.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        let address = address.unwrap_or_else(|| {
            let _ = child.kill();
            panic!("chromium ended before it told its DevTools address: {:?}", child.wait())
        });
        let (socket, _) = connect(address.as_str()).expect("a connection to the browser");
        if let MaybeTlsStream::Plain(stream) = socket.get_ref() {
            stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        }
        let mut browser = Self {
            child,
            socket,
            session: None,
            sent: 0,
            events: Vec::new(),
            origin: String::new(),
            profile,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Sends a command and waits for its result.
    pub(crate) fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.sent += 1;
        let id = self.sent;
        let mut command = json!({ "id": id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        self.socket.send(Message::text(command.to_string())).expect("the browser listens");
        loop {
            let message = self.receive();
            if message["id"] == json!(id) {
                assert!(message.get("error").is_none(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
        }
    }

    fn receive(&mut self) -> Value {
        loop {
            let message = match self.socket.read() {
                Err(tungstenite::Error::Io(error)) if error.kind() == ErrorKind::Interrupted => {
                    continue;
                }
                message => message.expect("the browser answers"),
            };
            let Message::Text(text) = message else { continue };
            let value: Value = serde_json::from_str(&text).expect("JSON");
            if let Some(method) = value["method"].as_str() {
                self.events.push((method.to_owned(), value["params"].clone()));
            }
            return value;
        }
    }

    /// A window of a size and a theme ("light" or "dark").
    pub(crate) fn look(&mut self, width: u32, height: u32, theme: &str) {
        let metrics = json!(
            { "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        let features = json!([{ "name": "prefers-color-scheme", "value": theme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Opens a file and waits until it is loaded.
    pub(crate) fn open(&mut self, file: &Path) {
        self.visit(&format!("file://{}", file.display()));
    }

    /// Opens a page and waits until it is loaded.
    pub(crate) fn visit(&mut self, url: &str) {
        self.events.clear();
        url.clone_into(&mut self.origin);
        self.call("Page.navigate", json!({ "url": url }));
        while !self.events.iter().any(|(method, _)| method == "Page.loadEventFired") {
            self.receive();
        }
    }

    /// The value of an expression in the page.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let result = self
            .call("Runtime.evaluate", json!({ "expression": expression, "returnByValue": true }));
        assert!(
            result.get("exceptionDetails").is_none(),
            "{expression}: {}",
            result["exceptionDetails"]
        );
        result["result"]["value"].clone()
    }

    pub(crate) fn text(&mut self, expression: &str) -> String {
        self.value(expression)
            .as_str()
            .unwrap_or_else(|| panic!("{expression} is no text"))
            .to_owned()
    }

    /// Presses and releases a key as a person does.
    pub(crate) fn press(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            self.call("Input.dispatchKeyEvent", json!({ "type": kind, "key": key, "code": key }));
        }
    }

    /// Moves the mouse to the middle of an element, and clicks there if asked.
    pub(crate) fn point(&mut self, selector: &str, click: bool) {
        let expression = format!(
            "(() => {{ const it = document.querySelector({selector:?}); it.scrollIntoView({{block: 'center', behavior: 'instant'}}); \
             const box = it.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; }})()"
        );
        let at = self.value(&expression);
        let mut event = json!({ "type": "mouseMoved", "x": at[0], "y": at[1] });
        self.call("Input.dispatchMouseEvent", event.clone());
        if click {
            event["button"] = json!("left");
            event["clickCount"] = json!(1);
            for kind in ["mousePressed", "mouseReleased"] {
                event["type"] = json!(kind);
                self.call("Input.dispatchMouseEvent", event.clone());
            }
        }
    }

    /// What a page must not do: errors, warnings, dialogs, exceptions, and requests but for itself;
    /// a page of a server may ask that server.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        // A round trip, so what was under way has arrived.
        self.value("1");
        let bad = |(method, parameters): &(String, Value)| match method.as_str() {
            "Runtime.exceptionThrown"
            | "Runtime.consoleAPICalled"
            | "Log.entryAdded"
            | "Page.javascriptDialogOpening"
            | "Network.webSocketCreated" => Some(format!("{method}: {parameters}")),
            "Network.requestWillBeSent" => {
                let url = parameters["request"]["url"].as_str().unwrap_or_default();
                let is_document = parameters["type"] == "Document" && url.starts_with("file://");
                let own = is_document
                    || self.origin.starts_with("http:") && url.starts_with(&self.origin);
                (!own && !url.starts_with("data:")).then(|| format!("request: {url}"))
            }
            _ => None,
        };
        self.events.iter().filter_map(bad).collect()
    }

    /// A picture of the window or of the whole page, as PNG in base64.
    pub(crate) fn picture(&mut self, whole: bool) -> String {
        let picture =
            self.call("Page.captureScreenshot", json!({ "captureBeyondViewport": whole }));
        picture["data"].as_str().expect("a picture").to_owned()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let close = json!({ "id": self.sent + 1, "method": "Browser.close" });
        let _ = self.socket.send(Message::text(close.to_string()));
        // It ends its own processes then; one that does not within seconds is ended.
        let patience = Instant::now() + Duration::from_secs(10);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The last of its processes may still write to the profile while that is removed.
        while std::fs::remove_dir_all(self.profile.path())
            .is_err_and(|error| error.kind() != ErrorKind::NotFound)
            && Instant::now() < patience
        {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
