//! A chat server by std: `crates/cringle/examples/chat.rs` is this program with other imports.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

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
    run(TcpListener::bind(addr)?)
}
