//! `tokio` and `tokio-mt`: tokio's sockets, with a task for each connection.

use super::{READ_BYTES, RequestCounter, ServedPage};
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

/// Serves on this number of threads, or on the calling thread.
pub(super) fn run(
    listener: std::net::TcpListener,
    page: &'static ServedPage,
    threads: Option<usize>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = match threads {
        None => Builder::new_current_thread().enable_io().build()?,
        Some(threads) => Builder::new_multi_thread().worker_threads(threads).enable_io().build()?,
    };
    let accept = async move {
        let listener = TcpListener::from_std(listener)?;
        loop {
            let (stream, _peer) = listener.accept().await?;
            // The task ends with its connection; an error of the connection ends it, too.
            tokio::spawn(converse(stream, page));
        }
    };
    match threads {
        None => runtime.block_on(accept),
        // As a task, because `block_on` runs its future on the calling thread, which is no worker.
        Some(_) => runtime.block_on(async { tokio::spawn(accept).await })?,
    }
}

async fn converse(mut stream: TcpStream, page: &ServedPage) -> io::Result<()> {
    let (mut buffer, mut counter) = ([0; READ_BYTES], RequestCounter::default());
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        for _ in 0..counter.count(&buffer[..count]) {
            stream.write_all(&page.response).await?;
            if page.close {
                return Ok(());
            }
        }
    }
}
