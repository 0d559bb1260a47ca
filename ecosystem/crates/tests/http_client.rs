//! `ureq` over the library's sockets, through its `Transport` trait.

use cringle::io::{self, BufRead, BufReader, Read, Write};
use cringle::net::{TcpListener, TcpStream};
use cringle::{Builder, fiber};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};
use ureq::{Agent, Error};

const CLIENTS: usize = 20;

#[derive(Debug)]
struct Fibers;

struct Connection {
    stream: TcpStream,
    buffers: LazyBuffers,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl<In: Transport> Connector<In> for Fibers {
    type Out = Connection;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<In>,
    ) -> Result<Option<Connection>, Error> {
        let addr = details.addrs.first().ok_or(Error::HostNotFound)?;
        let buffers = LazyBuffers::new(
            details.config.input_buffer_size(),
            details.config.output_buffer_size(),
        );
        Ok(Some(Connection { stream: TcpStream::connect(addr)?, buffers }))
    }
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, _: NextTimeout) -> Result<(), Error> {
        Ok(self.stream.write_all(&self.buffers.output()[..amount])?)
    }

    fn await_input(&mut self, _: NextTimeout) -> Result<bool, Error> {
        let count = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(count);
        Ok(count > 0)
    }

    fn is_open(&mut self) -> bool {
        true
    }
}

/// Answers each request with its own body, until the client closes the connection.
fn serve(stream: TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(&stream);
    loop {
        let (mut line, mut len) = (String::new(), 0);
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        while line != "\r\n" {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                len = value.trim().parse().unwrap();
            }
            line.clear();
            reader.read_line(&mut line)?;
        }
        let mut body = vec![0; len];
        reader.read_exact(&mut body)?;
        write!(&stream, "HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n")?;
        (&stream).write_all(&body)?;
    }
}

#[test]
fn requests_are_answered_on_many_fibers() {
    let run = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        fiber::scope(|s| {
            s.spawn(move || {
                fiber::scope(|s| {
                    // Each client keeps one connection.
                    for stream in listener.incoming().take(CLIENTS) {
                        s.spawn(move || serve(stream.unwrap()).unwrap());
                    }
                });
            });
            for n in 0..CLIENTS {
                let url = &url;
                s.spawn(move || {
                    let agent = Agent::with_parts(
                        Agent::config_builder().build(),
                        Fibers,
                        DefaultResolver::default(),
                    );
                    for round in 0..10 {
                        let body = format!("{n} {round} ").repeat(round * 1000 + 1);
                        let answer =
                            agent.post(url).send(&body).unwrap().into_body().read_to_string();
                        assert!(answer.unwrap() == body);
                    }
                });
            }
        });
    };
    Builder::new().workers(2).run(run).unwrap();
}
