//! A pair of connected streams.

use cringle_std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// Creates two connected streams: data written to one is read from the other. They are sockets, so
/// a simulation with [`Fault::ConnectionReset`](super::Fault::ConnectionReset) may reset them.
///
/// ```
/// use cringle::{fiber, sim};
/// use std::io::{Read, Write};
///
/// sim::run(1, &sim::Options::new(), || {
///     let (mut client, mut server) = sim::stream_pair()?;
///     let echo = fiber::spawn_local(move || {
///         let mut request = [0; 4];
///         server.read_exact(&mut request)?;
///         server.write_all(&request)
///     });
///     client.write_all(b"ping")?;
///     let mut answer = [0; 4];
///     client.read_exact(&mut answer)?;
///     assert_eq!(&answer, b"ping");
///     echo.join().unwrap()
/// })?
/// .value?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// The system's error if no descriptor is free.
pub fn stream_pair() -> io::Result<(File, File)> {
    let (one, other) = UnixStream::pair()?;
    Ok((File::from(OwnedFd::from(one)), File::from(OwnedFd::from(other))))
}
