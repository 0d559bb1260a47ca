//! `postgres`, which has tokio inside, and `diesel` on libpq.

use cringle_ecosystem_interposed::{Database, Server, at_most, crowd};

#[cfg(feature = "postgres")]
#[test]
fn postgres_connections_wait_only_their_fiber() {
    use postgres::{Client, NoTls};

    let jobs = at_most(300);
    let Some(server) = Server::start(Database::Postgres, jobs) else { return };
    let url = format!("host=127.0.0.1 port={} user=postgres", server.port());
    crowd("postgres", jobs, move |n, waits| {
        let mut client = Client::connect(&url, NoTls).unwrap();
        let n = n as i64;
        let row = client.query_one("SELECT $1::bigint + 1", &[&n]).unwrap();
        assert_eq!(row.get::<_, i64>(0), n + 1);
        waits.during(|| client.batch_execute("SELECT pg_sleep(0.2)").unwrap());
        let rows = client.query("SELECT generate_series(1, $1::bigint)", &[&n]).unwrap();
        assert_eq!(rows.iter().map(|row| row.get::<_, i64>(0)).sum::<i64>(), n * (n + 1) / 2);
        client.close().unwrap();
    });
}

#[cfg(feature = "diesel")]
#[test]
fn diesel_on_libpq_waits_only_its_fiber() {
    use diesel::connection::SimpleConnection;
    use diesel::sql_types::{BigInt, Text};
    use diesel::{Connection, PgConnection, QueryableByName, RunQueryDsl};

    #[derive(QueryableByName)]
    struct Found {
        #[diesel(sql_type = BigInt)]
        sum: i64,
        #[diesel(sql_type = Text)]
        text: String,
    }

    let jobs = at_most(300);
    let Some(server) = Server::start(Database::Postgres, jobs) else { return };
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port());
    crowd("diesel", jobs, move |n, waits| {
        let mut connection = PgConnection::establish(&url).unwrap();
        waits.during(|| connection.batch_execute("SELECT pg_sleep(0.2)").unwrap());
        let (text, n) = ("libpq ".repeat(n % 300), n as i64);
        let query = diesel::sql_query("SELECT $1 + 1 AS sum, $2 AS text");
        let query = query.bind::<BigInt, _>(n).bind::<Text, _>(&text);
        let found: Found = query.get_result(&mut connection).unwrap();
        assert_eq!((found.sum, found.text), (n + 1, text));
    });
}
