//! An independent parser of requests by RFC 9112: whether bytes are one request, with which body,
//! and where it ends. The tests use it to judge randomly mutated requests.

/// The required reaction of a server to some bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// One request of this length, after which another may follow.
    Valid { len: usize, persists: bool },
    /// The request is refused, and the connection is closed.
    Invalid,
    /// The request is incomplete.
    Incomplete,
}

use Verdict::{Incomplete, Invalid};

type Judged<T> = Result<T, Verdict>;

fn require(valid: bool) -> Judged<()> {
    if valid { Ok(()) } else { Err(Invalid) }
}

/// Judges the request at the start of the bytes.
pub(crate) fn judge(bytes: &[u8]) -> Verdict {
    judge_request(bytes).unwrap_or_else(|verdict| verdict)
}

fn judge_request(bytes: &[u8]) -> Judged<Verdict> {
    let mut rest = bytes;
    // 2.2: empty lines before a request are ignored.
    while let Some(after) = rest.strip_prefix(b"\r\n") {
        rest = after;
    }
    let version = request_line(take_line(&mut rest)?)?;
    let fields = fields(&mut rest)?;
    let values = |name: &str| -> Vec<&str> {
        let named = fields.iter().filter(|(field, _)| field.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    };
    // 3.2: exactly one valid Host, which only HTTP/1.0 may omit.
    let hosts = values("host");
    require(hosts.len() == 1 || (hosts.is_empty() && version == 0))?;
    let reserved = "-._~%!$&'()*+,;=:[]";
    let in_host = |c: char| c.is_ascii_alphanumeric() || reserved.contains(c);
    require(hosts.iter().all(|host| host.chars().all(in_host)))?;
    match (&values("transfer-encoding")[..], &values("content-length")[..]) {
        ([], []) => {}
        ([], [length]) => {
            require(!length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit()))?;
            let length = length.parse::<usize>().map_err(|_| Invalid)?;
            rest = rest.get(length..).ok_or(Incomplete)?;
        }
        // 6.1: not with HTTP/1.0, and this server supports no other coding.
        ([coding], []) => {
            require(version == 1 && coding.eq_ignore_ascii_case("chunked"))?;
            chunks(&mut rest)?;
        }
        _ => return Err(Invalid),
    }
    let connection = values("connection").join(",").to_ascii_lowercase();
    let says = |word| connection.split(',').any(|one| one.trim_matches([' ', '\t']) == word);
    let persists = !says("close") && (version == 1 || says("keep-alive"));
    Ok(Verdict::Valid { len: bytes.len() - rest.len(), persists })
}

/// The minor version.
fn request_line(line: &[u8]) -> Judged<u8> {
    let line = std::str::from_utf8(line).map_err(|_| Invalid)?;
    let parts: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = parts[..] else { return Err(Invalid) };
    require(is_token(method) && target.bytes().all(|byte| byte.is_ascii_graphic()))?;
    // The tests use no other form.
    require(target.starts_with('/'))?;
    match version {
        "HTTP/1.0" => Ok(0),
        "HTTP/1.1" => Ok(1),
        _ => Err(Invalid),
    }
}

/// Field lines up to the empty line. (5.1, 5.2: no space before the colon, no folded line.)
fn fields(rest: &mut &[u8]) -> Judged<Vec<(String, String)>> {
    let mut fields = Vec::new();
    loop {
        let line = take_line(rest)?;
        if line.is_empty() {
            return Ok(fields);
        }
        let colon = line.iter().position(|byte| *byte == b':').ok_or(Invalid)?;
        let text = |bytes: &[u8]| bytes.iter().map(|byte| *byte as char).collect::<String>();
        let (name, value) = (text(&line[..colon]), text(&line[colon + 1..]));
        let is_text = |c: char| c == '\t' || !c.is_ascii_control();
        require(is_token(&name) && value.chars().all(is_text))?;
        fields.push((name, value.trim_matches([' ', '\t']).to_owned()));
    }
}

/// 7.1: a body in chunks, and its trailer.
fn chunks(rest: &mut &[u8]) -> Judged<()> {
    loop {
        let line = take_line(rest)?;
        let (digits, extensions) = match line.iter().position(|byte| !byte.is_ascii_hexdigit()) {
            Some(end) => line.split_at(end),
            None => (line, &[][..]),
        };
        let first = extensions.iter().find(|byte| !matches!(byte, b' ' | b'\t'));
        require(!digits.is_empty() && (extensions.is_empty() || first == Some(&b';')))?;
        require(extensions.iter().all(|byte| *byte == b'\t' || !byte.is_ascii_control()))?;
        // The server refuses sizes beyond its limit.
        let significant = digits.iter().skip_while(|digit| **digit == b'0');
        let size = significant.fold(0_usize, |size, digit| {
            let digit = (*digit as char).to_digit(16).unwrap() as usize;
            size.saturating_mul(16).saturating_add(digit)
        });
        require(size <= 1 << 20)?;
        if size == 0 {
            return fields(rest).map(drop);
        }
        *rest = rest.get(size..).ok_or(Incomplete)?;
        require(rest.starts_with(&b"\r\n"[..rest.len().min(2)]))?;
        *rest = rest.get(2..).ok_or(Incomplete)?;
    }
}

/// Returns a line without its CRLF. A lone CR or LF does not end a line.
fn take_line<'b>(rest: &mut &'b [u8]) -> Judged<&'b [u8]> {
    let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')).ok_or(Incomplete)?;
    let line = &rest[..end];
    *rest = match &rest[end..] {
        [b'\r', b'\n', after @ ..] => after,
        [b'\r'] => return Err(Incomplete),
        _ => return Err(Invalid),
    };
    Ok(line)
}

fn is_token(text: &str) -> bool {
    let in_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(in_token)
}
