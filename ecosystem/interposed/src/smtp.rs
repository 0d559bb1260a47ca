//! A mail server that accepts and keeps every mail.

use crate::WAIT;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// A sink on loopback. It accepts a mail after [`WAIT`].
pub struct MailSink {
    address: SocketAddr,
    mails: Arc<Mutex<Vec<String>>>,
    stopped: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

impl MailSink {
    pub fn start() -> MailSink {
        let listener = crate::server::listener();
        let address = listener.local_addr().unwrap();
        let (mails, stopped) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let acceptor = {
            let (mails, stopped) = (Arc::clone(&mails), Arc::clone(&stopped));
            thread::spawn(move || accept(&listener, &mails, &stopped))
        };
        MailSink { address, mails, stopped, acceptor: Some(acceptor) }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The mails that were accepted.
    pub fn mails(&self) -> Vec<String> {
        self.mails.lock().unwrap().clone()
    }
}

impl Drop for MailSink {
    fn drop(&mut self) {
        self.stopped.store(true, Relaxed);
        let _ = TcpStream::connect(self.address);
        self.acceptor.take().unwrap().join().unwrap();
    }
}

fn accept(listener: &TcpListener, mails: &Arc<Mutex<Vec<String>>>, stopped: &AtomicBool) {
    for stream in listener.incoming() {
        if stopped.load(Relaxed) {
            return;
        }
        let (stream, mails) = (stream.unwrap(), Arc::clone(mails));
        thread::spawn(move || converse(&stream, &mails));
    }
}

/// Answers a client until it quits. A client that is not satisfied fails by itself.
fn converse(stream: &TcpStream, mails: &Mutex<Vec<String>>) -> Option<()> {
    let say = |text: &str| (&*stream).write_all(format!("{text}\r\n").as_bytes()).ok();
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    say("220 sink")?;
    while let Some(line) = lines.next() {
        match line.split([' ', ':']).next()? {
            "EHLO" => say("250 sink")?,
            "DATA" => {
                say("354 go ahead")?;
                let mail: Vec<_> = lines.by_ref().take_while(|line| line != ".").collect();
                thread::sleep(WAIT);
                mails.lock().unwrap().push(mail.join("\n"));
                say("250 accepted")?;
            }
            "QUIT" => return say("221 bye"),
            _ => say("250 ok")?,
        }
    }
    None
}
