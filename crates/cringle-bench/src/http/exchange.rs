//! The requests of the load, and the check of the responses.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

/// A request on a connection that stays open.
pub(super) const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: cringle\r\n\r\n";
/// A request that ends its connection.
pub(super) const LAST_REQUEST: &[u8] =
    b"GET / HTTP/1.1\r\nHost: cringle\r\nConnection: close\r\n\r\n";

/// The responses that are accepted.
pub(super) enum Expected {
    /// Exactly these bytes.
    Exactly(Vec<u8>),
    /// Any response with status 200 and a Content-Length.
    Good,
}

/// Checks a response as it arrives.
#[derive(Default)]
pub(super) struct ResponseReader {
    /// Bytes received.
    count: usize,
    /// The bytes received before the end of the head.
    head: Vec<u8>,
    /// The length of the response, once it is known.
    total: Option<usize>,
}

impl ResponseReader {
    /// Checks bytes that have arrived. Returns whether the response is complete.
    #[inline]
    pub(super) fn take(&mut self, bytes: &[u8], expected: &Expected) -> io::Result<bool> {
        let from = self.count;
        self.count += bytes.len();
        match expected {
            Expected::Exactly(all) if all.get(from..self.count) == Some(bytes) => {
                Ok(self.count == all.len())
            }
            Expected::Exactly(_) => Err(wrong("a response differs from the page")),
            Expected::Good => self.parse(bytes),
        }
    }

    pub(super) fn reset(&mut self) {
        self.count = 0;
        self.head.clear();
        self.total = None;
    }

    fn parse(&mut self, bytes: &[u8]) -> io::Result<bool> {
        if self.total.is_none() {
            self.head.extend_from_slice(bytes);
            self.total = total(&self.head)?;
        }
        match self.total {
            Some(total) if self.count > total => Err(wrong(TOO_LONG)),
            total => Ok(total == Some(self.count)),
        }
    }
}

/// Sends a request on a blocking socket, and reads the response, each part of which has to arrive
/// within the socket's time limit.
pub(super) fn exchange(
    stream: &mut TcpStream,
    request: &[u8],
    expected: &Expected,
) -> io::Result<()> {
    stream.write_all(request)?;
    read_response(stream, expected, &mut [0; 64 << 10])
}

/// Reads the response to a request.
pub(super) fn read_response(
    stream: &mut TcpStream,
    expected: &Expected,
    buffer: &mut [u8],
) -> io::Result<()> {
    let mut response = ResponseReader::default();
    loop {
        match stream.read(buffer) {
            Ok(0) => {
                let text = "it ended the connection before its response was complete";
                return Err(io::Error::new(ErrorKind::UnexpectedEof, text));
            }
            Ok(count) if response.take(&buffer[..count], expected)? => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                let limit = stream.read_timeout()?.unwrap_or_default();
                let text = format!("it did not respond to GET / within {} s", limit.as_secs());
                return Err(io::Error::new(ErrorKind::TimedOut, text));
            }
            Err(error) => return Err(error),
        }
    }
}

pub(super) const TOO_LONG: &str = "a response is longer than its Content-Length";

pub(super) fn wrong(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Returns the length of a response including its head, or `None` if the head is incomplete.
fn total(bytes: &[u8]) -> io::Result<Option<usize>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(bytes).map_err(|error| wrong(&format!("not HTTP: {error}")))?;
    let httparse::Status::Complete(head) = parsed else { return Ok(None) };
    if response.code != Some(200) {
        let code = response.code.unwrap_or(0);
        return Err(wrong(&format!("the server responded with status {code}")));
    }
    let length =
        response.headers.iter().find(|one| one.name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|one| std::str::from_utf8(one.value).ok()?.trim().parse().ok());
    let length: usize =
        length.ok_or_else(|| wrong("the response of the server has no Content-Length"))?;
    Ok(Some(head + length))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the bytes one at a time, and returns after how many the response is complete.
    fn fed(bytes: &[u8], expected: &Expected) -> io::Result<Option<usize>> {
        let mut reader = ResponseReader::default();
        for (n, byte) in bytes.iter().enumerate() {
            if reader.take(&[*byte], expected)? {
                return Ok(Some(n + 1));
            }
        }
        Ok(None)
    }

    #[test]
    fn a_response_ends_at_its_content_length() {
        let text = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc";
        assert_eq!(fed(text, &Expected::Good).unwrap(), Some(text.len()));
        assert_eq!(fed(&text[..text.len() - 1], &Expected::Good).unwrap(), None);
        let exactly = Expected::Exactly(text.to_vec());
        assert_eq!(fed(text, &exactly).unwrap(), Some(text.len()));
    }

    #[test]
    fn a_wrong_response_is_an_error() {
        for text in [
            &b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"SSH-2.0\r\n\r\n",
        ] {
            assert!(fed(text, &Expected::Good).is_err());
        }
        assert!(fed(b"abd", &Expected::Exactly(b"abc".to_vec())).is_err());
        let mut reader = ResponseReader::default();
        assert!(
            reader.take(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\nx", &Expected::Good).is_err()
        );
    }
}
