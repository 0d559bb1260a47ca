//! A cache that speaks Redis's protocol: PING, SET, GET, DEL, INCR, also in pipelines.
//!
//!     cargo run --release --example cache -- [ADDRESS]
//!     redis-benchmark -p 6380 -t set,get,incr -P 16
//!
//! serves at ADDRESS (default: 127.0.0.1:6380) until Ctrl-C. Then connections end as soon as they
//! are idle, or after ten seconds. (The example `kv` also keeps its data through a crash.)

#[allow(dead_code, reason = "`kv` also encodes commands")]
#[path = "kv/resp.rs"]
mod resp;

use cringle::net::{Server, Stopper, TcpStream};
use cringle::signal::{Signal, Signals};
use cringle::{fiber, sync::Mutex};
use resp::{Command, Reply};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::SocketAddr;

type Map = HashMap<Vec<u8>, Vec<u8>>;

/// Serves until a signal arrives. `started` receives the address before the server runs.
fn run(addr: &str, started: impl FnOnce(SocketAddr)) -> io::Result<()> {
    cringle::run(|| {
        let (server, map) = (Server::bind(addr)?, Mutex::new(Map::new()));
        let (signals, stopper) = (Signals::new(&[Signal::Interrupt])?, server.stopper());
        started(server.local_addr()?);
        fiber::scope(|s| {
            s.spawn_daemon(|| {
                if signals.wait().is_ok() {
                    stopper.stop();
                }
            });
            server.run(|stream, _peer| serve(stream, &map, &stopper)).map(drop)
        })
    })
}

/// Answers the commands of a connection. Those that have arrived together are answered together.
fn serve(mut stream: TcpStream, map: &Mutex<Map>, stopper: &Stopper) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut input, mut replies) = (Vec::new(), Vec::new());
    let mut buffer = vec![0; 16 << 10];
    while let Some(count @ 1..) = stopper.until_stopped(|| stream.read(&mut buffer))? {
        input.extend_from_slice(&buffer[..count]);
        let mut used = 0;
        while let Some((command, length)) = resp::parse(&input[used..]).map_err(io::Error::other)? {
            used += length;
            answer(&command, &mut map.lock().unwrap()).encode(&mut replies);
        }
        input.drain(..used);
        stream.write_all(&replies)?;
        replies.clear();
    }
    Ok(())
}

fn answer(command: &Command, map: &mut Map) -> Reply {
    let name = command.first().map(|name| name.to_ascii_uppercase()).unwrap_or_default();
    match (name.as_slice(), command.get(1..).unwrap_or_default()) {
        (b"GET", [key]) => Reply::Bulk(map.get(key).cloned()),
        (b"SET", [key, value]) => {
            map.insert(key.clone(), value.clone());
            Reply::ok()
        }
        (b"DEL", keys) => {
            Reply::Integer(keys.iter().filter_map(|key| map.remove(key)).count() as i64)
        }
        (b"INCR", [key]) => {
            let old =
                map.get(key).map_or(Some(0), |value| str::from_utf8(value).ok()?.parse().ok());
            let Some(new) = old.and_then(|old: i64| old.checked_add(1)) else {
                return Reply::Error("ERR value is not an integer or out of range".into());
            };
            map.insert(key.clone(), new.to_string().into());
            Reply::Integer(new)
        }
        (b"PING", []) => Reply::Simple("PONG"),
        _ => Reply::Error("ERR unknown command or wrong number of arguments".into()),
    }
}

fn main() -> io::Result<()> {
    let addr = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:6380".into());
    run(&addr, |addr| eprintln!("cache: {addr}"))
}
