//! Crates that start threads of their own, which are fibers here.

use cringle_ecosystem_interposed::{on_fibers, with_threads_as_fibers};

#[cfg(feature = "rayon")]
#[test]
fn threads_of_a_rayon_pool_are_fibers() {
    use rayon::prelude::*;

    with_threads_as_fibers("rayon", || {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().unwrap();
        let on_fiber = pool.broadcast(|_| cringle::runtime::worker().is_some());
        assert_eq!(on_fiber, [on_fibers(); 4]);
        let (sum, mut halves) = pool.install(|| {
            let sum = (0..100_000_u64).into_par_iter().filter(|n| n % 3 == 0).sum::<u64>();
            (sum, rayon::join(|| 1, || 2))
        });
        assert_eq!((sum, halves), (1_666_683_333, (1, 2)));
        pool.scope(|s| {
            s.spawn(|s| {
                s.spawn(|_| halves.0 = 10);
                std::thread::sleep(std::time::Duration::from_millis(5));
            });
        });
        assert_eq!(halves, (10, 2));
        let panicked = pool.install(|| {
            std::panic::catch_unwind(|| (0..100).into_par_iter().for_each(|n| assert!(n != 50)))
        });
        assert!(panicked.is_err());
    });
}

#[cfg(feature = "tiny_http")]
mod tiny_http {
    use cringle_ecosystem_interposed::{at_most, listener, with_threads_as_fibers};
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::thread;
    use tiny_http::{Request, Response, Server};

    const REQUESTS: usize = 3;

    /// Asks several times on one connection.
    fn ask(address: SocketAddr, n: usize) {
        let mut stream = TcpStream::connect(address).unwrap();
        for i in 0..REQUESTS {
            let close = if i + 1 == REQUESTS { "Connection: close\r\n" } else { "" };
            write!(stream, "GET /{n}/{i} HTTP/1.1\r\nHost: x\r\n{close}\r\n").unwrap();
            let expected = format!("\r\n\r\nyou asked for /{n}/{i}.");
            let mut answer = String::new();
            while !answer.ends_with(&expected) {
                let mut buf = [0; 4096];
                let count = stream.read(&mut buf).unwrap();
                assert!(count > 0, "the server has closed the connection after {answer}");
                answer.push_str(std::str::from_utf8(&buf[..count]).unwrap());
            }
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        }
    }

    fn answer(request: Request) {
        let text = format!("you asked for {}.", request.url());
        request.respond(Response::from_string(text)).unwrap();
    }

    /// tiny_http's threads at least: one that accepts, and four that serve connections.
    const THREADS: usize = 5;

    /// The connections are kept. (They need not be served all at once: tiny_http may let one wait
    /// for the thread of another, on threads of the system, too.)
    #[test]
    fn connections_of_tiny_http_are_fibers() {
        let jobs = at_most(1000);
        with_threads_as_fibers("tiny_http", move || {
            let server = Server::from_listener(listener(), None).unwrap();
            let address = server.server_addr().to_ip().unwrap();
            let clients: Vec<_> =
                (0..jobs).map(|n| thread::spawn(move || ask(address, n))).collect();
            server.incoming_requests().take(jobs * REQUESTS).for_each(answer);
            clients.into_iter().for_each(|client| client.join().unwrap());
            if let Some(stats) = cringle::runtime::stats() {
                let started: u64 = stats.workers.iter().map(|worker| worker.started).sum();
                let most: u64 = stats.workers.iter().map(|worker| worker.most_stacks).sum();
                println!("tiny_http: {started} fibers, at most {most} at once");
                assert!(started >= (jobs + THREADS + 1) as u64);
            }
        });
    }
}
