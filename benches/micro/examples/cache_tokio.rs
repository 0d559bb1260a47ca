//! The example `cache` of the library with tokio, to compare the lines: see `benches/lines`.

#[allow(dead_code, reason = "`kv` also encodes commands")]
#[path = "../../../crates/cringle/examples/kv/resp.rs"]
mod resp;

use resp::{Command, Reply};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::{select, signal, task::JoinSet, time};

type Map = HashMap<Vec<u8>, Vec<u8>>;

async fn run(addr: &str, started: impl FnOnce(&TcpListener)) -> io::Result<()> {
    let (listener, map) = (TcpListener::bind(addr).await?, Arc::new(Mutex::new(Map::new())));
    let ((stop, stopped), mut connections) = (watch::channel(()), JoinSet::new());
    started(&listener);
    loop {
        select! {
            accepted = listener.accept() => {
                connections.spawn(serve(accepted?.0, Arc::clone(&map), stopped.clone()));
            }
            Some(_) = connections.join_next() => {}
            signal = signal::ctrl_c() => break signal?,
        }
    }
    drop((listener, stop));
    let ends = async { while connections.join_next().await.is_some() {} };
    let _ = time::timeout(Duration::from_secs(10), ends).await;
    Ok(())
}

async fn serve(
    mut stream: TcpStream,
    map: Arc<Mutex<Map>>,
    mut stopped: watch::Receiver<()>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut input, mut replies) = (Vec::new(), Vec::new());
    let mut buffer = vec![0; 16 << 10];
    loop {
        let count = select! {
            read = stream.read(&mut buffer) => read?,
            _ = stopped.changed() => 0,
        };
        if count == 0 {
            return Ok(());
        }
        input.extend_from_slice(&buffer[..count]);
        let mut used = 0;
        while let Some((command, length)) = resp::parse(&input[used..]).map_err(io::Error::other)? {
            used += length;
            answer(&command, &mut map.lock().unwrap()).encode(&mut replies);
        }
        input.drain(..used);
        stream.write_all(&replies).await?;
        replies.clear();
    }
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

#[tokio::main]
async fn main() -> io::Result<()> {
    let addr = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:6380".into());
    run(&addr, |listener| eprintln!("cache: {listener:?}")).await
}
