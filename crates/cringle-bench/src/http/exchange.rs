//! What the load's side asks, and what it makes of the bytes that come.

use std::io;

/// A connection's, but for its last one.
pub(super) const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: cringle\r\n\r\n";
pub(super) const LAST_REQUEST: &[u8] =
    b"GET / HTTP/1.1\r\nHost: cringle\r\nConnection: close\r\n\r\n";

/// What an answer must be.
pub(super) enum Expected {
    /// These bytes.
    Exactly(Vec<u8>),
    /// Any with status 200 that says how long it is.
    Good,
}

/// How much of an answer is there.
#[derive(Default)]
pub(super) struct ResponseReader {
    count: usize,
    /// The beginning, until the end of the head was seen.
    head: Vec<u8>,
    total: Option<usize>,
}

impl ResponseReader {
    /// Takes what has come. Whether the answer is complete.
    #[inline]
    pub(super) fn take(&mut self, bytes: &[u8], expected: &Expected) -> io::Result<bool> {
        let from = self.count;
        self.count += bytes.len();
        match expected {
            Expected::Exactly(all) if all.get(from..self.count) == Some(bytes) => {
                Ok(self.count == all.len())
            }
            Expected::Exactly(_) => Err(wrong("an answer has other bytes than the page")),
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
            Some(total) if self.count > total => Err(wrong("an answer is longer than it says")),
            total => Ok(total == Some(self.count)),
        }
    }
}

fn wrong(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// The length of an answer with its head, once that is there.
fn total(bytes: &[u8]) -> io::Result<Option<usize>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(bytes).map_err(|error| wrong(&format!("no HTTP: {error}")))?;
    let httparse::Status::Complete(head) = parsed else { return Ok(None) };
    if response.code != Some(200) {
        let code = response.code.unwrap_or(0);
        return Err(wrong(&format!("the server answered with status {code}")));
    }
    let length =
        response.headers.iter().find(|one| one.name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|one| std::str::from_utf8(one.value).ok()?.trim().parse().ok());
    let length: usize =
        length.ok_or_else(|| wrong("the server does not say how long its answer is"))?;
    Ok(Some(head + length))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Byte by byte: after how many it is complete.
    fn fed(bytes: &[u8], expected: &Expected) -> io::Result<Option<usize>> {
        let mut answer = ResponseReader::default();
        for (n, byte) in bytes.iter().enumerate() {
            if answer.take(&[*byte], expected)? {
                return Ok(Some(n + 1));
            }
        }
        Ok(None)
    }

    #[test]
    fn an_answer_ends_where_it_says() {
        let text = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc";
        assert_eq!(fed(text, &Expected::Good).unwrap(), Some(text.len()));
        assert_eq!(fed(&text[..text.len() - 1], &Expected::Good).unwrap(), None);
        let exactly = Expected::Exactly(text.to_vec());
        assert_eq!(fed(text, &exactly).unwrap(), Some(text.len()));
    }

    #[test]
    fn a_wrong_answer_is_an_error() {
        for text in [
            &b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"SSH-2.0\r\n\r\n",
        ] {
            assert!(fed(text, &Expected::Good).is_err());
        }
        assert!(fed(b"abd", &Expected::Exactly(b"abc".to_vec())).is_err());
        let mut answer = ResponseReader::default();
        assert!(
            answer.take(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\nx", &Expected::Good).is_err()
        );
    }
}
