//! `mysql`: connections, and its pool.

use cringle_ecosystem_interposed::{Database, Server, Waits, at_most, crowd};
use mysql::prelude::Queryable;
use mysql::{Conn, Opts, OptsBuilder, Pool, PoolConstraints, PoolOpts};

fn options(server: &Server) -> OptsBuilder {
    let address = OptsBuilder::new().ip_or_hostname(Some("127.0.0.1")).tcp_port(server.port());
    address.user(Some("root")).prefer_socket(false)
}

/// Computes by text and by a prepared statement, and waits.
fn converse(connection: &mut Conn, n: usize, waits: &Waits) {
    let sum: Option<usize> = connection.query_first(format!("SELECT {n} + 1")).unwrap();
    assert_eq!(sum, Some(n + 1));
    let slept: Option<u8> = waits.during(|| connection.query_first("SELECT SLEEP(0.2)").unwrap());
    assert_eq!(slept, Some(0));
    let text = "cringle ".repeat(n % 300);
    let found: Option<(String, usize)> =
        connection.exec_first("SELECT ?, LENGTH(?)", (&text, &text)).unwrap();
    assert_eq!(found, Some((text.clone(), text.len())));
}

#[test]
fn mysql_connections_wait_only_their_fiber() {
    let jobs = at_most(500);
    let Some(server) = Server::start(Database::Mariadb, jobs) else { return };
    let options = Opts::from(options(&server));
    crowd("mysql Conn", jobs, move |n, waits| {
        converse(&mut Conn::new(options.clone()).unwrap(), n, waits);
    });
}

const POOLED: usize = 25;

#[test]
fn the_pool_of_mysql_lends_connections() {
    let jobs = at_most(1000);
    let Some(server) = Server::start(Database::Mariadb, POOLED) else { return };
    let constraints = PoolConstraints::new(1, POOLED).unwrap();
    let pooled = PoolOpts::default().with_constraints(constraints);
    let pool = Pool::new(options(&server).pool_opts(pooled)).unwrap();
    crowd("mysql Pool", jobs, move |n, waits| {
        converse(pool.get_conn().unwrap().as_mut(), n, waits);
    });
}
