//! `redis`, and `r2d2` with its connections.

use cringle_ecosystem_interposed::{Database, Server, Waits, at_most, crowd};
use redis::{Client, Connection};

fn client(server: &Server) -> Client {
    Client::open(format!("redis://127.0.0.1:{}/", server.port())).unwrap()
}

/// Writes, reads back, waits for a list that stays empty, and counts.
fn converse(connection: &mut Connection, n: usize, waits: &Waits) {
    let value = format!("value {n} ").repeat(n % 50 + 1);
    let key = format!("key:{n}");
    redis::cmd("SET").arg(&key).arg(&value).exec(connection).unwrap();
    let found: String = redis::cmd("GET").arg(&key).query(connection).unwrap();
    assert_eq!(found, value);
    let popped: Option<(String, String)> = waits.during(|| {
        redis::cmd("BLPOP").arg(format!("list:{n}")).arg("0.2").query(connection).unwrap()
    });
    assert_eq!(popped, None);
    let counts: (i64, i64) = redis::pipe()
        .cmd("INCRBY")
        .arg(format!("count:{n}"))
        .arg(n)
        .cmd("INCR")
        .arg(format!("count:{n}"))
        .query(connection)
        .unwrap();
    assert_eq!(counts, (n as i64, n as i64 + 1));
}

#[test]
fn redis_connections_wait_only_their_fiber() {
    let jobs = at_most(9000);
    let Some(server) = Server::start(Database::Redis, jobs) else { return };
    let client = client(&server);
    crowd("redis", jobs, move |n, waits| {
        converse(&mut client.get_connection().unwrap(), n, waits);
    });
}

/// The connections of a pool.
#[cfg(feature = "r2d2")]
const POOLED: u32 = 25;

#[cfg(feature = "r2d2")]
#[test]
fn r2d2_lends_connections_to_fibers() {
    let jobs = at_most(9000);
    let Some(server) = Server::start(Database::Redis, POOLED as usize) else { return };
    let manager = client(&server);
    let pool = r2d2::Pool::builder().max_size(POOLED);
    let pool = pool.connection_timeout(std::time::Duration::from_secs(120)).build(manager).unwrap();
    crowd("r2d2", jobs, move |n, waits| converse(&mut pool.get().unwrap(), n, waits));
}
