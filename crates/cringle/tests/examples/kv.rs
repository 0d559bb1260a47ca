//! The key-value server of `examples/`: its protocol, its changes after a loss of power, and real
//! clients.

// A test runs the store in the simulator, so it is compiled into this program. The connections are
// tested in the built example.
#[allow(dead_code, reason = "the example encodes replies")]
#[path = "../../examples/kv/resp.rs"]
mod resp;
#[path = "../../examples/kv/store.rs"]
mod store;

use crate::program::{self, Server, with};
use cringle::block::Log;
use cringle_testing::disk;
use resp::Reply;
use std::path::Path;
use std::process::{Command, Output};
use store::Store;

fn start(log: &Path) -> Server {
    Server::start(with("kv", &[&log, &"127.0.0.1:0"]))
}

#[test]
fn commands_are_answered_as_by_redis() {
    let directory = disk::directory();
    let server = start(&directory.path().join("log"));
    let cases = [
        ("PING\r\n", "+PONG\r\n"),
        ("*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n", "$2\r\nhi\r\n"),
        ("SET a 1\r\nGET a\r\nGET b\r\n", "+OK\r\n$1\r\n1\r\n$-1\r\n"),
        ("INCR a\r\nINCR n\r\nEXISTS a n b\r\n", ":2\r\n:1\r\n:2\r\n"),
        ("SET a x\r\nINCR a\r\n", "+OK\r\n-ERR value is not an integer or out of range\r\n"),
        ("DEL a b\r\nDEL a\r\nDBSIZE\r\n", ":1\r\n:0\r\n:1\r\n"),
        ("GET\r\n", "-ERR wrong number of arguments for 'get' command\r\n"),
        ("fly away\r\n", "-ERR unknown command 'fly'\r\n"),
        ("QUIT\r\nPING\r\n", "+OK\r\n"),
        ("*1\r\n+PING\r\n", "-ERR Protocol error: expected '$'\r\n"),
        ("*-1\r\nPING\r\n", "-ERR Protocol error: invalid length\r\n"),
        ("*1\r\n$9999999\r\n", "-ERR Protocol error: invalid length\r\n"),
        ("*1\r\n$4\r\nPI", ""),
    ];
    for (sent, answered) in cases {
        assert_eq!(server.exchange(sent.as_bytes()), answered, "{sent:?}");
    }
    assert!(server.stop().ends_with(" 0 failed"));
}

#[test]
fn changes_survive_a_restart() {
    let directory = disk::directory();
    let log = directory.path().join("log");
    let server = start(&log);
    let text: String = (0..1000).map(|n| format!("SET key{n} {n}\r\n")).collect();
    assert_eq!(server.exchange(text.as_bytes()), "+OK\r\n".repeat(1000));
    server.exchange(b"DEL key7\r\n");
    server.stop();
    let server = start(&log);
    assert_eq!(
        server.exchange(b"DBSIZE\r\nGET key7\r\nGET key999\r\n"),
        ":999\r\n$-1\r\n$3\r\n999\r\n"
    );
    server.stop();
}

// ANCHOR: power
/// In the simulator: fibers make changes, and the power is lost at a moment that the seed draws.
/// Then every acknowledged change is in the log.
#[cfg(feature = "sim")]
#[test]
fn no_acknowledged_change_is_lost_with_the_power() {
    use cringle::sim::{self, Options, World};
    use std::cell::RefCell;

    let words = |text: &str| text.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    let mut lost_power = 0;
    sim::each(0..200, |seed| {
        let acknowledged = RefCell::new(Vec::new());
        let mut world = World::new(seed, &Options::new());
        let ended = world.run_until_power_loss(|| {
            let Ok(store) = Store::open(Path::new("log")) else { return };
            cringle::fiber::scope(|s| {
                for fiber in 0..8 {
                    let (store, acknowledged, words) = (&store, &acknowledged, &words);
                    s.spawn_local(move || {
                        for n in 0..8 {
                            let (_, offset) = store.run(&words(&format!("SET {fiber}-{n} v")));
                            if offset.is_some_and(|one| store.wait_durable(one).is_ok()) {
                                acknowledged.borrow_mut().push(format!("{fiber}-{n}"));
                            }
                        }
                    });
                }
            });
        })?;
        lost_power += u32::from(ended.is_none());
        world.crash();
        world.run(|| {
            let store = Store::open(Path::new("log")).unwrap();
            for key in acknowledged.borrow().iter() {
                let (reply, _) = store.run(&words(&format!("GET {key}")));
                assert_eq!(reply, Reply::Bulk(Some(b"v".to_vec())), "{key} was acknowledged");
            }
        })?;
        Ok(())
    });
    assert!(lost_power > 20, "the power was lost in {lost_power} of 200 runs");
}
// ANCHOR_END: power

#[test]
fn log_of_another_program_is_refused() {
    let directory = disk::directory();
    let path = directory.path().join("log");
    Log::open(&path, |_, _| Ok(())).unwrap().append(b"*1\r\n$9\r\nnot").unwrap();
    let before = std::fs::read(&path).unwrap();
    let error = program::error("kv", &[&path, &"127.0.0.1:0"]);
    assert!(error.contains("InvalidData"), "{error}");
    assert!(error.contains("log: the record at 24 is no change"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn command_is_parsed_from_any_fragments() {
    let mut bytes = Vec::new();
    let command = vec![b"SET".to_vec(), b"k\r\ney".to_vec(), Vec::new()];
    resp::encode_command(&command, &mut bytes);
    for cut in 0..bytes.len() {
        assert_eq!(resp::parse(&bytes[..cut]), Ok(None), "cut at {cut}");
    }
    assert_eq!(resp::parse(&bytes), Ok(Some((command, bytes.len()))));
}

/// Runs a client of Redis; `None` if it is not installed and need not be.
fn client(program: &str, server: &Server, arguments: &[&str]) -> Option<Output> {
    let port = server.addr.port().to_string();
    let output =
        Command::new(program).args(["-h", "127.0.0.1", "-p", &port]).args(arguments).output();
    match output {
        Ok(output) => Some(output),
        Err(_) if std::env::var_os("CRINGLE_TOOLS").is_none() => {
            eprintln!("skipped: {program} is not installed");
            None
        }
        Err(error) => panic!("{program}: {error}"),
    }
}

#[test]
fn redis_cli_and_redis_benchmark_are_served() {
    let directory = disk::directory();
    let server = start(&directory.path().join("log"));
    if let Some(output) = client("redis-cli", &server, &["SET", "rope", "three strands"]) {
        assert_eq!(String::from_utf8_lossy(&output.stdout), "OK\n");
        let output = client("redis-cli", &server, &["GET", "rope"]).unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "three strands\n");
    }
    let load = ["-t", "set,get,incr", "-n", "2000", "-c", "20", "-P", "4", "-r", "100", "--csv"];
    if let Some(output) = client("redis-benchmark", &server, &load) {
        let text = String::from_utf8_lossy(&output.stdout);
        for name in ["\"SET\"", "\"GET\"", "\"INCR\""] {
            assert!(text.contains(name), "{text}{}", String::from_utf8_lossy(&output.stderr));
        }
    }
    assert!(server.stop().ends_with(" 0 failed"));
}
