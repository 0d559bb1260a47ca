"""An HTTP/1.1 server on loopback that answers each GET after 0.1 s: serve.py PORT [CERTIFICATE KEY]"""

import asyncio
import ssl
import sys

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1000


async def serve(reader, writer):
    try:
        while await reader.readuntil(b"\r\n\r\n"):
            await asyncio.sleep(0.1)
            writer.write(ANSWER)
            await writer.drain()
    except (asyncio.IncompleteReadError, OSError):
        pass  # The client has closed the connection.
    finally:
        writer.close()


async def main(port, *files):
    context = None
    if files:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*files)
    server = await asyncio.start_server(serve, "127.0.0.1", int(port), ssl=context, backlog=1000)
    await server.serve_forever()


asyncio.run(main(*sys.argv[1:]))
