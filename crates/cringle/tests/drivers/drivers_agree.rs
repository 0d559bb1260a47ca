//! Random programs of calls on files, pipes and sockets, on a ring and on epoll: each call has the
//! same result on both, including errors and waits that do not end.
//!
//! `CRINGLE_PROGRAMS=10000` runs that number of programs.

use cringle::fs::{File, OpenOptions};
use cringle::net::{MsgFlags, RecvAncillary, SendAncillary, Shutdown, TcpListener, TcpStream};
use cringle::os::unix::net::{UnixDatagram, UnixStream};
use cringle::runtime::{self, Driver, DriverChoice};
use cringle::{Builder, cancel, fiber, io, time};
use cringle_testing::child;
use cringle_testing::tools::readable_bytes;
use fastrand::Rng;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

const CALLS: usize = 60;
/// The timeout of calls that would wait without end.
const NEVER: Duration = Duration::from_millis(1);

fn programs() -> u64 {
    std::env::var("CRINGLE_PROGRAMS").map_or(50, |count| count.parse().expect("a number"))
}

#[test]
fn ring_and_epoll_give_the_same_results() {
    child::must_succeed("ring_and_epoll_give_the_same_results", || {
        let driver = Builder::new().workers(1).driver(DriverChoice::Uring).run(runtime::driver);
        let Ok(Driver::Uring(_)) = driver else {
            return println!("skipped: rings are not available");
        };
        let directory = cringle_testing::disk::directory();
        for seed in 0..programs() {
            let [ring, epoll] = [DriverChoice::Uring, DriverChoice::Epoll]
                .map(|driver| log_of(seed, driver, &directory.path().join("file")));
            for (ring, epoll) in ring.iter().zip(&epoll) {
                assert_eq!(ring, epoll, "seed {seed}");
            }
            assert_eq!(ring.len(), epoll.len(), "seed {seed}");
        }
    });
}

/// Runs a program. Returns the result of each call.
fn log_of(seed: u64, driver: DriverChoice, path: &Path) -> Vec<String> {
    let builder = Builder::new().workers(1).driver(driver);
    let run = builder.run(|| {
        let mut world = World::new(seed, path).unwrap();
        let mut log: Vec<String> = (0..CALLS).map(|_| world.call()).collect();
        log.push(format!("{:?}", std::fs::read(path).unwrap()));
        std::fs::remove_file(path).unwrap();
        log
    });
    run.unwrap()
}

/// Draws at most `limit` bytes.
fn bytes(rng: &mut Rng, limit: usize) -> Vec<u8> {
    (0..rng.usize(..limit + 1)).map(|_| rng.usize(..256) as u8).collect()
}

/// A pipe or a pair of sockets: one end is written to, the other read from.
struct Channel {
    name: &'static str,
    writer: Writer,
    reader: Reader,
    /// The sizes of the writes that are not read yet.
    unread: Vec<usize>,
    has_messages: bool,
    is_shut: bool,
}

enum Writer {
    File(File),
    Tcp(TcpStream),
    Unix(UnixStream),
    Datagram(UnixDatagram),
}

type Reader = Writer;

struct World {
    rng: Rng,
    file: File,
    append: File,
    channels: Vec<Channel>,
}

impl World {
    fn new(seed: u64, path: &Path) -> io::Result<World> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        let append = OpenOptions::new().append(true).open(path)?;
        Ok(World { rng: Rng::with_seed(seed), file, append, channels: channels()? })
    }

    fn call(&mut self) -> String {
        // With other fibers ready, the call goes to the driver.
        let company = (self.rng.usize(..2) == 0).then(|| fiber::spawn_local(fiber::yield_now));
        let result = match self.rng.usize(..3) {
            0 => self.call_on_file(),
            _ => self.call_on_channel(),
        };
        drop(company.map(fiber::JoinHandle::join));
        result
    }

    fn call_on_file(&mut self) -> String {
        let offset = self.offset();
        let bytes = bytes(&mut self.rng, 5000);
        let mut buf = vec![0; self.rng.usize(..6000)];
        let file = &self.file;
        match self.rng.usize(..10) {
            0 => describe("write_at", file.write_at(&bytes, offset)),
            1 => describe_read("read_at", file.read_at(&mut buf, offset), &buf),
            2 => describe("append", (&mut &self.append).write(&bytes)),
            3 => describe("write", (&mut &self.file).write(&bytes)),
            4 => describe_read("read", (&mut &self.file).read(&mut buf), &buf),
            5 => {
                let slices = [IoSlice::new(&bytes), IoSlice::new(&[]), IoSlice::new(&bytes)];
                describe("write_vectored_at", file.write_vectored_at(&slices, offset))
            }
            6 => {
                let middle = buf.len() / 3;
                let (first, second) = buf.split_at_mut(middle);
                let slices = &mut [IoSliceMut::new(first), IoSliceMut::new(second)];
                let count = file.read_vectored_at(slices, offset);
                describe_read("read_vectored_at", count, &buf)
            }
            7 => describe("set_len", file.set_len(offset.min(20_000)).map(|()| 0)),
            8 => describe("sync", file.sync_data().map(|()| 0)),
            _ => describe("metadata", file.metadata().map(|metadata| metadata.len() as usize)),
        }
    }

    fn offset(&mut self) -> u64 {
        match self.rng.usize(..10) {
            0 => u64::MAX,
            1 => i64::MAX as u64,
            _ => self.rng.usize(..10_000) as u64,
        }
    }

    fn call_on_channel(&mut self) -> String {
        let index = self.rng.usize(..self.channels.len());
        let channel = &mut self.channels[index];
        let full = channel.unread.iter().sum::<usize>() > 4000 || channel.unread.len() > 5;
        let result = match self.rng.usize(..20) {
            0 => channel.shut_down(),
            1..10 if !full => channel.write(&mut self.rng),
            _ => channel.read(&mut self.rng),
        };
        format!("{}: {result}", self.channels[index].name)
    }
}

fn channels() -> io::Result<Vec<Channel>> {
    let (pipe_reader, pipe_writer) = io::pipe()?;
    let [pipe_reader, pipe_writer] =
        [OwnedFd::from(pipe_reader), pipe_writer.into()].map(File::from);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let tcp = TcpStream::connect(listener.local_addr()?)?;
    tcp.set_nodelay(true)?;
    let (tcp_peer, _) = listener.accept()?;
    let (unix, unix_peer) = UnixStream::pair()?;
    let (datagram, datagram_peer) = UnixDatagram::pair()?;
    let new = |name, writer, reader, has_messages| {
        let unread = Vec::new();
        Channel { name, writer, reader, unread, has_messages, is_shut: false }
    };
    Ok(vec![
        new("pipe", Writer::File(pipe_writer), Writer::File(pipe_reader), false),
        new("tcp", Writer::Tcp(tcp), Writer::Tcp(tcp_peer), false),
        new("unix", Writer::Unix(unix), Writer::Unix(unix_peer), false),
        new("datagram", Writer::Datagram(datagram), Writer::Datagram(datagram_peer), true),
    ])
}

impl Channel {
    fn shut_down(&mut self) -> String {
        let result = match &self.writer {
            Writer::File(_) => return String::from("stays open"),
            Writer::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Writer::Unix(stream) => stream.shutdown(Shutdown::Write),
            // A datagram socket that is shut down would return empty messages without end.
            Writer::Datagram(_) => return String::from("stays open"),
        };
        self.is_shut = true;
        describe("shutdown", result.map(|()| 0))
    }

    fn write(&mut self, rng: &mut Rng) -> String {
        let bytes = bytes(rng, 1000);
        let slices = [IoSlice::new(&bytes), IoSlice::new(b"!")];
        let way = rng.usize(..4);
        let none = SendAncillary::default();
        let result = match (&self.writer, way) {
            (Writer::File(file), 0) => (&mut &*file).write_vectored(&slices),
            (Writer::File(file), 1) => file.write_at(&bytes, 0),
            (Writer::File(file), _) => (&mut &*file).write(&bytes),
            (Writer::Tcp(stream), 0) => (&mut &*stream).write_vectored(&slices),
            (Writer::Tcp(stream), 1) => stream.sendmsg(&slices, &none, MsgFlags::WAITALL),
            (Writer::Tcp(stream), 2) => stream.send_zc(&bytes),
            (Writer::Tcp(stream), _) => (&mut &*stream).write(&bytes),
            (Writer::Unix(stream), 0) => (&mut &*stream).write_vectored(&slices),
            (Writer::Unix(stream), 1) => stream.sendmsg(&slices, &none, MsgFlags::DONTWAIT),
            (Writer::Unix(stream), 2) => stream.send_zc(&bytes),
            (Writer::Unix(stream), _) => (&mut &*stream).write(&bytes),
            (Writer::Datagram(socket), _) => socket.send(&bytes),
        };
        if let Ok(count) = result
            && (count > 0 || self.has_messages)
        {
            self.unread.push(count);
        }
        describe("write", result)
    }

    fn read(&mut self, rng: &mut Rng) -> String {
        let mut buf = vec![0; rng.usize(..2000)];
        let (way, readable) = (rng.usize(..5), self.readable());
        if !self.has_messages {
            self.wait_for_arrival(readable);
        }
        let none = &mut RecvAncillary::default();
        let all = way == 2 && buf.len() <= readable;
        let mut read = |buf: &mut Vec<u8>| match (&self.reader, way) {
            (Writer::File(file), 0) => file.read_at(buf, 0),
            (Writer::File(file), _) => (&mut &*file).read(buf),
            (Writer::Tcp(stream), 0) => stream.peek(buf),
            (Writer::Tcp(stream), 1) => {
                stream.recvmsg(&mut [IoSliceMut::new(buf)], none, MsgFlags::DONTWAIT).map(|r| r.len)
            }
            (Writer::Tcp(stream), 2) if all => {
                stream.recvmsg(&mut [IoSliceMut::new(buf)], none, MsgFlags::WAITALL).map(|r| r.len)
            }
            (Writer::Tcp(stream), _) => (&mut &*stream).read(buf),
            (Writer::Unix(stream), 0) => {
                stream.recvmsg(&mut [IoSliceMut::new(buf)], none, MsgFlags::PEEK).map(|r| r.len)
            }
            (Writer::Unix(stream), 2) => {
                stream.recvmsg(&mut [IoSliceMut::new(buf)], none, MsgFlags::DONTWAIT).map(|r| r.len)
            }
            (Writer::Unix(stream), _) => (&mut &*stream).read(buf),
            (Writer::Datagram(socket), _) => socket.recv(buf),
        };
        let never_ends = self.unread.is_empty() && !self.is_shut;
        let result =
            if never_ends { time::timeout(NEVER, || read(&mut buf)) } else { read(&mut buf) };
        let peeked = way == 0 && matches!(self.reader, Writer::Tcp(_) | Writer::Unix(_));
        if let (Ok(count), false) = (&result, peeked) {
            self.take(*count);
        }
        describe_read("read", result, &buf)
    }

    /// The number of bytes that were written and not read yet.
    fn readable(&self) -> usize {
        self.unread.iter().sum()
    }

    /// Waits until the reader's end has these bytes, or the end of the stream if none are
    /// left. The loopback interface does not always deliver them at once.
    fn wait_for_arrival(&self, bytes: usize) {
        let fd = match &self.reader {
            Writer::File(file) => file.as_fd(),
            Writer::Tcp(stream) => stream.as_fd(),
            Writer::Unix(stream) => stream.as_fd(),
            Writer::Datagram(socket) => socket.as_fd(),
        };
        while readable_bytes(&fd) < bytes {
            std::thread::yield_now();
        }
        if bytes == 0 && self.is_shut {
            let fd = fd.as_raw_fd();
            let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            // SAFETY: the array has one element, which is borrowed for the call.
            assert_eq!(unsafe { libc::poll(&mut poll, 1, -1) }, 1);
        }
    }

    fn take(&mut self, mut count: usize) {
        if self.has_messages {
            self.unread.remove(0);
        }
        while !self.has_messages && count > 0 {
            let part = count.min(self.unread[0]);
            count -= part;
            self.unread[0] -= part;
            if self.unread[0] == 0 {
                self.unread.remove(0);
            }
        }
    }
}

fn describe(what: &str, result: io::Result<usize>) -> String {
    match result {
        Ok(count) => format!("{what}: {count}"),
        Err(e) => match cancel::reason(&e) {
            Some(_) => format!("{what}: waits"),
            None => format!("{what}: {:?} {:?}", e.kind(), e.raw_os_error()),
        },
    }
}

fn describe_read(what: &str, result: io::Result<usize>, buf: &[u8]) -> String {
    let count = *result.as_ref().unwrap_or(&0);
    format!("{} {:?}", describe(what, result), &buf[..count])
}
