//! `tungstenite`, written for `std::io`, over the library's sockets, on many fibers at once.

use cringle::net::{TcpListener, TcpStream};
use cringle::{Builder, fiber};
use tungstenite::Message;

const CLIENTS: usize = 40;

/// Serves the connections of all clients, each on a fiber, as each client is.
fn with_clients(
    serve: impl Fn(TcpStream) + Sync,
    visit: impl Fn(usize, std::net::SocketAddr) -> std::io::Result<()> + Sync,
) {
    let served = Builder::new().workers(2).run(|| {
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
    served.unwrap();
}

#[test]
fn web_sockets_echo() {
    let serve = |stream| {
        let mut socket = tungstenite::accept(stream).unwrap();
        loop {
            match socket.read() {
                Ok(message) if message.is_text() || message.is_binary() => {
                    socket.send(message).unwrap();
                }
                Ok(_) => {}
                Err(tungstenite::Error::ConnectionClosed) => break,
                Err(e) => panic!("{e}"),
            }
        }
    };
    with_clients(serve, |n, addr| {
        let url = format!("ws://{addr}/");
        let (mut socket, _) = tungstenite::client(url, TcpStream::connect(addr)?).unwrap();
        for round in 0..20 {
            // Up to more than the capacity of a socket's buffers.
            let bytes = vec![n as u8; round * round * 1000];
            socket.send(Message::binary(bytes.clone())).unwrap();
            assert!(socket.read().unwrap().into_data() == bytes);
            socket.send(Message::text(format!("{n} {round}"))).unwrap();
            assert_eq!(
                socket.read().unwrap().into_text().unwrap(),
                format!("{n} {round}").as_str()
            );
        }
        socket.close(None).unwrap();
        while socket.read().is_ok() {}
        Ok(())
    });
}
