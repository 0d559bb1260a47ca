//! The example `fetch`, as its user runs it.

use cringle_ecosystem_interposed::{HttpServer, listener};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output};
use std::sync::{Arc, Barrier};
use std::thread;

/// Runs the example with these URLs; `None`, with a message, if it was not built.
fn fetch(urls: &[String]) -> Option<Output> {
    let tests = std::env::current_exe().unwrap();
    let example = tests.parent().unwrap().with_file_name("examples").join("fetch");
    if !example.exists() {
        eprintln!("skipped: `cargo build --example fetch` has not run");
        return None;
    }
    Some(Command::new(example).args(urls).output().unwrap())
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn fetch_prints_the_size_of_each_body() {
    let server = HttpServer::plain();
    // The server answers with the path and a space.
    let paths = (0..100).map(|n| format!("/{}", "p".repeat(n)));
    let urls: Vec<String> = paths.map(|path| server.url() + &path).collect();
    let Some(output) = fetch(&urls) else { return };
    let expected: String =
        (0..).zip(&urls).map(|(n, url)| format!("{:8} {url}\n", n + 2)).collect();
    assert_eq!((text(&output.stdout), text(&output.stderr)), (&*expected, ""));
    assert!(output.status.success());
}

/// A server that answers when all requests have arrived. Otherwise the program's limit ends them.
#[test]
fn fetch_waits_for_all_urls_at_once() {
    const COUNT: usize = 4;
    let listener = listener();
    let address = listener.local_addr().unwrap();
    let all = Arc::new(Barrier::new(COUNT));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, all) = (stream.unwrap(), Arc::clone(&all));
            thread::spawn(move || {
                let mut lines = BufReader::new(&stream).lines();
                while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
                all.wait();
                let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                (&stream).write_all(answer.as_bytes()).unwrap();
            });
        }
    });
    let urls: Vec<String> = (0..COUNT).map(|n| format!("http://{address}/{n}")).collect();
    let Some(output) = fetch(&urls) else { return };
    assert_eq!(text(&output.stderr), "");
    assert_eq!(text(&output.stdout).lines().count(), COUNT);
}

/// A handshake takes place on the fiber; its end is that the certificate is not trusted.
#[test]
fn fetch_names_the_url_that_fails() {
    let (plain, encrypted) = (HttpServer::plain(), HttpServer::encrypted());
    let urls = [plain.url() + "/a", encrypted.url() + "/b", "http://127.0.0.1:1/c".to_owned()];
    let Some(output) = fetch(&urls) else { return };
    assert_eq!(text(&output.stdout), format!("{:8} {}\n", 3, urls[0]));
    let errors: Vec<&str> = text(&output.stderr).lines().collect();
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors[0].starts_with(&format!("fetch: {}: ", urls[1])), "{errors:?}");
    assert!(errors[0].contains("UnknownIssuer"), "{errors:?}");
    assert!(errors[1].starts_with(&format!("fetch: {}: ", urls[2])), "{errors:?}");
}
