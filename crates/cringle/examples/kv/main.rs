//! A key-value server that speaks Redis's protocol, with a log that makes each change durable.
//!
//!     cargo run --release --example kv -- [LOG] [ADDRESS]
//!     redis-cli -p 6380 set rope strands
//!
//! serves at ADDRESS (default: 127.0.0.1:6380) until Ctrl-C or SIGTERM, and keeps its changes in
//! LOG (default: `kv.log`). A change is answered once it is durable. Changes that arrive while the
//! log is synced share the next sync.
//!
//! | file | contains |
//! |---|---|
//! | `resp.rs` | commands and replies as bytes |
//! | `store.rs` | keys and values, and their log |
//! | `main.rs` | connections |

mod resp;
mod store;

use cringle::fiber;
use cringle::net::{Served, Server, Stopper, TcpStream};
use cringle::signal::{Signal, Signals};
use resp::Reply;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use store::Store;

const READ_BYTES: usize = 16 << 10;

// ANCHOR: run
/// Serves until a signal arrives. `started` receives the address before the server runs.
fn run(log: &Path, addr: &str, started: impl FnOnce(SocketAddr)) -> io::Result<Served> {
    cringle::run(|| {
        let store = Store::open(log)?;
        let server = Server::bind(addr)?;
        let stopper = server.stopper();
        let signals = Signals::new(&[Signal::Interrupt, Signal::Terminate])?;
        let at_signal = stopper.clone();
        let _ = fiber::spawn(move || signals.wait().map(|_| at_signal.stop()));
        started(server.local_addr()?);
        server.run(|stream, _peer| serve(stream, &store, &stopper))
    })
}
// ANCHOR_END: run

// ANCHOR: serve
/// Answers the commands of one connection. Commands that have arrived together are answered
/// together, when all of their changes are durable.
fn serve(mut stream: TcpStream, store: &Store, stopper: &Stopper) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut input, mut replies) = (Vec::new(), Vec::new());
    let mut buffer = vec![0; READ_BYTES];
    loop {
        // `None` if the server is stopped while no command has arrived.
        let read = stopper.until_stopped(|| stream.read(&mut buffer))?;
        let count = read.unwrap_or(0);
        if count == 0 {
            return Ok(());
        }
        input.extend_from_slice(&buffer[..count]);
        let stays_open = answer_all(&mut input, store, &mut replies)?;
        stream.write_all(&replies)?;
        replies.clear();
        if !stays_open {
            return Ok(());
        }
    }
}
// ANCHOR_END: serve

// ANCHOR: answer
/// Runs all complete commands in `input`, and waits until their changes are durable. Returns false
/// if the connection is to be closed.
fn answer_all(input: &mut Vec<u8>, store: &Store, replies: &mut Vec<u8>) -> io::Result<bool> {
    let (mut used, mut last, mut stays_open) = (0, None, true);
    while stays_open {
        match resp::parse(&input[used..]) {
            Ok(None) => break,
            Ok(Some((command, length))) => {
                used += length;
                stays_open =
                    !command.first().is_some_and(|name| name.eq_ignore_ascii_case(b"QUIT"));
                if !command.is_empty() {
                    let (reply, offset) = store.run(&command);
                    reply.encode(replies);
                    last = last.max(offset);
                }
            }
            Err(problem) => {
                Reply::Error(format!("ERR {problem}")).encode(replies);
                stays_open = false;
            }
        }
    }
    input.drain(..used);
    // Offsets grow: when the last change is durable, all are.
    if let Some(offset) = last {
        store.wait_durable(offset)?;
    }
    Ok(stays_open)
}
// ANCHOR_END: answer

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let log = args.next().unwrap_or_else(|| "kv.log".into());
    let addr = args.next().unwrap_or_else(|| "127.0.0.1:6380".into());
    let served = run(Path::new(&log), &addr, |addr| eprintln!("kv: {addr}, log {log}"))?;
    eprintln!("kv: {} connections, {} failed", served.connections, served.failed);
    Ok(())
}
