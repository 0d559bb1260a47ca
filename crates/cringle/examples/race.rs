//! Requests each page from two replicas and takes the first answer; the other request is cancelled.
//!
//!     CRINGLE_TRACE=race.pftrace cargo run --example race
//!     cargo run --release -p cringle-cli -- trace race.pftrace --svg race.svg
//!
//! A replica is a fiber at the other end of a socket pair. In turns, one answers at once and the
//! other after a pause.

use cringle::os::unix::net::UnixStream;
use cringle::{fiber, time, trace};
use std::io::{self, Read, Write};
use std::time::Duration;

const PAGES: u8 = 4;
const SLOW: Duration = Duration::from_millis(2);

/// Returns, for each page, the name of the replica that answered first.
fn run() -> io::Result<Vec<&'static str>> {
    cringle::Builder::new().workers(1).run(|| {
        fiber::scope(|s| {
            let replica = |name: &str, slow: u8| -> io::Result<UnixStream> {
                let (near, far) = UnixStream::pair()?;
                let fiber = fiber::Builder::new().name(name.into());
                fiber.spawn_scoped_local(s, move || serve(far, slow))?;
                Ok(near)
            };
            let (left, right) = (replica("left", 0)?, replica("right", 1)?);
            (0..PAGES).map(|page| first(page, &left, &right)).collect()
        })
    })?
}

fn first(page: u8, left: &UnixStream, right: &UnixStream) -> io::Result<&'static str> {
    let _span = trace::span("page");
    let request = |mut replica: &UnixStream, name| {
        replica.write_all(&[page])?;
        let mut answer = [0];
        loop {
            replica.read_exact(&mut answer)?;
            // Skip late answers of earlier races.
            if answer == [page] {
                return Ok(name);
            }
        }
    };
    fiber::race(|| request(left, "left"), || request(right, "right"))
}

/// Answers requests until the stream ends. Every second page takes a while.
fn serve(mut stream: UnixStream, slow: u8) -> io::Result<()> {
    let mut page = [0];
    while stream.read(&mut page)? == 1 {
        if page[0] % 2 == slow {
            time::sleep(SLOW)?;
        }
        stream.write_all(&page)?;
    }
    Ok(())
}

fn main() -> io::Result<()> {
    println!("{}", run()?.join(", "));
    Ok(())
}
