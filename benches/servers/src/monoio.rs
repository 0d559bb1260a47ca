//! monoio, on its io_uring driver. Its ring's builder is of an older crate.

use crate::{ServedPage, serve};
use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::TcpListener;
use monoio::{IoUringDriver, RuntimeBuilder};
use std::io;

pub(crate) fn run(listener: std::net::TcpListener, page: &'static ServedPage) -> io::Result<()> {
    let mut ring = io_uring06::IoUring::builder();
    ring.setup_single_issuer().setup_defer_taskrun();
    let mut runtime = RuntimeBuilder::<IoUringDriver>::new().uring_builder(ring).build()?;
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        loop {
            let (mut stream, _) = listener.accept().await?;
            monoio::spawn(async move { serve!(stream, page) });
        }
    })
}
