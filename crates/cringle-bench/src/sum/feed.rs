//! The process that sends, so that its CPU time is not the reader's. Its standard input is the
//! connection, to which it writes with blocking calls once the reader has sent it a byte.

use crate::content;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};

/// Sends `bytes` to the connection, `message` at a time.
pub(super) fn feed(bytes: u64, message: u64) -> io::Result<()> {
    // SAFETY: the parent has made the connection this process's standard input, and no other code
    // of the process uses that descriptor.
    let mut connection = TcpStream::from(unsafe { OwnedFd::from_raw_fd(libc::STDIN_FILENO) });
    let mut block = vec![0; bytes.min(message) as usize];
    content::fill(&mut block, 1, 0, 0);
    // The end of the parent is no failure: the bytes are no longer needed.
    if connection.read(&mut [0])? == 0 {
        return Ok(());
    }
    let mut left = bytes;
    while left > 0 {
        let part = block.len().min(left as usize);
        match connection.write_all(&block[..part]) {
            Err(e) if peer_is_gone(&e) => return Ok(()),
            result => result?,
        }
        left -= part as u64;
    }
    Ok(())
}

fn peer_is_gone(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// The sending process, seen from the reader. It is killed when it is dropped.
pub(super) struct Feeder(Child);

impl Feeder {
    /// Returns a connection over the loopback interface, and the process that will feed it.
    pub(super) fn start(bytes: u64, message: u64) -> io::Result<(TcpStream, Feeder)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let theirs = TcpStream::connect(listener.local_addr()?)?;
        let (ours, peer) = listener.accept()?;
        if peer != theirs.local_addr()? {
            return Err(io::Error::other("another process has connected to the benchmark's port"));
        }
        theirs.set_nodelay(true)?;
        let (bytes, message) = (bytes.to_string(), message.to_string());
        let child = Command::new(std::env::current_exe()?)
            .args(["bench", "sum", "--feed", &bytes, "--message", &message])
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()?;
        Ok((ours, Feeder(child)))
    }

    /// Waits for the process to end.
    pub(super) fn end(mut self) -> io::Result<()> {
        let status = self.0.wait()?;
        if !status.success() {
            return Err(io::Error::other(format!("the sending process failed: {status}")));
        }
        Ok(())
    }
}

impl Drop for Feeder {
    /// Kills and reaps a process that [`end`](Feeder::end) has not waited for, because the reader
    /// failed.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
