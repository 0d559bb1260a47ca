//! Pools of connections under overload: fibers with deadlines wait for connections that others
//! hold. Each pool would let them wait for an hour.

use cringle::cancel::{self, Reason};
use cringle::runtime::Threads;
use cringle::{fiber, time};
use cringle_ecosystem_interposed::{Database, Server, in_runtime, on_fibers};
use redis::{Client, Connection};
use std::error::Error;
use std::io;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);
const LIMIT: Duration = Duration::from_millis(100);
const POOLED: u32 = 2;
const CALLERS: usize = 20;

fn with_client(name: &'static str, threads: Threads, f: impl FnOnce(Client) + Send + 'static) {
    if !on_fibers() {
        return;
    }
    let Some(server) = Server::start(Database::Redis, 100) else { return };
    let client = Client::open(format!("redis://127.0.0.1:{}/", server.port())).unwrap();
    in_runtime(name, threads, move || f(client));
}

/// The connections that the server has accepted since it started.
fn accepted(connection: &mut Connection) -> u64 {
    let info: String = redis::cmd("INFO").arg("stats").query(connection).unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
    line.unwrap().parse().unwrap()
}

/// The processor time of the calling fiber's only worker.
fn worker_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is borrowed for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The reason for which a call failed within the deadline, as a handler finds it.
fn late<E: Error + 'static>(call: impl FnOnce() -> Result<(), E>) -> Option<Reason> {
    let mut reason = None;
    let result = time::timeout(LIMIT, || {
        call().map_err(|error| {
            reason = cancel::reason_of(&error);
            io::Error::other(error.to_string())
        })
    });
    assert!(result.is_err(), "there is no connection to have");
    reason
}

/// Runs callers with deadlines, and one that is cancelled, beside a fiber that holds all
/// connections of a pool.
fn overload<E: Error + 'static>(
    name: &str,
    connection: &mut Connection,
    get: impl Fn() -> Result<(), E> + Send + Sync,
) {
    let (before, begun, ran) = (accepted(connection), Instant::now(), worker_time());
    fiber::scope(|s| {
        let callers: Vec<_> = (0..CALLERS).map(|_| s.spawn(|| late(&get))).collect();
        for caller in callers {
            let reason = caller.join().unwrap();
            assert!(matches!(reason, Some(Reason::Elapsed(_))), "{reason:?}");
        }
    });
    let (took, ran) = (begun.elapsed(), worker_time() - ran);
    fiber::scope(|s| {
        let caller = s.spawn(|| get().map_err(|error| cancel::reason_of(&error)));
        fiber::sleep(Duration::from_millis(5));
        s.cancel();
        assert_eq!(caller.join().unwrap(), Err(Some(Reason::Cancelled)));
    });
    let new = accepted(connection) - before;
    println!("{name}: {CALLERS} callers: {took:?}, {ran:?} of processor time, {new} connections");
    assert!(new <= 2 * u64::from(POOLED), "{new} new connections");
    assert!(ran < Duration::from_secs(2), "{ran:?} of processor time");
}

fn r2d2_pool(client: Client) -> r2d2::Pool<Client> {
    r2d2::Pool::builder().max_size(POOLED).connection_timeout(HOUR).build(client).unwrap()
}

#[test]
fn deadlines_in_a_full_r2d2_pool_start_no_storm() {
    for threads in [Threads::System, Threads::Fibers] {
        with_client("deadlines in r2d2", threads, |client| {
            let pool = r2d2_pool(client);
            let [mut one, other] = [(); 2].map(|()| pool.get().unwrap());
            overload("r2d2", &mut one, || pool.get().map(drop));
            drop((one, other));
            redis::cmd("PING").exec(&mut pool.get().unwrap()).unwrap();
        });
    }
}

/// The late fiber's clock is the one by which the pool's jobs are due.
#[test]
fn late_fiber_delays_no_job_of_r2d2() {
    for threads in [Threads::System, Threads::Fibers] {
        with_client("jobs of r2d2", threads, |client| {
            let pool = r2d2_pool(client);
            let before = accepted(&mut pool.get().unwrap());
            let (_sender, receiver) = mpsc::channel::<()>();
            let reason = late(|| {
                receiver.recv_timeout(HOUR).unwrap_err();
                // Each connection in it fails its check, and a job makes another one.
                pool.get().map(drop)
            });
            assert!(matches!(reason, Some(Reason::Elapsed(_))), "{reason:?}");
            let mut one = pool.get().unwrap();
            // The late fiber takes each new connection that a job has made before it looks.
            assert!(accepted(&mut one) - before <= 25 * u64::from(POOLED));
        });
    }
}

/// A pool as programs write it themselves.
#[test]
fn deadlines_in_a_full_pool_of_std_start_no_storm() {
    with_client("deadlines in a pool of std", Threads::System, |client| {
        let pool: Arc<(Mutex<Vec<Connection>>, Condvar)> = Arc::default();
        let get = || -> Result<Connection, io::Error> {
            let (idle, returned) = &*pool;
            let wait =
                returned.wait_timeout_while(idle.lock().unwrap(), HOUR, |idle| idle.is_empty());
            wait.unwrap().0.pop().ok_or_else(|| io::ErrorKind::TimedOut.into())
        };
        let mut connection = client.get_connection().unwrap();
        overload("a pool of std", &mut connection, || get().map(drop));
        pool.0.lock().unwrap().push(connection);
        pool.1.notify_one();
        redis::cmd("PING").exec(&mut get().unwrap()).unwrap();
    });
}

#[cfg(feature = "tiny_http")]
mod gateway {
    use super::*;
    use redis::RedisError;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::thread;
    use tiny_http::{Response, Server};

    const CLIENTS: usize = 50;
    const REQUESTS: usize = 5;

    #[derive(Debug)]
    struct Status(u16);

    impl From<io::Error> for Status {
        fn from(error: io::Error) -> Status {
            Status::of(&error)
        }
    }

    impl Status {
        fn of(error: &(dyn Error + 'static)) -> Status {
            match cancel::reason_of(error) {
                Some(Reason::Elapsed(_)) => Status(504),
                _ => Status(502),
            }
        }
    }

    /// A query that takes half of the handler's time, once it has a connection.
    fn handle(pool: &r2d2::Pool<Client>) -> Result<(), Status> {
        time::try_timeout(LIMIT, || {
            let mut connection = pool.get().map_err(|error| Status::of(&error))?;
            let query = redis::cmd("BLPOP").arg("nothing").arg("0.05").to_owned();
            let answer: Result<(), RedisError> = query.exec(&mut *connection);
            answer.map_err(|error| Status::of(&error))
        })
    }

    /// The statuses of several requests on one connection.
    fn ask(address: SocketAddr) -> Vec<u16> {
        let mut stream = TcpStream::connect(address).unwrap();
        let next = |_| {
            stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            let mut answer = Vec::new();
            while !answer.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                assert_eq!(stream.read(&mut byte).unwrap(), 1, "the server has closed");
                answer.push(byte[0]);
            }
            String::from_utf8(answer).unwrap()["HTTP/1.1 ".len()..][..3].parse().unwrap()
        };
        (0..REQUESTS).map(next).collect()
    }

    #[test]
    fn overloaded_handlers_answer_every_client() {
        for threads in [Threads::System, Threads::Fibers] {
            with_client("a gateway", threads, |client| {
                let pool = r2d2_pool(client);
                let server = Server::http("127.0.0.1:0").unwrap();
                let address = server.server_addr().to_ip().unwrap();
                let clients = (0..CLIENTS).map(|_| thread::spawn(move || ask(address)));
                let clients: Vec<_> = clients.collect();
                for _ in 0..CLIENTS * REQUESTS {
                    let (request, pool) = (server.recv().unwrap(), pool.clone());
                    fiber::spawn(move || {
                        let status = handle(&pool).map_or_else(|Status(code)| code, |()| 200);
                        request.respond(Response::empty(status)).unwrap();
                    });
                }
                let clients = clients.into_iter().flat_map(|client| client.join().unwrap());
                let statuses: Vec<u16> = clients.collect();
                let count = |wanted| statuses.iter().filter(|&&status| status == wanted).count();
                println!("a gateway: {} answers in time, {} late", count(200), count(504));
                assert_eq!(count(200) + count(504), CLIENTS * REQUESTS, "{statuses:?}");
            });
        }
    }
}
