//! Headless Chromium, controlled by its DevTools protocol over two pipes: messages of JSON, each
//! terminated by a NUL.

use base64::Engine;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const NAMES: [&str; 4] =
    ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];

/// The protocol uses descriptors 3 and 4. A browser that hangs is killed, which fails the test.
const SCRIPT: &str = r#"exec timeout 600 "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null"#;

pub(crate) struct Browser {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    calls: u64,
    session: Option<String>,
    events: Vec<Value>,
    _profile: tempfile::TempDir,
}

/// The events while a page was loaded.
pub(crate) struct Told {
    /// Addresses other than the page's own.
    pub(crate) fetched: Vec<String>,
    pub(crate) complaints: Vec<String>,
}

impl Browser {
    /// Returns `None` if no browser is installed and none is required.
    pub(crate) fn start() -> Option<Browser> {
        let there = |name: &&str| Command::new(name).arg("--version").output().is_ok();
        let Some(name) = NAMES.into_iter().find(there) else {
            let required = std::env::var_os("CRINGLE_BROWSER").is_some_and(|v| v == "required");
            assert!(!required, "none of {NAMES:?} is installed");
            eprintln!("skipped: none of {NAMES:?} is installed");
            return None;
        };
        let profile = tempfile::tempdir().unwrap();
        let mut child = Command::new("sh")
            .args(["-c", SCRIPT, name, "--headless", "--no-sandbox", "--disable-gpu"])
            .args(["--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (to, from) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut browser = Browser {
            child,
            to,
            from,
            calls: 0,
            session: None,
            events: Vec::new(),
            _profile: profile,
        };
        browser.attach();
        Some(browser)
    }

    fn attach(&mut self) {
        let target = self.call("Target.createTarget", json!({ "url": "about:blank" }));
        let target = json!({ "targetId": target["targetId"], "flatten": true });
        let session = self.call("Target.attachToTarget", target);
        self.session = session["sessionId"].as_str().map(String::from);
        for domain in ["Page", "Network", "Log", "Runtime"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
    }

    /// Loads the page on a screen of this width.
    pub(crate) fn show(&mut self, page: &Path, width: u32, dark: bool) -> Told {
        let metrics = json!({
            "width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 600,
        });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
        self.events.clear();
        let url = format!("file://{}", page.display());
        let loading = self.call("Page.navigate", json!({ "url": url }));
        assert!(loading["errorText"].is_null(), "{loading}");
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.receive();
            self.events.push(event);
        }
        self.told(&url)
    }

    fn told(&self, url: &str) -> Told {
        let of = |method: &'static str| self.events.iter().filter(move |e| e["method"] == method);
        let fetched = of("Network.requestWillBeSent")
            .filter_map(|event| event["params"]["request"]["url"].as_str())
            .filter(|fetched| *fetched != url)
            .map(String::from);
        let complaints = of("Log.entryAdded").chain(of("Runtime.exceptionThrown"));
        Told {
            fetched: fetched.collect(),
            complaints: complaints.map(|event| event["params"].to_string()).collect(),
        }
    }

    /// Runs a script in the page, and returns its value.
    pub(crate) fn evaluate(&mut self, script: &str) -> Value {
        let script = json!({ "expression": script, "returnByValue": true });
        let mut answer = self.call("Runtime.evaluate", script);
        assert!(answer["exceptionDetails"].is_null(), "{answer}");
        answer["result"]["value"].take()
    }

    /// Returns a picture of the whole page, as PNG.
    pub(crate) fn picture(&mut self) -> Vec<u8> {
        let size = self.call("Page.getLayoutMetrics", json!({}))["cssContentSize"].take();
        let clip = json!({
            "x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1,
        });
        let wanted = json!({
            "format": "png", "captureBeyondViewport": true, "clip": clip, "optimizeForSpeed": true,
        });
        let answer = self.call("Page.captureScreenshot", wanted);
        let text = answer["data"].as_str().unwrap();
        base64::engine::general_purpose::STANDARD.decode(text).unwrap()
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.as_mut().unwrap().write_all(&bytes).unwrap();
        loop {
            let mut message = self.receive();
            if message["id"] == self.calls {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].take();
            }
            self.events.push(message);
        }
    }

    fn receive(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.from.read_until(0, &mut bytes).unwrap();
        assert_eq!(bytes.pop(), Some(0), "the browser has ended");
        serde_json::from_slice(&bytes).unwrap()
    }

    /// Waits for the browser to end, which is part of the test.
    pub(crate) fn close(mut self) {
        self.to = None;
        self.child.wait().unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends when its pipe is closed.
        self.to = None;
        let _ = self.child.wait();
    }
}
