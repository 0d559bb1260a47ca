//! The page of `cringle bench http` by other people's runtimes, each on one thread and at its best
//! settings: `servers RUNTIME ADDRESS [keep-alive|close] [BYTES]`, until it is ended.

mod compio;
mod monoio;
// The same page, and the same eyes for a request, as the servers that it is compared with.
#[path = "../../../crates/cringle-bench/src/http/served_page.rs"]
mod page;

use page::{READ_BYTES, RequestCounter, ServedPage};
use std::net::TcpListener;

const USAGE: &str = "usage: servers monoio|compio ADDRESS [keep-alive|close] [BYTES]";

/// Reads, counts the requests in what came, writes as many answers: for streams whose reads and
/// writes take the buffer and give it back.
macro_rules! converse {
    ($stream:ident, $page:expr) => {{
        let page: &'static $crate::ServedPage = $page;
        let mut heads = $crate::RequestCounter::default();
        let mut buffer = Vec::with_capacity($crate::READ_BYTES);
        loop {
            buffer.clear();
            let (read, back): (std::io::Result<usize>, Vec<u8>) = $stream.read(buffer).await.into();
            buffer = back;
            // The end of a connection, however it comes, is that of its task.
            let Ok(1..) = read else { return };
            for _ in 0..heads.count(&buffer) {
                let (written, _) = $stream.write_all(&page.response[..]).await.into();
                let written: std::io::Result<_> = written;
                if written.is_err() || page.close {
                    return;
                }
            }
        }
    }};
}
use converse;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (runtime, addr, connection, bytes) = match &words[..] {
        [runtime, addr] => (runtime, addr, "keep-alive", "151"),
        [runtime, addr, connection] => (runtime, addr, connection.as_str(), "151"),
        [runtime, addr, connection, bytes] => (runtime, addr, connection.as_str(), bytes.as_str()),
        _ => wrong("two words at least, four at most"),
    };
    let close = match connection {
        "keep-alive" => false,
        "close" => true,
        other => wrong(other),
    };
    let bytes = bytes.parse().unwrap_or_else(|error| wrong(&format!("{bytes}: {error}")));
    let page = Box::leak(Box::new(ServedPage::new(bytes, close)));
    let listen =
        || TcpListener::bind(addr).unwrap_or_else(|error| failed(&format!("{addr}: {error}")));
    let ended = match runtime.as_str() {
        "monoio" => monoio::run(listen(), page),
        "compio" => compio::run(listen(), page),
        other => wrong(other),
    };
    ended.unwrap_or_else(|error| failed(&format!("{runtime}: {error}")));
}

fn wrong(what: &str) -> ! {
    eprintln!("servers: {what}\n{USAGE}");
    std::process::exit(2);
}

fn failed(what: &str) -> ! {
    eprintln!("servers: {what}");
    std::process::exit(1);
}
