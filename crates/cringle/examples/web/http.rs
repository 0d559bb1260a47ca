//! Parses HTTP/1.1 requests (RFC 9112). A proxy in front of this server must not split a message in
//! another way ("request smuggling"), so an ambiguous message is refused with 400. In addition to
//! the checks of `httparse`, each line must end in CRLF, the body must have one framing, a length
//! must be digits only, and HTTP/1.0 must not use `Transfer-Encoding`.

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

/// The framing of a body, which determines its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Body {
    Length(u64),
    Chunked,
}

/// Parses the first request. Returns it with the length of its head, or `None` if the head is not
/// complete. The error is the status that refuses the request.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(Request, usize)>, u16> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut parsed = httparse::Request::new(&mut headers);
    let end = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(end)) => end,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(431),
        Err(_) => return Err(BAD_REQUEST),
    };
    let latest = parsed.version == Some(1);
    let values = |name: &'static str| {
        let named = parsed.headers.iter().filter(move |one| one.name.eq_ignore_ascii_case(name));
        named.map(|one| trim(one.value))
    };
    let body =
        body(values("transfer-encoding"), values("content-length"), latest).ok_or(BAD_REQUEST)?;
    if !has_only_crlf(&bytes[..end]) || !is_host(values("host"), latest) {
        return Err(BAD_REQUEST);
    }
    let says = |name: &'static str, word: &str| {
        let words = values(name).flat_map(|value| value.split(|&byte| byte == b','));
        words.into_iter().any(|one| trim(one).eq_ignore_ascii_case(word.as_bytes()))
    };
    let request = Request {
        method: parsed.method.ok_or(BAD_REQUEST)?.into(),
        path: parsed.path.filter(|path| path.is_ascii()).and_then(path_of).ok_or(BAD_REQUEST)?,
        body,
        keep_alive: !says("connection", "close") && (latest || says("connection", "keep-alive")),
        expects_continue: latest && says("expect", "100-continue"),
    };
    Ok(Some((request, end)))
}

/// Removes the spaces and tabs at both ends.
fn trim(value: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = value.iter().take_while(|byte| is_blank(byte)).count();
    let end = value.len() - value[start..].iter().rev().take_while(|byte| is_blank(byte)).count();
    &value[start..end]
}

/// Returns whether each CR is followed by LF, and each LF follows CR.
fn has_only_crlf(bytes: &[u8]) -> bool {
    let pairs = bytes.windows(2).filter(|two| two == b"\r\n").count();
    pairs == bytes.iter().filter(|byte| **byte == b'\r').count()
        && pairs == bytes.iter().filter(|byte| **byte == b'\n').count()
}

/// Returns whether there is one valid `Host`, which HTTP/1.0 may omit. Of several, a proxy might
/// use another one than this server.
fn is_host<'v>(mut values: impl Iterator<Item = &'v [u8]>, latest: bool) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:[]".contains(byte);
    match (values.next(), values.next()) {
        (None, _) => !latest,
        (Some(host), None) => host.iter().all(allowed),
        (Some(_), Some(_)) => false,
    }
}

/// Returns the framing of the body; `None` if it is ambiguous.
fn body<'v>(
    mut encodings: impl Iterator<Item = &'v [u8]>,
    mut lengths: impl Iterator<Item = &'v [u8]>,
    latest: bool,
) -> Option<Body> {
    match (encodings.next(), lengths.next()) {
        (None, None) => Some(Body::Length(0)),
        (Some(encoding), None) => {
            let chunked = encoding.eq_ignore_ascii_case(b"chunked") && encodings.next().is_none();
            // HTTP/1.0 has no such header: a proxy of that version forwards it unread.
            (chunked && latest).then_some(Body::Chunked)
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
        // The absolute form, which servers must accept too.
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => {
            let authority = rest.find(['/', '?']).unwrap_or(rest.len());
            let path = Some(&rest[authority..]).filter(|_| authority > 0)?;
            if path.starts_with('/') { path } else { "/" }
        }
        _ => target,
    };
    // A fragment is never sent.
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
    // No file's name has a zero byte.
    String::from_utf8(bytes).ok().filter(|path| path.starts_with('/') && !path.contains('\0'))
}

/// Parses the first line of a chunk. Returns the chunk's size, and the number of bytes of
/// extensions, which are ignored.
pub(crate) fn chunk_size(line: &[u8]) -> Option<(u64, usize)> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (size, extensions) = line.split_at(digits);
    let begin = trim(extensions).first();
    let valid = extensions.is_empty() || begin == Some(&b';');
    let is_text = |byte: &u8| *byte == b'\t' || !byte.is_ascii_control();
    if digits == 0 || !valid || !extensions.iter().all(is_text) {
        return None;
    }
    let size = u64::from_str_radix(std::str::from_utf8(size).ok()?, 16).ok()?;
    Some((size, extensions.len()))
}

/// Returns whether these bytes, with the empty line at their end, are valid fields of a trailer.
pub(crate) fn is_trailer(bytes: &[u8]) -> bool {
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let parsed = httparse::parse_headers(bytes, &mut fields);
    matches!(parsed, Ok(httparse::Status::Complete((end, _))) if end == bytes.len())
        && has_only_crlf(bytes)
}
