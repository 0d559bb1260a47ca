//! `rustls` over the library's sockets, with server and client on fibers.

use cringle::io::{self, Read, Write};
use cringle::net::{TcpListener, TcpStream};
use cringle::{Builder, fiber};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use std::sync::Arc;

const CLIENTS: usize = 20;

/// Returns a server with a new certificate for `localhost`, and a client that trusts only that one.
fn configs() -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let certificate = made.cert.der().clone();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let server = ServerConfig::builder().with_no_client_auth();
    let server = server.with_single_cert(vec![certificate], key).unwrap();
    let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    (Arc::new(server), Arc::new(client))
}

fn echo(config: Arc<ServerConfig>, stream: TcpStream) -> io::Result<()> {
    let connection = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    let mut buf = vec![0; 5000];
    loop {
        match stream.read(&mut buf)? {
            0 => return Ok(()),
            count => stream.write_all(&buf[..count])?,
        }
        stream.flush()?;
    }
}

fn visit(config: Arc<ClientConfig>, stream: TcpStream, n: usize) -> io::Result<()> {
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    for round in 0..20 {
        let bytes: Vec<u8> = (0..round * 400 + n).map(|i| (i * n) as u8).collect();
        stream.write_all(&bytes)?;
        stream.flush()?;
        let mut found = vec![0; bytes.len()];
        stream.read_exact(&mut found)?;
        assert!(found == bytes);
    }
    stream.conn.send_close_notify();
    stream.flush()?;
    // After `close_notify` the server reads a clean end of the stream, not a truncation.
    stream.sock.shutdown(std::net::Shutdown::Write)
}

#[test]
fn encrypted_streams_echo() {
    let (server, client) = configs();
    let run = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        fiber::scope(|s| {
            let server = &server;
            s.spawn(move || {
                fiber::scope(|s| {
                    for stream in listener.incoming().take(CLIENTS) {
                        s.spawn(move || echo(Arc::clone(server), stream.unwrap()).unwrap());
                    }
                });
            });
            for n in 0..CLIENTS {
                let client = &client;
                s.spawn(move || {
                    visit(Arc::clone(client), TcpStream::connect(addr).unwrap(), n).unwrap();
                });
            }
        });
    };
    Builder::new().workers(2).run(run).unwrap();
}

#[test]
fn an_untrusted_certificate_is_refused() {
    let (server, _) = configs();
    let (_, client) = configs();
    let run = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        fiber::scope(|s| {
            let serves = s.spawn(|| echo(server, listener.accept().unwrap().0));
            let refused = visit(client, TcpStream::connect(addr).unwrap(), 1).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{refused}");
            assert!(serves.join().unwrap().is_err());
        });
    };
    Builder::new().workers(2).run(run).unwrap();
}
