//! Parses HTTP/1.1 requests (RFC 9112).
//!
//! A request whose end is ambiguous is refused with status 400: a proxy in front of this server
//! might see other requests in the same bytes ("request smuggling"). Therefore this module checks
//! more than `httparse`: each line ends with CRLF, the body has one framing, its length is a plain
//! number, and HTTP/1.0 requests have no `Transfer-Encoding`.

const BAD_REQUEST: u16 = 400;

/// The head of a request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) body: Body,
    pub(crate) keep_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub(crate) expects_continue: bool,
}

/// How the body of a request is framed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Body {
    Length(u64),
    Chunked,
}

/// Parses the head of the first request in `bytes`. Returns the request and the length of its head,
/// or `None` if the head is incomplete. The error is the status of the response.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(Request, usize)>, u16> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut parsed = httparse::Request::new(&mut headers);
    let end = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(end)) => end,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(431),
        Err(_) => return Err(BAD_REQUEST),
    };
    let is_http_11 = parsed.version == Some(1);
    let values = |name: &'static str| {
        let named = parsed.headers.iter().filter(move |one| one.name.eq_ignore_ascii_case(name));
        named.map(|one| trim(one.value))
    };
    let body = body(values("transfer-encoding"), values("content-length"), is_http_11)
        .ok_or(BAD_REQUEST)?;
    if !has_only_crlf(&bytes[..end]) || !is_valid_host(values("host"), is_http_11) {
        return Err(BAD_REQUEST);
    }
    let has_item = |name: &'static str, item: &str| {
        let mut items = values(name).flat_map(|value| value.split(|&byte| byte == b','));
        items.any(|one| trim(one).eq_ignore_ascii_case(item.as_bytes()))
    };
    let request = Request {
        method: parsed.method.ok_or(BAD_REQUEST)?.into(),
        path: parsed.path.filter(|path| path.is_ascii()).and_then(path_of).ok_or(BAD_REQUEST)?,
        body,
        keep_alive: !has_item("connection", "close")
            && (is_http_11 || has_item("connection", "keep-alive")),
        expects_continue: is_http_11 && has_item("expect", "100-continue"),
    };
    Ok(Some((request, end)))
}

/// Returns a value without the spaces and tabs around it.
fn trim(value: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = value.iter().take_while(|byte| is_blank(byte)).count();
    let end = value.len() - value[start..].iter().rev().take_while(|byte| is_blank(byte)).count();
    &value[start..end]
}

/// Returns whether every CR and every LF is part of a CRLF.
fn has_only_crlf(bytes: &[u8]) -> bool {
    let pairs = bytes.windows(2).filter(|two| two == b"\r\n").count();
    pairs == bytes.iter().filter(|byte| **byte == b'\r').count()
        && pairs == bytes.iter().filter(|byte| **byte == b'\n').count()
}

/// Returns whether there is exactly one valid `Host`, or none in HTTP/1.0. If there were several,
/// two servers could use different ones.
fn is_valid_host<'v>(mut values: impl Iterator<Item = &'v [u8]>, is_http_11: bool) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:[]".contains(byte);
    match (values.next(), values.next()) {
        (None, _) => !is_http_11,
        (Some(host), None) => host.iter().all(allowed),
        (Some(_), Some(_)) => false,
    }
}

/// Returns the framing of a body, or `None` if it is ambiguous or invalid.
fn body<'v>(
    mut encodings: impl Iterator<Item = &'v [u8]>,
    mut lengths: impl Iterator<Item = &'v [u8]>,
    is_http_11: bool,
) -> Option<Body> {
    match (encodings.next(), lengths.next()) {
        (None, None) => Some(Body::Length(0)),
        (Some(encoding), None) => {
            let chunked = encoding.eq_ignore_ascii_case(b"chunked") && encodings.next().is_none();
            // HTTP/1.0 does not define this header, so a proxy of that version forwards it without
            // interpreting it.
            (chunked && is_http_11).then_some(Body::Chunked)
        }
        (None, Some(length)) => {
            let digits = length.iter().all(u8::is_ascii_digit) && lengths.next().is_none();
            let length = std::str::from_utf8(length).ok().filter(|_| digits)?;
            length.parse().ok().map(Body::Length)
        }
        (Some(_), Some(_)) => None,
    }
}

/// Returns the decoded path of a request target, without its query.
fn path_of(target: &str) -> Option<String> {
    let path = match target.split_once("://") {
        // Servers must also accept the absolute form.
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => {
            let authority = rest.find(['/', '?']).unwrap_or(rest.len());
            let path = Some(&rest[authority..]).filter(|_| authority > 0)?;
            if path.starts_with('/') { path } else { "/" }
        }
        _ => target,
    };
    // Clients never send a fragment.
    let path = Some(path).filter(|path| !path.contains('#'))?.split('?').next()?;
    let (mut bytes, mut rest) = (Vec::new(), path.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            let number = digits.bytes().all(|b| b.is_ascii_hexdigit()).then_some(digits)?;
            bytes.push(u8::from_str_radix(number, 16).ok()?);
            rest = &rest[2..];
        } else {
            bytes.push(byte);
        }
    }
    // No file name contains a zero byte.
    String::from_utf8(bytes).ok().filter(|path| path.starts_with('/') && !path.contains('\0'))
}

/// Parses the first line of a chunk. Returns the size of the chunk, and the length of its
/// extensions, which are ignored.
pub(crate) fn chunk_size(line: &[u8]) -> Option<(u64, usize)> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (size, extensions) = line.split_at(digits);
    let starts_validly = extensions.is_empty() || trim(extensions).first() == Some(&b';');
    let is_text = |byte: &u8| *byte == b'\t' || !byte.is_ascii_control();
    if digits == 0 || !starts_validly || !extensions.iter().all(is_text) {
        return None;
    }
    let size = u64::from_str_radix(std::str::from_utf8(size).ok()?, 16).ok()?;
    Some((size, extensions.len()))
}

/// Returns whether the bytes are valid trailer fields, followed by the empty line that ends them.
pub(crate) fn is_trailer(bytes: &[u8]) -> bool {
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let parsed = httparse::parse_headers(bytes, &mut fields);
    matches!(parsed, Ok(httparse::Status::Complete((end, _))) if end == bytes.len())
        && has_only_crlf(bytes)
}
