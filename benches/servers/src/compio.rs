//! compio, on its io_uring driver.

use crate::{ServedPage, serve};
use compio::driver::ProactorBuilder;
use compio::io::{AsyncRead, AsyncWriteExt};
use compio::net::TcpListener;
use compio::runtime::Runtime;
use std::io;

pub(crate) fn run(listener: std::net::TcpListener, page: &'static ServedPage) -> io::Result<()> {
    let mut proactor = ProactorBuilder::new();
    proactor.single_issuer(true).defer_taskrun(true);
    let runtime = Runtime::builder().with_proactor(proactor).build()?;
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        loop {
            let (mut stream, _) = listener.accept().await?;
            compio::runtime::spawn(async move { serve!(stream, page) }).detach();
        }
    })
}
