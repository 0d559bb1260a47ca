//! A server with a thread for each connection, as std's documentation has it. The threads are
//! fibers: `cargo run -p cringle-interpose --example thread_server`.

// ANCHOR: program
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

cringle_interpose::main!(
    cringle::Builder::new().threads(cringle::runtime::Threads::Fibers),
    fn main() -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        thread::spawn(move || {
            for stream in listener.incoming() {
                thread::spawn(|| serve(stream?));
            }
            io::Result::Ok(())
        });

        // 1,000 clients, each a thread, too.
        let clients: Vec<_> = (0..1000).map(|n| thread::spawn(move || ask(address, n))).collect();
        for client in clients {
            client.join().unwrap()?;
        }
        println!("1000 answers, by {} threads of the system", system_threads()?);
        Ok(())
    }
);

fn serve(stream: TcpStream) -> io::Result<()> {
    for line in BufReader::new(&stream).lines() {
        writeln!(&stream, "{}", line?.to_uppercase())?;
    }
    Ok(())
}
// ANCHOR_END: program

fn ask(address: std::net::SocketAddr, n: usize) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    writeln!(stream, "hello {n}")?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    assert_eq!(answer, format!("HELLO {n}\n"));
    Ok(())
}

fn system_threads() -> io::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/task")?.count())
}
