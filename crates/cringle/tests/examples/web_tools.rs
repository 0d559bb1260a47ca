//! The web server of `examples/`, tested with `curl`, `wrk`, `ab` and `h2load`. A test without its
//! tool prints that; with `CRINGLE_TOOLS=required` it fails.

use crate::program::{Server, with};
use crate::web::ENDLESS;
use cringle_testing::disk;
use std::path::{Path, PathBuf};
use std::process::Command;

const LARGE: usize = 40_000_003;
/// curl sends a body after this time without a response to `Expect: 100-continue`, and ab and wrk
/// give a request up.
const SECONDS: &str = "300";

/// A running server, with the directory that it serves.
struct Running {
    server: Server,
    files: tempfile::TempDir,
}

impl Running {
    fn start() -> Running {
        let files = disk::directory();
        std::fs::write(files.path().join("index.html"), "<p>home").unwrap();
        std::fs::File::create(files.path().join("large")).unwrap().set_len(LARGE as u64).unwrap();
        std::fs::write(files.path().join("body"), disk::pattern(900_001)).unwrap();
        let mut command = with("web", &[&files.path(), &"127.0.0.1:0"]);
        command.args(ENDLESS);
        let server = Server::start(command);
        Running { server, files }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.addr)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }
}

/// Runs a tool and returns its output on both streams; `None` if it is not installed and not
/// required.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    if Command::new(program).arg("--version").output().is_err() {
        let required = std::env::var_os("CRINGLE_TOOLS").is_some_and(|value| value == "required");
        assert!(!required, "`{program}` is not installed");
        eprintln!("skipped: `{program}` is not installed");
        return None;
    }
    let output = Command::new(program).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let printed = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {}: {printed}", output.status);
    Some(printed)
}

/// Returns the number after a label.
fn number(printed: &str, label: &str) -> u64 {
    let after = printed.split_once(label).unwrap_or_else(|| panic!("no `{label}`: {printed}")).1;
    let digits = after.trim_start().split(|c: char| !c.is_ascii_digit()).next().unwrap();
    digits.parse().unwrap_or_else(|error| panic!("`{label}`: {error}: {printed}"))
}

#[test]
fn curl_reuses_a_connection() {
    let server = Running::start();
    let url = server.url("/");
    let arguments = ["-sS", "-w", " %{http_code} %{num_connects}\n", &url, &url, &url];
    let Some(printed) = run("curl", &arguments) else { return };
    assert_eq!(printed, "<p>home 200 1\n<p>home 200 0\n<p>home 200 0\n");
    let head = run("curl", &["-sS", "-I", &server.url("/large")]).unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert_eq!(number(&head, "Content-Length:"), LARGE as u64);
    // HTTP/1.0 has one request per connection, unless both sides request more.
    let old = ["-sS", "-0", "-w", " %{num_connects}\n", &url, &url];
    assert_eq!(run("curl", &old).unwrap(), "<p>home 1\n<p>home 1\n");
}

#[test]
fn curl_downloads_large_files_concurrently() {
    let server = Running::start();
    std::fs::write(server.path("large"), disk::pattern(LARGE)).unwrap();
    let url = server.url("/large");
    let copies: Vec<PathBuf> = (0..4).map(|n| server.path(&format!("copy{n}"))).collect();
    let mut arguments = vec!["-sS", "--parallel", "--parallel-immediate"];
    for copy in &copies {
        arguments.extend(["-o", copy.to_str().unwrap(), &url]);
    }
    if run("curl", &arguments).is_none() {
        return;
    }
    let original = std::fs::read(server.path("large")).unwrap();
    let same = |copy: &PathBuf| std::fs::read(copy).unwrap() == original;
    assert!(copies.iter().all(same));
}

fn at(path: &Path) -> String {
    format!("@{}", path.display())
}

#[test]
fn curl_uploads_chunked_and_with_continue() {
    let server = Running::start();
    let (url, body) = (server.url("/length"), at(&server.path("body")));
    let chunked = ["-sS", "-H", "Transfer-Encoding: chunked", "--data-binary", &body, &url, &url];
    let Some(printed) = run("curl", &chunked) else { return };
    assert_eq!(printed, "900001900001");
    let waits = ["-sS", "--expect100-timeout", SECONDS, "-H", "Expect: 100-continue"];
    let continued = ["-v", "--data-binary", &body, &url];
    let printed = run("curl", &[&waits[..], &continued].concat()).unwrap();
    assert!(printed.contains("< HTTP/1.1 100 Continue") && printed.contains("900001"), "{printed}");
    // A body that is too long is refused before it is sent.
    let (large, count) = (at(&server.path("large")), "%{http_code} %{size_upload}");
    let refused = ["-o", "/dev/null", "-w", count, "--data-binary", &large, &url];
    let printed = run("curl", &[&waits[..], &refused].concat()).unwrap();
    assert_eq!(printed, "413 0");
}

#[test]
fn ab_succeeds_with_and_without_keep_alive() {
    let server = Running::start();
    let url = server.url("/");
    for (keep, kept) in [(&["-k"][..], 2000), (&[], 0)] {
        let arguments = [&["-q", "-n", "2000", "-c", "20", "-s", SECONDS], keep, &[&url]].concat();
        let Some(printed) = run("ab", &arguments) else { return };
        assert_eq!(number(&printed, "Complete requests:"), 2000);
        assert_eq!(number(&printed, "Failed requests:"), 0, "{printed}");
        assert!(!printed.contains("Non-2xx"), "{printed}");
        assert!(kept == 0 || number(&printed, "Keep-Alive requests:") == kept, "{printed}");
    }
}

#[test]
fn wrk_succeeds_with_and_without_pipelining() {
    let server = Running::start();
    let script = server.path("pipeline.lua");
    // Each connection rests between its requests, so that a second of them is little work.
    let rests = "delay = function() return 20 end ";
    let eight = "init = function() local r = {} for i = 1, 8 do r[i] = wrk.format('GET', '/') end \
                 all = table.concat(r) end request = function() return all end";
    let url = server.url("/");
    for requests in ["", eight] {
        std::fs::write(&script, [rests, requests].concat()).unwrap();
        let arguments = ["-t1", "-c20", "-d1s", "--timeout", SECONDS, "-s"];
        let arguments = [&arguments[..], &[script.to_str().unwrap(), &url]].concat();
        // A busy machine may answer none within the time.
        let mut count = 0;
        while count == 0 {
            let Some(printed) = run("wrk", &arguments) else { return };
            let failed = ["Socket errors", "Non-2xx"].iter().any(|text| printed.contains(text));
            assert!(!failed, "{printed}");
            let line = printed.lines().find(|line| line.contains(" requests in ")).unwrap();
            count = line.trim().split(' ').next().unwrap().parse().unwrap();
        }
    }
}

#[test]
fn h2load_pipelining_is_answered_in_order() {
    let server = Running::start();
    for path in ["/", "/body"] {
        let arguments = ["--h1", "-n", "400", "-c", "10", "-m", "8", &server.url(path)];
        let Some(printed) = run("h2load", &arguments) else { return };
        let line = printed.lines().find(|line| line.starts_with("requests:")).unwrap();
        assert!(line.contains("400 succeeded, 0 failed, 0 errored"), "{printed}");
        assert!(printed.contains("status codes: 400 2xx"), "{printed}");
    }
}
