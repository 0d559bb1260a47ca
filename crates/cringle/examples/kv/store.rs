//! The keys and values, what each command does to them, and the log that keeps the changes.

use super::resp::{self, Command, Reply};
use cringle::block::Log;
use cringle::sync::Mutex;
use std::collections::HashMap;
use std::io;
use std::path::Path;

type Map = HashMap<Vec<u8>, Vec<u8>>;

// ANCHOR: store
pub(crate) struct Store {
    /// Locked while a change is enqueued and made, so that the log has the changes in the order in
    /// which they were made.
    map: Mutex<Map>,
    log: Log,
}
// ANCHOR_END: store

impl Store {
    // ANCHOR: open
    /// Reads the log, and makes the changes that it contains.
    pub(crate) fn open(path: &Path) -> io::Result<Store> {
        let mut map = Map::new();
        let log = Log::open(path, |offset, record| match resp::parse(record) {
            Ok(Some((change, _))) => {
                apply(&mut map, &change);
                Ok(())
            }
            _ => {
                let text = format!("{}: the record at {offset} is no change", path.display());
                Err(io::Error::new(io::ErrorKind::InvalidData, text))
            }
        })?;
        Ok(Store { map: Mutex::new(map), log })
    }
    // ANCHOR_END: open

    // ANCHOR: run
    /// Runs a command. If it has made a change, returns the change's offset in the log.
    pub(crate) fn run(&self, command: &Command) -> (Reply, Option<u64>) {
        let mut map = self.map.lock().expect("no holder of the lock panics");
        let Some(change) = change_of(&map, command) else { return (answer(&map, command), None) };
        let change = match change {
            Ok(change) => change,
            Err(reply) => return (reply, None),
        };
        let mut record = Vec::new();
        resp::encode_command(&change, &mut record);
        match self.log.enqueue(&record) {
            Ok(offset) => (apply(&mut map, &change), Some(offset)),
            Err(error) => (Reply::Error(format!("ERR {error}")), None),
        }
    }
    // ANCHOR_END: run

    /// Waits until a change is durable.
    pub(crate) fn wait_durable(&self, offset: u64) -> io::Result<()> {
        self.log.wait_durable(offset)
    }
}

fn name_of(command: &Command) -> Vec<u8> {
    command.first().map(|name| name.to_ascii_uppercase()).unwrap_or_default()
}

/// Returns the change that a command makes, in the log's form: `SET key value` or `DEL key …`.
/// `None` if the command changes nothing.
fn change_of(map: &Map, command: &Command) -> Option<Result<Command, Reply>> {
    let arguments = command.get(1..).unwrap_or_default();
    match (name_of(command).as_slice(), arguments) {
        (b"SET", [key, value]) => Some(Ok(vec![b"SET".into(), key.clone(), value.clone()])),
        (b"DEL", keys) if keys.iter().any(|key| map.contains_key(key)) => {
            Some(Ok([&[b"DEL".to_vec()], keys].concat()))
        }
        (b"INCR", [key]) => {
            let value = map.get(key).map_or(Some(0), |value| integer(value));
            let Some(sum) = value.and_then(|value| value.checked_add(1)) else {
                let text = "ERR value is not an integer or out of range";
                return Some(Err(Reply::Error(text.into())));
            };
            Some(Ok(vec![b"SET".into(), key.clone(), sum.to_string().into(), b"INCR".into()]))
        }
        _ => None,
    }
}

/// Makes a change and returns the reply: for a `SET` of an `INCR`, the number.
fn apply(map: &mut Map, change: &Command) -> Reply {
    match change.as_slice() {
        [name, key, value, rest @ ..] if name == b"SET" => {
            let reply = match rest {
                [] => Reply::ok(),
                _ => integer(value).map_or(Reply::ok(), Reply::Integer),
            };
            map.insert(key.clone(), value.clone());
            reply
        }
        [_, keys @ ..] => {
            Reply::Integer(keys.iter().filter(|key| map.remove(*key).is_some()).count() as i64)
        }
        [] => Reply::ok(),
    }
}

/// Answers a command that changes nothing.
fn answer(map: &Map, command: &Command) -> Reply {
    let arguments = command.get(1..).unwrap_or_default();
    match (name_of(command).as_slice(), arguments) {
        (b"GET", [key]) => Reply::Bulk(map.get(key).cloned()),
        (b"EXISTS", keys @ [_, ..]) => {
            Reply::Integer(keys.iter().filter(|key| map.contains_key(*key)).count() as i64)
        }
        (b"DEL", [_, ..]) => Reply::Integer(0),
        (b"DBSIZE", []) => Reply::Integer(map.len() as i64),
        (b"PING", []) => Reply::Simple("PONG"),
        (b"PING" | b"ECHO", [text]) => Reply::Bulk(Some(text.clone())),
        (b"SELECT", [_]) | (b"QUIT", []) => Reply::ok(),
        // redis-cli and redis-benchmark send these first.
        (b"CONFIG", [_get, name]) => Reply::Array(vec![name.clone(), Vec::new()]),
        (b"COMMAND", _) => Reply::Array(Vec::new()),
        (b"SET" | b"GET" | b"DEL" | b"EXISTS" | b"INCR" | b"DBSIZE" | b"ECHO", _) => {
            let name = String::from_utf8_lossy(&name_of(command)).to_lowercase();
            Reply::Error(format!("ERR wrong number of arguments for '{name}' command"))
        }
        (name, _) => {
            let name = String::from_utf8_lossy(name).to_lowercase();
            Reply::Error(format!("ERR unknown command '{name}'"))
        }
    }
}

fn integer(value: &[u8]) -> Option<i64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}
