//! The other process, so that its work is none of the reader's: it sends to a connection that it was
//! given as its standard input, in plain blocking calls, when it is told to go.

use crate::bench::content;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};

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
        let child = Command::new(std::env::current_exe()?)
            .args(["bench", "sum", "--feed", &bytes.to_string(), "--message", &message.to_string()])
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()?;
        Ok((ours, Feeder(child)))
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
