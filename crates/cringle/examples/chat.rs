//! A chat server, written for threads: the lines of each client go to all clients.
//!
//!     cargo run --release --example chat -- [ADDRESS]
//!
//! serves at ADDRESS (default: 127.0.0.1:6381). This is `benches/micro/examples/chat_std.rs`, a
//! program of std, with other imports, and `cringle::run` in its `main`.

use cringle::fiber as thread;
use cringle::net::{TcpListener, TcpStream};
use cringle::sync::{Arc, Mutex, mpsc};
use std::io::{self, BufRead, BufReader, Write};

type Clients = Arc<Mutex<Vec<mpsc::Sender<String>>>>;

/// Serves all clients that connect.
fn run(listener: TcpListener) -> io::Result<()> {
    let clients = Clients::default();
    for stream in listener.incoming() {
        let (stream, clients) = (stream?, Arc::clone(&clients));
        thread::spawn(move || attend(stream, &clients).map_err(|e| eprintln!("chat: {e}")));
    }
    Ok(())
}

/// Attends to one client: this thread reads its lines, and another one writes those of all.
fn attend(stream: TcpStream, clients: &Clients) -> io::Result<()> {
    let (sender, receiver) = mpsc::channel::<String>();
    let mut writer = stream.try_clone()?;
    thread::spawn(move || receiver.iter().try_for_each(|line| writeln!(writer, "{line}")));
    clients.lock().unwrap().push(sender);
    for line in BufReader::new(stream).lines() {
        let line = line?;
        // Clients to which nothing can be sent have gone.
        clients.lock().unwrap().retain(|client| client.send(line.clone()).is_ok());
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let addr = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:6381".into());
    cringle::run(|| {
        let listener = TcpListener::bind(addr)?;
        eprintln!("chat: {}", listener.local_addr()?);
        run(listener)
    })
}
