//! The page of `cringle bench http`, served by other runtimes, each on one thread and at its best
//! settings. It runs until it is killed: `servers RUNTIME ADDRESS [keep-alive|close] [BYTES]`.

mod compio;
mod monoio;
// The same page, and the same parser of requests, as in the servers that it is compared with.
#[path = "../../../crates/cringle-bench/src/http/served_page.rs"]
mod page;

use page::{READ_BYTES, RequestCounter, ServedPage};
use std::net::TcpListener;

const USAGE: &str = "usage: servers monoio|compio ADDRESS [keep-alive|close] [BYTES]";

/// Serves one connection: reads, counts the requests, and writes a response for each. For streams
/// that own the buffer during a read or write.
macro_rules! serve {
    ($stream:ident, $page:expr) => {{
        let page: &'static $crate::ServedPage = $page;
        let mut requests = $crate::RequestCounter::default();
        let mut buffer = Vec::with_capacity($crate::READ_BYTES);
        loop {
            buffer.clear();
            let (read, returned): (std::io::Result<usize>, Vec<u8>) =
                $stream.read(buffer).await.into();
            buffer = returned;
            // An error ends the connection as its end does.
            let Ok(1..) = read else { return };
            for _ in 0..requests.count(&buffer) {
                let (written, _) = $stream.write_all(&page.response[..]).await.into();
                let written: std::io::Result<_> = written;
                if written.is_err() || page.close {
                    return;
                }
            }
        }
    }};
}
use serve;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (runtime, addr, connection, bytes) = match &args[..] {
        [runtime, addr] => (runtime, addr, "keep-alive", "151"),
        [runtime, addr, connection] => (runtime, addr, connection.as_str(), "151"),
        [runtime, addr, connection, bytes] => (runtime, addr, connection.as_str(), bytes.as_str()),
        _ => exit_with_usage("expected two to four arguments"),
    };
    let close = match connection {
        "keep-alive" => false,
        "close" => true,
        other => exit_with_usage(other),
    };
    let bytes = bytes.parse().unwrap_or_else(|error| exit_with_usage(&format!("{bytes}: {error}")));
    let page = Box::leak(Box::new(ServedPage::new(bytes, close)));
    let listen = || {
        TcpListener::bind(addr).unwrap_or_else(|error| exit_with_error(&format!("{addr}: {error}")))
    };
    let result = match runtime.as_str() {
        "monoio" => monoio::run(listen(), page),
        "compio" => compio::run(listen(), page),
        other => exit_with_usage(other),
    };
    result.unwrap_or_else(|error| exit_with_error(&format!("{runtime}: {error}")));
}

fn exit_with_usage(error: &str) -> ! {
    eprintln!("servers: {error}\n{USAGE}");
    std::process::exit(2);
}

fn exit_with_error(error: &str) -> ! {
    eprintln!("servers: {error}");
    std::process::exit(1);
}
