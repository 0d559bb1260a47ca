//! Protocol crates written for `std::io`, over the library's sockets, on many fibers at once.

use cringle::fiber;
use cringle::io::{self, Read, Write};
use cringle::net::{TcpListener, TcpStream};
use cringle_testing::tools::on_two_workers;
use std::io::ErrorKind;
use std::net::SocketAddr;

const CLIENTS: usize = 40;

/// A server for a number of connections, and the clients, each on a fiber.
fn with_clients(
    serve: impl Fn(TcpStream) + Sync,
    visit: impl Fn(usize, SocketAddr) -> io::Result<()> + Sync,
) {
    on_two_workers(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        fiber::scope(|s| {
            let (serve, visit) = (&serve, &visit);
            s.spawn(move || {
                fiber::scope(|s| {
                    for stream in listener.incoming().take(CLIENTS) {
                        let stream = stream.unwrap();
                        s.spawn(move || serve(stream));
                    }
                });
            });
            let clients: Vec<_> = (0..CLIENTS).map(|n| s.spawn(move || visit(n, addr))).collect();
            clients.into_iter().for_each(|client| client.join().unwrap().unwrap());
        });
    });
}

/// Finds the end of the head of a request or response.
fn read_head(stream: &mut TcpStream, buf: &mut Vec<u8>) -> io::Result<bool> {
    let mut part = [0; 16];
    while !buf.ends_with(b"\r\n\r\n") {
        match stream.read(&mut part[..1])? {
            0 if buf.is_empty() => return Ok(false),
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => buf.extend(&part[..count]),
        }
    }
    Ok(true)
}

#[test]
fn requests_are_parsed_as_they_arrive() {
    let serve = |mut stream: TcpStream| {
        let mut buf = Vec::new();
        while read_head(&mut stream, &mut buf).unwrap() {
            let mut headers = [httparse::EMPTY_HEADER; 8];
            let mut request = httparse::Request::new(&mut headers);
            assert!(request.parse(&buf).unwrap().is_complete());
            let path = request.path.unwrap().to_owned();
            let len = path.len();
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n{path}").unwrap();
            buf.clear();
        }
    };
    with_clients(serve, |n, addr| {
        let mut stream = TcpStream::connect(addr)?;
        for request in 0..20 {
            let path = format!("/{n}/{request}");
            // In two pieces, which the server may receive separately.
            stream.write_all(b"GET ")?;
            fiber::yield_now();
            write!(stream, "{path} HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
            let mut head = Vec::new();
            assert!(read_head(&mut stream, &mut head)?);
            let mut headers = [httparse::EMPTY_HEADER; 8];
            let mut answer = httparse::Response::new(&mut headers);
            assert!(answer.parse(&head).unwrap().is_complete());
            assert_eq!(answer.code, Some(200));
            let mut body = vec![0; path.len()];
            stream.read_exact(&mut body)?;
            assert_eq!(body, path.as_bytes());
        }
        Ok(())
    });
}
