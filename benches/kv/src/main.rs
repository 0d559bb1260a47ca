//! The key-value server of `crates/cringle/examples/kv` on tokio, with the same protocol, records
//! and shared commits.
//!
//!     target/release/kv LOG ADDRESS WORKERS
//!
//! `spawn_blocking` writes and syncs the file, as it does for tokio's own files.

#[allow(dead_code)]
#[path = "../../../crates/cringle/examples/kv/resp.rs"]
mod resp;

use resp::Reply;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

#[derive(Default)]
struct Log {
    map: HashMap<Vec<u8>, Vec<u8>>,
    pending: Vec<u8>,
    appended: u64,
    is_committing: bool,
}

struct Store {
    state: Mutex<Log>,
    file: Arc<File>,
    /// The length of the durable part of the log.
    durable: watch::Sender<u64>,
}

impl Store {
    fn run(&self, command: &[Vec<u8>]) -> (Reply, Option<u64>) {
        let name = command[0].to_ascii_uppercase();
        let mut state = self.state.lock().unwrap();
        match (name.as_slice(), &command[1..]) {
            (b"GET", [key]) => (Reply::Bulk(state.map.get(key).cloned()), None),
            (b"SET", [key, value]) => {
                let mut record = Vec::new();
                resp::encode_command(command, &mut record);
                state.pending.extend_from_slice(&(record.len() as u32).to_le_bytes());
                state.pending.extend_from_slice(&crc32fast::hash(&record).to_le_bytes());
                state.pending.extend_from_slice(&record);
                state.appended += 8 + record.len() as u64;
                state.map.insert(key.clone(), value.clone());
                (Reply::ok(), Some(state.appended))
            }
            (b"PING", []) => (Reply::Simple("PONG"), None),
            (b"CONFIG", [_get, name]) => (Reply::Array(vec![name.clone(), Vec::new()]), None),
            (b"COMMAND", _) => (Reply::Array(Vec::new()), None),
            _ => (Reply::Error("ERR unknown command".into()), None),
        }
    }

    async fn wait_durable(&self, position: u64) -> io::Result<()> {
        let mut durable = self.durable.subscribe();
        loop {
            if *durable.borrow_and_update() >= position {
                return Ok(());
            }
            let group = {
                let mut state = self.state.lock().unwrap();
                if state.is_committing {
                    None
                } else {
                    state.is_committing = true;
                    Some((std::mem::take(&mut state.pending), state.appended))
                }
            };
            let Some((group, end)) = group else {
                durable.changed().await.map_err(io::Error::other)?;
                continue;
            };
            let (file, start) = (Arc::clone(&self.file), end - group.len() as u64);
            let written = tokio::task::spawn_blocking(move || {
                file.write_all_at(&group, start)?;
                file.sync_data()
            });
            written.await.map_err(io::Error::other)??;
            self.state.lock().unwrap().is_committing = false;
            self.durable.send_replace(end);
        }
    }
}

async fn serve(mut stream: TcpStream, store: Arc<Store>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut input, mut replies) = (Vec::new(), Vec::new());
    let mut buffer = vec![0; 16 << 10];
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        input.extend_from_slice(&buffer[..count]);
        let (mut used, mut last) = (0, None);
        while let Some((command, length)) = resp::parse(&input[used..]).map_err(io::Error::other)? {
            used += length;
            if !command.is_empty() {
                let (reply, position) = store.run(&command);
                reply.encode(&mut replies);
                last = last.max(position);
            }
        }
        input.drain(..used);
        if let Some(position) = last {
            store.wait_durable(position).await?;
        }
        stream.write_all(&replies).await?;
        replies.clear();
    }
}

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [log, addr, workers] = args.as_slice() else {
        return Err(io::Error::other("usage: kv LOG ADDRESS WORKERS"));
    };
    let file = Arc::new(File::create(log)?);
    let store = Store { state: Mutex::default(), file, durable: watch::Sender::new(0) };
    let store = Arc::new(store);
    let workers = workers.parse().map_err(io::Error::other)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(addr).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(serve(stream, Arc::clone(&store)));
        }
    })
}
