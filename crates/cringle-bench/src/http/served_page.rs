//! What all servers share: the page, and finding the end of a request.

/// The size of a server's buffer for requests.
pub(super) const READ_BYTES: usize = 4096;

/// The response to every request.
pub(super) struct ServedPage {
    pub(super) response: Vec<u8>,
    /// Whether a connection ends after its first response.
    pub(super) close: bool,
}

impl ServedPage {
    pub(super) fn new(bytes: usize, close: bool) -> ServedPage {
        let connection = if close { "close" } else { "keep-alive" };
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {bytes}\r\nConnection: \
            {connection}\r\n\r\n"
        );
        let page = b"<p>a cringle is a ring made of rope</p>\n".iter().copied().cycle();
        ServedPage {
            response: head.into_bytes().into_iter().chain(page.take(bytes)).collect(),
            close,
        }
    }
}

/// Finds the ends of requests in a stream of bytes that may be split anywhere. The requests have no
/// body.
#[derive(Clone, Copy, Default)]
pub(super) struct RequestCounter {
    /// How many bytes of the final `\r\n\r\n` the stream ends with.
    matched: u8,
}

impl RequestCounter {
    /// Returns the number of requests that end in these bytes.
    #[inline]
    pub(super) fn count(&mut self, bytes: &[u8]) -> usize {
        let mut count = 0;
        for &byte in bytes {
            self.matched = match (self.matched, byte) {
                (0 | 2, b'\r') => self.matched + 1,
                (1, b'\n') => 2,
                (3, b'\n') => {
                    count += 1;
                    0
                }
                (_, b'\r') => 1,
                _ => 0,
            };
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_at_any_split() {
        let bytes = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n\r\r\n\r\nGET";
        for cut in 0..bytes.len() {
            let mut counter = RequestCounter::default();
            let (first, second) = bytes.split_at(cut);
            assert_eq!(counter.count(first) + counter.count(second), 2, "cut at {cut}");
        }
    }

    #[test]
    fn a_response_has_its_content_length() {
        let page = ServedPage::new(151, true);
        let text = String::from_utf8(page.response).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("Content-Length: 151") && head.contains("Connection: close"));
        assert_eq!(body.len(), 151);
    }
}
