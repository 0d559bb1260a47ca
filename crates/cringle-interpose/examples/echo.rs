//! A server and its clients, with std's sockets and channels only: each waits on a fiber.
//!
//! `cargo run -p cringle-interpose --example echo`

// ANCHOR: program
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;

cringle_interpose::install!();

/// Code that knows nothing of Cringle.
fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buf = [0; 1024];
    loop {
        match stream.read(&mut buf)? {
            0 => return Ok(()),
            n => stream.write_all(&buf[..n])?,
        }
    }
}

fn main() -> io::Result<()> {
    cringle::run(|| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let server = cringle::fiber::spawn(move || {
            for stream in listener.incoming().take(100) {
                let stream = stream?;
                cringle::fiber::spawn(move || echo(stream));
            }
            io::Result::Ok(())
        });
        let (sender, answers) = mpsc::channel();
        for number in 0..100u8 {
            let sender = sender.clone();
            cringle::fiber::spawn(move || {
                let mut stream = TcpStream::connect(address)?;
                stream.write_all(&[number])?;
                let mut answer = [0];
                stream.read_exact(&mut answer)?;
                sender.send(answer[0]).map_err(io::Error::other)
            });
        }
        drop(sender);
        assert_eq!(answers.iter().map(u32::from).sum::<u32>(), 4950);
        server.join().expect("the server does not panic")
    })
}
// ANCHOR_END: program
