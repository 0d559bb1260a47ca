"""The server of the book's page on byte ranges."""

import asyncio
import pathlib
import re
import types

import numpy as np
import pytest

import cringle
from conftest import pattern

PAGE = pathlib.Path(__file__).parents[3] / "docs/book/src/python-ranges.md"
SIZE = 3_000_001
DATA = pattern(SIZE)


@pytest.fixture(scope="module")
def page():
    [program] = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    module = types.ModuleType("ranges")
    exec(compile(program, PAGE, "exec"), module.__dict__)
    return module


@pytest.fixture
def serve(page, directory):
    """Runs a coroutine with a function that sends bytes on a new connection and returns the
    answer, when the server has ended it."""
    (directory / "data").write_bytes(DATA)
    (directory / "empty").write_bytes(b"")

    def serve(client):
        async def main():
            server = page.RangeServer([directory / "data", directory / "empty"])
            listener = await asyncio.start_server(
                server.connected, "127.0.0.1", 0, limit=page.HEAD_LIMIT
            )

            async def send(request):
                address = listener.sockets[0].getsockname()
                reader, writer = await asyncio.open_connection(*address)
                writer.write(request)
                answer = await reader.read()
                writer.close()
                return answer

            async with listener:
                await client(server, send)
            server.io.close()

        asyncio.run(main())

    return serve


def get(*lines, path="/data", method="GET"):
    head = [f"{method} {path} HTTP/1.1", "Host: here", "Connection: close", *lines, "", ""]
    return "\r\n".join(head).encode()


def parts(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    return status.split(" ")[1], dict(line.split(": ") for line in lines), body


@pytest.mark.parametrize(
    "field, start, end",
    [
        ("bytes=0-0", 0, 1),
        ("bytes=5-9", 5, 10),
        ("BYTES=1000-2500000", 1000, 2_500_001),
        ("bytes=2999999-", 2_999_999, SIZE),
        (f"bytes=7-{2**64 - 1}", 7, SIZE),
        ("bytes=-1", SIZE - 1, SIZE),
        (f"bytes=-{10**98}", 0, SIZE),
        ("bytes=000000000000000000000000000003-004", 3, 5),
    ],
)
def test_server_sends_the_range(serve, field, start, end):
    async def client(server, send):
        status, headers, body = parts(await send(get(f"Range: {field}")))
        assert (status, body == DATA[start:end]) == ("206", True)
        assert headers["Content-Range"] == f"bytes {start}-{end - 1}/{SIZE}"
        assert headers["Content-Length"] == str(end - start)

    serve(client)


@pytest.mark.parametrize(
    "field",
    [
        f"bytes={SIZE}-",
        f"bytes={10**98}-{10**98}",
        "bytes=" + "9" * 5000 + "-",
        "bytes=0-" + "9" * 5000,
        "bytes=9-5",
        "bytes=-0",
        "bytes=-",
        "bytes=",
        "bytes=a-b",
        "bytes=-1-2",
        "bytes=0x1-2",
        "bytes=+1-2",
        "bytes=1_0-20",
        "bytes=\u00b2-3",
        "bytes=1",
        "bytes=1 -2",
    ],
)
def test_bad_range_is_answered_with_416(serve, field):
    async def client(server, send):
        status, headers, body = parts(await send(get(f"Range: {field}")))
        assert (status, headers["Content-Range"], body) == ("416", f"bytes */{SIZE}", b"")
        status, headers, _ = parts(await send(get(f"Range: {field}", path="/empty")))
        assert (status, headers["Content-Range"]) == ("416", "bytes */0")

    serve(client)


@pytest.mark.parametrize(
    "lines", [[], ["Range: lines=1-2"], ["Range: bytes=0-1,5-6"], ["Range: bytes=0-1", 'If-Range: "a"']]
)
def test_other_requests_get_the_whole_file(serve, lines):
    async def client(server, send):
        status, headers, body = parts(await send(get(*lines)))
        assert (status, body == DATA, "Content-Range" in headers) == ("200", True, False)
        status, headers, body = parts(await send(get(*lines, method="HEAD")))
        assert (status, headers["Content-Length"], body) == ("200", str(SIZE), b"")
        assert parts(await send(get(*lines, path="/%65mpty?x=/data")))[2] == b""
        status, headers, body = parts(await send(get("Range: bytes=0-1", method="HEAD")))
        assert (status, headers["Content-Length"], body) == ("200", str(SIZE), b"")

    serve(client)


@pytest.mark.parametrize(
    "request_, status",
    [
        (get(path="/other"), "404"),
        (get(path="/../data"), "404"),
        (get(path="/%00"), "404"),
        (get(method="POST"), "405"),
        (get("Content-Length: 5"), "400"),
        (get("Transfer-Encoding: chunked"), "400"),
        (get("Transfer-Encoding : chunked"), "400"),
        (get("X: a\nTransfer-Encoding: chunked"), "400"),
        (get(" folded: 1"), "400"),
        (get("no colon"), "400"),
        (b"GET /data\r\n\r\n", "400"),
        (b"GET /data HTTP/2.0\r\n\r\n", "400"),
        (b"\r\n\r\n", "400"),
        (b"\xff\xfe\x00\r\n\r\n", "400"),
        (get("X: " + "x" * 20_000), "431"),
        (b"GET /data HTTP/1.1\r\n", None),
        (b"", None),
    ],
)
def test_wrong_request_ends_the_connection(page, serve, request_, status):
    async def client(server, send):
        if status is None:
            # The rest never arrives.
            page.PATIENCE, patience = 0.01, page.PATIENCE
            assert await send(request_) == b""
            page.PATIENCE = patience
        else:
            answer = await send(request_)
            assert parts(answer)[0] == status and answer.endswith(b"\r\n\r\n"), answer
        assert parts(await send(get("Range: bytes=0-3")))[2] == DATA[:4]

    serve(client)


def test_connection_has_many_requests_and_clients(serve):
    async def client(server, send):
        one = b"GET /data HTTP/1.1\r\nRange: bytes=%d-%d\r\n\r\n"
        ranges = np.random.default_rng(3).integers(0, 100_000, (50, 2)).cumsum(1)
        requests = b"".join(one % (first, last) for first, last in ranges)
        answers = await asyncio.gather(*(send(requests + get("Range: bytes=0-0")) for _ in range(8)))
        assert len(set(answers)) == 1
        rest = answers[0]
        for first, last in [*ranges, (0, 0)]:
            status, headers, body = parts(rest)
            length = int(headers["Content-Length"])
            assert status == "206" and body[:length] == DATA[first : last + 1]
            rest = body[length:]
        assert rest == b""

    serve(client)


def test_truncated_file_ends_the_connection_early(serve, directory, capsys):
    class Truncating:
        def __init__(self, io):
            self.io, self.close, self.reads = io, io.close, 0

        async def aread_many(self, *arguments, **options):
            self.reads += 1
            if self.reads == 2:
                with open(directory / "data", "r+b") as file:
                    file.truncate(1 << 20)
            return await self.io.aread_many(*arguments, **options)

    async def client(server, send):
        server.io = Truncating(server.io)
        status, headers, body = parts(await send(get()))
        # An abort discards what the client has not received.
        assert (status, headers["Content-Length"]) == ("200", str(SIZE))
        assert len(body) <= 1 << 20 and DATA.startswith(body)

    serve(client)
    assert "short count: 0 bytes" in capsys.readouterr().err
