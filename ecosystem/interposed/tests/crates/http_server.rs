//! `tiny_http` as a server whose handlers are fibers, asked by OS threads.

use cringle_ecosystem_interposed::{WAIT, at_most, crowd};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use tiny_http::{Response, Server};

/// Asks once on a connection that the server then closes.
fn ask(address: SocketAddr, n: usize) {
    let mut stream = TcpStream::connect(address).unwrap();
    let body = format!("body {n};").repeat(n % 100);
    let length = body.len();
    let request = format!(
        "POST /{n} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with(&format!("\r\n\r\n/{n} {body}")), "{answer}");
}

#[test]
fn handlers_of_tiny_http_are_fibers() {
    let jobs = at_most(1000);
    let server = Arc::new(Server::http("127.0.0.1:0").unwrap());
    let address = server.server_addr().to_ip().unwrap();
    let small = || thread::Builder::new().stack_size(128 << 10);
    let clients: Vec<_> =
        (0..jobs).map(|n| small().spawn(move || ask(address, n)).unwrap()).collect();
    crowd("tiny_http", jobs, move |_, waits| {
        let mut request = server.recv().unwrap();
        let mut body = String::new();
        request.as_reader().read_to_string(&mut body).unwrap();
        waits.during(|| thread::sleep(WAIT));
        let answer = format!("{} {body}", request.url());
        request.respond(Response::from_string(answer)).unwrap();
    });
    clients.into_iter().for_each(|client| client.join().unwrap());
}
