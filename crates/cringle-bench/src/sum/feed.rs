//! The other process, so that its work is none of the reader's: it sends to a connection that it was
//! given as its standard input, in plain blocking calls, when it is told to go.

use super::source::END;
use crate::content;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Sends so many bytes to the connection, `message` at a time, and ends.
pub(super) fn feed(bytes: u64, message: u64) -> io::Result<()> {
    // SAFETY: the parent has put the connection there, and nothing else of this process uses it.
    let mut connection = TcpStream::from(unsafe { OwnedFd::from_raw_fd(libc::STDIN_FILENO) });
    let mut block = vec![0; bytes.min(message) as usize];
    content::fill(&mut block, 1, 0, 0);
    // A parent that is gone is no error: nobody wants the bytes.
    if connection.read(&mut [0])? == 0 {
        return Ok(());
    }
    let mut left = bytes;
    while left > 0 {
        let part = block.len().min(left as usize);
        match connection.write_all(&block[..part]) {
            Err(e) if is_gone(&e) => return Ok(()),
            result => result?,
        }
        left -= part as u64;
    }
    Ok(())
}

fn is_gone(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// For so long the sender waits for a credit. A datagram was lost if none comes.
const PATIENCE: Duration = Duration::from_secs(10);

/// After so many datagrams the reader gives a credit; two such windows are under way at most, which
/// leaves room in a socket's buffer as Linux has it (208 KiB, the kernel's own bytes counted).
pub(super) fn window(message: u64) -> u64 {
    const BYTES: u64 = 48 << 10;
    const OVERHEAD: u64 = 1 << 10;
    (BYTES / (message + OVERHEAD)).max(1)
}

/// The same by datagrams. An empty one says that it ends early.
pub(super) fn feed_datagrams(bytes: u64, message: u64) -> io::Result<()> {
    // SAFETY: as in `feed`.
    let socket = UdpSocket::from(unsafe { OwnedFd::from_raw_fd(libc::STDIN_FILENO) });
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut block = vec![0; message as usize];
    content::fill(&mut block, 1, 0, 0);
    let send = || {
        socket.recv(&mut [0])?;
        let (mut left, mut sent) = (bytes, 0);
        while left > 0 {
            if sent > window(message) && sent % window(message) == 0 {
                socket.recv(&mut [0])?;
            }
            let part = block.len().min(left as usize);
            socket.send(&block[..part])?;
            (left, sent) = (left - part as u64, sent + 1);
        }
        let mut word = [1];
        while word != *END {
            socket.recv(&mut word)?;
        }
        Ok(())
    };
    send().or_else(|e: io::Error| match e.kind() {
        io::ErrorKind::ConnectionRefused => Ok(()),
        _ => socket.send(&[]).and(Err(e)),
    })
}

/// A process that feeds a connection.
pub(super) struct Feeder(Child);

impl Feeder {
    /// A connection over the loopback, and who feeds it, once it is sent a byte.
    pub(super) fn start(bytes: u64, message: u64) -> io::Result<(TcpStream, Feeder)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let theirs = TcpStream::connect(listener.local_addr()?)?;
        let (ours, peer) = listener.accept()?;
        if peer != theirs.local_addr()? {
            return Err(io::Error::other("somebody else has connected to the benchmark's port"));
        }
        theirs.set_nodelay(true)?;
        Ok((ours, Feeder::with(theirs.into(), "--tcp", bytes, message)?))
    }

    /// The same by datagrams.
    pub(super) fn start_datagrams(bytes: u64, message: u64) -> io::Result<(UdpSocket, Feeder)> {
        let ours = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let theirs = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        ours.connect(theirs.local_addr()?)?;
        theirs.connect(ours.local_addr()?)?;
        Ok((ours, Feeder::with(theirs.into(), "--udp", bytes, message)?))
    }

    fn with(socket: OwnedFd, kind: &str, bytes: u64, message: u64) -> io::Result<Feeder> {
        let (bytes, message) = (bytes.to_string(), message.to_string());
        let child = Command::new(std::env::current_exe()?)
            .args(["bench", "sum", kind, "--feed", &bytes, "--message", &message])
            .stdin(Stdio::from(socket))
            .spawn()?;
        Ok(Feeder(child))
    }

    /// Waits for its end, which is that of the connection.
    pub(super) fn end(mut self) -> io::Result<()> {
        let status = self.0.wait()?;
        match status.success() {
            true => Ok(()),
            false => {
                Err(io::Error::other(format!("the process that feeds it ended with {status}")))
            }
        }
    }
}

impl Drop for Feeder {
    /// Where the reader failed, nobody has waited.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
