//! Calls of files, sockets and deadlines that are refused to a cancelled fiber.

use super::calls::{Call, Row};
use cringle::block::{Batch, Log};
use cringle::fs::{self, File};
use cringle::net::{TcpListener, TcpStream, UdpSocket};
use cringle::{io, time};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

fn row<F: FnMut() + 'static>(name: &'static str, prepare: fn() -> F) -> Row {
    Row { name, prepare: Box::new(move || Box::new(prepare()) as Call) }
}

fn own_file() -> File {
    File::open(std::env::current_exe().unwrap()).unwrap()
}

/// A fiber that is not cancelled yet prepares them.
pub(crate) fn rows() -> Vec<Row> {
    vec![
        row("fs::metadata", || || drop(fs::metadata("/"))),
        row("fs::read", || || drop(fs::read("/proc/self/stat"))),
        row("fs::read_dir", || || drop(fs::read_dir("/proc/self"))),
        row("fs::create_dir", || || drop(fs::create_dir("/proc/no such directory"))),
        row("File::open", || || drop(File::open("/"))),
        row("File::read", || {
            let file = own_file();
            move || drop((&file).read(&mut [0; 7]))
        }),
        row("File::read_at", || {
            let file = own_file();
            move || drop(file.read_at(&mut [0; 7], 0))
        }),
        row("File::sync_all", || {
            let file = own_file();
            move || drop(file.sync_all())
        }),
        row("File::metadata", || {
            let file = own_file();
            move || drop(file.metadata())
        }),
        row("File::lock", || {
            let file = own_file();
            move || drop(file.lock())
        }),
        row("Batch::submit", || {
            let file: &'static File = Box::leak(Box::new(own_file()));
            move || {
                let mut buf = [0; 7];
                let mut batch = Batch::new();
                batch.read(file, &mut buf, 0);
                drop(batch.submit());
            }
        }),
        row("Log::append", || {
            let file = tempfile::tempfile().unwrap();
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            let log = Log::open(path, |_, _| Ok(())).unwrap();
            move || drop(log.append(b"a record"))
        }),
        row("pipe read", || {
            let (reader, writer) = io::pipe().unwrap();
            move || {
                let _kept = &writer;
                drop((&reader).read(&mut [0]));
            }
        }),
        row("pipe write", || {
            let (reader, writer) = io::pipe().unwrap();
            move || {
                let _kept = &reader;
                drop((&writer).write(b"7"));
            }
        }),
        row("TcpListener::accept", || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            move || drop(listener.accept())
        }),
        row("TcpStream::connect", || || drop(TcpStream::connect("127.0.0.1:1"))),
        row("TcpStream::connect, by name", || || drop(TcpStream::connect("localhost:1"))),
        row("UdpSocket::recv", || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            move || drop(socket.recv(&mut [0; 7]))
        }),
        row("io::ready", || {
            let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            move || {
                let _kept = &theirs;
                drop(io::ready(&ours, io::Interest::READABLE));
            }
        }),
        row("time::timeout", || {
            || drop(time::timeout(Duration::ZERO, || time::sleep(Duration::MAX)))
        }),
        row("time::sleep", || || drop(time::sleep(Duration::MAX))),
        row("sync::mutex::Mutex::lock, of another", || {
            let mutex: &'static cringle::sync::Mutex<u8> = Box::leak(Box::default());
            std::mem::forget(mutex.lock());
            move || drop(mutex.lock())
        }),
        row("a channel's end, nothing sent", || {
            let (sender, receiver) = cringle::sync::mpsc::channel::<u8>();
            move || {
                let _kept = &sender;
                let _ = receiver.recv();
            }
        }),
        row("a token that is never given", || cringle::fiber::park),
        row("a value that never changes", || {
            let (sender, mut receiver) = cringle::sync::watch::channel(0);
            move || {
                let _kept = &sender;
                let _ = receiver.changed();
            }
        }),
    ]
}
