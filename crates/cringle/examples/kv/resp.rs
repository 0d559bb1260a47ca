//! RESP, the protocol of Redis (version 2): parses commands, and encodes replies.

/// The longest argument that a command may have.
pub(crate) const MAX_ARGUMENT: usize = 1 << 20;
/// The most arguments that a command may have.
pub(crate) const MAX_ARGUMENTS: usize = 1024;

/// A command: its name and its arguments.
pub(crate) type Command = Vec<Vec<u8>>;

/// A server's reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// `+OK`
    Simple(&'static str),
    /// `-ERR …`
    Error(String),
    /// `:1`
    Integer(i64),
    /// `$3 abc`, or the null of a missing key.
    Bulk(Option<Vec<u8>>),
    /// `*2 $1 a $1 b`
    Array(Vec<Vec<u8>>),
}

impl Reply {
    pub(crate) fn ok() -> Reply {
        Reply::Simple("OK")
    }

    /// Appends the reply as it is sent.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Reply::Simple(text) => line(out, b'+', text),
            Reply::Error(text) => line(out, b'-', text),
            Reply::Integer(number) => line(out, b':', &number.to_string()),
            Reply::Bulk(None) => out.extend_from_slice(b"$-1\r\n"),
            Reply::Bulk(Some(bytes)) => bulk(out, bytes),
            Reply::Array(items) => encode_command(items, out),
        }
    }
}

/// Appends a command as a client sends it, and as the log stores it.
pub(crate) fn encode_command(command: &[Vec<u8>], out: &mut Vec<u8>) {
    line(out, b'*', &command.len().to_string());
    command.iter().for_each(|argument| bulk(out, argument));
}

fn line(out: &mut Vec<u8>, kind: u8, text: &str) {
    out.push(kind);
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    line(out, b'$', &bytes.len().to_string());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

// ANCHOR: parse
/// Parses the first command in `input`, and returns it with its length; `None` if its end has not
/// arrived.
///
/// # Errors
///
/// A description of the error. The connection must be closed then, because it is unknown where the
/// next command begins.
pub(crate) fn parse(input: &[u8]) -> Result<Option<(Command, usize)>, &'static str> {
    let mut rest = input;
    let Some(first) = next_line(&mut rest)? else { return Ok(None) };
    let command = match first.strip_prefix(b"*") {
        Some(count) => match parse_array(number(count, MAX_ARGUMENTS)?, &mut rest)? {
            Some(command) => command,
            None => return Ok(None),
        },
        // A line of words, as a person types it into telnet.
        None => first
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty())
            .map(Vec::from)
            .collect(),
    };
    Ok(Some((command, input.len() - rest.len())))
}
// ANCHOR_END: parse

fn parse_array(count: usize, rest: &mut &[u8]) -> Result<Option<Command>, &'static str> {
    let mut command = Vec::new();
    for _ in 0..count {
        let Some(header) = next_line(rest)? else { return Ok(None) };
        let length = header.strip_prefix(b"$").ok_or("Protocol error: expected '$'")?;
        let length = number(length, MAX_ARGUMENT)?;
        if rest.len() < length + 2 {
            return Ok(None);
        }
        let (argument, after) = rest.split_at(length);
        *rest = after.strip_prefix(b"\r\n").ok_or("Protocol error: expected CRLF")?;
        command.push(argument.to_vec());
    }
    Ok(Some(command))
}

/// The bytes before the next line feed; `None` if it has not arrived.
fn next_line<'a>(rest: &mut &'a [u8]) -> Result<Option<&'a [u8]>, &'static str> {
    let Some(end) = rest.iter().position(|&byte| byte == b'\n') else {
        return if rest.len() > MAX_ARGUMENT {
            Err("Protocol error: too big inline request")
        } else {
            Ok(None)
        };
    };
    let (line, after) = (&rest[..end], &rest[end + 1..]);
    *rest = after;
    Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)))
}

fn number(text: &[u8], limit: usize) -> Result<usize, &'static str> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<usize>().ok());
    number.filter(|&number| number <= limit).ok_or("Protocol error: invalid length")
}
