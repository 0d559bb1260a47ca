"""Ports of the loopback."""

import socket
from pathlib import Path


def free_port():
    """A port that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def listens(port):
    """Whether a socket listens at the port; nothing connects to it."""
    local = f"{int.from_bytes(socket.inet_aton('127.0.0.1'), 'little'):08X}:{int(port):04X}"
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(line[1] == local and line[3] == "0A" for line in lines)
