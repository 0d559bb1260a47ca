//! An HTTP/1.1 server on OS threads, plain or with TLS, that lets its clients wait.

use crate::WAIT;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};

/// A server on loopback. It answers `POST /…` and `GET /…` after [`WAIT`] with the path and the
/// request's body.
pub struct HttpServer {
    address: SocketAddr,
    certificate: Option<String>,
    stopped: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

/// A thread's stack is enough for TLS in a debug build.
const STACK_BYTES: usize = 512 << 10;

impl HttpServer {
    /// Starts a server without TLS.
    pub fn plain() -> HttpServer {
        HttpServer::start(None)
    }

    /// Starts a server with a new certificate for `localhost`.
    pub fn encrypted() -> HttpServer {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder().with_no_client_auth();
        let config = config.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        HttpServer::start(Some((Arc::new(config), made.cert.pem())))
    }

    fn start(tls: Option<(Arc<ServerConfig>, String)>) -> HttpServer {
        let listener = crate::server::listener();
        let address = listener.local_addr().unwrap();
        let stopped = Arc::new(AtomicBool::new(false));
        let (config, certificate) = tls.unzip();
        let acceptor = {
            let stopped = Arc::clone(&stopped);
            thread::spawn(move || accept(&listener, config.as_ref(), &stopped))
        };
        HttpServer { address, certificate, stopped, acceptor: Some(acceptor) }
    }

    /// The server's address as a URL: with TLS by name, as certificates want it.
    pub fn url(&self) -> String {
        match &self.certificate {
            Some(_) => format!("https://localhost:{}", self.address.port()),
            None => format!("http://{}", self.address),
        }
    }

    /// The certificate as PEM.
    ///
    /// # Panics
    ///
    /// If the server has no TLS.
    pub fn certificate(&self) -> &str {
        self.certificate.as_ref().expect("the server has TLS")
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.stopped.store(true, Relaxed);
        let _ = TcpStream::connect(self.address);
        self.acceptor.take().unwrap().join().unwrap();
    }
}

fn accept(listener: &TcpListener, config: Option<&Arc<ServerConfig>>, stopped: &AtomicBool) {
    for stream in listener.incoming() {
        if stopped.load(Relaxed) {
            return;
        }
        let (stream, config) = (stream.unwrap(), config.cloned());
        let serve = move || match config {
            None => serve(stream),
            Some(config) => {
                let connection = ServerConnection::new(config).unwrap();
                serve(StreamOwned::new(connection, stream));
            }
        };
        thread::Builder::new().stack_size(STACK_BYTES).spawn(serve).unwrap();
    }
}

/// Answers requests until the client closes the connection. What the client got is checked by the
/// client, so an error ends the connection only.
fn serve(stream: impl Read + Write) {
    let mut stream = BufReader::new(stream);
    while let Some((path, body)) = request(&mut stream) {
        thread::sleep(WAIT);
        let body = [path.as_bytes(), b" ", &body].concat();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        let answer = [head.as_bytes(), &body].concat();
        let stream = stream.get_mut();
        if stream.write_all(&answer).and_then(|()| stream.flush()).is_err() {
            return;
        }
    }
}

/// Reads a request's path and body.
fn request(from: &mut impl BufRead) -> Option<(String, Vec<u8>)> {
    let mut first = String::new();
    from.read_line(&mut first).ok()?;
    let path = first.split(' ').nth(1)?.to_owned();
    let mut bytes = 0;
    loop {
        let mut line = String::new();
        from.read_line(&mut line).ok()?;
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            bytes = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; bytes];
    from.read_exact(&mut body).ok()?;
    Some((path, body))
}
